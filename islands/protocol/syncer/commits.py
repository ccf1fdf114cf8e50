"""Commits of new versions: journal first, then send. Version 0 comes from a learner or a file."""

from collections.abc import Iterable

from islands.protocol.identities import (
    Fate,
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Role,
    Version,
)
from islands.protocol.messages.training import FragmentRequest, FragmentSeed, LeaseGranted, Merged
from islands.protocol.syncer.actions import DropContribution, InstallSeed, Send
from islands.protocol.syncer.core import Adoption, Core, Published
from islands.protocol.syncer.events import MergeFacts
from islands.protocol.syncer.recipients import is_owed, is_under_way
from islands.protocol.syncer.roster import LearnerRecord
from islands.protocol.syncer.rounds import Round, Stage
from islands.protocol.syncer.seeding import Seeding
from islands.protocol.syncer.stability import shorter_step
from islands.protocol.syncer.taking_back import newest_of
from islands.protocol.tape import round_entries

SEED_ROUND = -1
SEED_REPEATS = 5
"""Repeated requests without a new fragment, each after twice the wait, before another learner is
asked."""

BELATED_INTERVALS = 2
"""What a closing round merges beyond so many intervals was in no value that anybody trained on."""


def take_merge(core: Core, fragment: int, number: int, facts: MergeFacts, now_s: float) -> None:
    """Account for a merge that was computed; the value and the accounts become durable together."""
    round_ = core.rounds[fragment]
    assert round_.number == number, "a fragment has one round at a time"
    durable = core.durable
    version = Version(durable.epoch, round_.version.number + 1)
    for name in sorted(round_.arrived):
        _apply(core, round_, name, version)
    _keep_cursors(core, round_)
    settled = durable.ledger.totals[fragment].settled
    durable.published[fragment] = Published(version, facts.digest, number, settled)
    made = facts.increment
    if core.increments:
        core.increments[fragment].made(round_.version, version, made)
    durable.merges += 1
    durable.present_sum += len(durable.ledger.books)
    round_.stage = Stage.JOURNALLING
    core.record(
        round_entries.Merged(
            round=number,
            fragment=fragment,
            version=str(version),
            contributions=len(round_.arrived),
            participants=sorted(round_.arrived),
            tokens=[round_.arrived[name].contribution.tokens for name in sorted(round_.arrived)],
            steps=[round_.arrived[name].contribution.steps for name in sorted(round_.arrived)],
            weights=list(facts.weights),
            norms=list(facts.norms),
            direction_norm=facts.direction_norm,
            cosine=facts.cosine_to_previous,
            digest=facts.digest,
            merged_tokens=sum(one.contribution.tokens for one in round_.arrived.values()),
            clock=core.clock,
            asked=len(round_.asked),
            learners=core.learner_count,
            opened_s=round_.opened_s,
            closed_s=round_.closed_s,
            increment_bytes=None if made is None else made.size_bytes,
            remainder_norm=None if made is None else made.remainder_norm,
            run_merges=durable.merges,
            run_applied=durable.ledger.applied,
            run_processed=durable.ledger.processed,
        )
    )
    _look_for_swings(core, fragment, facts, now_s)
    core.write_fragment(fragment)


def _keep_cursors(core: Core, round_: Round) -> None:
    """Keep the cursors of what is merged; tell once if there is no room for one."""
    positions = core.durable.positions
    refused = positions.merged(round_.contributions, core.durable.ledger.books)
    if refused and not core.cursors_full:
        core.cursors_full = True
        kept, size_bytes = len(positions.held), positions.size_bytes
        core.record(round_entries.CursorNotKept(refused[0], kept, size_bytes))


def _look_for_swings(core: Core, fragment: int, facts: MergeFacts, now_s: float) -> None:
    """Warn that the outer step is too long if merged directions undo one another.

    Where several learners train and a merge holds one contribution, nothing is concluded: its
    direction leads from where the last learner was to where this one is, which undoes the last
    merge, however long the step.
    """
    if len(facts.weights) == 1 < core.learner_count:
        return
    found = core.swings.merged(fragment, facts.cosine_to_previous, now_s)
    if found is None:
        return
    settings, contributions = core.settings, len(facts.weights)
    told = "merged directions agree again"
    if found.fragments:
        told = "merged directions undo those before them; " + shorter_step(
            settings.outer, settings.merge, contributions
        )
    core.record(
        round_entries.Swinging(
            told=told,
            fragments=found.fragments,
            of=core.fragments,
            cosine=found.cosine,
            contributions=contributions,
        )
    )


def _apply(core: Core, round_: Round, name: LearnerName, version: Version) -> None:
    contribution = round_.arrived[name].contribution
    ticket = contribution.ticket
    merged = Merged(ticket.epoch, ticket.round, contribution.steps, contribution.tokens)
    core.durable.ledger.apply(name, ticket.incarnation, round_.fragment, merged, version)
    core.durable.staleness_sum += round_.version.number - contribution.base.number
    core.durable.participants_sum += 1
    if core.closing is not None:
        most = BELATED_INTERVALS * core.settings.interval_steps
        over = max(0, contribution.steps - most)
        core.durable.belated_tokens += contribution.tokens * over // contribution.steps
    core.actions.append(DropContribution(ticket))
    core.record(
        round_entries.FateTold(
            ticket=str(ticket),
            fragment=round_.fragment,
            fate=Fate.APPLIED,
            tokens=contribution.tokens,
            version=str(version),
        )
    )


def take_journalled(core: Core, sequence: int, now_s: float) -> None:
    """Commit what the records up to `sequence` hold, now that they are durable, and send it."""
    while core.journalling and core.journalling[0][0] <= sequence:
        _, fragment = core.journalling.popleft()
        if fragment is not None and core.seeded:
            _commit(core, fragment, now_s)
    if core.seeding is not None and core.seeding.journalled is not None and not core.journalling:
        _journal_seed(core, core.seeding, now_s)
    _send_grants(core, sequence)


def _send_grants(core: Core, sequence: int) -> None:
    """Send the newest grants that records up to `sequence` hold; later ones are not durable yet."""
    durable: dict[LearnerName, LeaseGranted] = {}
    while core.written_grants and core.written_grants[0][0] <= sequence:
        durable.update(core.written_grants.popleft()[1])
    for name in sorted(durable):
        held_by, learner = core.grants.get(name), core.learners.get(name)
        if held_by is not None and held_by <= sequence:
            del core.grants[name]
        same = learner is not None and learner.incarnation == durable[name].incarnation
        if same and learner is not None and learner.connection is not None:
            core.actions.append(Send(learner.connection, durable[name]))


def _commit(core: Core, fragment: int, now_s: float) -> None:
    newest = core.durable.published[fragment]
    assert newest is not None, "what is journalled has a version"
    core.publish(fragment, newest)
    round_ = core.rounds.pop(fragment)
    core.positions.merged(round_.contributions, core.durable.ledger.books)
    core.went_forward()
    assert round_.closed_s is not None, "a round is closed before it is merged"
    quorum = round_.quorum or len(round_.arrived)
    core.adoptions[fragment] = Adoption(newest.version, round_.closed_s, quorum)
    core.record(round_entries.Committed(fragment, str(newest.version), newest.digest))
    _send_to_all(core, [fragment], now_s)


def _send_to_all(core: Core, fragments: list[int], now_s: float) -> None:
    for name in core.names():
        learner = core.learners[name]
        for fragment in fragments if learner.adopting else ():
            if is_owed(core, learner, fragment) and not is_under_way(core, learner, fragment):
                core.send_update(learner, fragment, now_s)


def request_seed(core: Core, now_s: float) -> None:
    """Ask for version 0 if the run has none: a member that outlived its journal, or any learner.

    In place of the latter, a version 0 that was read from a file is installed. A learner whose
    offer was refused is asked again only after the others.
    """
    if core.seeded or core.seeding is not None or (core.initial and core.read is None):
        return
    if core.returns_until_s is not None and now_s < core.returns_until_s:
        return
    able = []
    if core.any_learner("seed", _may_seed):
        able = [core.learners[name] for name in core.names() if _may_seed(core.learners[name])]
    least = min((one.seeds_refused for one in able), default=0)
    able = [one for one in able if one.seeds_refused == least]
    kept = {one.name: one.kept for one in able if one.kept and core.returns_until_s is not None}
    if core.read is not None and not kept:
        _install_read(core, core.read, now_s)
        return
    if not able:
        return
    chosen = core.learners[newest_of(kept)] if kept else able[0]
    core.seedings += 1
    told = kept.get(chosen.name, ())
    core.seeding = Seeding(chosen.name, chosen.incarnation, now_s, told=told)
    if told:
        versions = sorted({str(one.version) for one in told})
        core.record(round_entries.TakenBack(chosen.name, versions, len(kept)))
    ask_for_seed(core, now_s)


def _may_seed(learner: LearnerRecord) -> bool:
    """Return whether a learner has an initial value to offer and can be reached."""
    return learner.role is Role.LEARNER and learner.phase is Phase.HEALING and learner.reachable


def ask_for_seed(core: Core, now_s: float) -> None:
    """Ask the seeding learner (again) for what has not arrived, or ask another one."""
    seeding = core.seeding
    if seeding is None or seeding.journalled is not None:
        return
    if seeding.refused:
        core.learners[seeding.name].seeds_refused += 1
        core.seeding = None
        return
    seeding.asked_s = now_s
    missing = [index for index in range(seeding.asked) if index not in seeding.digests]
    _ask_for(core, seeding, [*missing, *seeding.ask_further(core.fragments)])


def _ask_for(core: Core, seeding: Seeding, fragments: Iterable[int]) -> None:
    connection = core.learners[seeding.name].connection
    for index in fragments:
        assert connection is not None, "the seeding learner is reachable"
        request = FragmentRequest(core.durable.epoch, FragmentIndex(index), core.seedings)
        core.actions.append(Send(connection, request))


def give_up_late_seed(core: Core, seeding: Seeding) -> None:
    """Give up a learner that was asked often and sent nothing new, if another one is able.

    A large seed takes long over a slow link, and the next learner's link may be as slow. So a
    learner that was given up is asked once more often in its next turn, for about twice as long.
    """
    if seeding.journalled is not None or seeding.refused:
        return
    late = core.learners[seeding.name]
    others = any(_may_seed(one) for name, one in core.learners.items() if name != seeding.name)
    if not others or seeding.times < SEED_REPEATS + late.seeds_refused:
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


def take_seed(core: Core, seed: FragmentSeed, *, intact: bool) -> None:
    """Take in a fragment of the initial value; once all are here, they become version 0 at once."""
    seeding = core.seeding
    if seeding is None or seeding.journalled is not None:
        return
    sender = (seed.epoch, seed.name, seed.incarnation)
    if sender != (core.durable.epoch, seeding.name, seeding.incarnation):
        return
    if not 0 <= seed.fragment < core.fragments:
        return
    told = seeding.told[seed.fragment].digest if seeding.told else seed.digest
    if not intact or seed.digest != told:
        seeding.refused = True
        core.learners[seeding.name].kept = ()  # what it told of them does not count any more
        core.record(round_entries.SeedRefused(seed.name, seed.fragment))
        return
    seeding.digests[seed.fragment] = seed.digest
    if len(seeding.digests) < core.fragments:
        _ask_for(core, seeding, seeding.ask_further(core.fragments))
        return
    _install(core, seeding)


def take_initial(core: Core, digests: tuple[str, ...]) -> None:
    """Note that a version 0 was read from a file; `request_seed` decides whether it is needed."""
    if not core.seeded and core.initial:
        core.read = digests


def _install_read(core: Core, digests: tuple[str, ...], now_s: float) -> None:
    by_fragment = dict(enumerate(digests))
    core.seeding = Seeding(LearnerName(""), Incarnation(0, 0), now_s, by_fragment)
    _install(core, core.seeding)


def _install(core: Core, seeding: Seeding) -> None:
    version = Version(core.durable.epoch, 0)
    digests = tuple(seeding.digests[index] for index in range(core.fragments))
    core.actions.append(InstallSeed(version, digests))
    core.record(round_entries.Seeded(seeding.name, str(version)))
    seeding.journalled = 0
    _journal_next(core, seeding)


def _journal_next(core: Core, seeding: Seeding) -> None:
    index = seeding.journalled
    assert index is not None, "the seed is complete"
    version = Version(core.durable.epoch, 0)
    core.durable.published[index] = Published(version, seeding.digests[index], SEED_ROUND)
    core.write_fragment(index)


def _journal_seed(core: Core, seeding: Seeding, now_s: float) -> None:
    """Journal the next fragment of version 0; when all are durable, commit them together."""
    assert seeding.journalled is not None, "the seed is complete"
    seeding.journalled += 1
    if seeding.journalled < core.fragments:
        _journal_next(core, seeding)
        return
    core.seeding = None
    for index, newest in enumerate(core.durable.published):
        assert newest is not None, "every fragment is journalled"
        core.publish(index, newest)
    _send_to_all(core, list(range(core.fragments)), now_s)
