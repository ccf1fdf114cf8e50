"""Version 0: it is fetched from a learner, taken back from a member, or read from a file."""

from collections.abc import Iterable

from islands.protocol.identities import (
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Role,
    Version,
)
from islands.protocol.messages.training import FragmentRequest
from islands.protocol.syncer.actions import InstallSeed
from islands.protocol.syncer.events import InitialRead, SeedArrived
from islands.protocol.syncer.members import LearnerRecord
from islands.protocol.syncer.memory import EVENTS, SyncerMemory
from islands.protocol.syncer.recipients import send_to_all
from islands.protocol.syncer.timeouts import doubled_s
from islands.protocol.syncer.versions import Published, Seeding, newest_of
from islands.protocol.tape import round_entries
from islands.protocol.tape.process_entries import KeptOut

SEED_ROUND = -1

SEED_REPEATS = 5
"""Repeated requests without a new fragment, each after twice the wait, before another learner is
asked."""


def request_seed(core: SyncerMemory, now_s: float) -> None:
    """Ask for version 0 if the run has none: a member that outlived its journal, or any learner.

    Instead of the latter, a version 0 that was read from a file is installed. A learner whose
    offer was refused is asked again only after the others.
    """
    versions = core.versions
    unread = versions.initial and versions.read is None
    if core.seeded or versions.seeding is not None or unread:
        return
    returns_until_s = versions.returns_until_s
    if returns_until_s is not None and now_s < returns_until_s:
        return
    able = []
    if core.any_learner("seed", _may_seed):
        known = (core.members.learners[name] for name in core.names())
        able = [learner for learner in known if _may_seed(learner)]
    least = min((one.seeds_refused for one in able), default=0)
    able = [one for one in able if one.seeds_refused == least]
    kept = {one.name: one.kept for one in able if one.kept and returns_until_s is not None}
    if versions.read is not None and not kept:
        _install_read(core, versions.read, now_s)
        return
    if not able:
        return
    chosen = core.members.learners[newest_of(kept)] if kept else able[0]
    promised = kept.get(chosen.name, ())
    versions.begin_seeding(Seeding(chosen.name, chosen.incarnation, now_s, promised=promised))
    if promised:
        held = sorted({str(one.version) for one in promised})
        core.record(round_entries.TakenBack(chosen.name, held, len(kept)))
    _ask_for_missing(core, now_s)


def _may_seed(learner: LearnerRecord) -> bool:
    return learner.role is Role.LEARNER and learner.phase is Phase.HEALING and learner.reachable


def repeat_request(core: SyncerMemory, now_s: float, interval_s: float) -> None:
    seeding = core.versions.seeding
    if seeding is None:
        return
    if len(seeding.digests) > seeding.had:
        seeding.had, seeding.times, seeding.asked_s = len(seeding.digests), 0, now_s
    if now_s - seeding.asked_s >= doubled_s(interval_s, seeding.times) or seeding.refused:
        _give_up_late(core, seeding)
        seeding.times += 1
        _ask_for_missing(core, now_s)


def _ask_for_missing(core: SyncerMemory, now_s: float) -> None:
    """Ask the seeding learner (again) for what has not arrived; end a fetch that was given up."""
    seeding = core.versions.seeding
    if seeding is None or seeding.journalled is not None:
        return
    if seeding.refused:
        core.members.learners[seeding.name].seeds_refused += 1
        core.versions.end_seeding()
        return
    seeding.asked_s = now_s
    missing = [index for index in range(seeding.asked) if index not in seeding.digests]
    _ask_for(core, seeding, [*missing, *seeding.ask_further(core.fragments)])


def _ask_for(core: SyncerMemory, seeding: Seeding, fragments: Iterable[int]) -> None:
    connection = core.members.learners[seeding.name].connection
    for index in fragments:
        assert connection is not None, "the seeding learner is reachable"
        request = FragmentRequest(core.durable.epoch, FragmentIndex(index), core.versions.seedings)
        core.send(connection, request)


def _give_up_late(core: SyncerMemory, seeding: Seeding) -> None:
    """Give up a learner that was asked often and sent nothing new, if another one is able.

    A large seed takes long over a slow link, and the next learner's link may be as slow. So a
    learner that was given up is asked once more often in its next turn, for about twice as long.
    """
    if seeding.journalled is not None or seeding.refused:
        return
    late = core.members.learners[seeding.name]
    others = (one for one in core.members.learners.values() if one is not late)
    if not any(map(_may_seed, others)) or seeding.times < SEED_REPEATS + late.seeds_refused:
        return
    seeding.refused = True
    core.record(
        round_entries.SeedLate(
            name=seeding.name,
            asked=1 + seeding.times,
            arrived=len(seeding.digests),
            fragments=core.fragments,
        )
    )


@EVENTS.handles(InitialRead)
def on_initial_read(core: SyncerMemory, event: InitialRead, _now_s: float) -> None:
    core.versions.keep_initial(event.digests)


@EVENTS.handles(SeedArrived)
def on_seed(core: SyncerMemory, event: SeedArrived, _now_s: float) -> None:
    """Admit a fragment of the initial value; once all have arrived, they are version 0."""
    seed, seeding = event.seed, core.versions.seeding
    if seeding is None or seeding.journalled is not None:
        return
    sender = (seed.epoch, seed.name, seed.incarnation)
    if sender != (core.durable.epoch, seeding.name, seeding.incarnation):
        return
    if not 0 <= seed.fragment < core.fragments:
        return
    digest = seeding.promised[seed.fragment].digest if seeding.promised else seed.digest
    if not event.intact or seed.digest != digest:
        why = "it is not what was promised" if event.intact else "it is damaged or not finite"
        seeding.refused = True
        core.members.learners[seeding.name].kept = ()  # its promise of them does not count any more
        what = f"fragment {seed.fragment} of version 0"
        core.record(KeptOut(seed.name, what, why))
        return
    seeding.digests[seed.fragment] = seed.digest
    if len(seeding.digests) < core.fragments:
        _ask_for(core, seeding, seeding.ask_further(core.fragments))
        return
    _install(core, seeding)


def _install_read(core: SyncerMemory, digests: tuple[str, ...], now_s: float) -> None:
    by_fragment = dict(enumerate(digests))
    seeding = Seeding(LearnerName(""), Incarnation(0, 0), now_s, by_fragment)
    core.versions.begin_seeding(seeding, asks=False)
    _install(core, seeding)


def _install(core: SyncerMemory, seeding: Seeding) -> None:
    version = Version(core.durable.epoch, 0)
    digests = tuple(seeding.digests[index] for index in range(core.fragments))
    core.actions.append(InstallSeed(version, digests))
    core.record(round_entries.Seeded(seeding.name, str(version)))
    seeding.journalled = 0
    _journal_next(core, seeding)


def _journal_next(core: SyncerMemory, seeding: Seeding) -> None:
    index = seeding.journalled
    assert index is not None, "the seed is complete"
    version = Version(core.durable.epoch, 0)
    core.durable.make(index, Published(version, seeding.digests[index], SEED_ROUND))
    core.write_fragment(index)


def journal_seed(core: SyncerMemory, seeding: Seeding, now_s: float) -> None:
    """Journal the next fragment of version 0; when all are durable, commit them together."""
    assert seeding.journalled is not None, "the seed is complete"
    seeding.journalled += 1
    if seeding.journalled < core.fragments:
        _journal_next(core, seeding)
        return
    core.versions.end_seeding()
    for index, newest in enumerate(core.durable.published):
        assert newest is not None, "every fragment is journalled"
        core.versions.commit(index, newest)
    send_to_all(core, list(range(core.fragments)), now_s)
