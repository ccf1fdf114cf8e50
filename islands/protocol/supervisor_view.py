"""A copy of the supervisor's membership view, which syncers and learners that gossip keep.

The view comes in pages, each of what changed after a change number
(`islands/protocol/supervisor/view.py`). A page is taken in if no change between the copy and the
page is missing; the holder's heartbeats acknowledge the number up to which it holds the view, and
what is missing is sent again.
"""

from dataclasses import dataclass, field
from math import inf

from islands.protocol.identities import LearnerName
from islands.protocol.messages.membership import Member, MembershipChanged


@dataclass(slots=True)
class SupervisorView:
    """The view up to change `number`, of the supervisor with this epoch.

    `listed` are the members that have not ended. `looked_s` is when it was last compared with the
    open accounts of a syncer.
    """

    epoch: int = 0
    number: int = 0
    complete: bool = False
    listed: dict[LearnerName, Member] = field(default_factory=dict)
    looked_s: float = -inf

    def take(self, page: MembershipChanged) -> bool:
        """Take in a page; False if it is an older one, or one before it is missing."""
        if page.supervisor_epoch < self.epoch:
            return False
        if page.supervisor_epoch > self.epoch or page.after == 0:
            self.epoch, self.number, self.complete = page.supervisor_epoch, 0, False
            self.listed = {}
        if page.after > self.number or page.number < self.number:
            return False
        self.number = page.number
        self.complete = page.number >= page.latest
        for member in page.members:
            if member.status.ended:
                self.listed.pop(member.name, None)
            else:
                self.listed[member.name] = member
        return True
