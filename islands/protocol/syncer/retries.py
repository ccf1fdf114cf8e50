"""Retransmission of what was not acknowledged: pulls, values, grants, pauses, requests for seeds.

Over a narrow link, the first transmission may still be on its way. So nothing is sent again before
it took longer than it did lately (`timeouts.py`). The wait for an answer, for a value, and for a
seed doubles after each repetition; all else is small.
"""

from islands.protocol.identities import TRAINING, LearnerName, Phase, Role
from islands.protocol.syncer.commits import release_old_values
from islands.protocol.syncer.events import Ticked
from islands.protocol.syncer.health import NAMED_MOST
from islands.protocol.syncer.members import LearnerRecord
from islands.protocol.syncer.memory import EVENTS, SyncerMemory
from islands.protocol.syncer.pausing import send_paused
from islands.protocol.syncer.recipients import send_lacking
from islands.protocol.syncer.scheduling import send_pull
from islands.protocol.syncer.seeding import repeat_request
from islands.protocol.syncer.standstill import look_at_members
from islands.protocol.syncer.timeouts import doubled_s, warning_patience_s
from islands.protocol.tape.round_entries import NothingMerged

SWEEPS_PER_RESEND = 2


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
    """Record a warning if learners step and nothing is merged (`health.py`)."""
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
