"""Rounds: on which fragment the next one opens, who is asked, when it closes or is abandoned.

Protocol §3 has the order of rounds, and §3.1 the **turns** of `trigger: learner`. A report asks for
a turn once; if nothing came of the round, the next report asks anew. The learning-rate clock goes
on as such a round is merged, not as it is opened: nobody moves it by asking.

Reference: Asynchronous Local-SGD (arXiv 2401.09135), algorithm 2.
Deviation: there, transfers of several learners may overlap; here rounds of one fragment do not.
"""

from math import inf
from statistics import fmean, median_low

from islands.protocol.identities import Fate, FragmentIndex, LearnerName, Role, Ticket, Version
from islands.protocol.messages.training import Contribution, PullFragment
from islands.protocol.settings.choices import Automatic, LearnerWaits
from islands.protocol.syncer.actions import BeginMerge, MergePart
from islands.protocol.syncer.commits import asks_all, in_time_fraction
from islands.protocol.syncer.contribution_admission import Refusal, refuse
from islands.protocol.syncer.members import NOT_ADOPTED, LearnerRecord
from islands.protocol.syncer.memory import SyncerMemory
from islands.protocol.syncer.rounds import Admitted, Round, Stage
from islands.protocol.syncer.timeouts import NAMED_MOST, Patience, grace_s, patience
from islands.protocol.tape import round_entries

CYCLES_UNASKED = 2
"""After so many cycles of P rounds without being asked, a learner counts as left out."""


def open_rounds(core: SyncerMemory, now_s: float) -> None:
    """Open as many rounds as compute has earned and the overlap can hide (`rounds.py`)."""
    if core.settings.gossip.on:
        return  # the only ones are the closing ones
    limit = core.settings.open_rounds(core.fragments, core.overlap_steps)
    while len(core.rounds.open) < limit and (core.pace_allows() or _somebody_leaves(core)):
        number = core.durable.round
        fragment = number % core.fragments
        if fragment in core.rounds.open or core.rounds.barren == number:
            return
        names = core.eligible(fragment)
        if not names:
            core.rounds.find_barren(number)
            return
        quorum, waits = core.settings.quorum, None
        if quorum is Automatic.AUTO:
            quorum, waits = None, _patience(core, names)
        open_round(core, fragment, names, quorum, now_s, waits)
        core.rounds.pace.opened(core.settings.interval_steps / core.fragments)


def _somebody_leaves(core: SyncerMemory) -> bool:
    """Return whether a learner that is gone in a moment has work for the next round."""
    if core.settings.learner_waits is not LearnerWaits.NEVER:
        return False
    fragment = core.durable.round % core.fragments
    return any(core.ineligible(name, fragment) is None for name in core.members.index.leaving)


def _patience(core: SyncerMemory, names: list[LearnerName]) -> Patience | None:
    """Return how patient a round with K = `auto` is; None if it awaits all that it asks."""
    if core.settings.learner_waits is LearnerWaits.AT_TAU:
        return None
    usual_s = [core.members.learners[name].exchange.usual_s for name in names]
    return patience(usual_s, core.settings.interval_steps * core.step_s)


def open_round(
    core: SyncerMemory,
    fragment: int,
    names: list[LearnerName],
    quorum: int | None,
    now_s: float,
    waits: Patience | None = None,
) -> None:
    patient_s = 0.0 if waits is None or waits.within_s == inf else waits.within_s
    round_ = Round(
        number=core.durable.round,
        fragment=fragment,
        version=core.version(fragment),
        quorum=quorum,
        opened_s=now_s,
        timeout_s=core.settings.timing.scaled(core.settings.timing.round_s) + patient_s,
        patience=waits,
    )
    core.durable.round += 1
    core.rounds.add(round_)
    left_out: dict[LearnerName, str | None] = {}
    if asks_all(core):
        core.advance_clock(core.rounds.pace.round_interval_steps)
        asked = frozenset(names)
        left_out = {
            name: core.ineligible(name, fragment)
            for name in core.names()
            if name not in asked and core.members.learners[name].role is Role.LEARNER
        }
    core.record(round_entries.Opened(round_.number, fragment, list(names), left_out))
    for name in names:
        ask(core, round_, core.members.learners[name], now_s)
    for name, reason in left_out.items():
        learner = core.members.learners[name]
        if waits is not None and reason == NOT_ADOPTED and waits.awaits(learner.exchange.usual_s):
            round_.await_adoption_of(name)
        _record_left_out(core, learner, reason or "", now_s)


def ask(core: SyncerMemory, round_: Round, learner: LearnerRecord, now_s: float) -> None:
    waits_s = core.answer_timeout_s(learner)
    if core.closing is not None:
        waits_s = core.closing.patience_s
    ticket = Ticket(core.durable.epoch, round_.number, learner.name, learner.incarnation)
    round_.ask(learner.name, ticket, now_s, now_s + waits_s, learner.exchange.usual_s)
    if learner.left_out:
        rounds, reason = learner.unasked_rounds, learner.left_out
        core.record(round_entries.AskedAgain(learner.name, rounds, reason))
    learner.unasked_rounds, learner.left_out = 0, ""
    core.members.asked(learner.name)
    send_pull(core, learner, round_.number, round_.fragment, now_s)


def send_pull(
    core: SyncerMemory, learner: LearnerRecord, number: int, fragment: int, now_s: float
) -> None:
    """Send a pull, or send it again; the ticket stays the same."""
    ticket = Ticket(core.durable.epoch, number, learner.name, learner.incarnation)
    learner.pulls.send(number, fragment, now_s)
    precision = learner.precision.precision
    pull = PullFragment(ticket, FragmentIndex(fragment), core.version(fragment), precision)
    core.send(learner.connection, pull)


def _record_left_out(core: SyncerMemory, learner: LearnerRecord, reason: str, now_s: float) -> None:
    """Put on the tape that a learner steps and is asked by none of two cycles of rounds."""
    learner.waits_unasked(reason, now_s)
    timing, exchange_s = core.settings.timing, learner.exchange.measured_s(core.step_s) or 0.0
    patient_s = max(timing.scaled(timing.suspect_s), CYCLES_UNASKED * exchange_s)
    long = learner.unasked_rounds >= CYCLES_UNASKED * core.fragments
    if long and now_s - learner.unasked_s >= patient_s and not learner.left_out:
        learner.left_out = reason
        core.record(round_entries.LeftOut(learner.name, reason, learner.unasked_rounds))


def close_rounds(core: SyncerMemory, now_s: float) -> None:
    """Close every round that need not wait any longer; abandon those that wait in vain."""
    for fragment in sorted(core.rounds.open):
        round_ = core.rounds.open[fragment]
        if round_.complete(now_s):
            core.rounds.durations.quorum_s.add(now_s - round_.opened_s)
        if round_.may_close(now_s, current_grace_s(core)):
            _close(core, round_, now_s)
        elif round_.timed_out(now_s):
            _give_up(core, round_, now_s)
        elif round_.stage is Stage.COLLECTING and not round_.quorum_complete:
            _collect(core, round_, now_s)


def _collect(core: SyncerMemory, round_: Round, now_s: float) -> None:
    """Ask who has become eligible; abandon or close a round that nobody else will join.

    With K = all, it asks only once nobody is awaited.
    """
    asks = round_.quorum is not None or round_.patience is not None or not round_.awaited
    if asks and asks_all(core):
        _ask_newly_eligible(core, round_, now_s)
    if round_.awaited:
        return
    if round_.quorum is None and not round_.unawaited:
        abandon(core, round_, now_s, "nobody has anything to contribute")
    elif _complete_for_good(core, round_):
        round_.settle()
        _close(core, round_, now_s)


def _complete_for_good(core: SyncerMemory, round_: Round) -> bool:
    """Return whether nobody else will contribute to a merge that its contributors wait for."""
    if core.settings.learner_waits is LearnerWaits.NEVER or core.closing is not None:
        return False
    return bool(round_.arrived) and core.nobody_steps()


def _give_up(core: SyncerMemory, round_: Round, now_s: float) -> None:
    """End a round's wait: with K = all, excuse silent learners; below K, abandon the round."""
    silent = round_.waiting
    if core.closing is not None:
        for name in silent:
            core.closing.give_up(name)
    if round_.quorum is None and round_.arrived and silent:
        for name in silent:
            round_.excuse(name, f"no answer within {now_s - round_.asked_s[name]:.1f} s")
        return
    missing = "all" if round_.quorum is None else str(round_.quorum)
    abandon(core, round_, now_s, f"{len(round_.arrived)} of {missing} answers")


def current_grace_s(core: SyncerMemory) -> float:
    safety = core.settings.grace_safety
    return grace_s(core.rounds.durations, overlap_steps=core.overlap_steps, safety=safety)


def _ask_newly_eligible(core: SyncerMemory, round_: Round, now_s: float) -> None:
    """Ask all who may be asked now; between two sweeps only those that changed are examined."""
    for name in core.names() if round_.search() else sorted(core.members.touched):
        learner = core.members.learners.get(name)
        if learner is None or not _may_ask(core, round_, learner, now_s):
            continue
        if core.ineligible(name, round_.fragment) is None:
            ask_later(core, round_, learner, now_s)


def _may_ask(core: SyncerMemory, round_: Round, learner: LearnerRecord, now_s: float) -> bool:
    """Return whether a round has not asked a learner yet, or only in vain, and a while ago."""
    asked_s = round_.asked_s.get(learner.name)
    if asked_s is None:
        return True
    if learner.name not in round_.excused or round_.number in learner.pulls.open:
        return False
    answered = learner.answers.has(core.durable.epoch, round_.number)
    return not answered and now_s - asked_s >= core.resend_s(learner.exchange.answers_s.value)


def ask_later(core: SyncerMemory, round_: Round, learner: LearnerRecord, now_s: float) -> None:
    ask(core, round_, learner, now_s)
    core.record(round_entries.Asked(str(round_.asked[learner.name]), round_.fragment))


def abandon(core: SyncerMemory, round_: Round, now_s: float, reason: str) -> None:
    """Abandon a round below its quorum: its contributions are late, their tokens still pending."""
    core.rounds.abandon(round_, now_s)
    core.health.merge_watch.count_abandoned()
    core.record(
        round_entries.Abandoned(
            round=round_.number,
            fragment=round_.fragment,
            reason=reason,
            after_s=now_s - round_.opened_s,
            arrived=sorted(round_.arrived)[:NAMED_MOST],
            waiting=round_.waiting[:NAMED_MOST],
            excused={name: round_.excused[name] for name in sorted(round_.excused)[:NAMED_MOST]},
        )
    )
    for name in sorted(round_.arrived):
        late = Refusal(Fate.LATE, "its round was abandoned")
        refuse(core, round_.arrived[name].contribution, late, None)


def _close(core: SyncerMemory, round_: Round, now_s: float) -> None:
    """Clip norms, then merge what has arrived."""
    admitted = _clipped(core, round_)
    for one, scale in admitted:
        name = one.contribution.ticket.name
        core.rounds.gauges[round_.fragment].merged(name, one.rate, scale)
    if not asks_all(core):
        for one, _ in admitted:
            turn = min(1.0, one.contribution.steps / core.settings.interval_steps)
            core.advance_clock(core.rounds.pace.round_interval_steps * turn)
    round_.merge(now_s)
    _record_closing(core, round_)
    target = Version(core.durable.epoch, round_.version.number + 1)
    parts = tuple(
        _part(one, scale, _fraction(core, round_, one.contribution)) for one, scale in admitted
    )
    core.actions.append(BeginMerge(round_.fragment, round_.number, round_.version, target, parts))


def _clipped(core: SyncerMemory, round_: Round) -> list[tuple[Admitted, float]]:
    """Return the contributions to merge, by name, each with the factor that clips its norm."""
    rates = {str(name): one.rate for name, one in round_.arrived.items()}
    scales = core.rounds.gauges[round_.fragment].scales(rates)
    return [(round_.arrived[name], scales[str(name)]) for name in sorted(round_.arrived)]


def _part(one: Admitted, scale: float, fraction: float) -> MergePart:
    contribution = one.contribution
    return MergePart(
        ticket=contribution.ticket,
        connection=one.connection,
        base=contribution.base,
        steps=max(1, round(fraction * contribution.steps)),
        tokens=max(1, round(fraction * contribution.tokens)),
        scale=scale * fraction,
    )


def _fraction(core: SyncerMemory, round_: Round, contribution: Contribution) -> float:
    """Return how much of a contribution is merged: at the end, a few intervals (`commits.py`)."""
    if core.closing is None or core.settings.gossip.on:
        return 1.0
    learner = core.members.learners.get(contribution.ticket.name)
    step_s = 0.0 if learner is None else learner.step_s
    faster = max(1.0, core.step_s / step_s) if step_s > 0 else 1.0
    usual = median_low(each.contribution.steps for each in round_.arrived.values())
    return in_time_fraction(contribution.steps, usual, core.settings.interval_steps * faster)


def _record_closing(core: SyncerMemory, round_: Round) -> None:
    behind = [round_.version.number - one.base.number for one in round_.contributions]
    core.record(
        round_entries.Closed(
            round=round_.number,
            fragment=round_.fragment,
            arrived=sorted(round_.arrived),
            excused={name: round_.excused[name] for name in sorted(round_.excused)},
            waiting=sorted(round_.waiting),
            share=len(round_.arrived) / max(1, core.learner_count),
            staleness=fmean(behind),
        )
    )


def open_turns(core: SyncerMemory, now_s: float) -> None:
    """Open a round on each fragment that has none, for the learner that has waited longest."""
    core.update_indexes()
    index, learners = core.members.index, core.members.learners
    index.look_for_turns(learners, lambda name, each: core.ineligible(name, each) is None)
    for fragment in sorted(index.asked_for - core.rounds.open.keys()):
        chosen = _next_turn(core, fragment)
        if chosen is None:
            index.asked_for.discard(fragment)
            continue
        members = max(1, len(core.rounds.pace.ranked))
        core.rounds.pace.set_interval(core.settings.interval_steps / core.fragments / members)
        learners[chosen].asking.discard(fragment)
        open_round(core, fragment, [chosen], None, now_s)


def _next_turn(core: SyncerMemory, fragment: int) -> LearnerName | None:
    """Return the eligible learner that asks for this fragment and has the oldest base of it."""
    asking = [
        (core.members.learners[name].holds(fragment), name)
        for name in core.members.index.asking
        if fragment in core.members.learners[name].asking
        and core.ineligible(name, fragment) is None
    ]
    return min(asking)[1] if asking else None  # an eligible learner has a base
