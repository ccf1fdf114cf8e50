"""The learner's decisions: `handle(event, now_s)` returns actions and performs none of them.

The learner steps as long as it has tokens and data, whatever happens to its links. Everything else
is done by commands that compute carries out at a step boundary, or by messages.

    joining ─▶ compiling ─▶ healing ─▶ stepping ⇄ starved ─▶ finished
       ▲                       ▲          │
       └──── evicted ──────────┴──────────┘   (memory kept, new incarnation, everything re-adopted)

The rules live in the modules that the package's docstring lists; this module dispatches events to
them. Handlers of messages are registered where they are defined (`core.py`).
"""

from typing import assert_never

from islands.protocol import sessions
from islands.protocol.gossip.events import GossipEvent
from islands.protocol.gossip.exchanges import Exchanges
from islands.protocol.gossip.gossip import Gossip
from islands.protocol.identities import Incarnation, LearnerName, Phase, Role
from islands.protocol.learner import (
    answering,
    events,
    membership,
    moments_recovery,
    steps,
)
from islands.protocol.learner.account import Account
from islands.protocol.learner.actions import Action
from islands.protocol.learner.core import (
    FROM_SUPERVISOR,
    FROM_SYNCER,
    CheckpointedMoments,
    Core,
    Moments,
)
from islands.protocol.learner.own_turns import OwnTurns
from islands.protocol.learner.pulls import Pulls
from islands.protocol.learner.schedule import Schedule
from islands.protocol.learner.synchronous import Synchronous
from islands.protocol.membership import MembershipState
from islands.protocol.sessions import ToSyncer
from islands.protocol.settings.choices import LearnerWaits, Trigger
from islands.protocol.settings.run import RunSettings

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
    """

    def __init__(
        self,
        settings: RunSettings,
        name: LearnerName,
        fingerprint: str,
        fragments: int,
        kept: CheckpointedMoments | None = None,
    ) -> None:
        """Start without an admission and without any published value."""
        self._core = Core(
            settings=settings,
            membership=MembershipState(settings.run, Role.LEARNER, name, fingerprint),
            accounts=[Account() for _ in range(fragments)],
            pulls=Pulls(fragments, settings.open_rounds_max(fragments)),
            schedule=schedule_of(settings, name, fragments),
            moments=Moments(kept=kept),
        )

    @property
    def core(self) -> Core:
        """The learner's memory, which the actor and the tests may read but never write."""
        return self._core

    @property
    def name(self) -> LearnerName:
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
        compute = self._core.compute
        return not compute.ready or compute.steps < STEPS_COMPILING

    @property
    def phase(self) -> Phase:
        return self._core.phase

    def handle(self, event: events.Event, *, now_s: float) -> list[Action]:
        """Handle one event; returns the actions to perform, in order."""
        core = self._core
        core.actions, core.now_s = [], now_s
        before, healing = core.phase, core.healing
        unmoved = core.compute.own_steps == 0
        self._dispatch(event)
        moments_recovery.pursue(core)
        core.schedule.advance(core)
        if healing and not core.healing:
            steps.allow(core)
        steps.move_origin(core)
        core.reporting.due |= before is not core.phase
        # A finished process may end before its next heartbeat; who has stepped is a neighbour now.
        finished = before is not core.phase is Phase.FINISHED
        begun = core.schedule.announces and unmoved and core.compute.own_steps > 0
        if finished or begun:
            membership.show_life(core)
        answering.answer_pulls(core)
        self._report()
        membership.go_on_leaving(core)
        return core.actions

    def _dispatch(self, event: events.Event) -> None:
        core = self._core
        if isinstance(event, GossipEvent):
            core.schedule.on_gossip(core, event)
            return
        match event:
            case events.FromSupervisor(message):
                FROM_SUPERVISOR.handle(core, message)
            case events.FromSyncer(message):
                FROM_SYNCER.handle(core, message)
            case sessions.SupervisorLinkChanged(up):
                membership.on_supervisor_link(core, up=up)
            case sessions.SyncerLinkChanged(up):
                membership.on_syncer_link(core, up=up)
            case events.Ticked():
                membership.on_tick(core, event)
            case events.LeaveRequested(reason):
                membership.begin_leaving(core, reason)
            case sessions.UpdateArrived():
                steps.on_update(core, event)
            case events.ContributionEncoded():
                answering.on_encoded(core, event)
            case events.ContributionSkipped():
                answering.on_skipped(core, event)
            case events.SeedSkipped():
                answering.on_seed_skipped(core, event)
            case events.StateRequested():
                moments_recovery.on_state_request(core, event)
            case events.PieceArrived():
                moments_recovery.on_piece(core, event)
            case events.TimerDue():
                pass  # `pursue` does what is due after every event
            case _:
                self._from_compute(event)

    def _from_compute(self, event: events.ComputeReport) -> None:
        core = self._core
        match event:
            case events.TrainerMade():
                moments_recovery.on_made(core, event)
            case events.TrainerReady():
                steps.on_ready(core, event)
            case events.StepFinished():
                steps.on_step(core, event)
                if not event.finite and event.steps > core.compute.origin_steps:
                    membership.start_over(core)
            case events.Idled():
                steps.on_idle(core, event)
            case events.SnapshotTaken():
                answering.on_snapshot(core, event)
            case events.ValueRead():
                answering.on_value_read(core, event)
            case events.ValueAdopted():
                steps.on_adopted(core, event)
            case events.MomentsRead():
                moments_recovery.on_read(core, event)
            case events.MomentsLoaded():
                moments_recovery.on_loaded(core, event)
            case _:
                assert_never(event)

    def _report(self) -> None:
        """Send a progress report if one is due and the link to the syncer is up."""
        core, reporting = self._core, self._core.reporting
        if not reporting.due or not core.membership.syncer_up or core.incarnation is None:
            return
        reporting.due = False
        reporting.steps, reporting.at_s = core.compute.steps, core.now_s
        core.actions.append(ToSyncer(core.progress(core.incarnation)))


def schedule_of(settings: RunSettings, name: LearnerName, fragments: int) -> Schedule:
    if settings.gossip.on:
        return Gossip(Exchanges(settings, name, fragments))
    if settings.trigger is Trigger.LEARNER:
        waits = settings.learner_waits is LearnerWaits.AT_TAU
        return OwnTurns(settings.interval_steps, waits)
    if settings.learner_waits is not LearnerWaits.NEVER:
        return Synchronous(settings.interval_steps, fragments, settings.overlap_steps_max)
    return Schedule()
