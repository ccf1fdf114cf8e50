"""The course of a run: its pauses, and its end, at which every token is merged (protocol §3.9).

    draining ──all have stopped──▶ rounds ──one per fragment──▶ adopting ──▶ cutting
                                                                                 │
                              ended ◀──heard by the supervisor── finished ◀──durable

Closing rounds have K = all. Cutting ends a learner that cannot be reached, or still has pending
tokens, so that its tokens have a fate. Progress restarts the wait of a stage (`timeouts.py`), and a
learner that does not answer within it is not asked any more. The total is bounded when the end
begins, so that no peer can postpone it. An observer is waited for, too, until it holds the last
versions, but for no longer than `final_s` after the last of them was committed: its link need not
keep up with the run.

While an operator pauses a run no round opens and nothing is granted; learners stop at their next
boundary. A round that is open ends as usual, so no token is lost, and none is counted twice. The
pause is journalled. Time counts against `budget_s` from version 0 on, while the run neither is
paused nor closes, and over all starts of the syncer, without the time between the last record of
one and its crash.
"""

from islands.protocol.identities import WHOLE, LearnerName, Phase, Role, Status
from islands.protocol.messages.membership import Stop
from islands.protocol.messages.training import FinalRound, Paused
from islands.protocol.syncer import events
from islands.protocol.syncer.accounts import end_unsettled
from islands.protocol.syncer.actions import Exit, FinishRun
from islands.protocol.syncer.commits import values_may_come
from islands.protocol.syncer.journalling import TIME
from islands.protocol.syncer.members import BUSY, LearnerRecord, unready_because
from islands.protocol.syncer.memory import EVENTS, Closing, ClosingStage, SyncerMemory
from islands.protocol.syncer.rounds import Stage
from islands.protocol.syncer.scheduling import abandon, close_rounds, open_round
from islands.protocol.syncer.timeouts import end_at_most_s
from islands.protocol.tape import member_entries, round_entries


def advance_closing(core: SyncerMemory, now_s: float) -> None:
    if core.closing is None:
        reason = _due(core, now_s)
        if reason is None:
            return
        begin_closing(core, reason, now_s)
    closing = core.closing
    assert closing is not None, "the end has begun"
    if closing.stage is ClosingStage.DRAINING:
        overdue = closing.overdue(now_s)
        if overdue or _all_stopped(core):
            _ask_no_more(core)
            if overdue or not core.rounds.open:
                closing.go_on(ClosingStage.ROUNDS, now_s)
    if closing.stage is ClosingStage.ROUNDS:
        _closing_rounds(core, closing, now_s, overdue=closing.overdue(now_s))
    if closing.stage is ClosingStage.ADOPTING and (
        closing.overdue(now_s)
        or not core.any_learner("behind", lambda learner: _is_behind(core, learner, now_s))
    ):
        closing.enter(ClosingStage.CUTTING)
        end_unsettled(core, closing.reason)
        core.durable.finished = closing.reason
        core.journal.records.want()
    elif closing.stage is ClosingStage.CUTTING and core.journal.all_durable:
        closing.enter(ClosingStage.FINISHED)
        _wait_for_supervisor(core, closing, now_s)
        _finish(core, closing)
    elif closing.stage is ClosingStage.FINISHED and _heard_or_in_vain(core, closing, now_s):
        closing.enter(ClosingStage.ENDED)
        core.actions.append(Exit(closing.reason))


@EVENTS.handles(events.StopRequested)
def on_stop_requested(core: SyncerMemory, event: events.StopRequested, _now_s: float) -> None:
    """End the run: at once, or as soon as the values are there that somebody is to give."""
    if core.closing is None:
        core.durable.stopping = event.reason


@EVENTS.handles(events.SupervisorLinkChanged)
def on_supervisor_link(
    core: SyncerMemory, event: events.SupervisorLinkChanged, now_s: float
) -> None:
    """Note whether the supervisor can be reached; once the run is over, restart the wait for it."""
    core.supervised = event.up
    if core.closing is not None and core.closing.stage is ClosingStage.FINISHED:
        _wait_for_supervisor(core, core.closing, now_s)


def _heard_or_in_vain(core: SyncerMemory, closing: Closing, now_s: float) -> bool:
    in_vain = not core.supervised and now_s >= closing.deadline_s
    return core.journal.all_durable and (core.durable.reported or in_vain)


def _wait_for_supervisor(core: SyncerMemory, closing: Closing, now_s: float) -> None:
    timing = core.settings.timing
    closing.wait_until(now_s + timing.scaled(timing.final_s))


@EVENTS.handles(events.EndHeard)
def on_end_heard(core: SyncerMemory, _event: events.EndHeard, _now_s: float) -> None:
    over = core.closing is not None and core.closing.stage is ClosingStage.FINISHED
    if over and not core.durable.reported:
        core.durable.reported = True
        core.journal.records.want()


def resume_end(core: SyncerMemory, now_s: float) -> None:
    assert core.durable.finished is not None, "the final cut is durable"
    core.closing = Closing(core.durable.finished, now_s, now_s, [], ClosingStage.CUTTING)


def _due(core: SyncerMemory, now_s: float) -> str | None:
    if not core.seeded and values_may_come(core, now_s):
        return None
    if core.durable.stopping is not None or not core.seeded:
        return core.durable.stopping
    limit_s = core.settings.budget_s
    if limit_s is not None and core.durable.elapsed_s >= limit_s:
        return TIME
    return "tokens" if tokens_used_up(core) else None


def tokens_used_up(core: SyncerMemory) -> bool:
    """Return whether neither its quota nor the rest of the budget is enough for anybody."""
    leases = core.durable.leases
    if leases.remaining_tokens is None:
        return False
    if core.journal.unspent is not None and _can_spend(core, *core.journal.unspent):
        return False
    core.journal.forget_unspent()
    learners = core.members.learners.values()
    reading = [one for one in learners if one.role is Role.LEARNER and one.reads]
    if not reading:
        return False
    least = min(reading, key=lambda learner: (learner.progress.batch_tokens, learner.name))
    left = {
        name: holder.unused_tokens
        for name, holder in leases.holders.items()
        if not cannot_step(core, name)
    }
    richest = max(left, key=lambda name: (left[name], name), default=None)
    for holder in (None, richest):
        if _can_spend(core, least.name, holder):
            core.journal.show_unspent(least.name, holder)
            return False
    return True


def _can_spend(core: SyncerMemory, reader: LearnerName, holder: LearnerName | None) -> bool:
    """Return whether a reader's batch fits into a holder's unused quota, or (None) the budget."""
    leases, learner = core.durable.leases, core.members.learners.get(reader)
    if learner is None or not learner.reads:
        return False
    if holder is None:
        left = leases.remaining_tokens or 0
    elif holder in leases.holders and not cannot_step(core, holder):
        left = leases.holders[holder].unused_tokens
    else:
        return False
    return left >= learner.progress.batch_tokens


def cannot_step(core: SyncerMemory, name: LearnerName) -> bool:
    """Return whether a learner knows its whole quota and cannot step with what is left of it."""
    learner, holder = core.members.learners.get(name), core.durable.leases.holders[name]
    return (
        learner is not None
        and learner.phase is Phase.STARVED
        and learner.progress.quota_tokens == holder.quota_tokens
        and any(not lease.done for lease in learner.progress.leases)
    )


def begin_closing(core: SyncerMemory, reason: str, now_s: float) -> None:
    timing = core.settings.timing
    reachable = [one for one in core.members.learners.values() if one.reachable and not one.still]
    least_s = timing.scaled(timing.final_s)
    patience_s = max((core.final_patience_s(one) for one in reachable), default=least_s)
    at_most_s = end_at_most_s(
        timing,
        patience_s=patience_s,
        fragments=core.fragments,
        at_once=core.settings.open_rounds_max(core.fragments),
        measured=_all_measured(core),
    )
    left = list(range(core.fragments))
    core.closing = Closing(
        reason, now_s + patience_s, now_s + at_most_s, left, patience_s=patience_s
    )
    core.durable.stopping = reason
    core.record(round_entries.Closing(reason))
    core.journal.records.want()
    for name in core.names():
        core.send(core.members.learners[name].connection, FinalRound(core.durable.epoch, reason))


def _all_measured(core: SyncerMemory) -> bool:

    def measured(name: LearnerName) -> bool:
        learner = core.members.learners.get(name)
        if learner is None or not learner.reachable:
            return False
        return learner.exchange.measured_s(learner.step_s) is not None

    return all(measured(name) for name in core.durable.ledger.books)


def _ask_no_more(core: SyncerMemory) -> None:
    for round_ in core.rounds.open.values():
        if round_.stage is Stage.COLLECTING:
            round_.await_all()


def _all_stopped(core: SyncerMemory) -> bool:
    """Return whether no learner that could contribute still steps, or has yet to reconnect."""
    if len(core.durable.ledger.books) > core.learner_count:
        return False
    return not core.any_learner("stepping", _steps)


def _steps(learner: LearnerRecord) -> bool:
    return (
        learner.role is Role.LEARNER
        and learner.status is Status.LIVE
        and learner.connection is not None
        and learner.phase in WHOLE
        and not learner.still
    )


def _closing_rounds(core: SyncerMemory, closing: Closing, now_s: float, *, overdue: bool) -> None:
    """Open one round for each fragment on which a learner has something left to contribute."""
    limit = core.settings.open_rounds_max(core.fragments)
    for fragment in list(closing.left):
        if overdue:
            closing.close(fragment)
        elif (
            fragment in core.rounds.open
            or len(core.rounds.open) >= limit
            or _awaited(core, fragment)
        ):
            continue
        else:
            names = [name for name in core.eligible(fragment) if name not in closing.silent]
            if names:
                open_round(core, fragment, names, None, now_s)
                core.went_forward()
            closing.close(fragment)
    if overdue:
        _hurry(core, now_s)
    if not closing.left and not core.rounds.open:
        closing.go_on(ClosingStage.ADOPTING, now_s)


def _hurry(core: SyncerMemory, now_s: float) -> None:
    """Excuse all learners still waited for, since the time is up; merge what has arrived."""
    for fragment in sorted(core.rounds.open):
        round_ = core.rounds.open[fragment]
        if round_.stage is Stage.COLLECTING:
            round_.await_all()
            for name in round_.waiting:
                round_.excuse(name, "the run ends")
            if not round_.arrived:
                abandon(core, round_, now_s, "the run ends")
    close_rounds(core, now_s)


def _awaited(core: SyncerMemory, fragment: int) -> bool:
    """Return whether a learner has yet to answer other pulls, or to adopt its contribution."""

    def awaited(learner: LearnerRecord) -> bool:
        if learner.still or (core.closing is not None and learner.name in core.closing.silent):
            return False
        reason = unready_because(learner)
        if reason is not None:
            return reason == BUSY
        merged = core.durable.ledger.merged_version(learner.name, fragment)
        held = learner.holds(fragment)
        return merged is not None and (held is None or held < merged)

    return core.any_learner(f"awaited {fragment}", awaited)


def _is_behind(core: SyncerMemory, learner: LearnerRecord, now_s: float) -> bool:
    lacking = (one for one in range(core.fragments) if learner.holds(one) != core.version(one))
    if learner.role is not Role.LEARNER:
        patience_s = core.settings.timing.scaled(core.settings.timing.final_s)
        in_time = core.closing is not None and now_s < core.closing.began_s + patience_s
        return learner.adopting and in_time and any(one in learner.sent for one in lacking)
    return not learner.still and unready_because(learner) is None and any(True for _ in lacking)


def waited_for(core: SyncerMemory, now_s: float) -> dict[LearnerName, str]:
    """Return the learners that the closing waits for now, each with the reason."""
    closing, reasons = core.closing, dict[LearnerName, str]()
    if closing is None:
        return reasons
    if closing.stage is ClosingStage.DRAINING:
        away = [name for name in core.durable.ledger.books if name not in core.members.learners]
        reasons.update(dict.fromkeys(away, "has not come back since the syncer started"))
    pulled = {name for round_ in core.rounds.open.values() for name in round_.waiting}
    for name in core.names():
        learner = core.members.learners[name]
        if closing.stage is ClosingStage.DRAINING and _steps(learner):
            reasons[name] = "has not stopped stepping"
        elif closing.stage is ClosingStage.ROUNDS and name in pulled:
            reasons[name] = "has not answered its last pull"
        elif closing.stage is ClosingStage.ADOPTING and _is_behind(core, learner, now_s):
            reasons[name] = "has not adopted the last versions"
    return reasons


def _finish(core: SyncerMemory, closing: Closing) -> None:
    ledger = core.durable.ledger
    core.record(
        round_entries.Finished(
            reason=closing.reason,
            ledger=[ledger.row(index) for index in range(core.fragments)],
            processed={
                f"{name}/{book.incarnation}": book.processed
                for name, book in sorted(ledger.books.items())
            },
        )
    )
    for name in core.names():
        core.send(core.members.learners[name].connection, Stop(closing.reason))
    core.actions.append(FinishRun(closing.reason))


def set_paused(core: SyncerMemory, *, paused: bool) -> None:
    if core.durable.paused is paused:
        return
    core.durable.paused = paused
    core.record(member_entries.Paused() if paused else member_entries.Resumed())
    core.journal.records.want()
    core.rounds.forget_adoptions()
    for name in core.names():
        send_paused(core, name)


def send_paused(core: SyncerMemory, name: LearnerName) -> None:
    learner = core.members.learners[name]
    if learner.role is Role.LEARNER:
        core.send(learner.connection, Paused(core.durable.epoch, core.durable.paused))


def count_time(core: SyncerMemory, now_s: float) -> None:
    """Count the time since the last event against the budget, if the run was at work in it."""
    passed_s = core.journal.count_until(now_s)
    if core.seeded and core.closing is None and not core.durable.paused:
        core.durable.elapsed_s += passed_s
