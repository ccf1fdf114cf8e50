"""One page that shows the result of a scenario; it needs nothing beside itself.

The page holds the verdict, the timeline as SVG (who stepped, who merged, and which fault struck
whom), the figures of every fault with the promises that it broke, what the history shows, and how
to play the scenario again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from islands.lab.faults.fault import Struck
from islands.lab.faults.verdict import Control, Judged, Played, Verdict
from islands.lab.settings.chaos import ChaosOptions
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.tape.entry import Line
from islands.protocol.tape.learner_entries import Reported
from islands.protocol.tape.round_entries import Merged

STYLE = """
:root { color-scheme: light dark; --ink: #1b2430; --soft: #5c6b7a; --line: #d9e0e6;
  --page: #fbfcfd; --steps: #8fb8de; --merge: #23517c; --band: #f2c9b8; --bad: #b3321b;
  --good: #1d7a46; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --soft: #9aa8b5; --line: #33404c;
  --page: #151b21; --steps: #3e6c96; --merge: #b9d8f5; --band: #5b3529; --bad: #f08a70;
  --good: #6fcf97; } }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.verdict { font-size: 1.1rem; font-weight: 600; margin: .3rem 0 1.5rem; }
.good { color: var(--good); } .bad { color: var(--bad); } .soft { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.n { white-space: nowrap; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid var(--line); border-radius: 4px; }
svg text { fill: var(--soft); font-size: 12px; } svg .name { text-anchor: end; fill: var(--ink); }
svg .time, svg .number { text-anchor: middle; } svg .number { fill: var(--bad); }
svg .lane { stroke: var(--line); } svg .tick { stroke: var(--line); stroke-dasharray: 2 4; }
svg .band { fill: var(--band); opacity: .75; } svg .steps { fill: var(--steps); }
svg .merge { stroke: var(--merge); fill: none; }
svg .victim { fill: var(--bad); }
"""

LEGEND = (
    "Bars: a learner steps. Strokes: a merge, and whose contributions are in it. Bands and dots: a "
    "fault, and whom it struck."
)

HEADS = (
    *("", "fault", "victim", "began", "longest gap of others", "of it the machine's own"),
    *(
        "their step rate",
        "its own",
        "noticed",
        "evicted",
        "back in a merge",
        "kept out",
        "promises",
    ),
)

WIDTH, LABEL, RIGHT = 1120.0, 96.0, 16.0
LANE, HEAD, FOOT = 30.0, 46.0, 28.0
NUMBER_WIDTH = 18.0
"""How far apart two numbers of faults are at least."""
TICKS = 12
LONGEST_S = 3.0
"""Between two reports further apart than this, and than three heartbeats, nobody knows."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The frame of a timeline; all times are the loop's.

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
        """The height in pixels."""
        return HEAD + LANE * len(self.lanes) + FOOT

    def x(self, at_s: float) -> float:
        """The place of a time."""
        begin_s, end_s = self.span
        share = (min(max(at_s, begin_s), end_s) - begin_s) / max(1e-9, end_s - begin_s)
        return LABEL + share * (WIDTH - LABEL - RIGHT)

    def y(self, name: str) -> float:
        """The middle of somebody's lane."""
        return HEAD + LANE * (self.lanes.index(name) + 0.5)


def page(
    options: ChaosOptions, played: Played, verdict: Verdict, replay: str, scenario: str
) -> str:
    """Return the whole page as HTML.

    Args:
        options: the scenario.
        played: what is known of the run.
        verdict: on its promises.
        replay: the command that plays it again.
        scenario: the scenario as YAML.
    """
    title = escape(f"Chaos: {options.file.run.run}")
    where = "actors on a virtual clock" if options.simulate else "real processes"
    kind = "good" if verdict.kept else "bad"
    sentence = verdict.sentence[0].upper() + verdict.sentence[1:]
    learners = f"{len(options.names)} learners, {where}, seed {options.seed}."
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="verdict {kind}">{escape(sentence)}.</p>',
        f'<p class="soft">{learners} {_control(verdict.control)}</p>',
        '<h2>Timeline</h2><div class="wide">',
        timeline(_picture(options, played), [f.struck for f in played.findings], played.lines),
        f'</div><p class="soft">{LEGEND}</p>',
        "<h2>Faults</h2>",
        _table(verdict, _origin_s(options, played)),
        *_listed("Left out", verdict.left_out),
        *_listed("What the history shows", [str(violation) for violation in verdict.violations]),
        f"<h2>Once more</h2><pre>{escape(replay)}</pre>",
        f"<details><summary>The scenario</summary><pre>{escape(scenario)}</pre></details>",
    ]
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _origin_s(options: ChaosOptions, played: Played) -> float:
    return options.control_s if played.control is None else played.control.to_s


def _picture(options: ChaosOptions, played: Played) -> Picture:
    timing = options.file.run.timing
    apart_s = max(LONGEST_S, 3 * timing.scaled(timing.heartbeat_s))
    origin_s = _origin_s(options, played)
    begin_s = origin_s - options.control_s
    last_s = max((finding.struck.until_s for finding in played.findings), default=origin_s)
    return Picture(options.names, (begin_s, last_s), origin_s, apart_s)


def _control(control: Control | None) -> str:
    if control is None:
        return "Steps cost nothing on a virtual clock, so neither gaps nor rates are measured."
    rates = sorted(control.rates.values())
    rate = f"{rates[0]:.1f} to {rates[-1]:.1f} steps/s" if rates else "no steps reported"
    gap, machine = (f"{1000 * s:.1f} ms" for s in (control.gap.longest_s, control.gap.machine_s))
    return f"Control: longest gap {gap}, of it the machine's own {machine}; {rate}."


def _table(verdict: Verdict, origin_s: float) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in HEADS)
    rows = "".join(
        f"<tr>{''.join(_cells(number, judged, verdict.control, origin_s))}</tr>"
        for number, judged in enumerate(verdict.judged, start=1)
    )
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _cells(number: int, judged: Judged, control: Control | None, origin_s: float) -> Iterator[str]:
    struck, strike = judged.finding.struck, judged.finding.struck.strike
    lasts = f", {strike.fault.for_s:g} s" if strike.ends_s > strike.at_s else ""
    for text in (
        str(number),
        f"{strike.name}: {strike.kind}{lasts}{counted(struck)}",
        strike.victims[0] if len(strike.victims) == 1 else strike.fault.who,
        f"{struck.began_s - origin_s:.1f} s",
        *figures(judged, control),
    ):
        yield f'<td class="n">{escape(text)}</td>'
    if judged.broken:
        yield f'<td class="bad">{"<br>".join(map(escape, judged.broken))}</td>'
    else:
        yield '<td class="good">kept</td>'


def counted(struck: Struck) -> str:
    """Return how often a strike struck as a text; empty where that is not counted."""
    return "" if struck.count is None else f" ({struck.count:,})"


def figures(judged: Judged, control: Control | None) -> tuple[str, ...]:
    """Return the figures of a strike as texts, from its gap to contributions that were kept out.

    In brackets is what is judged: by how much the gap exceeds that of the control where the
    machine's own stalls are taken off both.
    """
    finding = judged.finding
    gap, machine = "", ""
    if finding.gap is not None and control is not None and control.rates:
        over_s = finding.gap.left_s - control.gap.left_s
        gap = f"{1000 * finding.gap.longest_s:.1f} ms ({1000 * over_s:+.1f})"
        machine = f"{1000 * finding.gap.machine_s:.1f} ms"
    return (
        gap,
        machine,
        "" if finding.rate_share is None else f"{finding.rate_share:.3f}",
        "" if finding.own_rate_share is None else f"{finding.own_rate_share:.3f}",
        _seconds(finding.noticed_s),
        _seconds(finding.evicted_s),
        _seconds(finding.back_s),
        str(finding.kept_out),
    )


def _seconds(value_s: float | None) -> str:
    return "" if value_s is None else f"{value_s:.2f} s"


def _listed(head: str, sentences: Sequence[str]) -> list[str]:
    if not sentences:
        return []
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return [f"<h2>{head}</h2><ul>{items}</ul>"]


# --- the timeline -----------------------------------------------------------------------------


def timeline(picture: Picture, struck: Sequence[Struck], lines: Sequence[Line]) -> str:
    """Draw the run; returns an `svg` element."""
    parts = [
        *_bands(picture, struck),
        *_axis(picture),
        *_steps(picture, lines),
        *_merges(picture, lines),
        *_victims(picture, struck),
    ]
    size = f'viewBox="0 0 {WIDTH:g} {picture.height:g}" width="100%"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>'


def _bands(picture: Picture, struck: Sequence[Struck]) -> Iterator[str]:
    """Yield a band for each fault, with its number above where there is room for it."""
    foot = picture.height - FOOT
    free_x = 0.0
    for number, each in enumerate(struck, start=1):
        left, right = picture.x(each.began_s), picture.x(max(each.ended_s, each.began_s))
        width = max(2.0, right - left)
        label = escape(
            f"{each.strike.name}: {each.strike.kind} of {', '.join(each.strike.victims)}"
        )
        yield (
            f'<rect class="band" x="{left:.1f}" y="{HEAD - 8:g}" width="{width:.1f}" '
            f'height="{foot - HEAD + 8:g}"><title>{label}</title></rect>'
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
    for name in picture.names:
        y = picture.y(name)
        for begin_s, end_s in _stretches(name, lines, picture.apart_s):
            left, right = picture.x(begin_s), picture.x(end_s)
            if right > left:
                size = f'y="{y - 6:g}" width="{right - left:.1f}" height="12"'
                yield f'<rect class="steps" x="{left:.1f}" {size}/>'


def _stretches(name: str, lines: Sequence[Line], apart_s: float) -> list[tuple[float, float]]:
    stretches: list[tuple[float, float]] = []
    last: tuple[float, str, int] | None = None
    for line in lines:
        if line.actor != name or not isinstance(line.entry, Reported):
            continue
        report = line.entry
        stepped = last is not None and last[1] == report.incarnation and report.tokens > last[2]
        if last is not None and stepped and line.at_s - last[0] <= apart_s:
            joins = bool(stretches) and stretches[-1][1] == last[0]
            begin_s = stretches.pop()[0] if joins else last[0]
            stretches.append((begin_s, line.at_s))
        last = (line.at_s, report.incarnation, report.tokens)
    return stretches


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
    for each in struck:
        for name in each.strike.victims:
            if name in picture.lanes and not each.missed:
                x, y = picture.x(each.began_s), picture.y(name)
                yield f'<circle class="victim" cx="{x:.1f}" cy="{y:g}" r="6"/>'
