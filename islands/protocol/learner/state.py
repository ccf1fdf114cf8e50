"""The learner's decisions: `handle(event, now_s)` returns actions and performs none of them.

The learner steps as long as it has tokens and data, whatever happens to its links. Everything else
is done by commands that compute carries out at a step boundary, or by messages.

    joining ─▶ compiling ─▶ healing ─▶ stepping ⇄ starved ─▶ finished
       ▲                       ▲          │
       └──── evicted ──────────┴──────────┘   (memory kept, new incarnation, everything re-adopted)

The rules live in the modules that the package's docstring lists; this module dispatches to them.
"""

from dataclasses import replace
from typing import assert_never

from islands.protocol.gossip import gossiping
from islands.protocol.gossip.gossip import Gossip
from islands.protocol.gossip.gossip_events import GossipEvent
from islands.protocol.identities import Incarnation, LearnerName, Phase, Role
from islands.protocol.learner.account import Account
from islands.protocol.learner.actions import Action, Exit, ToSyncer
from islands.protocol.learner.adaptation import Adaptation
from islands.protocol.learner.adapting import take_measured
from islands.protocol.learner.answering import (
    answer_pulls,
    take_copy,
    take_pull,
    take_request,
    take_sending,
)
from islands.protocol.learner.core import Core
from islands.protocol.learner.donating import take_read, take_state_request
from islands.protocol.learner.events import (
    ContributionEncoded,
    ContributionSkipped,
    Event,
    FromSupervisor,
    FromSyncer,
    Idled,
    LeaveRequested,
    MomentsLoaded,
    MomentsRead,
    PieceArrived,
    SeedSkipped,
    SnapshotTaken,
    StateRequested,
    StepFinished,
    SupervisorLinkChanged,
    SupervisorMessage,
    SyncerLinkChanged,
    SyncerMessage,
    Ticked,
    TimerDue,
    TrainerMade,
    TrainerReady,
    UpdateArrived,
    ValueAdopted,
    ValueRead,
)
from islands.protocol.learner.exchanges import Exchanges
from islands.protocol.learner.leaving import begin_leaving, end_with_run, go_on_leaving, take_fate
from islands.protocol.learner.membership import (
    show_life,
    start_over,
    take_ack,
    take_eviction,
    take_joined,
    take_refusal,
    take_supervisor_link,
    take_syncer_link,
    take_tick,
    take_welcome,
)
from islands.protocol.learner.moments import CheckpointedMoments, Moments
from islands.protocol.learner.moments_recovery import pursue, take_loaded, take_made, take_piece
from islands.protocol.learner.pulls import Pulls
from islands.protocol.learner.synchrony import Synchrony
from islands.protocol.learner.training import (
    allow,
    move_origin,
    take_adoption,
    take_final_round,
    take_grant,
    take_idle,
    take_paused,
    take_quarantine,
    take_ready,
    take_step,
    take_update,
)
from islands.protocol.learner.turns import Turns
from islands.protocol.membership import MembershipState
from islands.protocol.messages.control import Drain
from islands.protocol.messages.membership import (
    Evicted,
    HeartbeatAck,
    Joined,
    MembershipChanged,
    Refused,
    Stop,
)
from islands.protocol.messages.training import (
    ContributionFate,
    ContributionReceived,
    FinalRound,
    FragmentRequest,
    LeaseGranted,
    LinkProbe,
    Paused,
    PullFragment,
    Quarantined,
    Welcome,
)
from islands.protocol.settings.run import LearnerWaits, RunSettings, Trigger

STEPS_COMPILING = 2
"""The first steps of a process may compile."""


class LearnerState:
    """The state of one learner process.

    Args:
        settings: settings of the run, the same for all its members.
        name: the learner's name, unique in the run.
        fingerprint: digest of the model's layout, which the supervisor compares with its own.
        fragments: P, the number of fragments in the plan.
        kept: moments that an earlier process of this name left on disk, if there are any.
        adaptation: chooses the precision of contributions, where the settings leave it open.
    """

    def __init__(
        self,
        settings: RunSettings,
        name: LearnerName,
        fingerprint: str,
        fragments: int,
        kept: CheckpointedMoments | None = None,
        adaptation: Adaptation | None = None,
    ) -> None:
        """Start without an admission and without any published value."""
        self._core = Core(
            settings=settings,
            membership=MembershipState(settings.run, Role.LEARNER, name, fingerprint),
            accounts=[Account() for _ in range(fragments)],
            kept=[None] * fragments,
            moments=Moments(kept=kept),
            pulls=Pulls(fragments, settings.open_rounds_max(fragments)),
            synchrony=_synchrony(settings, fragments),
            gossip=Gossip(Exchanges(settings, name, fragments)) if settings.gossip.on else None,
            adaptation=adaptation,
            turns=_turns(settings),
        )

    @property
    def core(self) -> Core:
        """The learner's memory, which the actor and the tests may read but never write."""
        return self._core

    @property
    def settings(self) -> RunSettings:
        """The settings of the run."""
        return self._core.settings

    @property
    def name(self) -> LearnerName:
        """The learner's name, unique in the run."""
        return self._core.membership.name

    @property
    def incarnation(self) -> Incarnation | None:
        """The incarnation under which the learner is admitted; None if it is not."""
        return self._core.incarnation

    @property
    def accounts(self) -> list[Account]:
        """The token accounts of this incarnation, one for each fragment."""
        return self._core.accounts

    @property
    def starting(self) -> bool:
        """Whether it still compiles, as the first of its steps may do as well."""
        return not self.core.ready or self.core.steps < STEPS_COMPILING

    @property
    def phase(self) -> Phase:
        """What this learner is doing."""
        return self._core.phase

    def listens(self, address: str) -> None:
        """Note where neighbours reach this learner, before anything else."""
        assert self._core.gossip is not None, "only who gossips is dialled"
        self._core.gossip.address = address

    def handle(self, event: Event, *, now_s: float) -> list[Action]:
        """Handle one event; returns the actions to perform, in order."""
        core = self._core
        core.actions, core.now_s = [], now_s
        before, healing = core.phase, core.healing
        unmoved = core.steps == core.origin_steps
        self._take(event, now_s)
        pursue(core)
        gossiping.go_on(core)
        if healing and not core.healing:
            allow(core)
        move_origin(core)
        core.report_due |= before is not core.phase
        # A finished process may end before its next heartbeat; who has stepped is a neighbour now.
        finished = before is not core.phase is Phase.FINISHED
        begun = core.gossip is not None and unmoved and core.steps > core.origin_steps
        if finished or begun:
            show_life(core)
        answer_pulls(core)
        self._report(now_s)
        go_on_leaving(core)
        return core.actions

    def _take(self, event: Event, now_s: float) -> None:
        core = self._core
        if isinstance(event, GossipEvent):
            gossiping.take_gossip(core, event)
            return
        match event:
            case FromSupervisor(message):
                self._from_supervisor(message)
            case FromSyncer(message):
                self._from_syncer(message)
            case UpdateArrived():
                take_update(core, event)
            case SupervisorLinkChanged(up):
                take_supervisor_link(core, up=up)
            case SyncerLinkChanged(up):
                take_syncer_link(core, up=up)
            case Ticked(compiling):
                take_tick(core, now_s, compiling=compiling)
            case LeaveRequested(reason):
                begin_leaving(core, reason)
            case ContributionEncoded() | ContributionSkipped() | SeedSkipped():
                take_sending(core, event)
            case TrainerMade():
                take_made(core, event)
            case TrainerReady(batch_tokens):
                take_ready(core, batch_tokens)
            case StepFinished():
                take_step(core, event)
                if not event.finite and event.steps > core.origin_steps:
                    start_over(core)
            case Idled():
                take_idle(core, event)
            case SnapshotTaken() | ValueRead():
                take_copy(core, event)
            case ValueAdopted():
                take_adoption(core, event)
            case StateRequested() | MomentsRead() | PieceArrived() | MomentsLoaded() | TimerDue():
                self._take_moments(event)
            case _:
                assert_never(event)

    def _take_moments(
        self, event: StateRequested | MomentsRead | PieceArrived | MomentsLoaded | TimerDue
    ) -> None:
        core = self._core
        match event:
            case StateRequested():
                take_state_request(core, event)
            case MomentsRead():
                take_read(core, event)
            case PieceArrived():
                take_piece(core, event)
            case MomentsLoaded():
                take_loaded(core, event)
            case TimerDue():
                core.moments.reminder_s = None  # `pursue` does what is due after every event
            case _:
                assert_never(event)

    def _from_supervisor(self, message: SupervisorMessage) -> None:
        core = self._core
        match message:
            case Joined():
                take_joined(core, message)
            case Refused(_, reason, retry):
                take_refusal(core, "the supervisor", reason, retry=retry)
            case Evicted():
                take_eviction(core, message)
            case HeartbeatAck():
                take_ack(core, message)
            case MembershipChanged():
                gossiping.take_roster(core, message)
            case Drain(reason):
                begin_leaving(core, reason)
            case Stop(reason):
                core.actions.append(Exit(reason, failed=False))
            case _:
                assert_never(message)

    def _from_syncer(self, message: SyncerMessage) -> None:
        core = self._core
        match message:
            case Welcome():
                take_welcome(core, message)
            case Refused(_, reason, retry):
                take_refusal(core, "the syncer", reason, retry=retry)
            case Evicted():
                take_eviction(core, replace(message, unknown=False))
            case LeaseGranted():
                take_grant(core, message)
            case PullFragment():
                take_pull(core, message)
            case FragmentRequest():
                take_request(core, message)
            case FinalRound(epoch, _):
                take_final_round(core, epoch)
            case Paused(epoch, paused):
                take_paused(core, epoch, paused=paused)
            case Stop(reason):
                end_with_run(core, reason)
            case ContributionFate():
                take_fate(core, message)
            case ContributionReceived() | LinkProbe():
                take_measured(core, message)
            case Quarantined():
                take_quarantine(core, message)
            case _:
                assert_never(message)

    def _report(self, now_s: float) -> None:
        """Send a progress report if one is due and the link to the syncer is up."""
        core = self._core
        if not core.report_due or not core.membership.syncer_up or core.incarnation is None:
            return
        core.report_due = False
        core.reported_steps, core.reported_s = core.steps, now_s
        core.actions.append(ToSyncer(core.progress(core.incarnation)))


def _synchrony(settings: RunSettings, fragments: int) -> Synchrony | None:
    """Return the schedule of a learner that waits for the fleet's rounds; None if it does not."""
    if settings.learner_waits is LearnerWaits.NEVER or settings.trigger is Trigger.LEARNER:
        return None
    return Synchrony(settings.interval_steps, fragments, settings.overlap_steps_max)


def _turns(settings: RunSettings) -> Turns | None:
    """Return the turns of a learner that opens rounds of its own; None if it opens none."""
    if settings.trigger is not Trigger.LEARNER:
        return None
    return Turns(settings.interval_steps, settings.learner_waits is LearnerWaits.AT_TAU)
