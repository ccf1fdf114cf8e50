"""Thinned curves of a run, from the `metrics.jsonl` of its folder, however long that is.

A short file is read whole. Of a long one, blocks of lines are read that lie evenly over it: so a
week costs as much as an hour. Points have wall times, as the tape's entries have.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from islands.files.growing_files import older
from islands.run.records.run_curves import METRICS_FILE, RESTART_S

WHOLE_BYTES = 4 * 2**20
"""A file up to this size is read whole, and of a larger one no more than this."""
BLOCK_BYTES = 2**14
POINTS_MOST = 600
LEARNERS_MOST = 24
"""Learners beyond these have no curve of their own: nobody could tell so many apart."""


class _Row(msgspec.Struct):
    """The fields of a row of metrics that are drawn."""

    kind: str
    at_s: float
    learner: str = ""
    run_tokens: int = 0
    loss_smoothed: float | None = None
    step_time_s: float | None = None


Point = tuple[float, ...]
P = TypeVar("P")


@dataclass(slots=True)
class Curves:
    """Curves of a run.

    Args:
        pace: tokens that the run had processed, over wall time.
        learners: for each of the first learners, tokens, smoothed loss and step time over time.
    """

    pace: list[Point] = field(default_factory=list)
    learners: dict[str, list[Point]] = field(default_factory=dict)


def curves_of(folder: Path, origin_s: float, most_bytes: int = WHOLE_BYTES) -> Curves:
    """Read the curves of a run.

    Args:
        folder: the run's folder.
        origin_s: wall time at which the clock of the hub's last start begins.
        most_bytes: how much is read.
    """
    path, found = folder / METRICS_FILE, Curves()
    rows = list(_rows(path, most_bytes))
    for row, wall_s in zip(rows, _wall_times(rows, origin_s), strict=True):
        if row.kind != "step":
            continue
        at_s = round(wall_s, 3)
        found.pace.append((at_s, row.run_tokens))
        known = row.learner in found.learners or len(found.learners) < LEARNERS_MOST
        if known and row.loss_smoothed is not None:
            point = (at_s, row.run_tokens, row.loss_smoothed, row.step_time_s or 0.0)
            found.learners.setdefault(row.learner, []).append(point)
    found.pace = thinned(found.pace)
    found.learners = {name: thinned(points) for name, points in found.learners.items()}
    return found


def thinned(points: list[P]) -> list[P]:
    """Return at most `POINTS_MOST` of the points, evenly, with the first and the last one."""
    every = -(-len(points) // POINTS_MOST)
    return points if every <= 1 else [*points[:-1:every], points[-1]]


def _wall_times(rows: list[_Row], origin_s: float) -> list[float]:
    """Return the wall times of rows; each start of the hub counts from zero again.

    When an earlier start began is not told here: it is taken to have ended where the next begins.
    """
    times: list[float] = []
    later_s = 0.0
    for row in reversed(rows):
        if times and row.at_s > later_s + RESTART_S:
            origin_s += later_s - row.at_s
        later_s = row.at_s
        times.append(origin_s + row.at_s)
    return times[::-1]


def _rows(path: Path, most_bytes: int) -> Iterator[_Row]:
    decode = msgspec.json.Decoder(_Row).decode
    for line in _lines((older(path), path), most_bytes):
        try:
            yield decode(line)
        except msgspec.MsgspecError:
            continue  # half written, or damaged


def _lines(paths: tuple[Path, ...], most_bytes: int) -> Iterator[bytes]:
    """Yield whole lines of files, all of them or evenly spaced blocks."""
    sizes = [path.stat().st_size if path.exists() else 0 for path in paths]
    total = sum(sizes)
    blocks = most_bytes // BLOCK_BYTES
    for path, size in zip(paths, sizes, strict=True):
        if not size:
            continue
        with path.open("rb") as file:
            if total <= most_bytes:
                yield from file.read().split(b"\n")[:-1]
                continue
            here = max(1, blocks * size // total)
            for index in range(here):
                yield from _block(file.fileno(), index * size // here)


def _block(file: int, start: int) -> list[bytes]:
    """Return the whole lines of a block of a file."""
    lines = os.pread(file, BLOCK_BYTES, start).split(b"\n")
    return lines[1:-1] if start else lines[:-1]
