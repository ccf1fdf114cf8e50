"""Rounds: opening them, asking, admitting what arrives, closing or abandoning them.

Fragments take turns: round r is on fragment r mod P. While a fragment's last round is still open,
or nobody can be asked for it, the next round waits, and no other fragment is taken in its place.
"""

from math import sqrt
from statistics import fmean

from islands.protocol.identities import Fate, FragmentIndex, LearnerName, Role, Ticket, Version
from islands.protocol.messages.training import (
    Contribution,
    ContributionFate,
    PullFragment,
    Quarantined,
)
from islands.protocol.settings.learning_rate import learning_rate
from islands.protocol.settings.run import Automatic, LearnerWaits
from islands.protocol.syncer.actions import BeginMerge, DropContribution, MergePart, Send
from islands.protocol.syncer.admission import Check, Refusal, refusal
from islands.protocol.syncer.core import Core
from islands.protocol.syncer.eligibility import stale_because
from islands.protocol.syncer.grace import grace_s
from islands.protocol.syncer.plausibility import COPIES_MAX, age_steps, wrong_steps
from islands.protocol.syncer.quorum import QuorumTarget, worth_waiting
from islands.protocol.syncer.recipients import asks_all
from islands.protocol.syncer.roster import LearnerRecord
from islands.protocol.syncer.rounds import Admitted, Round, Stage
from islands.protocol.syncer.standstill import NAMED_MOST
from islands.protocol.syncer.timeouts import resend_s
from islands.protocol.syncer.turn_length import done_share
from islands.protocol.tape import member_entries, round_entries

ABANDONED_KEPT = 64
"""Abandoned rounds that are kept, to measure by how much a late answer missed its round."""

LEARNING_RATE_MIN = 1e-12
"""Norms are divided by the learning rate, or by this, since a schedule may end at 0."""


def open_rounds(core: Core, now_s: float) -> None:
    """Open as many rounds as compute has earned and the overlap can hide (`pace.py`).

    Where learners gossip there is none before the closing ones.
    """
    if core.settings.gossip.on:
        return
    limit = core.settings.open_rounds(core.fragments, core.overlap_steps)
    while len(core.rounds) < limit and core.pace_allows():
        number = core.durable.round
        fragment = number % core.fragments
        if fragment in core.rounds or core.barren == number:
            return
        names = core.eligible(fragment)
        if not names:
            core.barren = number
            return
        expected = _expected(core, names)
        open_round(core, fragment, names, expected.quorum, now_s)
        core.rounds[fragment].expected_s = now_s + expected.within_s
        core.pace.opened(core.interval_steps / core.fragments)


def _expected(core: Core, names: list[LearnerName]) -> QuorumTarget:
    """Return how many answers a round needs to close, and by when they are expected."""
    quorum = core.settings.quorum
    if quorum is not Automatic.AUTO:
        return QuorumTarget(quorum)
    answers_s = [core.learners[name].exchange.answers_s.value for name in names]
    return worth_waiting(answers_s, core.interval_steps * core.step_s)


def open_round(
    core: Core, fragment: int, names: list[LearnerName], quorum: int | None, now_s: float
) -> None:
    """Open one round on a fragment and ask these learners."""
    round_ = Round(
        number=core.durable.round,
        fragment=fragment,
        version=core.version(fragment),
        quorum=quorum,
        opened_s=now_s,
        timeout_s=core.settings.timing.scaled(core.settings.timing.round_s),
    )
    core.durable.round += 1
    core.rounds[fragment] = round_
    left_out: dict[LearnerName, str | None] = {}
    if asks_all(core):
        core.durable.clock += core.pace.round_interval_steps
        asked = frozenset(names)
        left_out = {
            name: core.ineligible(name, fragment)
            for name in core.names()
            if name not in asked and core.learners[name].role is Role.LEARNER
        }
    core.record(round_entries.Opened(round_.number, fragment, list(names), left_out))
    for name in names:
        ask(core, round_, core.learners[name], now_s)


def ask(core: Core, round_: Round, learner: LearnerRecord, now_s: float) -> None:
    """Send a pull, or send it again; the ticket stays the same."""
    assert learner.connection is not None, "only reachable learners are asked"
    ticket = Ticket(core.durable.epoch, round_.number, learner.name, learner.incarnation)
    if learner.name not in round_.asked_s:
        round_.wait_until(now_s + _patience_s(core, learner))
    learner.exchange.ask(round_.number, now_s)
    round_.asked[learner.name] = ticket
    round_.asked_s[learner.name] = now_s
    learner.unanswered[round_.number] = now_s
    round_.searched = False
    core.changed[learner.name] = None
    pull = PullFragment(ticket, FragmentIndex(round_.fragment), round_.version)
    core.actions.append(Send(learner.connection, pull))


def _patience_s(core: Core, learner: LearnerRecord) -> float:
    return core.answer_timeout_s(learner) if core.closing is None else core.closing.patience_s


def excuse(round_: Round, name: LearnerName, reason: str) -> None:
    """Stop waiting for a learner; what has arrived from it stays."""
    if name in round_.asked and name not in round_.arrived:
        round_.excused[name] = reason


def withdraw(core: Core, name: LearnerName) -> None:
    """Remove an ended incarnation from open rounds, so that its successor may be asked anew.

    What it contributed to a round that is still collecting is fenced; a round that has closed was
    decided before the end.
    """
    for round_ in core.rounds.values():
        if round_.stage is not Stage.COLLECTING:
            continue
        admitted = round_.arrived.pop(name, None)
        if admitted is not None:
            _fence(core, admitted.contribution)
        round_.asked.pop(name, None)
        round_.asked_s.pop(name, None)
        round_.excused.pop(name, None)
        if not round_.quorum_complete:
            round_.quorum_s = None


def take_decline(core: Core, ticket: Ticket, fragment: int, reason: str) -> None:
    """Excuse a learner that has nothing to answer this pull with."""
    learner = core.learners.get(ticket.name)
    if learner is not None and learner.incarnation == ticket.incarnation:
        learner.unanswered.pop(ticket.round, None)
        learner.exchange.declined(ticket.round)
        core.touch_answers(learner.name)
    round_ = core.rounds.get(fragment)
    if round_ is not None and round_.asked.get(ticket.name) == ticket:
        excuse(round_, ticket.name, reason)


def take_contribution(
    core: Core, contribution: Contribution, check: Check, connection: int, now_s: float
) -> None:
    """Admit a contribution to its round, or give it another fate (`admission.py`).

    The first answer to a ticket stands, whatever link others come over. No answer is taken from an
    incarnation that has ended, since its accounts are closed, nor from an observer, which has none.
    An answer over a link that is gone is void, as its sender assumes: it decides nothing, and the
    pull, which is sent again over the next link, is still to be answered.
    """
    ticket = contribution.ticket
    learner = core.learners.get(ticket.name)
    observing = learner is not None and learner.role is not Role.LEARNER
    if learner is None or observing or learner.incarnation != ticket.incarnation:
        core.record(round_entries.KeptOut(str(ticket), "its incarnation has ended"))
        _drop(core, ticket, connection)
        return
    if connection != learner.connection:
        core.record(round_entries.Void(str(ticket), "it came over a link that is gone"))
        core.actions.append(DropContribution(ticket, connection))
        return
    if not 0 <= contribution.fragment < core.fragments:
        _drop(core, ticket, connection)
        strike(core, learner, f"fragment {contribution.fragment} does not exist", connection, now_s)
        return
    round_ = core.rounds.get(contribution.fragment)
    known = learner.answers.has(ticket.epoch, ticket.round)
    copies = learner.answers.count(ticket.epoch, ticket.round, connection)
    if known or _admitted(core, ticket) is not None:
        core.record(round_entries.Duplicate(str(ticket), copies))
        _drop(core, ticket, connection)
        if copies > COPIES_MAX:
            strike(core, learner, f"{copies} answers to one pull", connection, now_s)
        return
    if ticket.epoch == core.durable.epoch:
        learner.unanswered.pop(ticket.round, None)
        learner.exchange.answer(ticket.round, now_s, core.fragments)
        age_s = age_steps(contribution, learner.progress) * learner.step_s
        learner.exchange.ages_s.add(age_s, core.fragments)
        abandoned_s = core.abandoned_s.get(ticket.round)
        learner.exchange.late_s = None if abandoned_s is None else now_s - abandoned_s
        core.touch_answers(learner.name)
    refused = _refusal(core, learner, contribution, check, round_)
    if refused is not None or round_ is None:
        assert refused is not None, "without a round the ticket is not open"
        refuse(core, contribution, refused, now_s, connection)
        if round_ is not None and round_.asked.get(ticket.name) == ticket:
            excuse(round_, ticket.name, refused.reason)
        return
    rate = max(learning_rate(core.settings, core.clock), LEARNING_RATE_MIN)
    steps = 1 if core.settings.gossip.on else contribution.steps  # all are of the whole run then
    norm_rate = check.norm / (sqrt(steps) * rate)
    round_.excused.pop(ticket.name, None)
    round_.arrived[ticket.name] = Admitted(contribution, connection, norm_rate)
    core.record(round_entries.Arrived(str(ticket), contribution.tokens))
    core.went_forward(learner)
    if round_.quorum_s is None and round_.quorum_complete:
        round_.quorum_s = now_s
        core.durations.quorum_s.add(now_s - round_.opened_s)


def _refusal(
    core: Core,
    learner: LearnerRecord,
    contribution: Contribution,
    check: Check,
    round_: Round | None,
) -> Refusal | None:
    fragment, ledger = contribution.fragment, core.durable.ledger
    granted = core.durable.leases.holders[learner.name].quota_tokens
    untrue = wrong_steps(contribution, learner.progress, learner.marks)
    if not ledger.can_hold(learner.name, fragment, contribution, granted):
        untrue = "more tokens than were processed"
    if untrue is None:
        ledger.attest(learner.name, contribution.processed_tokens)
    ticket_open = (
        round_ is not None
        and round_.stage is Stage.COLLECTING
        and round_.asked.get(learner.name) == contribution.ticket
    )
    return refusal(
        check,
        untrue=untrue,
        fenced="quarantined" if learner.quarantined else None,
        ticket_open=ticket_open,
        stale=stale_because(
            contribution.base,
            kept=core.kept[fragment],
            merged=core.merged_version(learner.name, fragment),
        ),
    )


def refuse(
    core: Core, contribution: Contribution, refused: Refusal, now_s: float, connection: int | None
) -> None:
    """Give a contribution a fate other than applied; strikes may quarantine its sender."""
    ticket = contribution.ticket
    core.actions.append(DropContribution(ticket))
    if not _discarded(core, contribution):
        ledger = core.durable.ledger
        ledger.claim(ticket.name, contribution.fragment, refused.fate, contribution.tokens)
    core.record(
        round_entries.FateTold(
            ticket=str(ticket),
            fragment=contribution.fragment,
            fate=refused.fate,
            reason=refused.reason,
            tokens=contribution.tokens,
        )
    )
    learner = core.learners[ticket.name]
    if connection is None:
        connection = learner.connection
    if connection is None:
        return
    fate = ContributionFate(ticket, contribution.fragment, refused.fate, refused.reason)
    core.actions.append(Send(connection, fate))
    if refused.strike:
        strike(core, learner, refused.reason, connection, now_s)


def strike(core: Core, learner: LearnerRecord, reason: str, connection: int, now_s: float) -> None:
    """Count a strike for what no honest learner does; the third within a while quarantines it."""
    if learner.strike(now_s):
        core.touch(learner.name)
        notice = Quarantined(learner.name, learner.incarnation, f"third strike: {reason}")
        core.actions.append(Send(connection, notice))
        core.record(member_entries.Quarantined(learner.name, reason))


def _discarded(core: Core, contribution: Contribution) -> bool:
    """Return whether the sender has already reported that it discarded these tokens.

    A report may overtake a contribution: if it holds a version that decided the ticket, the tokens
    were counted as overwritten then.
    """
    ticket, fragment = contribution.ticket, contribution.fragment
    held, published = core.learners[ticket.name].holds(fragment), core.published[fragment]
    if published is None or held != published.version or held <= contribution.base:
        return False
    return ticket.epoch < core.durable.epoch or ticket.round <= published.round


def close_rounds(core: Core, now_s: float) -> None:
    """Close every round that need not wait any longer; abandon those that wait in vain."""
    waited_s = current_grace_s(core)
    for fragment in sorted(core.rounds):
        round_ = core.rounds[fragment]
        round_.relax(now_s)
        if round_.may_close(now_s, waited_s):
            _close(core, round_, now_s)
        elif round_.timed_out(now_s):
            _give_up(core, round_, now_s)
        elif round_.stage is Stage.COLLECTING and not round_.awaited:
            if asks_all(core):
                _ask_newly_eligible(core, round_, now_s)
            if round_.quorum is None and not round_.awaited:
                abandon(core, round_, now_s, "nobody has anything to contribute")
            elif _complete_for_good(core, round_):
                round_.quorum = len(round_.arrived)
                _close(core, round_, now_s)


def _complete_for_good(core: Core, round_: Round) -> bool:
    """Return whether who contributed waits for a merge that nobody else will contribute to.

    Where learners wait, those that have no quota left would otherwise hold the others up.
    """
    if core.settings.learner_waits is LearnerWaits.NEVER or core.closing is not None:
        return False
    return bool(round_.arrived) and not round_.awaited and core.nobody_steps()


def _give_up(core: Core, round_: Round, now_s: float) -> None:
    """End a round's wait: with K = all, excuse silent learners; below K, abandon the round."""
    silent = round_.waiting
    for name in silent:
        core.learners[name].exchange.given_up(round_.number, now_s)
        core.touch(name)
        if core.closing is not None:
            core.closing.silent.add(name)
            core.went_forward()
    if round_.quorum is None and round_.arrived and silent:
        for name in silent:
            excuse(round_, name, f"no answer within {now_s - round_.asked_s[name]:.1f} s")
        return
    missing = "all" if round_.quorum is None else str(round_.quorum)
    abandon(core, round_, now_s, f"{len(round_.arrived)} of {missing} answers")


def current_grace_s(core: Core) -> float:
    """Return the seconds that a round now waits after its quorum (`grace.py`)."""
    settings = core.settings
    return grace_s(core.durations, overlap_steps=core.overlap_steps, safety=settings.grace_safety)


def _ask_newly_eligible(core: Core, round_: Round, now_s: float) -> None:
    """Ask learners not asked yet and, after a while, again those that had nothing to contribute.

    All learners are examined once, and again with every sweep; in between only those that changed.
    """
    among = sorted(core.touched) if round_.searched else core.names()
    round_.searched = True
    for name in among:
        if name not in core.learners or core.ineligible(name, round_.fragment) is not None:
            continue
        learner = core.learners[name]
        answered = learner.answers.has(core.durable.epoch, round_.number)
        asked_s = round_.asked_s.get(name)
        if asked_s is None or (not answered and now_s - asked_s >= resend_after_s(core, learner)):
            round_.excused.pop(name, None)
            ask(core, round_, learner, now_s)


def resend_after_s(core: Core, learner: LearnerRecord) -> float:
    """Return how long to wait before this learner is asked again (`timeouts.py`)."""
    return resend_s(
        core.settings.timing,
        overlap_steps=core.overlap_steps,
        step_s=core.step_s,
        exchange_s=learner.exchange.answers_s.value,
    )


def abandon(core: Core, round_: Round, now_s: float, reason: str) -> None:
    """Abandon a round below its quorum: its contributions are late, their tokens still pending."""
    del core.rounds[round_.fragment]
    core.abandoned_s[round_.number] = now_s
    if len(core.abandoned_s) > ABANDONED_KEPT:
        del core.abandoned_s[min(core.abandoned_s)]
    core.merge_watch.abandoned += 1
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
        late = Refusal(Fate.LATE, "its round was abandoned", strike=False)
        refuse(core, round_.arrived[name].contribution, late, now_s, None)


def _admitted(core: Core, ticket: Ticket) -> Admitted | None:
    """Return the answer to a ticket that waits for its merge, whatever its sender says next.

    Once its round is merged, its payload is gone, and an answer that comes then is not needed.
    """
    for round_ in core.rounds.values():
        if round_.stage is Stage.JOURNALLING:
            continue
        held = round_.arrived.get(ticket.name)
        if held is not None and held.contribution.ticket == ticket:
            return held
    return None


def _drop(core: Core, ticket: Ticket, connection: int) -> None:
    """Free the payload of an answer that has just come; one that waits for its merge stays."""
    held = _admitted(core, ticket)
    if held is None or held.connection != connection:
        core.actions.append(DropContribution(ticket, None if held is None else connection))


def _fence(core: Core, contribution: Contribution) -> None:
    """Reject an admitted contribution whose sender's incarnation ended before the round closed."""
    ticket = contribution.ticket
    core.actions.append(DropContribution(ticket))
    core.record(
        round_entries.FateTold(
            ticket=str(ticket),
            fragment=contribution.fragment,
            fate=Fate.REJECTED,
            reason="fenced",
            tokens=contribution.tokens,
        )
    )


def _close(core: Core, round_: Round, now_s: float) -> None:
    """Judge norms, then merge what is left, or go on collecting if that is below the quorum."""
    admitted = _still_admitted(core, round_, now_s)
    if len(admitted) < (round_.quorum or 1):
        round_.quorum_s = None
        return
    for one, scale in admitted:
        name = one.contribution.ticket.name
        core.gauges[round_.fragment].merged(name, scale * one.rate)
    if not asks_all(core):
        for one, _ in admitted:
            turn_steps = core.learners[one.contribution.ticket.name].turn_steps
            share = done_share(one.contribution.steps, turn_steps)
            core.durable.clock += core.pace.round_interval_steps * share
    round_.stage = Stage.MERGING
    round_.closed_s = now_s
    _record_closing(core, round_)
    target = Version(core.durable.epoch, round_.version.number + 1)
    parts = tuple(
        MergePart(
            ticket=one.contribution.ticket,
            connection=one.connection,
            base=one.contribution.base,
            steps=one.contribution.steps,
            tokens=one.contribution.tokens,
            scale=scale,
        )
        for one, scale in admitted
    )
    core.actions.append(BeginMerge(round_.fragment, round_.number, round_.version, target, parts))


def _still_admitted(core: Core, round_: Round, now_s: float) -> list[tuple[Admitted, float]]:
    """Return the contributions to merge, by name, each with the factor that clips its norm."""
    rates = {str(name): round_.arrived[name].rate for name in sorted(round_.arrived)}
    judged = core.gauges[round_.fragment].judge(rates)
    for text, excess in judged.refused.items():
        name = LearnerName(text)
        contribution = round_.arrived.pop(name).contribution
        round_.excused[name] = "norm"
        reason = Refusal(Fate.REJECTED, f"norm {excess:.1f} times over", strike=True)
        refuse(core, contribution, reason, now_s, None)
    return [(round_.arrived[name], judged.scales[str(name)]) for name in sorted(round_.arrived)]


def _record_closing(core: Core, round_: Round) -> None:
    learners = max(1, core.learner_count)
    behind = [
        round_.version.number - admitted.contribution.base.number
        for admitted in round_.arrived.values()
    ]
    core.record(
        round_entries.Closed(
            round=round_.number,
            fragment=round_.fragment,
            arrived=sorted(round_.arrived),
            excused=sorted(round_.excused),
            waiting=sorted(round_.waiting),
            share=len(round_.arrived) / learners,
            staleness=fmean(behind),
        )
    )
