"""Read the curves of a run from the `metrics.jsonl` of its folder, however long that is.

Of a long file, blocks of lines are read that lie evenly over it, and between them all evaluations
and events, which are few. A line may be half written. A restarted hub counts its times from zero
again; here they go on from the last time of the start before.
"""

import mmap
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec

from islands.files.growing_files import older
from islands.files.run_files import METRICS_FILE
from islands.files.whole_files import open_plain
from islands.protocol.errors import unusable
from islands.run.records.figures import ABOUT, Curve, drawable

RESTART_S = 0.5
"""A time that is earlier than the one before it by more than this is of the hub's next start."""
WHOLE_BYTES = 16 * 2**20
"""Files up to this size in all are read whole, and of larger ones no more than this."""
BLOCK_BYTES = 2**14
RARE = b'\n{"kind":"e'
"""How the line of an evaluation or of an event begins."""
LEARNERS_MOST = 24
"""Learners beyond these have no curve of their own: nobody could tell so many apart."""
MEANS_KEPT = 128
"""Most points of a curve of means, so that noise does not hide what it shows."""
SUMMED = ("stepping_s", "bytes_up", "bytes_down")
"""Keys of a step that hold sums over the life of its learner."""
ABOUT_STEP = (
    *("kind", "at_s", "learner", "steps", "tokens", "run_tokens", "loss", "loss_smoothed"),
    *SUMMED,
    *("tokens_per_s", "participation", "staleness"),  # merges tell those of the run
)
ABOUT_MERGE = ("kind", "at_s", "merges", "fragment", "run_tokens")
"""Keys of rows that are no figures which are drawn as means."""

Row = dict[str, object]


class Mean(NamedTuple):
    """Tokens, time and value of a curve of means, each the mean over a stretch of the run."""

    tokens: float
    at_s: float
    value: float


@dataclass(slots=True)
class AveragedCurve:
    """A curve that has the mean over every one, two, four, … values, so that it stays short."""

    points: list[Mean] = field(default_factory=list)
    every: int = 1
    waiting: list[Mean] = field(default_factory=list)

    def add(self, tokens: float, at_s: float, value: float) -> None:
        if not drawable(value):
            return
        self.waiting.append(Mean(tokens, at_s, value))
        if len(self.waiting) < self.every:
            return
        self.points.append(_mean(self.waiting))
        self.waiting = []
        if len(self.points) >= MEANS_KEPT:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [_mean(pair) for pair in pairs]
            self.every *= 2

    def all(self) -> list[Mean]:
        """Return the points, and one for the values since the last of them."""
        return [*self.points, *([_mean(self.waiting)] if self.waiting else [])]


def _mean(points: "list[Mean] | tuple[Mean, ...]") -> Mean:
    return Mean(*(fmean(values) for values in zip(*points, strict=True)))


@dataclass(slots=True)
class RunCurves:
    """The curves of one run, each point with tokens, seconds and value.

    Seconds count from its first start, without those in which there was no hub.

    `loss` is the mean over the learners of their smoothed losses, and `means` has each other figure
    of steps and merges. `totals` are sums over all learners of what `SUMMED` names, of `tokens`,
    and of `allocated_s`: the time of each learner since it was first heard. `learners` has seconds,
    tokens of the run, smoothed loss and step time of the first learners. The hub's last start began
    at `began_s`. `damaged` says why no line at all can be read; "" if one can.
    """

    loss: Curve = field(default_factory=Curve)
    evaluations: dict[str, Curve] = field(default_factory=dict)
    means: dict[str, AveragedCurve] = field(default_factory=dict)
    totals: dict[str, Curve] = field(default_factory=dict)
    learners: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    began_s: float = 0.0
    damaged: str = ""


def curves_of(folder: Path, most_bytes: int = WHOLE_BYTES) -> RunCurves:
    """Read the curves of a run; a folder without metrics has none.

    `most_bytes` are read, evaluations and events apart.
    """
    path = folder / METRICS_FILE
    reading, damaged = _Reading(), ""
    try:
        for line in _lines((older(path), path), most_bytes):
            damaged = reading.add(line) or damaged
    except OSError as error:
        raise unusable(f"{path} cannot be read", error) from error
    if damaged and not reading.rows:
        reading.curves.damaged = f"no line of {path} is a row of metrics: {damaged}"
    return reading.curves


class _Reading:
    """The curves as far as they are read, and what leads on to the next row."""

    def __init__(self) -> None:
        self.curves = RunCurves()
        self._last_s = 0.0
        self._tokens = 0.0
        self._losses: dict[str, float] = {}
        self._newest: dict[str, dict[str, float]] = {}
        self._sums: dict[str, float] = {}
        self._allocated_s = 0.0
        self.rows = 0

    def add(self, line: bytes) -> str:
        """Add a line; return why it is left out, as one that is half written; "" if it is not."""
        try:
            self._add_row(msgspec.json.decode(line, type=Row))
        except msgspec.MsgspecError as error:
            return str(error)
        except (KeyError, TypeError) as error:
            return f"{error} is missing or wrong"
        self.rows += 1
        return ""

    def _add_row(self, row: Row) -> None:
        curves = self.curves
        at_s = curves.began_s + _number(row, "at_s")
        if at_s < self._last_s - RESTART_S:
            at_s += self._last_s - curves.began_s
            curves.began_s = self._last_s
            self._losses.clear()
        match row["kind"]:
            case "step":
                self._add_step(row, at_s)
            case "merge":
                self._tokens = _number(row, "run_tokens", self._tokens)
                self._add_means(row, ABOUT_MERGE, at_s)
            case "evaluation":
                self._add_evaluation(row, at_s)
        self._last_s = at_s

    def _add_evaluation(self, row: Row, at_s: float) -> None:
        tokens, took_s = _number(row, "tokens"), _number(row, "took_s", 0.0)
        began_s = max(0.0, at_s - took_s)  # its values are from then
        for name, value in row.items():
            if name not in (*ABOUT, "kind") and value is not None:
                curve = self.curves.evaluations.setdefault(name, Curve())
                curve.add(tokens, began_s, _number(row, name))

    def _add_step(self, row: Row, at_s: float) -> None:
        name = str(row["learner"])
        self._tokens = tokens = _number(row, "run_tokens")
        if row["loss_smoothed"] is not None:  # it is null where the loss is no number
            loss = self._losses[name] = _number(row, "loss_smoothed")
            self.curves.loss.add(tokens, at_s, fmean(self._losses.values()))
            known = self.curves.learners
            if name in known or len(known) < LEARNERS_MOST:
                point = (at_s, tokens, loss, _number(row, "step_time_s", 0.0))
                known.setdefault(name, []).append(point)
        self._add_totals(row, name, at_s)
        self._add_means(row, ABOUT_STEP, at_s)

    def _add_totals(self, row: Row, name: str, at_s: float) -> None:
        sums, newest = self._sums, self._newest.setdefault(name, {})
        for key in SUMMED:
            if key in row:
                value = _number(row, key)
                sums[key] = sums.get(key, 0.0) + value - newest.get(key, 0.0)
                newest[key] = value
        if "stepping_s" in row:
            spent_s = max(0.0, at_s - self._allocated_s) * len(self._newest)
            sums["allocated_s"] = sums.get("allocated_s", 0.0) + spent_s
        self._allocated_s = at_s
        sums["tokens"] = self._tokens
        for key, total in sums.items():
            self.curves.totals.setdefault(key, Curve()).add(self._tokens, at_s, total)

    def _add_means(self, row: Row, about: Collection[str], at_s: float) -> None:
        own = row.get("metrics")  # what a task tells of its steps
        for name, value in {**row, **(own if isinstance(own, dict) else {})}.items():
            if name in about:
                continue
            for one in _numbers(value):
                self.curves.means.setdefault(name, AveragedCurve()).add(self._tokens, at_s, one)


def _number(row: Row, name: str, default: float | None = None) -> float:
    value = row[name] if default is None else row.get(name, default)
    if not isinstance(value, int | float):
        raise TypeError(name)
    return float(value)


def _numbers(value: object) -> list[float]:
    """Return a number, or those of a list, as numbers; whatever else stands there is none."""
    values = value if isinstance(value, list) else [value]
    return [float(one) for one in values if isinstance(one, int | float)]


def _lines(paths: tuple[Path, ...], most_bytes: int) -> Iterator[bytes]:
    sizes = [path.stat().st_size if path.exists() else 0 for path in paths]
    fraction = most_bytes / max(1, sum(sizes))
    for path, size in zip(paths, sizes, strict=True):
        if not size:
            continue
        blocks = 1 if fraction >= 1 else max(1, int(fraction * size / BLOCK_BYTES))
        length = size if fraction >= 1 else BLOCK_BYTES
        with open_plain(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            end = 0
            for index in range(blocks):
                wanted = index * (size - length) // max(1, blocks - 1)
                start = text.rfind(b"\n", 0, max(end, wanted)) + 1
                yield from _rare(text, end, start)
                end = text.rfind(b"\n", start, start + length) + 1 or start
                yield from filter(None, text[start:end].split(b"\n"))
            yield from _rare(text, end, size)


def _rare(text: mmap.mmap, begin: int, until: int) -> Iterator[bytes]:
    at = text.find(RARE, max(0, begin - 1), until)
    while at >= 0:
        end = text.find(b"\n", at + 1, until)
        if end < 0:
            return
        yield text[at + 1 : end]
        at = text.find(RARE, end, until)
