"""What the page of a scenario shows beside the run itself: verdict, faults, history, replay.

The run is shown by the parts of its own page (`islands.page`), among whose marks the faults are.
Here are the chapters around it, as HTML, and the entries of the marks.
"""

from collections.abc import Iterator, Sequence
from html import escape

from islands.lab.faults.fault import Struck
from islands.lab.faults.verdict import Control, Judged, Played, Verdict
from islands.lab.settings.chaos import ChaosOptions

HEADS = (
    *("number", "fault", "victim", "began", "longest gap of others", "of it the machine's own"),
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


def marks(struck: Sequence[Struck], offset_s: float) -> Iterator[dict[str, object]]:
    """Yield an entry for each victim of each fault, as the page's lanes mark it.

    Args:
        struck: the faults, with times of the loop.
        offset_s: wall time at which that clock begins.
    """
    for number, each in enumerate(struck, start=1):
        lasts_s = each.ended_s - each.began_s
        lasts = f" for {lasts_s:.1f} s" if lasts_s > 0 else ""
        for name in each.strike.victims if not each.missed else ():
            yield {
                "t": round(offset_s + each.began_s, 3),
                "kind": "fault",
                "actor": name,
                "fault": f"{number}. {each.strike.name}: {each.strike.kind}{lasts}",
                "names": [name],
            }


def chapters(
    options: ChaosOptions, played: Played, verdict: Verdict, replay: str, scenario: str
) -> tuple[str, str]:
    """Return what stands above the run's own parts, and what stands among them, as HTML.

    Args:
        options: the scenario.
        played: what is known of the run.
        verdict: on its promises.
        replay: the command that plays it again.
        scenario: the scenario as YAML.
    """
    where = "actors on a virtual clock" if options.simulate else "real processes"
    level = "well" if verdict.kept else "ill"
    sentence = verdict.sentence[0].upper() + verdict.sentence[1:]
    learners = f"{len(options.names)} learners, {where}, seed {options.seed}."
    above = (
        f'<section><p class="verdict" data-level="{level}">{escape(sentence)}.</p>'
        f'<p class="muted">{learners} {_control(verdict.control)}</p></section>'
    )
    among = [
        "<section><h2>Faults</h2>",
        _table(verdict, _origin_s(options, played)),
        "</section>",
        *_listed("Left out", verdict.left_out),
        *_listed("What the history shows", [str(violation) for violation in verdict.violations]),
        f"<section><h2>Once more</h2>{_text(replay)}<details>",
        f"<summary>The scenario</summary>{_text(scenario)}</details></section>",
    ]
    return above, "".join(among)


def _text(text: str) -> str:
    return f'<pre tabindex="0">{escape(text)}</pre>'


def _origin_s(options: ChaosOptions, played: Played) -> float:
    return options.control_s if played.control is None else played.control.to_s


def _control(control: Control | None) -> str:
    if control is None:
        return "Steps cost nothing on a virtual clock, so neither gaps nor rates are measured."
    rates = sorted(control.rates.values())
    rate = f"{rates[0]:.1f} to {rates[-1]:.1f} steps/s" if rates else "no steps reported"
    gap, machine = (f"{1000 * s:.1f} ms" for s in (control.gap.longest_s, control.gap.machine_s))
    return f"Control: longest gap {gap}, of it the machine's own {machine}; {rate}."


def _table(verdict: Verdict, origin_s: float) -> str:
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in HEADS)
    rows = "".join(
        f"<tr>{''.join(_cells(number, judged, verdict.control, origin_s))}</tr>"
        for number, judged in enumerate(verdict.judged, start=1)
    )
    table = f'<table class="faults"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table of faults">{table}</div>'
    )


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
        yield f"<td>{escape(text)}</td>"
    if judged.broken:
        yield f'<td class="wide" data-level="ill">{"<br>".join(map(escape, judged.broken))}</td>'
    else:
        yield '<td data-level="well">kept</td>'


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
    return [f'<section><h2>{head}</h2><ul class="told">{items}</ul></section>']
