"""A learner's reports on its own process: figures for the run's folder, sentences for a terminal.

The folder may lie on another host, so the figures of all steps go to the hub with heartbeats. The
terminal reads of phases, admissions and the first step; the hub reports evictions and progress.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from islands.protocol.identities import Incarnation, Phase
from islands.protocol.learner.events import StepFinished
from islands.protocol.messages.control import HARDWARE_MAX, METRICS_MAX, StepFigures
from islands.protocol.messages.training import Progress
from islands.protocol.running_statistics import DurationHistogram
from islands.protocol.tape.learner_entries import Reported

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
