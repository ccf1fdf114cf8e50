"""Retransmission of what was not acknowledged: pulls, values, grants, pauses, requests for seeds.

Over a narrow link, the first transmission may still be on its way. So nothing is sent again before
it took longer than it did lately (`timeouts.py`). The wait for a value, and for a seed, doubles
after each repetition, and a value replaces an older one that is still queued; all else is small.
"""

from islands.protocol.identities import TRAINING, LearnerName, Role, Status
from islands.protocol.syncer import timeouts
from islands.protocol.syncer.commits import release_old_values
from islands.protocol.syncer.core import Core
from islands.protocol.syncer.members import LearnerRecord
from islands.protocol.syncer.pausing import missed_pause, tell_paused
from islands.protocol.syncer.recipients import is_owed, is_under_way
from islands.protocol.syncer.rounds import Stage
from islands.protocol.syncer.scheduling import ask, resend_after_s
from islands.protocol.syncer.seeding import ask_for_seed, give_up_late_seed
from islands.protocol.syncer.standing import look_at_members
from islands.protocol.syncer.timeouts import warning_patience_s
from islands.protocol.syncer.watches import why
from islands.protocol.tape.round_entries import GraceZero, NothingMerged

SWEEPS_PER_RESEND = 2


def sweep(core: Core, now_s: float) -> None:
    """Retransmit what is due, expire old pulls, and warn of what has been wrong for long."""
    interval_s = resend_s(core)
    if now_s < core.swept_s + interval_s / SWEEPS_PER_RESEND:
        return
    late_s = now_s - core.swept_s - interval_s / SWEEPS_PER_RESEND
    core.swept_s = now_s
    look_at_members(core, now_s, late_s)
    _repeat_wish_for_seed(core, now_s, interval_s)
    for name in core.names():
        learner = core.learners[name]
        if learner.unanswered:
            _forget_old_pulls(core, learner, now_s)
        if core.closing is None and learner.exchange.take_back(now_s):
            core.touch(name)
        if learner.reachable:
            _repeat_to(core, name, now_s)
    for fragment in sorted(core.rounds):
        round_ = core.rounds[fragment]
        round_.searched = False
        for name in round_.waiting if round_.stage is Stage.COLLECTING else []:
            learner = core.learners[name]
            due = now_s - round_.asked_s[name] >= resend_after_s(core, learner)
            if due and learner.reachable:
                ask(core, round_, learner, now_s)
    release_old_values(core, range(core.fragments if core.seeded else 0))
    _look_at_grace(core, now_s)
    _look_at_merges(core, now_s)


def _repeat_wish_for_seed(core: Core, now_s: float, interval_s: float) -> None:
    seeding = core.seeding
    if seeding is None:
        return
    if len(seeding.digests) > seeding.had:
        seeding.had, seeding.times, seeding.asked_s = len(seeding.digests), 0, now_s
    patience_s = timeouts.doubled_s(interval_s, seeding.times)
    if now_s - seeding.asked_s >= patience_s or seeding.refused:
        give_up_late_seed(core, seeding)
        seeding.times += 1
        ask_for_seed(core, now_s)


def _forget_old_pulls(core: Core, learner: LearnerRecord, now_s: float) -> None:
    """Expire old pulls; a learner that let one expire is left out for a while, then asked again."""
    expiry_s = core.answer_timeout_s(learner)
    expired = [r for r, at_s in learner.unanswered.items() if now_s - at_s >= expiry_s]
    for number in expired:
        del learner.unanswered[number]
        core.touch(learner.name)
        if learner.reachable and learner.status is Status.LIVE:
            learner.exchange.given_up(number, now_s)


def next_sweep_s(core: Core, now_s: float) -> float:
    """Return when the next sweep is due."""
    return max(now_s, core.swept_s + resend_s(core) / SWEEPS_PER_RESEND)


def resend_s(core: Core, adoption_s: float | None = None) -> float:
    """Return how long to wait before a pull or a value is sent again (`timeouts.py`)."""
    return timeouts.resend_s(
        core.settings.timing,
        overlap_steps=core.overlap_steps,
        step_s=core.step_s,
        exchange_s=adoption_s,
    )


def _repeat_to(core: Core, name: LearnerName, now_s: float) -> None:
    learner = core.learners[name]
    interval_s = resend_s(core, learner.exchange.adoptions_s.value)
    holder = core.durable.leases.holders.get(name)
    granted = 0 if holder is None or name in core.grants else holder.quota_tokens
    if learner.progress.quota_tokens < granted:
        core.send_grant(learner)
    if missed_pause(core, name) and core.closing is None:
        tell_paused(core, name)
    if not learner.adopting:
        return
    for index, published in enumerate(core.published):
        if published is None:
            continue
        if learner.holds(index) == published.version or not is_owed(core, learner, index):
            continue
        sent = learner.sent.get(index)
        newer = sent is None or sent.version < published.version
        newer = newer and not is_under_way(core, learner, index)
        if newer or (sent is not None and now_s >= sent.due_s(interval_s)):
            core.send_update(learner, index, now_s)


def _patience_s(core: Core) -> float:
    """Return how long something must have been wrong before a warning is recorded."""
    settings = core.settings
    reachable = [one.exchange for one in core.learners.values() if one.reachable]
    return warning_patience_s(
        settings.timing,
        interval_steps=settings.round_interval_steps(core.fragments),
        step_s=core.step_s,
        exchange_s=max((one.measured_s(core.step_s) or 0.0 for one in reachable), default=0.0),
    )


def _look_at_grace(core: Core, now_s: float) -> None:
    lacking = core.grace_watch.look(
        core.durations,
        overlap_steps=core.overlap_steps,
        patient_s=_patience_s(core),
        now_s=now_s,
    )
    if lacking is not None:
        core.record(
            GraceZero(
                exchange_s=lacking.exchange_s,
                hidden_s=lacking.hidden_s,
                lacking_s=lacking.exchange_s - lacking.hidden_s,
                overlap_steps=core.overlap_steps,
                overlap_steps_needed=lacking.steps_needed,
            )
        )


def _look_at_merges(core: Core, now_s: float) -> None:
    """Record a warning if learners step and nothing is merged (`watches.py`)."""
    watch, awaits = core.merge_watch, core.seeded and not core.durable.paused
    expected = awaits and core.closing is None and core.any_learner("at work", _at_work)
    for_s = watch.stands_still_s(core.durable.merges, now_s, expected=expected)
    if for_s <= 0 or for_s < _patience_s(core) or not watch.due(now_s):
        return
    fragment = core.durable.round % core.fragments
    learners = {name: one for name, one in core.learners.items() if one.role is Role.LEARNER}
    left_out = {name: core.ineligible(name, fragment) or "may be asked" for name in learners}
    waiting_s = {
        name: now_s - learners[name].exchange.asked.get(round_.number, now_s)
        for round_ in core.rounds.values()
        for name in round_.waiting
    }
    late_s = {
        str(name): one.exchange.late_s
        for name, one in learners.items()
        if one.exchange.late_s is not None
    }
    core.record(
        NothingMerged(
            for_s=for_s,
            rounds_open=len(core.rounds),
            rounds_abandoned=watch.abandoned,
            quorum=core.settings.quorum,
            because=why(left_out, waiting_s, late_s),
        )
    )


def _at_work(learner: LearnerRecord) -> bool:
    return learner.role is Role.LEARNER and learner.phase in TRAINING and learner.whole
