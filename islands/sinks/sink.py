"""The interface of a sink: it starts with a run, is given records, and ends with a summary.

A record is a row of `metrics.jsonl` (docs/metrics.md has the fields).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from islands.files.run_files import PLAN_FILE, SETTINGS_FILE
from islands.files.whole_files import read_plain

Row = Mapping[str, object]

RUN = "run"
"""In place of a learner's name: the run, over all learners."""
STEP_CURVES = (
    *("loss", "tokens_per_s", "step_time_s", "gap_s", "data_wait_s"),
    *("bytes_up", "bytes_down", "participation", "staleness"),
)
RUN_CURVES = ("loss", "tokens_per_s")
MERGE_CURVES = ("contributions", "participation", "staleness", "direction_norm", "cosine")
AT_MERGES = ("learning_rate", "yield")
NO_FIGURES = ("kind", "at_s", "clock", "tokens", "took_s")
"""Fields of an evaluation that are not figures of the task."""


def sink_folder(run: Path) -> Path:
    return run / "sinks"


class Sink(Protocol):
    """Somewhere that records go. Its methods may raise, or never return."""

    def record(self, rows: Sequence[Row]) -> None:
        """Take some records, in their order."""

    def end(self, summary: Row | None) -> None:
        """Take the run's summary; None if the run was only stopped, and may go on."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run, as a sink is told of it.

    `identity` tells it from others of its name, and stays when its hub is restarted. Settings are
    by dotted names.
    """

    name: str
    identity: str
    folder: Path
    settings: Mapping[str, object]

    @staticmethod
    def of(folder: Path) -> "RunFacts":
        """Read the facts of the run in a folder."""
        told = msgspec.json.decode(read_plain(folder / SETTINGS_FILE), type=dict[str, object])
        settings, name = dict(flat(told)), str(told["run"])
        plan = folder / PLAN_FILE
        begun = str(msgspec.json.decode(read_plain(plan))["begun"]) if plan.exists() else ""
        return RunFacts(name, f"{name}-{begun}" if begun else name, folder, settings)


def flat(values: Row, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield nested values by dotted names."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def rows_in(lines: bytes) -> list[Row]:
    """Return the rows of lines; one that is half written, as when a host died, is left out."""
    rows: list[Row] = []
    for line in lines.splitlines():
        with suppress(msgspec.MsgspecError):
            rows.append(msgspec.json.decode(line, type=dict[str, object]))
    return rows


class Points(NamedTuple):
    """Points of curves at one place of the x axis.

    `whose` is a learner's name, and None for curves of the run; `values` are by the names of their
    curves.
    """

    whose: str | None
    tokens: int
    values: dict[str, float]

    def named(self) -> dict[str, float]:
        """Return the finite points under names that tell their curves from those of others."""
        whose = RUN if self.whose is None else f"learners/{self.whose}"
        return {f"{whose}/{name}": value for name, value in self.values.items() if isfinite(value)}


def points_of(row: Row) -> Points | None:
    """Return the points of a row; None if it has none."""
    whose, at, found = None, "run_tokens", dict[str, object]()
    match row.get("kind"):
        case "step":
            whose = str(row.get("learner"))
            metrics = row.get("metrics")
            found = {name: row.get(name) for name in STEP_CURVES}
            found |= _under("metrics", metrics if isinstance(metrics, dict) else {})
        case "run":
            at, found = "tokens", {name: row.get(name) for name in RUN_CURVES}
        case "merge":
            found = _under("merge", {name: row.get(name) for name in MERGE_CURVES})
            found |= {name: row.get(name) for name in AT_MERGES}
        case "evaluation":
            figures = {name: row[name] for name in row if name not in NO_FIGURES}
            at, found = "tokens", _under("evaluation", figures)
    tokens = row.get(at)
    values = {name: value for name, value in found.items() if isinstance(value, int | float)}
    return Points(whose, tokens, values) if isinstance(tokens, int) and values else None


def points_in(rows: Iterable[Row]) -> Iterator[Points]:
    return (points for points in map(points_of, rows) if points is not None)


def _under(head: str, values: Row) -> dict[str, object]:
    return {f"{head}/{name}": value for name, value in values.items()}


def totals_of(summary: Row) -> dict[str, float | int | str]:
    """Return the summary's own figures, without its tables of fragments and learners."""
    return {name: value for name, value in summary.items() if isinstance(value, int | float | str)}
