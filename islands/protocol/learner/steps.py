"""Permission to step, and the reports of compute: grants, steps, positions, adoptions.

Compute may step once every fragment is adopted and the moments are settled, on the leases held,
until the quota is used up or the run closes. An operator's pause and a departure stop it too. Where
it waits for a merge, and when a value is adopted, is the schedule's affair.
"""

from islands.protocol.identities import Lease, Phase
from islands.protocol.learner.account import Account, Queued
from islands.protocol.learner.actions import AdoptValue, SettleFeedback
from islands.protocol.learner.core import FROM_SYNCER, Core, MomentsStage
from islands.protocol.learner.events import Idled, StepFinished, TrainerReady, ValueAdopted
from islands.protocol.learner.moments_recovery import go_fresh, load_kept
from islands.protocol.messages import training
from islands.protocol.sessions import UpdateArrived
from islands.protocol.settings.choices import Adoption
from islands.protocol.tape.learner_entries import NO_DONOR

ADOPTING_MAX = 4
"""Updates per fragment that wait for a boundary; compute adopts the newest of them."""


def allow(core: Core) -> None:
    """Let compute step if every fragment is adopted and nothing forbids it."""
    compute, run = core.compute, core.run
    whole = core.phase in (Phase.STEPPING, Phase.STARVED, Phase.WAITING)
    if whole and not (core.ending or run.paused):
        if core.moments.stage is MomentsStage.OPEN:
            go_fresh(core, NO_DONOR)
        if core.moments.stage is MomentsStage.KEPT:
            load_kept(core)
        if core.healing:
            return
        core.schedule.begin(core)
        compute.allowed = compute.allowed or compute.quota_tokens > 0
        until_tokens = compute.origin_tokens + compute.quota_tokens
        core.allow_steps(until_tokens, compute.leases)
        compute.idle = compute.idle and until_tokens - compute.tokens < compute.batch_tokens
        compute.waiting = compute.waiting and compute.idle
        compute.late = compute.late and compute.idle


def pass_over(core: Core) -> None:
    """Have the schedule give up a merge that will not come."""
    if core.schedule.pass_over(core):
        allow(core)


def move_origin(core: Core) -> None:
    """Move the origin of this incarnation's totals, until its first step is allowed."""
    compute = core.compute
    if not compute.allowed:
        compute.origin_steps, compute.origin_tokens = compute.steps, compute.tokens


# --- the syncer's word --------------------------------------------------------------------------


@FROM_SYNCER.handles(training.LeaseGranted)
def on_grant(core: Core, grant: training.LeaseGranted) -> None:
    """Receive leases and quota; ignore an older syncer's or another incarnation's."""
    compute = core.compute
    if grant.epoch < core.epoch_seen or grant.incarnation != core.incarnation:
        return
    quota_tokens, leases = compute.quota_tokens, compute.leases
    compute.quota_tokens = max(quota_tokens, grant.quota_tokens)
    compute.leases = grant.leases
    _advance_positions(core, leases)
    if (compute.quota_tokens, compute.leases) != (quota_tokens, leases):
        allow(core)


@FROM_SYNCER.handles(training.FinalRound)
def on_final_round(core: Core, message: training.FinalRound) -> None:
    """Stop at the next boundary, because the run closes."""
    if message.epoch >= core.epoch_seen and not core.run.closing:
        core.run.closing = True
        core.allow_steps(0, core.compute.leases)


@FROM_SYNCER.handles(training.Paused)
def on_paused(core: Core, message: training.Paused) -> None:
    """Stop at the next boundary or resume, as an operator decided."""
    if message.epoch < core.epoch_seen or message.paused is core.run.paused:
        return
    core.run.paused = message.paused
    core.reporting.due = True
    if message.paused:
        core.allow_steps(0, core.compute.leases)
    else:
        allow(core)


@FROM_SYNCER.handles(training.ContributionFate)
def on_fate(core: Core, fate: training.ContributionFate) -> None:
    """Note a contribution that was not applied; its tokens' fate comes with the next update."""
    core.pulls.rejected.append((fate.ticket.epoch, fate.ticket.round))
    core.pulls.decided(fate.fragment)
    if core.schedule.rejected(core, fate):
        allow(core)


# --- compute's reports --------------------------------------------------------------------------


def on_ready(core: Core, event: TrainerReady) -> None:
    """Note that the model is built and compiled."""
    core.compute.ready, core.compute.batch_tokens = True, event.batch_tokens
    core.moments.ready_s = core.now_s


def on_step(core: Core, event: StepFinished) -> None:
    """Count a completed step; a report is due every `report_interval_steps`."""
    compute, reporting = core.compute, core.reporting
    compute.steps = max(compute.steps, event.steps)  # an adoption may have told of steps under way
    compute.tokens = max(compute.tokens, event.tokens)
    compute.idle, compute.waiting, compute.late = False, False, False
    compute.step_time_s = event.step_time_s
    core.pulls.stepped()
    _advance_positions(core, event.leases)
    interval = core.settings.report_interval_steps(core.fragments)
    reporting.due |= compute.steps - reporting.steps >= interval
    reporting.due |= core.schedule.stepped(core)


def on_idle(core: Core, event: Idled) -> None:
    """Note that compute stopped: it has no quota or no data, or was told to stop.

    If it has been allowed to step since, it is not idle: only the totals and positions are news.
    """
    compute = core.compute
    compute.steps, compute.tokens = event.steps, event.tokens
    _advance_positions(core, event.leases)
    if event.order == compute.order:
        if event.waiting and not compute.waiting:
            compute.waiting_since_s = core.now_s
        compute.idle, compute.waiting, compute.late = True, event.waiting, event.late
        core.reporting.due = True
        pass_over(core)


def _advance_positions(core: Core, leases: tuple[Lease, ...]) -> None:
    """Advance the positions of the leases held; drop those of an earlier incarnation."""
    news = {(lease.pass_index, lease.shard): lease for lease in leases}
    core.compute.leases = tuple(
        max(lease, news.get((lease.pass_index, lease.shard), lease))
        for lease in core.compute.leases
    )


# --- adoption -----------------------------------------------------------------------------------


def on_update(core: Core, event: UpdateArrived) -> None:
    """Have compute adopt a published value at the next boundary, if it is a newer one."""
    update = event.message
    account = core.accounts[update.fragment]
    known = [] if account.version is None else [account.version]
    known += [queued.update.version for queued in account.queue]
    old = any(version >= update.version for version in known)
    if not event.intact or old or update.epoch < core.epoch_seen or core.incarnation is None:
        return
    instead = core.schedule.instead_of_adopting(core, update)
    if instead is not None:
        account.queue.append(Queued(update, 0))
        core.actions.append(instead)
        return
    at_steps = core.schedule.adopt_at(core, update)
    account.queue = [*account.queue[1 - ADOPTING_MAX :], Queued(update, at_steps)]
    if core.settings.keeps_residuals:
        decided = SettleFeedback(update.fragment, update.epoch, update.round, update.merged)
        core.actions.append(decided)
    core.actions.append(_adopt(core, account, event, at_steps))
    pass_over(core)


def _adopt(core: Core, account: Account, event: UpdateArrived, at_steps: int) -> AdoptValue:
    """Return the order to adopt a value: what it replaces, and which local work is kept."""
    assert core.incarnation is not None, "only who is admitted adopts"
    update, settings = event.message, core.settings
    corrected = settings.adoption is Adoption.DELAY_CORRECTED
    mixes = settings.adoption is Adoption.MIX and account.version is not None
    carry = corrected and account.can_carry(update.merged)
    sent = account.sent_of(update.merged) if carry else None
    return AdoptValue(
        fragment=update.fragment,
        version=update.version,
        clock=update.clock,
        epoch=update.epoch,
        incarnation=core.incarnation,
        payload=event.payload,
        carry=carry,
        merged=update.merged,
        sent=None if sent is None else sent.payload,
        sent_precision=None if sent is None else sent.precision,
        local_share=settings.local_share if mixes else 0.0,
        at_steps=at_steps,
    )


def on_adopted(core: Core, event: ValueAdopted) -> None:
    """Record that a published value became the base; the last missing one allows steps.

    Until all are adopted no report is due: a report names every fragment, so one report per adopted
    fragment would cost a number of entries quadratic in the fragments, and nobody waits for them.
    """
    compute, account = core.compute, core.accounts[event.fragment]
    compute.steps, compute.tokens = event.steps, event.tokens
    if event.incarnation != core.incarnation:
        return  # the new incarnation adopts again what an ended one had adopted
    matches = [one.update for one in account.queue if one.update.version == event.version]
    account.queue = [one for one in account.queue if one.update.version > event.version]
    if not matches:
        return
    whole = core.phase is not Phase.HEALING
    move_origin(core)
    core.pulls.adopted(event.fragment)
    if event.carried:
        account.carry_on(matches[0])
    else:
        account.adopt(matches[0], steps=compute.own_steps, tokens=compute.own_tokens)
    core.reporting.due |= whole or core.phase is not Phase.HEALING
    further = core.schedule.adopted(core, matches[0])
    if further or not whole:
        allow(core)
