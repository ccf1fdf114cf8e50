"""What may have been lost is said again: pulls, updates, grants, the word of a pause, seeds.

A link may be narrow: what is repeated may still be on its way. So a value waits twice as long after
each repetition, and replaces an older one that waits to be sent; all else is small.
"""

from islands.identities import LearnerName
from islands.syncer.commits import ask_for_seed
from islands.syncer.core import Core
from islands.syncer.pausing import missed_pause, tell_paused
from islands.syncer.rounds import Stage
from islands.syncer.scheduling import ask, round_timeout_s

SWEEPS_PER_RESEND = 2


def sweep(core: Core, now_s: float) -> None:
    """Repeat what is due, forget old pulls, and say what is wrong for long."""
    interval_s = resend_s(core)
    if now_s < core.swept_s + interval_s / SWEEPS_PER_RESEND:
        return
    core.swept_s = now_s
    expiry_s = round_timeout_s(core)
    if core.seeding is not None and now_s - core.seeding.asked_s >= interval_s:
        ask_for_seed(core, now_s)
    for name in core.names():
        learner = core.learners[name]
        expired = [r for r, at_s in learner.unanswered.items() if now_s - at_s >= expiry_s]
        for number in expired:
            del learner.unanswered[number]
            core.touch(name)
        if learner.reachable:
            _repeat_to(core, name, now_s, interval_s)
    for fragment in sorted(core.rounds):
        round_ = core.rounds[fragment]
        round_.searched = False
        for name in round_.waiting if round_.stage is Stage.COLLECTING else []:
            if now_s - round_.asked_s[name] >= interval_s and core.learners[name].reachable:
                ask(core, round_, core.learners[name], now_s)
    _look_at_grace(core, now_s)


def next_sweep_s(core: Core, now_s: float) -> float:
    """When to look again."""
    return max(now_s, core.swept_s + resend_s(core) / SWEEPS_PER_RESEND)


def resend_s(core: Core) -> float:
    """After which what was not answered is said again."""
    timing = core.settings.timing
    step_s = core.durations.step_s.value or 0.0
    return max(timing.scaled(timing.resend_s), core.settings.overlap_steps * step_s)


def _repeat_to(core: Core, name: LearnerName, now_s: float, interval_s: float) -> None:
    learner = core.learners[name]
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
        if learner.holds(index) == published.version:
            continue
        sent = learner.sent.get(index)
        newer = sent is None or sent.version < published.version
        if newer or (sent is not None and now_s >= sent.due_s(interval_s)):
            core.send_update(learner, index, now_s)


def _look_at_grace(core: Core, now_s: float) -> None:
    settings = core.settings
    lacking = core.grace_watch.look(
        core.durations,
        overlap_steps=settings.overlap_steps,
        patient_s=settings.timing.scaled(settings.timing.round_s),
        now_s=now_s,
    )
    if lacking is not None:
        core.record(
            "grace_zero",
            exchange_s=lacking.exchange_s,
            hidden_s=lacking.hidden_s,
            lacking_s=lacking.exchange_s - lacking.hidden_s,
            overlap_steps=settings.overlap_steps,
            overlap_steps_needed=lacking.steps_needed,
        )
