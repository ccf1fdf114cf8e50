"""The verdict on a run with faults: pure, from its findings and from what was asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from islands.lab.checker import Violation
from islands.lab.faults.fault import FaultKind
from islands.lab.faults.findings import Control, Finding
from islands.lab.settings.chaos import ChaosOptions
from islands.protocol.identities import SUPERVISOR
from islands.protocol.settings.run import Timing

LATE_EVICTION_S = 1.0
"""By how much later than `evict_s` a silent victim may be evicted, and a stalled one be seen: this,
or a heartbeat where that is longer."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A finding with the promises that it breaks, as sentences; none if it keeps them all."""

    finding: Finding
    broken: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a scenario.

    Args:
        judged: every strike with what it broke.
        control: what was measured before; None on a virtual clock, where steps cost nothing.
        violations: broken promises that the history shows.
        left_out: faults of the scenario that could not be injected here, with the reason.
    """

    judged: tuple[Judged, ...]
    control: Control | None
    violations: tuple[Violation, ...]
    left_out: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        """Whether every promise was kept; where no fault took place nothing was shown."""
        broken = any(each.broken for each in self.judged)
        return bool(self.judged) and not self.violations and not broken

    @property
    def sentence(self) -> str:
        """The verdict as one sentence."""
        if self.kept:
            others = "; others were left out" if self.left_out else ""
            return f"every promise was kept under {len(self.judged)} faults{others}"
        if not self.judged and not self.violations:
            return "nothing was judged, since no fault could be injected"
        broken = sum(bool(each.broken) for each in self.judged)
        sentences = [f"{broken} of {len(self.judged)} faults broke a promise"] if broken else []
        if self.violations:
            sentences.append(f"the history shows {len(self.violations)} broken promises")
        return ", and ".join(sentences)


def verdict_of(
    options: ChaosOptions,
    findings: Sequence[Finding],
    control: Control | None,
    violations: Sequence[Violation],
    left_out: Sequence[str] = (),
) -> Verdict:
    """Compare findings with what a scenario asks for."""
    timing = options.file.run.timing
    judged = tuple(
        Judged(finding, tuple(_broken(options, finding, control, timing))) for finding in findings
    )
    return Verdict(judged, control, tuple(violations), tuple(left_out))


def _broken(
    options: ChaosOptions, finding: Finding, control: Control | None, timing: Timing
) -> Iterator[str]:
    struck = finding.struck
    if struck.missed:
        yield f"it did not take place: {struck.missed}"
        return
    if struck.broken:
        yield struck.broken
    for name in finding.wrong:
        yield f"{name} was evicted, and nothing was wrong with it"
    for name in finding.spared:
        yield f"{name} was silent for {struck.ended_s - struck.began_s:.1f} s and was not evicted"
    fault = struck.strike.fault
    latest_s = fault.evicted_after_s(timing.scaled(timing.evict_s)) + _late_s(timing)
    latest_s += finding.hub_away_s
    silent = fault.silences and SUPERVISOR not in struck.strike.victims
    if silent and finding.evicted_s is not None and finding.evicted_s > latest_s:
        yield f"the eviction came after {finding.evicted_s:.2f} s; it must within {latest_s:.2f} s"
    yield from _unnoticed(finding, timing)
    yield from _slow(options, finding, control)


def _late_s(timing: Timing) -> float:
    """Return by how much later than its limit the supervisor may act, which looks by heartbeats."""
    return max(LATE_EVICTION_S, timing.scaled(timing.heartbeat_s))


def _unnoticed(finding: Finding, timing: Timing) -> Iterator[str]:
    """Yield what the supervisor should have noticed of a process that goes on sending."""
    kind, noticed_s = finding.struck.strike.kind, finding.noticed_s
    latest_s = timing.scaled(timing.stalled_s) + _late_s(timing)
    if kind is FaultKind.HANG and (noticed_s is None or noticed_s > latest_s):
        after = "never" if noticed_s is None else f"after {noticed_s:.1f} s"
        yield f"it was {after} seen that the victim hangs; it must within {latest_s:.1f} s"
    second = kind is FaultKind.SECOND and SUPERVISOR not in finding.struck.strike.victims
    if second and noticed_s is None:
        yield "the second learner of the name was not refused"


def _slow(options: ChaosOptions, finding: Finding, control: Control | None) -> Iterator[str]:
    most_s = options.back_most_s
    if finding.back_s is None:
        yield "its victim did not take part in a merge again"
    elif most_s is not None and finding.back_s > most_s:
        yield f"its victim was in a merge after {finding.back_s:.2f} s; it must within {most_s:g} s"
    if control is None:
        return
    if finding.unmeasured and (options.gap_most_s, options.step_rate_least) != (None, None):
        yield f"{', '.join(finding.unmeasured)}: gaps and step rate were not measured"
    most_s = options.gap_most_s
    gap = finding.gap
    if most_s is not None and gap is not None and gap.left_s - control.gap.left_s > most_s:
        machine = gap.machine_s > 0 or control.gap.machine_s > 0
        stalls = " (the machine's own stalls are taken off)" if machine else ""
        yield (
            f"others had a gap of {1000 * gap.left_s:.0f} ms between steps, the control had "
            f"{1000 * control.gap.left_s:.0f} ms{stalls}; allowed are {1000 * most_s:g} ms more"
        )
    least = options.step_rate_least
    own = finding.own_rate_share if finding.struck.strike.kind is FaultKind.LATENCY else None
    if least is not None and own is not None and own < least:
        yield f"its victim stepped at {own:.3f} of its rate; it must be {least:g}"
    if least is not None and finding.rate_share is not None and finding.rate_share < least:
        yield f"others stepped at {finding.rate_share:.3f} of their rate; it must be {least:g}"
