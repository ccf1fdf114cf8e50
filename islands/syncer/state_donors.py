"""Whose inner moments a restarted learner may ask for, and the way that peers' words take.

The syncer only names a donor, and passes on what peers say to one another: it neither reads nor
keeps it. Nobody is believed about who it is: the sender of what is passed on is the name that its
link was admitted under.

Source: SPEC §3.2 (a fresh or unhealed learner never donates) and §8.
"""

from islands.identities import LearnerName, Role
from islands.messages.training import Hello
from islands.syncer.census import best_donor
from islands.syncer.core import Core


def donor_for(core: Core, hello: Hello) -> LearnerName | None:
    """The healthiest other learner, for one that holds nothing while the run goes on.

    It is the one with most tokens in its incarnation: its moments have seen most; ties by name.
    """
    holds_nothing = all(told.version is None for told in hello.progress.fragments)
    if hello.role is not Role.LEARNER or not holds_nothing:
        return None
    if not core.seeded or core.closing is not None:
        return None
    core.take_in()
    if not core.census.donor_known:
        core.census.look_for_donor(core.learners)
    donor = core.census.donor
    if donor != hello.name:
        return donor
    others = {name: record for name, record in core.learners.items() if name != hello.name}
    return best_donor(others)


def route(core: Core, connection: int, sender: str, recipient: str) -> int | None:
    """The connection over which a word between peers goes on; None if there is none.

    Args:
        core: who is here.
        connection: over which it came.
        sender: name under which that connection said hello.
        recipient: whom the envelope names.
    """
    source = core.learners.get(LearnerName(sender))
    target = core.learners.get(LearnerName(recipient))
    if source is None or source.connection != connection or target is None or target is source:
        return None
    if Role.LEARNER is not source.role or Role.LEARNER is not target.role:
        return None
    return target.connection
