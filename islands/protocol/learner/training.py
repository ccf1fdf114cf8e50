"""Permission to step, and the reports of compute: grants, steps, positions, adoptions.

Compute may step once every fragment is adopted and the moments are settled, on the leases held,
until the quota is used up or the run closes. An operator's pause, a departure and a quarantine stop
it too.
"""

from islands.protocol.gossip.gossip import Stage as GossipStage
from islands.protocol.gossip.gossip_actions import HoldValue
from islands.protocol.identities import Lease, Phase
from islands.protocol.learner.actions import AdoptValue, SettleFeedback
from islands.protocol.learner.core import Core, Queued
from islands.protocol.learner.events import Idled, StepFinished, UpdateArrived, ValueAdopted
from islands.protocol.learner.moments import Stage
from islands.protocol.learner.moments_recovery import go_fresh, take_up_kept
from islands.protocol.messages.training import FragmentUpdate, LeaseGranted, Quarantined
from islands.protocol.settings.run import Adoption
from islands.protocol.tape.learner_entries import NO_DONOR

RESENDS = 2
"""After the time of so many retransmissions, what was sent and is not decided counts as lost."""

ADOPTING_MAX = 4
"""Updates per fragment that wait for a boundary; compute adopts the newest of them."""


def take_grant(core: Core, grant: LeaseGranted) -> None:
    """Take a grant of leases and quota; ignore an older syncer's or another incarnation's."""
    if grant.epoch < core.epoch_seen or grant.incarnation != core.incarnation:
        return
    quota_tokens, leases = core.quota_tokens, core.leases
    core.quota_tokens = max(quota_tokens, grant.quota_tokens)
    core.leases = grant.leases
    _take_positions(core, leases)
    if (core.quota_tokens, core.leases) != (quota_tokens, leases):
        allow(core)


def allow(core: Core) -> None:
    """Let compute step if every fragment is adopted and nothing forbids it."""
    whole = core.phase in (Phase.STEPPING, Phase.STARVED, Phase.WAITING)
    if whole and not (core.closing or core.paused or core.leaving or core.quarantined):
        if core.moments.stage is Stage.OPEN:
            go_fresh(core, NO_DONOR)
        if core.moments.stage is Stage.KEPT:
            take_up_kept(core)
        if core.healing:
            return
        if core.synchrony is not None and core.synchrony.anchor is None:
            core.synchrony.begin(core.steps)
        core.allowed = core.allowed or core.quota_tokens > 0
        until_tokens = core.origin_tokens + core.quota_tokens
        core.allow_steps(until_tokens, core.leases)
        core.idle = core.idle and until_tokens - core.tokens < core.batch_tokens
        core.waiting, core.late = core.waiting and core.idle, core.late and core.idle


def take_final_round(core: Core, epoch: int) -> None:
    """Stop at the next boundary, because the run closes."""
    if epoch >= core.epoch_seen and not core.closing:
        core.closing = True
        core.allow_steps(0, core.leases)


def take_paused(core: Core, epoch: int, *, paused: bool) -> None:
    """Stop at the next boundary or resume, as an operator decided."""
    if epoch < core.epoch_seen or paused is core.paused:
        return
    core.paused = paused
    core.report_due = True
    if paused:
        core.allow_steps(0, core.leases)
    else:
        allow(core)


def take_ready(core: Core, batch_tokens: int) -> None:
    """Note that the model is built and compiled."""
    core.ready, core.batch_tokens = True, batch_tokens
    core.moments.ready_s = core.now_s


def take_step(core: Core, event: StepFinished) -> None:
    """Count a completed step; a report is due every `report_interval_steps`."""
    core.steps = max(core.steps, event.steps)  # an adoption may have told of steps under way
    core.tokens = max(core.tokens, event.tokens)
    core.idle, core.waiting, core.late = False, False, False
    core.step_time_s = event.step_time_s
    core.pulls.stepped()
    if core.adaptation is not None:
        core.adaptation.stepped(event.step_time_s)
    _take_positions(core, event.leases)
    interval = core.settings.report_interval_steps(core.fragments)
    core.report_due |= core.steps - core.reported_steps >= interval
    if core.turns is not None:
        due = core.turns.due_all(core.accounts, core.origin_steps)
        core.report_due |= core.steps in due


def take_idle(core: Core, event: Idled) -> None:
    """Note that compute stopped: it has no quota or no data, or was told to stop.

    If it has been allowed to step since, it is not idle: only the totals and positions are news.
    """
    core.steps, core.tokens = event.steps, event.tokens
    _take_positions(core, event.leases)
    if event.order == core.order:
        if event.waiting and not core.waiting:
            core.waiting_since_s = core.now_s
        core.idle, core.waiting, core.late = True, event.waiting, event.late
        core.report_due = True
        pass_over(core)


def _take_positions(core: Core, leases: tuple[Lease, ...]) -> None:
    """Advance the positions of the leases held; drop those of an earlier incarnation."""
    told = {(lease.pass_index, lease.shard): lease for lease in leases}
    core.leases = tuple(
        max(lease, told.get((lease.pass_index, lease.shard), lease)) for lease in core.leases
    )


def take_update(core: Core, event: UpdateArrived) -> None:
    """Have compute adopt a published value at the next boundary, if it is a newer one."""
    update = event.message
    held = core.accounts[update.fragment].version
    queue = core.adopting.setdefault(update.fragment, [])
    known = [held] if held is not None else []
    known += [queued.update.version for queued in queue]
    old = any(version >= update.version for version in known)
    if not event.intact or old or update.epoch < core.epoch_seen or core.incarnation is None:
        return
    if _keeps_own(core, update):
        queue.append(Queued(update, 0))
        core.actions.append(HoldValue(update.fragment, update.version, core.incarnation))
        return
    at_steps = _adopt_at(core, update)
    core.adopting[update.fragment] = [*queue[1 - ADOPTING_MAX :], Queued(update, at_steps)]
    if core.settings.keeps_residuals:
        told = SettleFeedback(update.fragment, update.epoch, update.round, update.merged)
        core.actions.append(told)
    corrected = core.settings.adoption is Adoption.DELAY_CORRECTED
    account = core.accounts[update.fragment]
    mixes = core.settings.adoption is Adoption.MIX and account.version is not None
    carry = corrected and account.can_carry(update.merged)
    sent = account.sent_of(update.merged) if carry else None
    core.actions.append(
        AdoptValue(
            *(update.fragment, update.version, update.clock, update.epoch, core.incarnation),
            payload=event.payload,
            carry=carry,
            merged=update.merged,
            sent=None if sent is None else sent.payload,
            sent_precision=None if sent is None else sent.precision,
            local_share=core.settings.local_share if mixes else 0.0,
            at_steps=at_steps,
            in_shares=bool(update.ranges),
        )
    )
    pass_over(core)


def _keeps_own(core: Core, update: FragmentUpdate) -> bool:
    """Whether a new incarnation that gossips keeps its own value, which no version 0 replaces."""
    gossip = core.gossip
    settled = gossip is not None and gossip.stage is GossipStage.SETTLED and not gossip.gathering
    return settled and core.accounts[update.fragment].version is None


def pass_over(core: Core) -> None:
    """Wait no more for rounds that passed this learner by, if the value of a later one is here.

    The oldest round that it waits for may have been lost with a syncer, or abandoned. If it has
    contributed to that, it waits for the fate until every message was sent again.
    """
    synchrony, timing = core.synchrony, core.settings.timing
    if synchrony is None or not core.waiting:
        return
    oldest = synchrony.settled + 1
    here = [queued.update.round for queue in core.adopting.values() for queued in queue]
    if oldest in here:
        allow(core)
        return
    waited_s = core.now_s - core.waiting_since_s
    patient = waited_s < timing.scaled(RESENDS * timing.resend_s)
    if patient and oldest in core.under_way():
        return
    later = [round_ for round_ in (*here, *synchrony.beyond) if round_ > oldest]
    if later:
        synchrony.settle(min(later) - 1, core.steps)
        allow(core)


def _adopt_at(core: Core, update: FragmentUpdate) -> int:
    """Return compute's total of steps at which a value is to be adopted; 0 is on arrival."""
    if core.synchrony is None or core.closing:
        return 0
    contributed = update.merged is not None and update.merged.round == update.round
    return core.synchrony.adopt_at(update.round, contributed=contributed)


def take_adoption(core: Core, event: ValueAdopted) -> None:
    """Record that a published value became the base; the last missing one allows steps.

    Until all are adopted no report is due: a report names every fragment, so one report per adopted
    fragment would cost a number of entries quadratic in the fragments, and nobody waits for them.
    """
    core.steps, core.tokens = event.steps, event.tokens
    if event.incarnation != core.incarnation:
        return  # the new incarnation adopts again what an ended one had adopted
    queue = core.adopting.get(event.fragment, [])
    adopted = [one.update for one in queue if one.update.version == event.version]
    core.adopting[event.fragment] = [one for one in queue if one.update.version > event.version]
    if not adopted:
        return
    whole = core.phase is not Phase.HEALING
    move_origin(core)
    core.pulls.adopted(event.fragment)
    account = core.accounts[event.fragment]
    if event.carried:
        account.carry_on(adopted[0])
    else:
        steps, tokens = event.steps - core.origin_steps, event.tokens - core.origin_tokens
        account.adopt(adopted[0], steps=steps, tokens=tokens)
    core.report_due |= whole or core.phase is not Phase.HEALING
    if core.turns is not None:
        core.turns.adopted(event.fragment, adopted[0].interval_steps)
    if core.synchrony is not None:
        core.synchrony.settle(adopted[0].round, core.steps, core.under_way())
    if not whole or core.synchrony is not None or core.turns is not None:
        allow(core)


def take_quarantine(core: Core, notice: Quarantined) -> None:
    """Stop at the next boundary: nothing of this incarnation is applied any more.

    The syncer then grants others what this learner has left (`islands.protocol.syncer.quarantine`).
    """
    if notice.incarnation == core.incarnation and not core.quarantined:
        core.quarantined = True
        core.allow_steps(0, core.leases)


def move_origin(core: Core) -> None:
    """Move the origin of this incarnation's totals, until its first step is allowed."""
    if not core.allowed:
        core.origin_steps, core.origin_tokens = core.steps, core.tokens
