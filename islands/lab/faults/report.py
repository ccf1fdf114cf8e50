"""One page that shows what came of a scenario; it needs nothing beside itself.

The page holds the verdict, the timeline, the figures of every fault with the promises that it
broke, what the history shows, and how to play the scenario again.
"""

from collections.abc import Iterator, Sequence
from html import escape

from islands.lab.faults.findings import Control, Played
from islands.lab.faults.schedule import Struck
from islands.lab.faults.timeline import LONGEST_S, Picture, timeline
from islands.lab.faults.verdict import Judged, Verdict
from islands.lab.settings.chaos import ChaosOptions

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


def page(
    options: ChaosOptions, played: Played, verdict: Verdict, replay: str, scenario: str
) -> str:
    """Return the whole page as HTML.

    Args:
        options: the scenario.
        played: what is known of the run.
        verdict: what it came to.
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
        *_told("Left out", verdict.untold),
        *_told("What the history shows", [str(violation) for violation in verdict.violations]),
        f"<h2>Once more</h2><pre>{escape(replay)}</pre>",
        f"<details><summary>The scenario</summary><pre>{escape(scenario)}</pre></details>",
    ]
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _origin_s(options: ChaosOptions, played: Played) -> float:
    """Return when the control ended, from where times are shown."""
    return options.control_s if played.control is None else played.control.to_s


def _picture(options: ChaosOptions, played: Played) -> Picture:
    timing = options.file.run.timing
    apart_s = max(LONGEST_S, 3 * timing.scaled(timing.heartbeat_s))
    origin_s = _origin_s(options, played)
    begin_s = origin_s - options.control_s
    last_s = max((found.struck.until_s for found in played.findings), default=origin_s)
    return Picture(options.names, (begin_s, last_s), origin_s, apart_s)


def _control(control: Control | None) -> str:
    if control is None:
        return "Steps cost nothing on a virtual clock, so neither gaps nor rates are measured."
    rates = sorted(control.rates.values())
    rate = f"{rates[0]:.1f} to {rates[-1]:.1f} steps/s" if rates else "no steps told"
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
    found, strike = judged.finding, judged.finding.struck.strike
    lasts = f", {strike.fault.for_s:g} s" if strike.ends_s > strike.at_s else ""
    for text in (
        str(number),
        f"{strike.name}: {strike.kind}{lasts}{counted(found.struck)}",
        strike.victims[0] if len(strike.victims) == 1 else strike.fault.who,
        f"{found.struck.began_s - origin_s:.1f} s",
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
    found = judged.finding
    gap, machine = "", ""
    if found.gap is not None and control is not None and control.rates:
        over_s = found.gap.left_s - control.gap.left_s
        gap = f"{1000 * found.gap.longest_s:.1f} ms ({1000 * over_s:+.1f})"
        machine = f"{1000 * found.gap.machine_s:.1f} ms"
    return (
        gap,
        machine,
        "" if found.rate_share is None else f"{found.rate_share:.3f}",
        "" if found.own_rate_share is None else f"{found.own_rate_share:.3f}",
        _seconds(found.noticed_s),
        _seconds(found.evicted_s),
        _seconds(found.back_s),
        str(found.kept_out),
    )


def _seconds(value_s: float | None) -> str:
    return "" if value_s is None else f"{value_s:.2f} s"


def _told(head: str, sentences: Sequence[str]) -> list[str]:
    if not sentences:
        return []
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return [f"<h2>{head}</h2><ul>{items}</ul>"]
