"""What a run leaves behind: tape, metrics, TensorBoard events, log, and the figures for a summary.

`metrics.jsonl` is the source of truth; TensorBoard gets the same numbers. Rows have a `kind`:
`step` (per learner, at most one a second), `merge`, `evaluation`. Times are seconds since the
start of the run.
"""

import json
import platform
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from math import ceil, floor, isfinite, log10
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from islands.config import RunSettings
from islands.errors import UserError
from islands.tape import FileTape

if TYPE_CHECKING:
    from islands.learner.compute import StepReport

PACKAGES = ("islands", "jax", "jaxlib", "flax", "optax", "numpy", "numba", "msgpack", "aiohttp")
LOGGED = frozenset(
    (
        *("admitted", "recognised", "status", "evicted", "left", "retired", "refused"),
        *("quarantined", "moments_reset", "failed", "gave_up", "paused"),
        *("process_started", "process_ended", "started", "seeded", "closing", "finished"),
    )
)
STEP_ROW_INTERVAL_S = 1.0
LOSS_SMOOTHING = 0.05
LOSSES_KEPT = 4096


class GapHistogram:
    """Durations on a logarithmic scale: any number of samples in bounded memory, within 2.4 %."""

    PER_DECADE = 100
    LOWEST_S = 1e-7

    def __init__(self) -> None:
        """No samples."""
        self.count = 0
        self.largest_s = 0.0
        self._bins: dict[int, int] = {}

    def add(self, duration_s: float) -> None:
        """Take in one duration in seconds."""
        self.count += 1
        self.largest_s = max(self.largest_s, duration_s)
        index = floor(self.PER_DECADE * log10(max(duration_s, self.LOWEST_S)))
        self._bins[index] = self._bins.get(index, 0) + 1

    def quantile(self, share: float) -> float:
        """Smallest duration that this share of the samples does not exceed, in seconds."""
        left = ceil(share * self.count)
        for index in sorted(self._bins):
            left -= self._bins[index]
            if left <= 0:
                upper = 10 ** ((index + 1) / self.PER_DECADE)
                return float(min(self.largest_s, upper))
        return 0.0


@dataclass(slots=True)
class LearnerFigures:
    """What one learner did, over all its incarnations and processes."""

    steps: int = 0
    tokens: int = 0
    incarnations: int = 0
    stepping_s: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    loss: float | None = None
    step_time_s: float = 0.0
    status: str = "starting"
    process_steps: int = 0
    process_tokens: int = 0
    row_s: float = float("-inf")


@dataclass(slots=True)
class RunFigures:
    """What the whole run did, as one can show it while it goes on."""

    learners: dict[str, LearnerFigures] = field(default_factory=dict)
    merges: int = 0
    gaps: GapHistogram = field(default_factory=GapHistogram)
    evaluations: list[dict[str, float]] = field(default_factory=list)
    losses: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=LOSSES_KEPT))
    events: deque[str] = field(default_factory=lambda: deque(maxlen=5))


class RunFolder:
    """The files of one run. It is also the tape on which all actors record.

    Args:
        path: of the folder; made if missing.
        settings: of the run, written at once.
    """

    def __init__(self, path: Path, settings: RunSettings) -> None:
        """Make the folder, and write what is known beforehand.

        Raises:
            UserError: the folder cannot be made or written to, or holds a run that has ended.
        """
        from tensorboardX import SummaryWriter

        self.path = path
        self.figures = RunFigures()
        self.listeners: list[Callable[[], object]] = []
        """Called whenever the figures may have changed; they must be quick."""
        if (path / "summary.json").exists():
            raise UserError(
                f"{path} holds a run that has ended; choose another folder, or remove it"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / "settings.json").write_bytes(msgspec.json.format(msgspec.json.encode(settings)))
            (path / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n")
        except OSError as error:
            raise UserError(f"the run folder {path} cannot be written: {error.strerror}") from error
        self._tape = FileTape(path / "tape.jsonl")
        self._metrics = (path / "metrics.jsonl").open("a", buffering=1)
        self._board = SummaryWriter(str(path / "tensorboard"))
        self._log_file = (path / "run.log").open("a", buffering=1)
        self._log = structlog.wrap_logger(
            structlog.WriteLogger(self._log_file),
            processors=[
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.JSONRenderer(),
            ],
            wrapper_class=structlog.BoundLogger,
        )

    # --- the tape -----------------------------------------------------------------------------

    def write(self, at_s: float, actor: str, kind: str, fields: dict[str, object]) -> None:
        """Write one entry to the tape, and to log and metrics what belongs there."""
        self._tape.write(at_s, actor, kind, fields)
        if kind in LOGGED:
            self._log.msg(kind, at_s=round(at_s, 3), actor=actor, **fields)
            self.figures.events.append(_sentence(at_s, actor, kind, fields))
        if kind == "admitted" and fields["role"] == "learner":
            figures = self._learner(str(fields["name"]))
            figures.incarnations += 1
            figures.status = "live"
        elif kind in ("status", "evicted", "left") and str(fields["name"]) in self.figures.learners:
            self._learner(str(fields["name"])).status = str(fields.get("status", kind))
        elif kind == "merged":
            self._merge(at_s, fields)
        self._tell()

    def _tell(self) -> None:
        for listen in list(self.listeners):
            listen()

    def _merge(self, at_s: float, fields: dict[str, object]) -> None:
        self.figures.merges += 1
        row = {
            "kind": "merge",
            "at_s": round(at_s, 3),
            "merges": self.figures.merges,
            "fragment": fields["fragment"],
            "contributions": len(fields["participants"]),  # type: ignore[arg-type]
            "direction_norm": fields["direction_norm"],
            "cosine": fields["cosine"],
        }
        self._row(row)
        self._scalars(
            "merge", self.figures.merges, row, ("contributions", "direction_norm", "cosine")
        )

    # --- learners and evaluations -------------------------------------------------------------

    def _learner(self, name: str) -> LearnerFigures:
        return self.figures.learners.setdefault(name, LearnerFigures())

    def process_started(self, name: str) -> None:
        """A learner's process begins to count from zero."""
        figures = self._learner(name)
        figures.process_steps = figures.process_tokens = 0

    def step(self, name: str, at_s: float, report: "StepReport") -> None:
        """A learner finished a step."""
        figures = self._learner(name)
        event = report.event
        figures.steps += event.steps - figures.process_steps
        figures.tokens += event.tokens - figures.process_tokens
        figures.process_steps, figures.process_tokens = event.steps, event.tokens
        figures.stepping_s += max(0.0, event.step_time_s - report.data_wait_s)
        figures.step_time_s = event.step_time_s
        self.figures.gaps.add(max(0.0, report.gap_s))
        before = figures.loss
        figures.loss = (
            report.loss
            if before is None or not isfinite(before)
            else before + LOSS_SMOOTHING * (report.loss - before)
        )
        if at_s - figures.row_s >= STEP_ROW_INTERVAL_S:
            figures.row_s = at_s
            self._step_row(name, at_s, report, figures)
        self._tell()

    def _step_row(
        self, name: str, at_s: float, report: "StepReport", figures: LearnerFigures
    ) -> None:
        assert figures.loss is not None, "a step has a loss"
        tokens = sum(learner.tokens for learner in self.figures.learners.values())
        self.figures.losses.append((tokens, figures.loss))
        row = {
            "kind": "step",
            "at_s": round(at_s, 3),
            "learner": name,
            "steps": figures.steps,
            "tokens": figures.tokens,
            "loss": report.loss,
            "loss_smoothed": figures.loss,
            "step_time_s": report.event.step_time_s,
            "gap_s": report.gap_s,
            "data_wait_s": report.data_wait_s,
        }
        self._row(row)
        self._scalars(name, figures.steps, row, ("loss", "step_time_s", "gap_s"))

    def traffic(self, name: str, *, bytes_up: int, bytes_down: int) -> None:
        """A learner's process has ended; it had sent and received so much."""
        figures = self._learner(name)
        figures.bytes_up += bytes_up
        figures.bytes_down += bytes_down

    def evaluation(self, at_s: float, clock: float, found: dict[str, float]) -> None:
        """The published values were evaluated."""
        tokens = sum(learner.tokens for learner in self.figures.learners.values())
        row: dict[str, float] = {"at_s": round(at_s, 3), "clock": clock, "tokens": tokens, **found}
        self.figures.evaluations.append(row)
        self._row({"kind": "evaluation", **row})
        self._scalars("evaluation", tokens, row, tuple(found))

    def _row(self, row: Mapping[str, object]) -> None:
        self._metrics.write(msgspec.json.encode(row).decode() + "\n")  # no number is null

    def _scalars(
        self, group: str, step: int, row: Mapping[str, object], names: tuple[str, ...]
    ) -> None:
        for name in names:
            self._board.add_scalar(f"{group}/{name}", row[name], step)

    def close(self) -> None:
        """Write what is buffered."""
        self._tape.close()
        self._metrics.close()
        self._board.close()
        self._log_file.close()


def versions() -> dict[str, str]:
    """Versions of everything that can change a result."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _sentence(at_s: float, actor: str, kind: str, fields: dict[str, object]) -> str:
    """One line for a person."""
    told = " ".join(f"{key}={value}" for key, value in fields.items() if value not in ("", None))
    return f"{at_s:7.1f} s  {actor}: {kind.replace('_', ' ')} {told}"
