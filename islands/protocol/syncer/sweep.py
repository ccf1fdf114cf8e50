"""The sweep, at regular times: what is sent again, who stands still, and what people are warned of.

Over a narrow link, the first transmission may still be on its way. So nothing is sent again before
it took longer than it did lately (`timeouts.py`). The wait for an answer, for a value, and for a
seed doubles after each repetition; all else is small.

A member that only sends heartbeats is not evicted for it: it may compile, its device may hang, or
its user may have paused an own loop. It holds tokens and shards meanwhile. It **stands still**
after

======================================================  ============================================
it has stepped in this incarnation                      max(`stalled_s`, 5 · its step, its timeout)
it has not, or joins, heals or compiles, or has not
linked since this start of the syncer                   max(`stalled_s`, `compile_s`)
no limit is longer than                                 max(`stalled_s`, `compile_s`, 5 · ξ_step)
======================================================  ============================================

Then no closing waits for it if it says that it steps or begins to, and the tape says that the run
waits for it if others want its tokens. After the same time once more its incarnation ends, and its
tokens and shards go to those who want them. Its next one is granted a single batch until it has
done a step, so that the last tokens of a run do not go back and forth.

Nobody wants its tokens as long as the budget has a batch for each of the others. A step and an
adopted version are signs of work; a heartbeat, a new link (but the first to this start of the
syncer) or a new phase is none. Whoever has no tokens for a step rests by right, as all do while the
run is paused, and time in which this process was suspended does not count.
"""

from collections.abc import Iterator

from islands.protocol.identities import TRAINING, LearnerName, Phase, Role
from islands.protocol.syncer.accounts import end
from islands.protocol.syncer.closing import cannot_step, send_paused, waited_for
from islands.protocol.syncer.commits import release_old_values, repeat_request, send_lacking
from islands.protocol.syncer.events import Ticked
from islands.protocol.syncer.members import LearnerRecord
from islands.protocol.syncer.memory import EVENTS, SyncerMemory
from islands.protocol.syncer.scheduling import send_pull
from islands.protocol.syncer.timeouts import NAMED_MOST, Standing, doubled_s, warning_patience_s
from islands.protocol.tape.round_entries import NothingMerged, WaitsFor

SWEEPS_PER_RESEND = 2
STALLED_STEPS = 5
GRACE_LIMITS = 2
"""After so many limits a member that stands still is ended, if others want its tokens."""

FIRST_STEPS = (Phase.JOINING, Phase.HEALING, Phase.COMPILING)


@EVENTS.handles(Ticked)
def on_ticked(core: SyncerMemory, _event: Ticked, now_s: float) -> None:
    """Retransmit what is due, judge who stands still, free old values, and warn: the sweep."""
    interval_s = core.resend_s()
    late_s = core.health.sweep(now_s, interval_s / SWEEPS_PER_RESEND)
    if late_s is None:
        return
    look_at_members(core, now_s, late_s)
    repeat_request(core, now_s, interval_s)
    for name in core.names():
        learner = core.members.learners[name]
        if learner.reachable:
            _repeat_pulls(core, learner, now_s)
            _repeat_to(core, name, now_s)
    for round_ in core.rounds.open.values():
        round_.search_again()
    release_old_values(core, range(core.fragments if core.seeded else 0))
    _look_at_merges(core, now_s)


def _repeat_pulls(core: SyncerMemory, learner: LearnerRecord, now_s: float) -> None:
    """Send again the pulls without an answer, and note a learner of which nothing is heard."""
    if learner.falls_silent(now_s, core.answer_timeout_s(learner)):
        core.touch(learner.name)
    interval_s = core.resend_s(learner.exchange.answers_s.value)
    for number, pull in learner.pulls.open.items():
        if now_s - pull.at_s >= doubled_s(interval_s, pull.times - 1):
            send_pull(core, learner, number, pull.fragment, now_s)


def next_sweep_s(core: SyncerMemory, now_s: float) -> float:
    return max(now_s, core.health.swept_s + core.resend_s() / SWEEPS_PER_RESEND)


def _repeat_to(core: SyncerMemory, name: LearnerName, now_s: float) -> None:
    learner = core.members.learners[name]
    interval_s = core.resend_s(learner.exchange.adoptions_s.value)
    holder = core.durable.leases.holders.get(name)
    granted = 0 if holder is None or name in core.journal.grants else holder.quota_tokens
    if learner.progress.quota_tokens < granted:
        core.send(learner.connection, core.grant_of(name))
    phase, paused = learner.phase, core.durable.paused
    missed_pause = phase in TRAINING if paused else phase is Phase.PAUSED
    if missed_pause and core.closing is None:
        send_paused(core, name)
    send_lacking(core, learner, now_s, interval_s)


def _patience_s(core: SyncerMemory) -> float:
    """Return how long something must have been wrong before a warning is recorded."""
    settings = core.settings
    reachable = [one.exchange for one in core.members.learners.values() if one.reachable]
    return warning_patience_s(
        settings.timing,
        interval_steps=settings.round_interval_steps(core.fragments),
        step_s=core.step_s,
        exchange_s=max((one.measured_s(core.step_s) or 0.0 for one in reachable), default=0.0),
    )


def _look_at_merges(core: SyncerMemory, now_s: float) -> None:
    """Record a warning if learners step and nothing is merged."""
    watch, awaits = core.health.merge_watch, core.seeded and not core.durable.paused
    for_s = watch.stands_still_s(
        core.durable.merges,
        expected=awaits and core.closing is None and core.any_learner("at work", _at_work),
        now_s=now_s,
        patience_s=_patience_s(core),
    )
    if for_s is None:
        return
    core.record(
        NothingMerged(
            for_s=for_s,
            rounds_open=len(core.rounds.open),
            rounds_abandoned=watch.abandoned,
            quorum=core.settings.quorum,
            because=_why_nothing_merges(core, now_s),
        )
    )


def _why_nothing_merges(core: SyncerMemory, now_s: float) -> dict[str, str]:
    """Return a sentence for each of the first few learners by name."""
    fragment, reasons = core.durable.round % core.fragments, dict[str, str]()
    rounds = core.rounds.open.values()
    asked_s = {name: one.asked_s[name] for one in rounds for name in one.waiting}
    known = (core.members.learners[name] for name in core.names())
    for learner in [one for one in known if one.role is Role.LEARNER][:NAMED_MOST]:
        name, late_s = learner.name, learner.exchange.late_s
        if name in asked_s:
            reason = f"asked {now_s - asked_s[name]:.1f} s ago, has not answered"
        else:
            reason = core.ineligible(name, fragment) or "may be asked"
        late = "" if late_s is None else f"; its last answer came {late_s:.1f} s too late"
        reasons[name] = reason + late
    return reasons


def _at_work(learner: LearnerRecord) -> bool:
    return learner.role is Role.LEARNER and learner.phase in TRAINING and learner.whole


def look_at_members(core: SyncerMemory, now_s: float, late_s: float) -> None:
    """Note who stands still, end those whose tokens others want, and say who is waited for."""
    if core.seeded and not core.durable.paused:
        _measure(core, now_s, late_s)
        if core.closing is None:
            _end_idle(core, now_s)
    else:
        core.health.forget_standing()
    patience_s = core.settings.timing.scaled(core.settings.timing.suspect_s)
    ends = core.closing is not None
    because = waited_for(core, now_s) if ends else dict(_held_up_by(core, now_s))
    if core.health.wait_watch.due(wrong=bool(because), now_s=now_s, patience_s=patience_s):
        first = sorted(because)[:NAMED_MOST]
        core.record(WaitsFor(len(because), {name: because[name] for name in first}))


def still_limit_s(core: SyncerMemory, learner: LearnerRecord | None) -> float:
    """Return for how long a member may do no step before it stands still, by the table above."""
    timing = core.settings.timing
    stalled_s = timing.scaled(timing.stalled_s)
    first_s = max(stalled_s, timing.scaled(timing.compile_s))
    if learner is None or learner.phase in FIRST_STEPS or learner.step_s <= 0:
        return first_s
    own_s = max(stalled_s, STALLED_STEPS * learner.step_s, core.answer_timeout_s(learner))
    return min(own_s, max(first_s, STALLED_STEPS * core.step_s))


def _measure(core: SyncerMemory, now_s: float, late_s: float) -> None:
    core.health.forget_standing(but=core.durable.ledger.books)
    for name, book in core.durable.ledger.books.items():
        learner, before = core.members.learners.get(name), core.health.standing.get(name)
        reported = None if learner is None else learner.progress.fragments
        rests = core.durable.leases.holders[name].unused_tokens <= 0 or cannot_step(core, name)
        if (
            rests
            or before is None
            or (before.tokens, before.reported) != (book.processed, reported)
        ):
            core.health.stands(name, Standing(book.processed, reported, now_s))
        else:
            before.since_s += late_s
        if learner is not None:
            _set_still(core, learner, now_s)
            if learner.progress.steps:
                core.health.works(name)


def _set_still(core: SyncerMemory, learner: LearnerRecord, now_s: float) -> None:
    stood_s = now_s - core.health.standing[learner.name].since_s
    at_work = learner.phase in (Phase.STEPPING, *FIRST_STEPS)
    still = at_work and stood_s >= still_limit_s(core, learner)
    if still is not learner.still:
        learner.still = still
        core.touch(learner.name)


def _wanted_from(core: SyncerMemory) -> Iterator[LearnerName]:
    """Yield who holds tokens while the budget has no batch for another one that used up its own."""
    leases, learners = core.durable.leases, core.members.learners
    hungry = (name for name in core.journal.hungry if name in learners and learners[name].reachable)
    batches = sorted((learners[name].progress.batch_tokens, name) for name in hungry)
    remaining = leases.remaining_tokens
    if remaining is None or not batches or remaining >= batches[0][0]:
        return
    for name, holder in sorted(leases.holders.items()):
        wanted = next((batch for batch, other in batches[:2] if other != name), None)
        enough = wanted is not None and holder.unused_tokens + remaining >= wanted
        if enough and not cannot_step(core, name):
            yield name


def _stood_s(core: SyncerMemory, now_s: float) -> Iterator[tuple[LearnerName, float, float]]:
    """Yield each name whose tokens others want and that stands still: for how long, its limit."""
    for name in _wanted_from(core):
        stood = core.health.standing.get(name)
        limit_s = still_limit_s(core, core.members.learners.get(name))
        if stood is not None and now_s - stood.since_s >= limit_s:
            yield name, now_s - stood.since_s, limit_s


def _held_up_by(core: SyncerMemory, now_s: float) -> Iterator[tuple[LearnerName, str]]:
    for name, stood_s, _ in _stood_s(core, now_s):
        yield name, f"took no step for {stood_s:.0f} s, and others want its tokens"


def _end_idle(core: SyncerMemory, now_s: float) -> None:
    for name, stood_s, limit_s in list(_stood_s(core, now_s)):
        if stood_s < GRACE_LIMITS * limit_s:
            continue
        end(core, name, f"it took no step for {stood_s:.0f} s, and others want its tokens")
        core.health.end_idle(name)
