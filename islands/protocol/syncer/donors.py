"""State donors: whose inner moments a restarted learner may ask for; routing between peers.

The syncer names a donor, and forwards messages between a learner and its donor. A sender's name is
the one that its link was admitted under. Where no donor was named, as after a restart of the
syncer, the donor of an incarnation that has not stepped is the one that it asks first. Whole states
are large, so a name gets a donor `DONATIONS_MAX` times within `WRONG_WINDOW_S`.

Source: protocol §3.2 (a fresh or unhealed learner never donates) and §8.
"""

from islands.protocol.identities import LearnerName, Role
from islands.protocol.messages.peers import StateOffer, StateRequest
from islands.protocol.messages.training import Hello
from islands.protocol.syncer.members import LearnerRecord, may_donate
from islands.protocol.syncer.memory import SyncerMemory


def name_donor(
    core: SyncerMemory, learner: LearnerRecord, hello: Hello, now_s: float
) -> LearnerName | None:
    """Return another learner for one that holds nothing while the run goes on; it may ask that one.

    That is the one with most tokens in its incarnation, whose moments have seen most; ties are
    broken by name. Tokens are bounded by what was granted. Steps are only a learner's claim: ranked
    by them, a liar would become everybody's donor.
    """
    holds_nothing = all(report.version is None for report in hello.progress.fragments)
    if hello.role is not Role.LEARNER or not holds_nothing:
        return None
    if not core.seeded or core.closing is not None:
        return None
    able = (one for one in core.members.learners.values() if may_donate(one))
    ranks = ((-one.progress.tokens, one.name) for one in able if one.name != hello.name)
    donor = min(ranks, default=(0, None))[1]
    if donor is None or not core.members.may_have_donor(hello.name, now_s):
        return None
    learner.donor = donor
    return donor


def route(
    core: SyncerMemory,
    connection: int,
    sender: str,
    recipient: str,
    body: StateRequest | StateOffer,
    now_s: float,
) -> int | None:
    """Return the connection over which to forward a message between peers, or None."""
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
