"""Answers to the syncer: contributions to its pulls, and the seed of a run that has no version 0.

`pulls.py` knows which pulls are open and which snapshot answers one; the schedule says when one is
due. This module makes the answer.
"""

from islands.protocol.learner import events
from islands.protocol.learner.actions import Contribute, OfferSeed, ReadValue
from islands.protocol.learner.core import FROM_SYNCER, Core
from islands.protocol.messages import training
from islands.protocol.sessions import ToSyncer
from islands.protocol.settings.choices import Adoption, Precision

REPLACED = "a newer pull of its fragment came"

# --- the seed -----------------------------------------------------------------------------------


@FROM_SYNCER.handles(training.FragmentRequest)
def on_fragment_request(core: Core, request: training.FragmentRequest) -> None:
    """Offer a base as version 0 of a new run, or of one without a journal, if this has compiled.

    Each attempt is answered once per link: when the request is repeated, the first offer is still
    on its way.
    """
    if not core.compute.ready or core.incarnation is None or request.epoch < core.epoch_seen:
        return
    attempt = request.epoch, request.attempt
    if core.pulls.offered.get(request.fragment) != attempt:
        core.pulls.offered[request.fragment] = attempt
        core.actions.append(ReadValue(request, core.incarnation))


def on_value_read(core: Core, event: events.ValueRead) -> None:
    request, name = event.request, core.membership.name
    seed = training.FragmentSeed(
        request.epoch, request.fragment, name, event.incarnation, digest=""
    )
    core.actions.append(OfferSeed(seed, event.payload))


def on_seed_skipped(core: Core, event: events.SeedSkipped) -> None:
    """Answer the request again when it is repeated."""
    core.pulls.offered.pop(event.fragment, None)


# --- contributions ------------------------------------------------------------------------------


@FROM_SYNCER.handles(training.PullFragment)
def on_pull(core: Core, pull: training.PullFragment) -> None:
    """Open a pull, or decline it; `answer_pulls` answers as soon as a snapshot allows."""
    ticket = pull.ticket
    if ticket.incarnation != core.incarnation or ticket.epoch < core.epoch_seen:
        return
    if core.accounts[pull.fragment].version is None:
        _decline(core, pull, "no base adopted yet")
        return
    known = core.pulls.knows(pull)
    if core.pulls.overtaken(pull.fragment, ticket):
        _decline(core, pull, REPLACED)
        return
    if core.leaving is not None and not known and not core.hands_over:
        _decline(core, pull, "leaving")
        return
    replaced = core.pulls.asked(pull)
    if replaced is not None:
        _decline(core, replaced, REPLACED)


def on_snapshot(core: Core, event: events.SnapshotTaken) -> None:
    """Keep a snapshot that reached the host, unless its base is old."""
    if event.base == core.accounts[event.fragment].version:
        core.pulls.keep(event)


def on_encoded(core: Core, event: events.ContributionEncoded) -> None:
    """Say that a contribution leaves, if its pull named the precision (`syncer/precision.py`).

    It is kept as it is sent if its part of the local value is to be told from it.
    """
    ticket = event.ticket
    carries = core.settings.adoption is Adoption.DELAY_CORRECTED
    if carries and core.settings.feeds_back and ticket.incarnation == core.incarnation:
        account = core.accounts[event.fragment]
        account.encoded(ticket.epoch, ticket.round, event.payload, event.precision)
    if core.settings.precision is Precision.ADAPTIVE:
        core.actions.append(ToSyncer(training.ContributionOffered(ticket, event.payload.nbytes)))


def on_skipped(core: Core, event: events.ContributionSkipped) -> None:
    """Reopen a pull whose answer the link did not take."""
    if not core.pulls.unanswered(event.fragment, event.ticket):
        core.actions.append(
            ToSyncer(training.ContributionDeclined(event.ticket, event.fragment, REPLACED))
        )


def answer_pulls(core: Core) -> None:
    """Answer the pulls that can be answered, then plan the snapshots that are due next."""
    if not core.schedule.may_answer(core):
        return
    for fragment in sorted(core.pulls.wanted):
        _answer(core, core.pulls.wanted[fragment])
    plan = core.schedule.plan(core)
    if plan != core.pulls.planned:
        core.pulls.planned = plan
        core.actions.append(plan)


def _answer(core: Core, pull: training.PullFragment) -> None:
    account, compute = core.accounts[pull.fragment], core.compute
    base_steps = compute.origin_steps + account.base_steps
    idle = compute.idle and compute.steps == base_steps
    reason = "no step since its base" if idle else core.schedule.why_declined(core, pull)
    if reason is not None:
        core.pulls.end(pull.fragment)
        _decline(core, pull, reason)
        return
    least_steps = core.schedule.least_steps(core, pull)
    snapshot = core.pulls.answerable(pull.fragment, base=account.version, least_steps=least_steps)
    if snapshot is None:
        return
    core.pulls.closed(pull.fragment)
    processed = snapshot.tokens - compute.origin_tokens
    own = core.settings.precision
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
    carries = core.settings.adoption is Adoption.DELAY_CORRECTED
    later = core.settings.feeds_back  # what is sent is not encoded yet (`on_encoded`)
    sent = snapshot.payload if carries and not later else None  # leaves the local value once merged
    account.answered(pull.ticket.epoch, pull.ticket.round, contribution.tokens, sent)
    core.schedule.answered(pull.ticket.round, snapshot.steps)
    core.actions.append(Contribute(contribution, snapshot.payload))


def _decline(core: Core, pull: training.PullFragment, reason: str) -> None:
    core.actions.append(ToSyncer(training.ContributionDeclined(pull.ticket, pull.fragment, reason)))
