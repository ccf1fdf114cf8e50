"""The schedule of one learner: when a snapshot is due, when it may step, and when it adopts.

A run has one of four, which `schedule_of` makes from its settings:

- `Schedule` itself, the default: the learner waits for nobody, and adopts on arrival.
- `Synchronous` (`synchronous.py`): it waits for the fleet's rounds.
- `OwnTurns` (`own_turns.py`): it opens rounds itself.
- `Gossip` (`islands/protocol/gossip/gossip.py`): it exchanges values with other learners.

The rules call the hooks below. A schedule changes its own memory and appends to `memory.actions`;
the rest of the learner's memory it only reads.
"""

from typing import TYPE_CHECKING

from islands.protocol.gossip.events import GossipEvent
from islands.protocol.identities import FragmentIndex
from islands.protocol.learner.actions import EngineAction, PlanSnapshots
from islands.protocol.membership import HeartbeatContent
from islands.protocol.messages.membership import MembershipChanged
from islands.protocol.messages.training import ContributionFate, FragmentUpdate, PullFragment

if TYPE_CHECKING:  # the memory holds its schedule
    from islands.protocol.learner.memory import LearnerMemory


class Schedule:
    """The default, of a learner that waits for nobody; other schedules override what differs.

    Attributes:
        announces: whether the supervisor is to hear of the first step at once.
    """

    announces = False

    # --- when may the learner step? -------------------------------------------------------------

    def whole(self) -> bool:
        """Whether the schedule has all that it needs before the first step."""
        return True

    def begin(self, memory: "LearnerMemory") -> None:
        """Count from here, if that has not begun: this incarnation may step."""

    def end(self, *, sound: bool) -> None:
        """Forget what belongs to the incarnation that ends; are the local values `sound`?"""

    def until_steps(self, memory: "LearnerMemory") -> int | None:
        """Return the total of steps at which compute waits for a merge; None if it never waits."""
        return None

    def pass_over(self, memory: "LearnerMemory") -> bool:
        """Give up a merge that will not come; returns whether compute may step further."""
        return False

    # --- when is a snapshot due? ----------------------------------------------------------------

    def plan(self, memory: "LearnerMemory") -> PlanSnapshots:
        """Return the snapshots to take from now on: those pulled next, at every boundary."""
        return PlanSnapshots(memory.pulls.plan())

    def least_steps(self, memory: "LearnerMemory", pull: PullFragment) -> int:
        """Return the least total of steps that the answer to a pull must hold.

        It is one step since the base; while compute stands still, all that was done.
        """
        compute = memory.compute
        return compute.steps if compute.idle else memory.first_contribution(pull.fragment)

    def may_answer(self, memory: "LearnerMemory") -> bool:
        """Whether pulls may be answered and snapshots planned at present."""
        return True

    def why_declined(self, memory: "LearnerMemory", pull: PullFragment) -> str | None:
        return None

    def asking(self, memory: "LearnerMemory") -> tuple[FragmentIndex, ...]:
        """Return the fragments for which the next report asks for a round."""
        return ()

    # --- when is a value adopted? ---------------------------------------------------------------

    def adopt_at(self, memory: "LearnerMemory", update: FragmentUpdate) -> int:
        """Return the total of steps at which a value is to be adopted; 0 is on arrival."""
        return 0

    def instead_of_adopting(
        self, memory: "LearnerMemory", update: FragmentUpdate
    ) -> EngineAction | None:
        """Return what compute does instead of adopting a value; None if it adopts it."""
        return None

    # --- what has happened ----------------------------------------------------------------------

    def stepped(self, memory: "LearnerMemory") -> bool:
        """Note a completed step; returns whether the syncer is to hear of it at once."""
        return False

    def answered(self, round_: int, steps: int) -> None:
        """Note a contribution that holds compute's total of so many steps."""

    def adopted(self, memory: "LearnerMemory", update: FragmentUpdate) -> bool:
        """Note that a value became the base; returns whether compute may step further."""
        return False

    def rejected(self, memory: "LearnerMemory", fate: ContributionFate) -> bool:
        """Note a contribution that was not applied; returns whether compute may step further."""
        return False

    def on_gossip(self, memory: "LearnerMemory", event: GossipEvent) -> None:
        """Handle an event of gossip."""

    def on_view(self, memory: "LearnerMemory", page: MembershipChanged) -> None:
        """Handle a page of the supervisor's membership view."""

    def advance(self, memory: "LearnerMemory") -> None:
        """Do what is due after an event, whichever it was."""

    def heartbeat(self, content: HeartbeatContent) -> HeartbeatContent:
        """Return what a heartbeat says, with what the supervisor is to know of this schedule."""
        return content
