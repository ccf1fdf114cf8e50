"""State donors: whose inner moments a restarted learner may ask for; routing between peers.

The syncer only names a donor, and forwards messages between peers, which it neither reads nor
keeps. No peer is believed about its own name: the sender of a forwarded message is the name that
its link was admitted under.

Source: SPEC §3.2 (a fresh or unhealed learner never donates) and §8.
"""

from islands.identities import LearnerName, Role
from islands.messages.training import Hello
from islands.syncer.core import Core
from islands.syncer.learner_index import best_donor


def donor_for(core: Core, hello: Hello) -> LearnerName | None:
    """Return the healthiest other learner for one that holds nothing while the run goes on.

    That is the one with most tokens in its incarnation, whose moments have seen most; ties are
    broken by name.
    """
    holds_nothing = all(told.version is None for told in hello.progress.fragments)
    if hello.role is not Role.LEARNER or not holds_nothing:
        return None
    if not core.seeded or core.closing is not None:
        return None
    core.take_in()
    if not core.learner_index.donor_known:
        core.learner_index.look_for_donor(core.learners)
    donor = core.learner_index.donor
    if donor != hello.name:
        return donor
    others = {name: record for name, record in core.learners.items() if name != hello.name}
    return best_donor(others)


def route(core: Core, connection: int, sender: str, recipient: str) -> int | None:
    """Return the connection over which to forward a message between peers, or None.

    Args:
        core: the syncer's memory.
        connection: the connection over which it came.
        sender: name under which that connection said hello.
        recipient: the name that the envelope is addressed to.
    """
    source = core.learners.get(LearnerName(sender))
    target = core.learners.get(LearnerName(recipient))
    if source is None or source.connection != connection or target is None or target is source:
        return None
    if Role.LEARNER is not source.role or Role.LEARNER is not target.role:
        return None
    return target.connection
