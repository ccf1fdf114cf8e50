"""Cumulative step figures of one learner process, for the run's folder on another host."""

from islands.protocol.histogram import DurationHistogram
from islands.protocol.learner.events import StepFinished
from islands.protocol.messages.control import StepFigures
from islands.protocol.messages.training import Progress
from islands.protocol.tape.learner_entries import Reported


class Figures:
    """Sums over the steps of one process, and the mean loss since the figures were last sent.

    Args:
        process: an identifier that distinguishes this process from others of the same name.
    """

    def __init__(self, process: str) -> None:
        """Start with no steps."""
        self.steps = 0
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

    @property
    def loss(self) -> float | None:
        """Mean loss of the steps since the figures were last sent; without any, the last mean.

        It is None if no step told its loss.
        """
        return self._loss_sum / self._losses if self._losses else self._loss

    def stepped(
        self, step: StepFinished, loss: float | None, gap_s: float, data_wait_s: float
    ) -> None:
        """Add a completed step, whose totals are over the life of the process."""
        self.steps, self._tokens = step.steps, step.tokens
        self._stepping_s += step.step_time_s
        self._waited_s += data_wait_s
        self._step_time_s = step.step_time_s
        if loss is not None:
            self._loss_sum, self._losses = self._loss_sum + loss, self._losses + 1
        self._gap_s, self._data_wait_s = gap_s, data_wait_s
        self._gaps.add(max(0.0, gap_s))

    def told(self, *, bytes_up: int, bytes_down: int) -> StepFigures:
        """All figures as a message; without a step since the last one, the loss is repeated."""
        self._loss, self._loss_sum, self._losses = self.loss, 0.0, 0
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
        )


def reported(told: Progress) -> Reported:
    """The tape entry of a progress report."""
    leases = [(lease.pass_index, lease.shard, lease.position) for lease in told.leases]
    return Reported(str(told.incarnation), told.phase, told.tokens, told.quota_tokens, leases)
