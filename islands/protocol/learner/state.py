"""The learner's state: what it decides at an event, and what the hub and a terminal read of it.

`handle(event, now_s)` returns actions and performs none of them. The learner steps as long as it
has tokens and data, whatever happens to its links. Everything else is done by commands that compute
carries out at a step boundary, or by messages.

    joining ─▶ compiling ─▶ healing ─▶ stepping ⇄ starved ─▶ finished
       ▲                       ▲          │
       └──── evicted ──────────┴──────────┘   (memory kept, new incarnation, everything re-adopted)

The rules live in the modules of this package, each registered in `memory.py` for what it handles.
The run's folder may lie on another host, so the figures of all steps go to the hub with heartbeats.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from islands.protocol.gossip.events import GossipEvent
from islands.protocol.gossip.exchanges import Exchanges
from islands.protocol.gossip.gossip import Gossip
from islands.protocol.identities import Incarnation, LearnerName, Phase, Role
from islands.protocol.learner import events, membership, moments_recovery, steps
from islands.protocol.learner.account import Account, Pulls
from islands.protocol.learner.actions import Action
from islands.protocol.learner.events import StepFinished
from islands.protocol.learner.memory import EVENTS, CheckpointedMoments, LearnerMemory, Moments
from islands.protocol.learner.schedule import OwnTurns, Schedule, Synchronous
from islands.protocol.membership import MembershipState
from islands.protocol.messages.control import HARDWARE_MAX, METRICS_MAX, StepFigures
from islands.protocol.messages.training import Progress
from islands.protocol.running_statistics import DurationHistogram
from islands.protocol.sessions import ToSyncer
from islands.protocol.settings.choices import LearnerWaits, Trigger
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.learner_entries import Reported

STEPS_COMPILING = 2
"""The first steps of a process may compile."""


class LearnerState(LearnerMemory):
    """The state of one learner process, which the actor may read but never write.

    `fragments` is P, `kept` are moments that an earlier process of this name left on disk.
    """

    def __init__(
        self,
        settings: RunSettings,
        name: LearnerName,
        fingerprint: str,
        fragments: int,
        kept: CheckpointedMoments | None = None,
    ) -> None:
        super().__init__(
            settings=settings,
            membership=MembershipState(settings.run, Role.LEARNER, name, fingerprint),
            accounts=[Account() for _ in range(fragments)],
            pulls=Pulls(fragments, settings.open_rounds_max(fragments)),
            schedule=schedule_of(settings, name, fragments),
            moments=Moments(kept=kept),
        )

    @property
    def starting(self) -> bool:
        """Whether it still compiles, as the first of its steps may do as well."""
        return not self.compute.ready or self.compute.steps < STEPS_COMPILING

    def handle(self, event: events.Event, *, now_s: float) -> list[Action]:
        """Handle one event; returns the actions to perform, in order."""
        self.actions, self.now_s = [], now_s
        before, healing = self.phase, self.healing
        unmoved = self.compute.own_steps == 0
        if isinstance(event, GossipEvent):
            self.schedule.on_gossip(self, event)
        elif not isinstance(event, events.TimerDue):  # what is due is done after every event
            EVENTS.handle(self, event)
        moments_recovery.pursue(self)
        self.schedule.advance(self)
        if healing and not self.healing:
            steps.allow(self)
        steps.move_origin(self)
        self.reporting.due |= before is not self.phase
        # A finished process may end before its next heartbeat; who has stepped is a neighbour now.
        finished = before is not self.phase is Phase.FINISHED
        begun = self.schedule.announces and unmoved and self.compute.own_steps > 0
        if finished or begun:
            membership.show_life(self)
        steps.answer_pulls(self)
        self._report()
        membership.go_on_leaving(self)
        return self.actions

    def _report(self) -> None:
        reporting = self.reporting
        if reporting.due and self.membership.syncer_up and self.incarnation is not None:
            reporting.due = False
            reporting.steps, reporting.at_s = self.compute.steps, self.now_s
            self.actions.append(ToSyncer(self.progress(self.incarnation)))


def schedule_of(settings: RunSettings, name: LearnerName, fragments: int) -> Schedule:
    if settings.gossip.on:
        return Gossip(Exchanges(settings, name, fragments))
    if settings.trigger is Trigger.LEARNER:
        waits = settings.learner_waits is LearnerWaits.AT_TAU
        return OwnTurns(settings.interval_steps, waits)
    if settings.learner_waits is not LearnerWaits.NEVER:
        return Synchronous(settings.interval_steps, fragments, settings.overlap_steps_max)
    return Schedule()


PHASES = {
    Phase.JOINING: ["it is no member any more: it keeps its moments, and joins again"],
    Phase.COMPILING: ["it reads its data, and compiles its step"],
    Phase.PAUSED: ["the run is paused"],
}
"""The sentences for the terminal as a phase begins."""


class Figures:
    """Sums over the steps of one `process` on its `hardware`, and means since the last report."""

    def __init__(self, process: str) -> None:
        self.steps = 0
        self.hardware = ""
        self._process = process
        self._tokens = 0
        self._stepping_s = 0.0
        self._waited_s = 0.0
        self._step_time_s = 0.0
        self._loss: float | None = None
        self._loss_sum = 0.0
        self._losses = 0
        self._gap_s = 0.0
        self._data_wait_s = 0.0
        self._gaps = DurationHistogram()
        self._metrics: dict[str, tuple[float, int]] = {}

    @property
    def loss(self) -> float | None:
        """Mean loss of the steps since the figures were last sent; without any, the last mean."""
        return self._loss_sum / self._losses if self._losses else self._loss

    def stepped(
        self,
        step: StepFinished,
        loss: float | None,
        gap_s: float,
        data_wait_s: float,
        metrics: Mapping[str, float],
    ) -> None:
        self.steps, self._tokens = step.steps, step.tokens
        self._stepping_s += step.step_time_s
        self._waited_s += data_wait_s
        self._step_time_s = step.step_time_s
        if loss is not None:
            self._loss_sum, self._losses = self._loss_sum + loss, self._losses + 1
        self._gap_s, self._data_wait_s = gap_s, data_wait_s
        self._gaps.add(max(0.0, gap_s))
        for name, value in metrics.items():
            total, steps = self._metrics.get(name, (0.0, 0))
            if steps or len(self._metrics) < METRICS_MAX:
                self._metrics[name] = (total + value, steps + 1)

    def message(self, *, bytes_up: int, bytes_down: int) -> StepFigures:
        """All figures as a message, which repeats the loss without a step since the last one."""
        self._loss, self._loss_sum, self._losses = self.loss, 0.0, 0
        means = tuple((name, total / steps) for name, (total, steps) in self._metrics.items())
        self._metrics = {}
        return StepFigures(
            process=self._process,
            steps=self.steps,
            tokens=self._tokens,
            stepping_s=self._stepping_s,
            step_time_s=self._step_time_s,
            loss=self._loss,
            gap_s=self._gap_s,
            data_wait_s=self._data_wait_s,
            gap_bins=self._gaps.bins,
            gap_largest_s=self._gaps.largest_s,
            bytes_up=bytes_up,
            bytes_down=bytes_down,
            waited_s=self._waited_s,
            hardware=self.hardware[:HARDWARE_MAX],
            metrics=means,
        )


def reported(report: Progress) -> Reported:
    leases = [(lease.pass_index, lease.shard, lease.position) for lease in report.leases]
    return Reported(
        str(report.incarnation), report.phase, report.tokens, report.quota_tokens, leases
    )


@dataclass(slots=True)
class Narrator:
    """Turns changes of a learner's state into sentences for its terminal."""

    incarnation: Incarnation | None = None
    phase: Phase = Phase.JOINING
    stepped: bool = False

    def follow(self, incarnation: Incarnation | None, phase: Phase, steps: int) -> list[str]:
        """The sentences to print after an event that led to this state."""
        sentences = []
        if incarnation not in (None, self.incarnation):
            again = "" if self.incarnation is None else " again"
            sentences.append(f"admitted{again}, as incarnation {incarnation}")
            self.incarnation = incarnation
        before, self.phase = self.phase, phase
        if phase is not before:
            sentences += PHASES.get(phase, [])
            if before is Phase.PAUSED and phase is Phase.STEPPING:
                sentences.append("the run goes on")
        if steps and not self.stepped:
            self.stepped = True
            sentences.append("its first step is done")
        return sentences
