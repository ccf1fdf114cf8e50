"""Answers to the syncer: contributions to its pulls, and the seed of a run that has no version 0.

`pulls.py` knows which pulls are open and which snapshot answers one; the schedule says when one is
due.
"""

from islands.protocol.learner import events
from islands.protocol.learner.actions import Contribute, OfferSeed, ReadValue
from islands.protocol.learner.memory import EVENTS, FROM_SYNCER, LearnerMemory
from islands.protocol.messages import training
from islands.protocol.sessions import ToSyncer
from islands.protocol.settings.choices import Adoption, Precision

REPLACED = "a newer pull of its fragment came"

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
