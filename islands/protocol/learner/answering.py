"""Answers to the syncer: contributions to its pulls, and the seed of a run that has no version 0.

`pulls.py` knows which pulls are open and which snapshot answers one; this module makes the answer.
"""

from islands.protocol.gossip.gossip import Gossip
from islands.protocol.identities import FragmentIndex
from islands.protocol.learner.actions import (
    Contribute,
    OfferSeed,
    PlanSnapshots,
    ReadValue,
    ToSyncer,
)
from islands.protocol.learner.adapting import precision_now, take_offered, take_skipped, why_spared
from islands.protocol.learner.core import Core
from islands.protocol.learner.events import (
    ContributionEncoded,
    ContributionSkipped,
    SeedSkipped,
    SnapshotTaken,
    ValueRead,
)
from islands.protocol.messages.training import (
    Contribution,
    ContributionDeclined,
    FragmentRequest,
    FragmentSeed,
    PullFragment,
)
from islands.protocol.settings.run import Adoption


def take_request(core: Core, request: FragmentRequest) -> None:
    """Offer a base as version 0 of a new run, or of one without a journal, if this has compiled.

    Each attempt is answered once per link: when the request is repeated, the first offer is still
    on its way.
    """
    if not core.ready or core.incarnation is None or request.epoch < core.epoch_seen:
        return
    attempt = request.epoch, request.attempt
    if core.offered.get(request.fragment) != attempt:
        core.offered[request.fragment] = attempt
        core.actions.append(ReadValue(request, core.incarnation))


def take_sending(
    core: Core, event: ContributionEncoded | ContributionSkipped | SeedSkipped
) -> None:
    """Note how an answer goes out: if the link did not take it, the request is unanswered."""
    if isinstance(event, ContributionEncoded):
        _take_encoded(core, event)
        take_offered(core, event)
    elif isinstance(event, SeedSkipped):
        core.offered.pop(event.fragment, None)
    else:
        core.pulls.unanswered(event.fragment, event.ticket)
        take_skipped(core, event.ticket)


def _take_encoded(core: Core, event: ContributionEncoded) -> None:
    """Keep a contribution as it is sent, if its part of the local value is to be told from it."""
    ticket = event.ticket
    carries = core.settings.adoption is Adoption.DELAY_CORRECTED
    if carries and core.settings.feeds_back and ticket.incarnation == core.incarnation:
        account = core.accounts[event.fragment]
        account.encoded(ticket.epoch, ticket.round, event.payload, event.precision)


def take_pull(core: Core, pull: PullFragment) -> None:
    """Open a pull, or decline it; `answer_pulls` answers as soon as a snapshot allows."""
    ticket = pull.ticket
    if ticket.incarnation != core.incarnation or ticket.epoch < core.epoch_seen:
        return
    if core.accounts[pull.fragment].version is None:
        _decline(core, pull, "no base adopted yet")
        return
    if core.leaving is not None and not core.pulls.knows(pull):
        _decline(core, pull, "leaving")
        return
    spared = why_spared(core, pull)
    if spared is not None:
        _decline(core, pull, spared)
        return
    core.pulls.asked(pull)


def take_copy(core: Core, event: SnapshotTaken | ValueRead) -> None:
    """Use what was copied to the host: offer a seed, or keep a snapshot unless its base is old."""
    if isinstance(event, ValueRead):
        request, name = event.request, core.membership.name
        seed = FragmentSeed(request.epoch, request.fragment, name, event.incarnation, digest="")
        core.actions.append(OfferSeed(seed, event.payload))
    elif event.base == core.accounts[event.fragment].version:
        core.pulls.taken(event)


def answer_pulls(core: Core) -> None:
    """Answer the pulls that can be answered, then plan the snapshots that are due next.

    Where learners gossip, only the closing rounds pull, and the answers wait until all work is
    measured from version 0.
    """
    if core.gossip is not None and not _pulled_in_gossip(core, core.gossip):
        return
    for fragment in sorted(core.pulls.wanted):
        _answer(core, core.pulls.wanted[fragment])
    plan = _plan(core)
    if plan != core.planned:
        core.planned = plan
        core.actions.append(plan)


def _pulled_in_gossip(core: Core, gossip: Gossip) -> bool:
    """Whether a learner that gossips may answer pulls; one that never stepped declines them."""
    if core.allowed:
        return len(gossip.gathered) == core.fragments
    return bool(core.pulls.wanted)


def _plan(core: Core) -> PlanSnapshots:
    """Return the snapshots to take: those that pulls look ahead to, or those that are due."""
    synchrony, turns, stands = core.synchrony, core.turns, core.idle and not core.waiting
    if turns is not None and not stands:
        due = dict(enumerate(turns.due_all(core.accounts, core.origin_steps)))
        return PlanSnapshots(tuple(map(FragmentIndex, due)), tuple(due.values()))
    if synchrony is None or synchrony.anchor is None or stands:
        return PlanSnapshots(core.pulls.plan())
    due = synchrony.snapshots()
    due |= {fragment: _least_steps(core, pull) for fragment, pull in core.pulls.wanted.items()}
    return PlanSnapshots(tuple(map(FragmentIndex, due)), tuple(due.values()))


def _least_steps(core: Core, pull: PullFragment) -> int:
    """Return the least total of steps that the answer to a pull must hold."""
    synchrony, turns = core.synchrony, core.turns
    if turns is not None and (core.waiting or not core.idle):
        base_steps = core.origin_steps + core.accounts[pull.fragment].base_steps
        return turns.due(pull.fragment, base_steps)
    if synchrony is not None and synchrony.anchor is not None and (core.waiting or not core.idle):
        due = max(synchrony.due(pull.ticket.round), core.first_contribution(pull.fragment))
        return min(due, core.steps) if core.waiting else due
    return core.steps if core.idle else core.first_contribution(pull.fragment)


def _answer(core: Core, pull: PullFragment) -> None:
    account = core.accounts[pull.fragment]
    base_steps = core.origin_steps + account.base_steps
    if core.idle and core.steps == base_steps:
        del core.pulls.wanted[pull.fragment]
        _decline(core, pull, "no step since its base")
        return
    ending = core.closing or core.leaving is not None
    if core.turns is not None and not ending and pull.fragment not in core.asking:
        del core.pulls.wanted[pull.fragment]
        _decline(core, pull, "its turn is not due")
        return
    least_steps = _least_steps(core, pull)
    snapshot = core.pulls.answerable(pull.fragment, base=account.version, least_steps=least_steps)
    if snapshot is None:
        return
    core.pulls.closed(pull.fragment)
    processed = snapshot.tokens - core.origin_tokens
    contribution = Contribution(
        ticket=pull.ticket,
        fragment=pull.fragment,
        base=snapshot.base,
        steps=snapshot.steps - base_steps,
        tokens=processed - account.base_tokens,
        processed_tokens=processed,
        precision=precision_now(core).value,
        digest="",
        acknowledge=core.adaptation is not None,
        cursor=snapshot.cursor,
    )
    carries = core.settings.adoption is Adoption.DELAY_CORRECTED
    later = core.settings.feeds_back  # what is sent is not encoded yet (`take_encoded`)
    sent = snapshot.payload if carries and not later else None  # leaves the local value once merged
    account.answered(pull.ticket.epoch, pull.ticket.round, contribution.tokens, sent)
    core.actions.append(Contribute(contribution, snapshot.payload, snapshot.number))


def _decline(core: Core, pull: PullFragment, reason: str) -> None:
    core.actions.append(ToSyncer(ContributionDeclined(pull.ticket, pull.fragment, reason)))
