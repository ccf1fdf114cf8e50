"""The timeline of a run with faults, as SVG: who stepped, who merged, and what struck whom."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from islands.lab.faults.schedule import Struck
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.tape.entry import Line
from islands.protocol.tape.learner_entries import Reported
from islands.protocol.tape.round_entries import Merged

WIDTH, LABEL, RIGHT = 1120.0, 96.0, 16.0
LANE, HEAD, FOOT = 30.0, 46.0, 28.0
NUMBER_WIDTH = 18.0
"""How far apart two numbers of faults are at least."""
TICKS = 12
LONGEST_S = 3.0
"""Between two reports further apart than this, and than three heartbeats, nobody knows."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn; all times are the loop's.

    Args:
        names: learners, a lane each.
        span: from when to when.
        origin_s: what is second 0.
        apart_s: the longest time between two reports of a learner that steps.
    """

    names: tuple[str, ...]
    span: tuple[float, float]
    origin_s: float
    apart_s: float = LONGEST_S

    @property
    def lanes(self) -> tuple[str, ...]:
        """All lanes, from the top."""
        return (SUPERVISOR, SYNCER, *self.names)

    @property
    def height(self) -> float:
        """In pixels."""
        return HEAD + LANE * len(self.lanes) + FOOT

    def x(self, at_s: float) -> float:
        """The place of a time."""
        begin_s, end_s = self.span
        share = (min(max(at_s, begin_s), end_s) - begin_s) / max(1e-9, end_s - begin_s)
        return LABEL + share * (WIDTH - LABEL - RIGHT)

    def y(self, name: str) -> float:
        """The middle of somebody's lane."""
        return HEAD + LANE * (self.lanes.index(name) + 0.5)


def timeline(picture: Picture, struck: Sequence[Struck], lines: Sequence[Line]) -> str:
    """Draw the run; returns an `svg` element."""
    parts = [
        *_faults(picture, struck),
        *_axis(picture),
        *_steps(picture, lines),
        *_merges(picture, lines),
        *_victims(picture, struck),
    ]
    size = f'viewBox="0 0 {WIDTH:g} {picture.height:g}" width="100%"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>'


def _faults(picture: Picture, struck: Sequence[Struck]) -> Iterator[str]:
    """Yield a band for each fault, with its number above where there is room for it."""
    foot = picture.height - FOOT
    free_x = 0.0
    for number, blow in enumerate(struck, start=1):
        left, right = picture.x(blow.began_s), picture.x(max(blow.ended_s, blow.began_s))
        width = max(2.0, right - left)
        told = escape(f"{blow.strike.name}: {blow.strike.kind} of {', '.join(blow.strike.victims)}")
        yield (
            f'<rect class="band" x="{left:.1f}" y="{HEAD - 8:g}" width="{width:.1f}" '
            f'height="{foot - HEAD + 8:g}"><title>{told}</title></rect>'
        )
        x = left + width / 2
        if x >= free_x:
            free_x = x + NUMBER_WIDTH
            yield f'<text class="number" x="{x:.1f}" y="{HEAD - 14:g}">{number}</text>'


def _axis(picture: Picture) -> Iterator[str]:
    for name in picture.lanes:
        y = picture.y(name)
        yield f'<text class="name" x="{LABEL - 10:g}" y="{y + 4:g}">{escape(name)}</text>'
        yield f'<line class="lane" x1="{LABEL:g}" x2="{WIDTH - RIGHT:g}" y1="{y:g}" y2="{y:g}"/>'
    begin_s, end_s = picture.span
    step_s = _round_up((end_s - begin_s) / TICKS)
    first = int((begin_s - picture.origin_s) // step_s) + 1
    for index in range(first, first + TICKS + 2):
        at_s = picture.origin_s + index * step_s
        if at_s <= end_s:
            x, y = picture.x(at_s), picture.height - FOOT
            yield f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD:g}" y2="{y:g}"/>'
            yield f'<text class="time" x="{x:.1f}" y="{y + 18:g}">{index * step_s:g} s</text>'


def _round_up(value: float) -> float:
    """Return the next of 1, 2 and 5 times a power of ten."""
    size = 1e-3
    while True:  # until it is large enough
        for factor in (1, 2, 5):
            if factor * size >= value:
                return factor * size
        size *= 10


def _steps(picture: Picture, lines: Sequence[Line]) -> Iterator[str]:
    """Yield a bar for each time over which a learner stepped, by its own reports."""
    for name in picture.names:
        y = picture.y(name)
        for begin_s, end_s in _stretches(name, lines, picture.apart_s):
            left, right = picture.x(begin_s), picture.x(end_s)
            if right > left:
                size = f'y="{y - 6:g}" width="{right - left:.1f}" height="12"'
                yield f'<rect class="steps" x="{left:.1f}" {size}/>'


def _stretches(name: str, lines: Sequence[Line], apart_s: float) -> list[tuple[float, float]]:
    """Join the times between reports in which tokens were added."""
    found: list[tuple[float, float]] = []
    last: tuple[float, str, int] | None = None
    for line in lines:
        if line.actor != name or not isinstance(line.entry, Reported):
            continue
        told = line.entry
        stepped = last is not None and last[1] == told.incarnation and told.tokens > last[2]
        if last is not None and stepped and line.at_s - last[0] <= apart_s:
            begin_s = found.pop()[0] if found and found[-1][1] == last[0] else last[0]
            found.append((begin_s, line.at_s))
        last = (line.at_s, told.incarnation, told.tokens)
    return found


def _merges(picture: Picture, lines: Sequence[Line]) -> Iterator[str]:
    """Yield a mark for each merge: on the syncer's lane, and on those whose values are in it."""
    marks: dict[str, dict[int, None]] = {}
    for line in lines:
        if isinstance(line.entry, Merged) and picture.span[0] <= line.at_s <= picture.span[1]:
            for name in (SYNCER, *line.entry.participants):
                marks.setdefault(name, {})[round(picture.x(line.at_s))] = None
    for name, places in marks.items():
        if name in picture.lanes:
            y = picture.y(name)
            path = " ".join(f"M{x} {y - 9:g}v18" for x in places)
            yield f'<path class="merge" d="{path}"/>'


def _victims(picture: Picture, struck: Sequence[Struck]) -> Iterator[str]:
    for blow in struck:
        for name in blow.strike.victims:
            if name in picture.lanes and not blow.missed:
                x, y = picture.x(blow.began_s), picture.y(name)
                yield f'<circle class="victim" cx="{x:.1f}" cy="{y:g}" r="6"/>'
