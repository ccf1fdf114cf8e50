"""The figures of a scenario's faults, as texts of its table."""

from islands.lab.faults.fault import Struck
from islands.lab.faults.verdict import Control, Judged


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
