"""A learner's part in a round: permission to step, answers to pulls, and adoption.

Compute may step once every fragment is adopted and the moments are settled, on the leases held,
until the quota is used up, the run closes or pauses, or the learner leaves. The schedule decides
where it waits for a merge, when a pull's answer is due, and when a value is adopted.
"""

from islands.protocol.identities import Lease, Phase
from islands.protocol.learner import events
from islands.protocol.learner.account import Account, Queued
from islands.protocol.learner.actions import (
    AdoptValue,
    Contribute,
    OfferSeed,
    ReadValue,
    SettleFeedback,
)
from islands.protocol.learner.events import Idled, StepFinished, TrainerReady, ValueAdopted
from islands.protocol.learner.memory import EVENTS, FROM_SYNCER, LearnerMemory, MomentsStage
from islands.protocol.learner.moments_recovery import go_fresh, load_kept
from islands.protocol.messages import training
from islands.protocol.sessions import ToSyncer, UpdateArrived
from islands.protocol.settings.choices import Adoption, Precision
from islands.protocol.tape.learner_entries import NO_DONOR

ADOPTING_MAX = 4
"""Updates per fragment that wait for a boundary; compute adopts the newest of them."""

REPLACED = "a newer pull of its fragment came"


def allow(memory: LearnerMemory) -> None:
    """Let compute step if every fragment is adopted and nothing forbids it."""
    compute = memory.compute
    whole = memory.phase in (Phase.STEPPING, Phase.STARVED, Phase.WAITING)
    if whole and not (memory.ending or memory.compute.paused):
        if memory.moments.stage is MomentsStage.OPEN:
            go_fresh(memory, NO_DONOR)
        if memory.moments.stage is MomentsStage.KEPT:
            load_kept(memory)
        if memory.healing:
            return
        memory.schedule.begin(memory)
        compute.allowed = compute.allowed or compute.quota_tokens > 0
        until_tokens = compute.origin_tokens + compute.quota_tokens
        memory.allow_steps(until_tokens, compute.leases)
        compute.idle = compute.idle and until_tokens - compute.tokens < compute.batch_tokens
        compute.waiting = compute.waiting and compute.idle
        compute.late = compute.late and compute.idle


def pass_over(memory: LearnerMemory) -> None:
    if memory.schedule.pass_over(memory):
        allow(memory)


def move_origin(memory: LearnerMemory) -> None:
    """Move the origin of this incarnation's totals, until its first step is allowed."""
    compute = memory.compute
    if not compute.allowed:
        compute.origin_steps, compute.origin_tokens = compute.steps, compute.tokens


# --- the syncer's word --------------------------------------------------------------------------


@FROM_SYNCER.handles(training.LeaseGranted)
def on_grant(memory: LearnerMemory, grant: training.LeaseGranted) -> None:
    """Receive leases and quota; ignore an older syncer's or another incarnation's."""
    compute = memory.compute
    if grant.epoch < memory.epoch_seen or grant.incarnation != memory.incarnation:
        return
    quota_tokens, leases = compute.quota_tokens, compute.leases
    compute.quota_tokens = max(quota_tokens, grant.quota_tokens)
    compute.leases = grant.leases
    _advance_positions(memory, leases)
    if (compute.quota_tokens, compute.leases) != (quota_tokens, leases):
        allow(memory)


@FROM_SYNCER.handles(training.FinalRound)
def on_final_round(memory: LearnerMemory, message: training.FinalRound) -> None:
    if message.epoch >= memory.epoch_seen and not memory.compute.closing:
        memory.compute.closing = True
        memory.allow_steps(0, memory.compute.leases)


@FROM_SYNCER.handles(training.Paused)
def on_paused(memory: LearnerMemory, message: training.Paused) -> None:
    if message.epoch < memory.epoch_seen or message.paused is memory.compute.paused:
        return
    memory.compute.paused = message.paused
    memory.reporting.due = True
    if message.paused:
        memory.allow_steps(0, memory.compute.leases)
    else:
        allow(memory)


@FROM_SYNCER.handles(training.ContributionFate)
def on_fate(memory: LearnerMemory, fate: training.ContributionFate) -> None:
    """Note a contribution that was not applied; its tokens' fate comes with the next update."""
    memory.pulls.rejected.append((fate.ticket.epoch, fate.ticket.round))
    memory.pulls.decided(fate.fragment)
    if memory.schedule.rejected(memory, fate):
        allow(memory)


# --- compute's reports --------------------------------------------------------------------------


@EVENTS.handles(TrainerReady)
def on_ready(memory: LearnerMemory, event: TrainerReady) -> None:
    memory.compute.ready, memory.compute.batch_tokens = True, event.batch_tokens
    memory.moments.ready_s = memory.now_s


def count_step(memory: LearnerMemory, event: StepFinished) -> None:
    """Count a completed step; a report is due every `report_interval_steps`."""
    compute, reporting = memory.compute, memory.reporting
    compute.steps = max(compute.steps, event.steps)  # an adoption may have counted running steps
    compute.tokens = max(compute.tokens, event.tokens)
    compute.idle, compute.waiting, compute.late = False, False, False
    compute.step_time_s = event.step_time_s
    memory.pulls.stepped()
    _advance_positions(memory, event.leases)
    interval = memory.settings.report_interval_steps(memory.fragments)
    reporting.due |= compute.steps - reporting.steps >= interval
    reporting.due |= memory.schedule.stepped(memory)


@EVENTS.handles(Idled)
def on_idle(memory: LearnerMemory, event: Idled) -> None:
    """Note that compute stopped, unless it was allowed to step since."""
    compute = memory.compute
    compute.steps, compute.tokens = event.steps, event.tokens
    _advance_positions(memory, event.leases)
    if event.order == compute.order:
        if event.waiting and not compute.waiting:
            compute.waiting_since_s = memory.now_s
        compute.idle, compute.waiting, compute.late = True, event.waiting, event.late
        memory.reporting.due = True
        pass_over(memory)


def _advance_positions(memory: LearnerMemory, leases: tuple[Lease, ...]) -> None:
    """Advance the positions of the leases held; drop those of an earlier incarnation."""
    news = {(lease.pass_index, lease.shard): lease for lease in leases}
    memory.compute.leases = tuple(
        max(lease, news.get((lease.pass_index, lease.shard), lease))
        for lease in memory.compute.leases
    )


# --- adoption -----------------------------------------------------------------------------------


@EVENTS.handles(UpdateArrived)
def on_update(memory: LearnerMemory, event: UpdateArrived) -> None:
    """Have compute adopt a published value at the next boundary, if it is a newer one."""
    update = event.message
    account = memory.accounts[update.fragment]
    known = [] if account.version is None else [account.version]
    known += [queued.update.version for queued in account.queue]
    old = any(version >= update.version for version in known)
    if not event.intact or old or update.epoch < memory.epoch_seen or memory.incarnation is None:
        return
    instead = memory.schedule.instead_of_adopting(memory, update)
    if instead is not None:
        account.queue.append(Queued(update, 0))
        memory.actions.append(instead)
        return
    at_steps = memory.schedule.adopt_at(memory, update)
    account.queue = [*account.queue[1 - ADOPTING_MAX :], Queued(update, at_steps)]
    if memory.settings.keeps_residuals:
        decided = SettleFeedback(update.fragment, update.epoch, update.round, update.merged)
        memory.actions.append(decided)
    memory.actions.append(_adopt(memory, account, event, at_steps))
    pass_over(memory)


def _adopt(
    memory: LearnerMemory, account: Account, event: UpdateArrived, at_steps: int
) -> AdoptValue:
    """Return the order to adopt a value: what it replaces, and which local work is kept."""
    assert memory.incarnation is not None, "only who is admitted adopts"
    update, settings = event.message, memory.settings
    corrected = settings.adoption is Adoption.DELAY_CORRECTED
    mixes = settings.adoption is Adoption.MIX and account.version is not None
    carry = corrected and account.can_carry(update.merged)
    sent = account.sent_of(update.merged) if carry else None
    return AdoptValue(
        fragment=update.fragment,
        version=update.version,
        clock=update.clock,
        epoch=update.epoch,
        incarnation=memory.incarnation,
        payload=event.payload,
        carry=carry,
        merged=update.merged,
        sent=None if sent is None else sent.payload,
        sent_precision=None if sent is None else sent.precision,
        local_share=settings.local_share if mixes else 0.0,
        at_steps=at_steps,
    )


@EVENTS.handles(ValueAdopted)
def on_adopted(memory: LearnerMemory, event: ValueAdopted) -> None:
    """Record that a published value became the base; the last missing one allows steps.

    No report is due before, since each names every fragment.
    """
    compute, account = memory.compute, memory.accounts[event.fragment]
    compute.steps, compute.tokens = event.steps, event.tokens
    if event.incarnation != memory.incarnation:
        return  # the new incarnation adopts again what an ended one had adopted
    matches = [one.update for one in account.queue if one.update.version == event.version]
    account.queue = [one for one in account.queue if one.update.version > event.version]
    if not matches:
        return
    whole = memory.phase is not Phase.HEALING
    move_origin(memory)
    memory.pulls.adopted(event.fragment)
    if event.carried:
        account.carry_on(matches[0])
    else:
        account.adopt(matches[0], steps=compute.own_steps, tokens=compute.own_tokens)
    memory.reporting.due |= whole or memory.phase is not Phase.HEALING
    further = memory.schedule.adopted(memory, matches[0])
    if further or not whole:
        allow(memory)


# --- the seed -----------------------------------------------------------------------------------


@FROM_SYNCER.handles(training.FragmentRequest)
def on_fragment_request(memory: LearnerMemory, request: training.FragmentRequest) -> None:
    """Offer a base as version 0 if this has compiled, once per attempt and link."""
    if not memory.compute.ready or memory.incarnation is None or request.epoch < memory.epoch_seen:
        return
    attempt = request.epoch, request.attempt
    if memory.pulls.offered.get(request.fragment) != attempt:
        memory.pulls.offered[request.fragment] = attempt
        memory.actions.append(ReadValue(request, memory.incarnation))


@EVENTS.handles(events.ValueRead)
def on_value_read(memory: LearnerMemory, event: events.ValueRead) -> None:
    request, name = event.request, memory.membership.name
    seed = training.FragmentSeed(
        request.epoch, request.fragment, name, event.incarnation, digest=""
    )
    memory.actions.append(OfferSeed(seed, event.payload))


@EVENTS.handles(events.SeedSkipped)
def on_seed_skipped(memory: LearnerMemory, event: events.SeedSkipped) -> None:
    memory.pulls.offered.pop(event.fragment, None)


# --- contributions ------------------------------------------------------------------------------


@FROM_SYNCER.handles(training.PullFragment)
def on_pull(memory: LearnerMemory, pull: training.PullFragment) -> None:
    """Open a pull, or decline it; `answer_pulls` answers as soon as a snapshot allows."""
    ticket = pull.ticket
    if ticket.incarnation != memory.incarnation or ticket.epoch < memory.epoch_seen:
        return
    if memory.accounts[pull.fragment].version is None:
        _decline(memory, pull, "no base adopted yet")
        return
    known = memory.pulls.knows(pull)
    if memory.pulls.overtaken(pull.fragment, ticket):
        _decline(memory, pull, REPLACED)
        return
    if memory.leaving is not None and not known and not memory.hands_over:
        _decline(memory, pull, "leaving")
        return
    replaced = memory.pulls.asked(pull)
    if replaced is not None:
        _decline(memory, replaced, REPLACED)


@EVENTS.handles(events.SnapshotTaken)
def on_snapshot(memory: LearnerMemory, event: events.SnapshotTaken) -> None:
    """Keep a snapshot that reached the host, unless its base is old."""
    if event.base == memory.accounts[event.fragment].version:
        memory.pulls.keep(event)


@EVENTS.handles(events.ContributionEncoded)
def on_encoded(memory: LearnerMemory, event: events.ContributionEncoded) -> None:
    """Announce a contribution whose pull named the precision; keep its bytes to carry work over."""
    ticket = event.ticket
    carries = memory.settings.adoption is Adoption.DELAY_CORRECTED
    if carries and memory.settings.feeds_back and ticket.incarnation == memory.incarnation:
        account = memory.accounts[event.fragment]
        account.encoded(ticket.epoch, ticket.round, event.payload, event.precision)
    if memory.settings.precision is Precision.ADAPTIVE:
        memory.actions.append(ToSyncer(training.ContributionOffered(ticket, event.payload.nbytes)))


@EVENTS.handles(events.ContributionSkipped)
def on_skipped(memory: LearnerMemory, event: events.ContributionSkipped) -> None:
    if not memory.pulls.unanswered(event.fragment, event.ticket):
        memory.actions.append(
            ToSyncer(training.ContributionDeclined(event.ticket, event.fragment, REPLACED))
        )


def answer_pulls(memory: LearnerMemory) -> None:
    """Answer the pulls that can be answered, then plan the snapshots that are due next."""
    if not memory.schedule.may_answer(memory):
        return
    for fragment in sorted(memory.pulls.wanted):
        _answer(memory, memory.pulls.wanted[fragment])
    plan = memory.schedule.plan(memory)
    if plan != memory.pulls.planned:
        memory.pulls.planned = plan
        memory.actions.append(plan)


def _answer(memory: LearnerMemory, pull: training.PullFragment) -> None:
    account, compute = memory.accounts[pull.fragment], memory.compute
    base_steps = compute.origin_steps + account.base_steps
    idle = compute.idle and compute.steps == base_steps
    reason = "no step since its base" if idle else memory.schedule.why_declined(memory, pull)
    if reason is not None:
        memory.pulls.end(pull.fragment)
        _decline(memory, pull, reason)
        return
    least_steps = memory.schedule.least_steps(memory, pull)
    snapshot = memory.pulls.answerable(pull.fragment, base=account.version, least_steps=least_steps)
    if snapshot is None:
        return
    memory.pulls.closed(pull.fragment)
    processed = snapshot.tokens - compute.origin_tokens
    own = memory.settings.precision
    contribution = training.Contribution(
        ticket=pull.ticket,
        fragment=pull.fragment,
        base=snapshot.base,
        steps=snapshot.steps - base_steps,
        tokens=processed - account.base_tokens,
        processed_tokens=processed,
        precision=(pull.precision if own is Precision.ADAPTIVE else own).value,
        digest="",
    )
    carries = memory.settings.adoption is Adoption.DELAY_CORRECTED
    later = memory.settings.feeds_back  # what is sent is not encoded yet (`on_encoded`)
    sent = snapshot.payload if carries and not later else None  # leaves the local value once merged
    account.answered(pull.ticket.epoch, pull.ticket.round, contribution.tokens, sent)
    memory.schedule.answered(pull.ticket.round, snapshot.steps)
    memory.actions.append(Contribute(contribution, snapshot.payload))


def _decline(memory: LearnerMemory, pull: training.PullFragment, reason: str) -> None:
    memory.actions.append(
        ToSyncer(training.ContributionDeclined(pull.ticket, pull.fragment, reason))
    )
