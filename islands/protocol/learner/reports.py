"""A learner's reports on its own process: figures for the run's folder, sentences for a terminal.

The folder may lie on another host, and so may whoever looks at the hub. So the figures of all steps
go to the hub with heartbeats, and the terminal is told admissions and evictions, links that stay
down or come back, the first step, pauses, a loss that is not finite, and once a minute the
progress. A link that comes back at once is not reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation, Phase
from islands.protocol.learner.core import Core
from islands.protocol.learner.events import Event, FromSupervisor, FromSyncer, StepFinished
from islands.protocol.lost_links import UNSTEADY, LostLinks
from islands.protocol.messages.control import HARDWARE_MAX, METRICS_MAX, StepFigures
from islands.protocol.messages.membership import NOT_FINITE, Evicted
from islands.protocol.messages.training import Progress
from islands.protocol.running_statistics import DurationHistogram
from islands.protocol.settings.run import Timing
from islands.protocol.tape.learner_entries import Reported
from messaging.plain_text import plain

PROGRESS_S = 60.0


class Figures:
    """Sums over the steps of one process, and the mean loss since the figures were last sent.

    Args:
        process: an identifier that distinguishes this process from others of the same name.

    Attributes:
        hardware: the devices on which this process trains, as its trainer names them.
    """

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
        """Mean loss of the steps since the figures were last sent; without any, the last mean.

        It is None if no step told its loss.
        """
        return self._loss_sum / self._losses if self._losses else self._loss

    def stepped(
        self,
        step: StepFinished,
        loss: float | None,
        gap_s: float,
        data_wait_s: float,
        metrics: Mapping[str, float],
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
        for name, value in metrics.items():
            total, steps = self._metrics.get(name, (0.0, 0))
            if steps or len(self._metrics) < METRICS_MAX:
                self._metrics[name] = (total + value, steps + 1)

    def message(self, *, bytes_up: int, bytes_down: int) -> StepFigures:
        """All figures as a message; without a step since the last one, the loss is repeated."""
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


@dataclass(frozen=True, slots=True)
class LearnerView:
    """A learner's state at one moment. `loss` is the mean of its last steps, if known."""

    incarnation: Incarnation | None
    phase: Phase
    supervisor_up: bool
    syncer_up: bool
    steps: int
    tokens: int
    loss: float | None


def seen_of(core: Core, loss: float | None) -> LearnerView:
    """Extract from the learner's memory what its messages depend on."""
    return LearnerView(
        core.incarnation,
        core.phase,
        core.membership.supervisor_up,
        core.membership.syncer_up,
        core.compute.steps,
        core.compute.tokens,
        loss,
    )


@dataclass(slots=True)
class _Link:
    """One link: since when it has been down, whether that was reported, and how often it was."""

    what: str
    meanwhile: str
    was_up: bool = False
    down_s: float | None = None
    reported: bool = False
    losses: LostLinks = field(default_factory=LostLinks)

    def follow(self, now_s: float, patience_s: float, *, up: bool) -> str | None:
        self.was_up |= up
        if up:
            reported, self.reported = self.reported, False
            since_s, self.down_s = self.down_s or now_s, None
            return f"{self.what} is back after {now_s - since_s:.0f} s" if reported else None
        if self.down_s is None:
            self.down_s = now_s
            times = self.losses.lost(now_s) if self.was_up else None
            if times is not None:
                return f"the link to {self.what} {UNSTEADY.format(times)}"
        if self.reported or not self.was_up or now_s - self.down_s < patience_s:
            return None
        self.reported = True
        return f"{self.what} cannot be reached; {self.meanwhile}"


@dataclass(slots=True)
class Narrator:
    """Turns changes of a learner's state into sentences.

    Args:
        timing: timing settings of the run; a link is reported after `suspect_s` without it.
    """

    timing: Timing
    before: LearnerView | None = None
    admissions: int = 0
    stepped: bool = False
    progress_s: float | None = None
    links: tuple[_Link, _Link] = field(
        default_factory=lambda: (
            _Link("the supervisor", "it is dialled until it is back"),
            _Link("the syncer", "steps go on, as far as tokens were granted"),
        )
    )

    def follow(self, event: Event, seen: LearnerView, now_s: float) -> list[str]:
        """The sentences to print after an event that led to this state."""
        before, self.before = self.before, seen
        sentences = [*self._ended(event, before, seen), *self._links(seen, now_s)]
        if seen.incarnation is not None and (
            before is None or before.incarnation != seen.incarnation
        ):
            self.admissions += 1
            again = " again" if self.admissions > 1 else ""
            sentences.append(f"admitted{again}, as incarnation {seen.incarnation}")
        if before is not None and before.phase is not seen.phase:
            sentences += self._phase(before.phase, seen.phase)
        return [*sentences, *self._progress(seen, now_s)]

    @staticmethod
    def _ended(event: Event, before: LearnerView | None, seen: LearnerView) -> list[str]:
        """A sentence that says why the incarnation ended, if this event ended it."""
        match event:
            case FromSupervisor(Evicted(_, incarnation, reason)):
                ended = incarnation
            case FromSyncer(Evicted(_, incarnation, reason)):
                ended = incarnation
            case StepFinished(finite=False):
                over = before is not None and before.incarnation != seen.incarnation
                return over * [f"{NOT_FINITE}: it begins again from the published values"]
            case _:
                return []
        if before is None or before.incarnation != ended:
            return []
        why = plain(reason)
        return [f"its incarnation has ended ({why}): it keeps its moments, and joins again"]

    def _links(self, seen: LearnerView, now_s: float) -> list[str]:
        patience_s = self.timing.scaled(self.timing.suspect_s)
        ups = (seen.supervisor_up, seen.syncer_up)
        pairs = zip(self.links, ups, strict=True)
        sentences = [link.follow(now_s, patience_s, up=up) for link, up in pairs]
        return [sentence for sentence in sentences if sentence is not None]

    def _phase(self, before: Phase, phase: Phase) -> list[str]:
        if phase is Phase.PAUSED:
            return ["the run is paused"]
        if before is Phase.PAUSED and phase is Phase.STEPPING:
            return ["the run goes on"]
        if phase is Phase.COMPILING:
            return ["it reads its data, and compiles its step"]
        return []

    def _progress(self, seen: LearnerView, now_s: float) -> list[str]:
        if seen.steps and not self.stepped:
            self.stepped, self.progress_s = True, now_s
            return ["its first step is done"]
        if self.progress_s is None or now_s - self.progress_s < PROGRESS_S:
            return []
        self.progress_s = now_s
        if seen.phase is not Phase.STEPPING:
            return []
        loss = "" if seen.loss is None else f", loss {seen.loss:.4g}"
        return [f"{seen.steps:,} steps, {seen.tokens:,} tokens{loss}"]
