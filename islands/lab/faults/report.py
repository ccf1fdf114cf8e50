"""The figures of a scenario's faults, as texts of its table."""

from islands.lab.faults.verdict import Control, Judged

HEADS = ("gap of others", "machine's", "rate", "its own", "noticed", "evicted", "back")


def figures(judged: Judged, control: Control) -> tuple[str, ...]:
    """Return the figures of an injection as texts, in the order of `HEADS`.

    In brackets is what is judged: by how much the gap exceeds that of the control where the
    machine's own stalls are taken off both.
    """
    finding = judged.finding
    gap, machine = "", ""
    if finding.gap is not None and control.rates:
        over_s = finding.gap.left_s - control.gap.left_s
        gap = f"{1000 * finding.gap.longest_s:.1f} ms ({1000 * over_s:+.1f})"
        machine = f"{1000 * finding.gap.machine_s:.1f} ms"
    rates = (finding.rate_share, finding.own_rate_share)
    times_s = (finding.noticed_s, finding.evicted_s, finding.back_s)
    return (
        *(gap, machine),
        *("" if rate is None else f"{rate:.3f}" for rate in rates),
        *("" if time_s is None else f"{time_s:.2f} s" for time_s in times_s),
    )
