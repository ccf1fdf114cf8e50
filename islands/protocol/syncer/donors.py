"""State donors: whose inner moments a restarted learner may ask for; routing between peers.

The syncer only names a donor, and forwards messages between a learner and its donor, which it does
not keep. No peer is believed about its own name: the sender of a forwarded message is the name that
its link was admitted under. Nobody asks another one than its donor, and nobody is sent moments by
another one. Where none was named, as after a restart of the syncer, the donor of an incarnation
that has not stepped is the one that it asks first.

Whole states are large, so a name gets a donor, told or chosen, `DONATIONS_MAX` times within
`WRONG_WINDOW_S`, however often it comes back.

Source: protocol §3.2 (a fresh or unhealed learner never donates) and §8.
"""

from islands.protocol.identities import LearnerName, Role
from islands.protocol.messages.peers import StateOffer, StateRequest
from islands.protocol.messages.training import Hello
from islands.protocol.syncer.core import Core
from islands.protocol.syncer.members import LearnerRecord, best_donor


def name_donor(
    core: Core, learner: LearnerRecord, hello: Hello, now_s: float
) -> LearnerName | None:
    """Return the donor that a learner is told of, and let it ask that one."""
    donor = donor_for(core, hello)
    if donor is None or not core.members.may_have_donor(hello.name, now_s):
        return None
    learner.donor = donor
    return donor


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
    core.update_indexes()
    if not core.members.index.donor_known:
        core.members.index.look_for_donor(core.members.learners)
    donor = core.members.index.donor
    if donor != hello.name:
        return donor
    others = {name: record for name, record in core.members.learners.items() if name != hello.name}
    return best_donor(others)


def route(
    core: Core,
    connection: int,
    sender: str,
    recipient: str,
    body: StateRequest | StateOffer,
    now_s: float,
) -> int | None:
    """Return the connection over which to forward a message between peers, or None.

    `sender` is the name under which the connection that it came over said hello.
    """
    source = core.members.learners.get(LearnerName(sender))
    target = core.members.learners.get(LearnerName(recipient))
    if source is None or source.connection != connection or target is None or target is source:
        return None
    if Role.LEARNER is not source.role or Role.LEARNER is not target.role:
        return None
    if isinstance(body, StateOffer):
        return target.connection if target.donor == source.name else None
    own = body.incarnation == source.incarnation
    unnamed = own and source.donor is None and source.progress.steps == 0
    if unnamed and core.members.may_have_donor(source.name, now_s):
        source.donor = target.name
    return target.connection if own and source.donor == target.name else None
