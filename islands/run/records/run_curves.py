"""Read the curves of a run from the `metrics.jsonl` of its folder.

The run may go on meanwhile, so the last line may be half written; so is the line at which a hub was
killed, after which the next one began a new line. A restarted hub counts its times from zero again;
here they go on from the last time of the start before, so the time in which no hub ran is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import msgspec

from islands.files.growing_files import older
from islands.protocol.errors import UserError, unusable
from islands.run.records.figures import ABOUT, Curve
from islands.run.records.run_values import require_folder

METRICS_FILE = "metrics.jsonl"
RESTART_S = 0.5
"""A time that is earlier than the one before it by more than this is of the hub's next start."""

Row = dict[str, object]


@dataclass(slots=True)
class Series:
    """One figure of a run, over tokens and over seconds."""

    tokens: Curve = field(default_factory=Curve)
    seconds: Curve = field(default_factory=Curve)

    def add(self, tokens: float, at_s: float, value: float) -> None:
        """Append a point to both curves."""
        self.tokens.add(tokens, value)
        self.seconds.add(at_s, value)


@dataclass(slots=True)
class RunCurves:
    """The curves of one run.

    Args:
        loss: mean over the learners of their smoothed losses.
        evaluations: each figure of the task's evaluation, by its name.
    """

    loss: Series = field(default_factory=Series)
    evaluations: dict[str, Series] = field(default_factory=dict)


def curves_of(folder: Path) -> RunCurves:
    """Read the curves of a run.

    Raises:
        UserError: there is no such folder, or no run in it, or none of its lines can be read, or
            no learner has stepped yet.
    """
    require_folder(folder)
    path, found = folder / METRICS_FILE, RunCurves()
    if not path.exists():
        raise UserError(f"{folder} is not the folder of a run: it has no {METRICS_FILE}")
    losses: dict[str, float] = {}
    earlier_s = last_s = 0.0
    for place, row in _rows(older(path), path):
        try:
            at_s = earlier_s + _number(row, "at_s")
            if at_s < last_s - RESTART_S:
                earlier_s, at_s = last_s, last_s + at_s - earlier_s
                losses.clear()
            last_s = at_s
            _add_row(found, losses, row, at_s)
        except (KeyError, TypeError) as error:
            raise UserError(f"{place} is no row of metrics: {error} is missing or wrong") from error
    if not found.loss.tokens.all() and not found.evaluations:
        raise UserError(f"the run in {folder} has nothing to draw yet: no learner has stepped")
    return found


def _add_row(found: RunCurves, losses: dict[str, float], row: Row, at_s: float) -> None:
    """Add a row's points; merges have none."""
    match row["kind"]:
        case "step":
            if row["loss_smoothed"] is not None:  # it is null where the loss is no number
                losses[str(row["learner"])] = _number(row, "loss_smoothed")
                found.loss.add(_number(row, "run_tokens"), at_s, fmean(losses.values()))
        case "evaluation":
            took_s = _number(row, "took_s") if "took_s" in row else 0.0  # its values are older
            for name in row:
                if name not in (*ABOUT, "kind") and row[name] is not None:
                    series = found.evaluations.setdefault(name, Series())
                    series.add(_number(row, "tokens"), max(0.0, at_s - took_s), _number(row, name))


def _number(row: Row, name: str) -> float:
    value = row[name]
    if not isinstance(value, int | float):
        raise TypeError(name)
    return float(value)


def _rows(*paths: Path) -> Iterator[tuple[str, Row]]:
    """Read rows with their places; lines that are only half there are left out.

    Raises:
        UserError: no line at all can be read.
    """
    found, damaged = False, ""
    for place, line in (each for path in paths for each in _lines(path)):
        try:
            row = msgspec.json.decode(line, type=Row)
        except msgspec.MsgspecError as error:
            damaged = damaged or f"{place} cannot be read, nor can any other: {error}"
            continue
        found = True
        yield place, row
    if damaged and not found:
        raise UserError(damaged)


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Read the lines that are ended, with their places."""
    try:
        lines = path.read_bytes().split(b"\n") if path.exists() else []
    except OSError as error:
        raise unusable(f"{path} cannot be read", error) from error
    for number, line in enumerate(lines[:-1], 1):
        if line:
            yield f"line {number} of {path}", line
