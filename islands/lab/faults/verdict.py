"""Measurements of each fault, and the verdict on them: pure, from what was recorded.

docs/chaos.md has the figures and their promises. A victim must be evicted if it was silent for
longer than `evict_s`, and must not if for less than `NEARLY` of it; in between either is right.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from islands.lab.checker import Violation
from islands.lab.faults.bare_loop import Stall
from islands.lab.faults.fault import FaultKind, Injected
from islands.lab.faults.fleet import Stepped
from islands.lab.faults.gaps import Gap, gap_of, rate_of, worst
from islands.lab.settings.chaos import ChaosOptions
from islands.protocol.errors import UserError
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.run import REDIAL_LONGEST_S, Timing
from islands.protocol.tape.entry import Line
from islands.protocol.tape.member_entries import (
    Admitted,
    Evicted,
    Left,
    ProcessEnded,
    StatusChanged,
)
from islands.protocol.tape.process_entries import Started
from islands.protocol.tape.round_entries import Merged

NEARLY = 0.8
"""Share of `evict_s` that a victim may be silent for without being evicted."""

NO_GAP = Gap(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Control:
    """The figures of the time in which nothing happened; rates are steps per second by learner."""

    from_s: float
    to_s: float
    gap: Gap
    rates: dict[str, float]


@dataclass(frozen=True, slots=True)
class Finding:
    """The figures of one injection; None where there is nothing to measure, or it was not measured.

    Of the others it has the longest gap and the least rate over that of the control, and of a
    victim whose links alone suffered its own rate likewise. `wrong` were evicted without a reason,
    `spared` were not though silent for too long. An eviction may come `hub_away_s` later, since the
    supervisor was a victim as well. Of `unmeasured`, which were no victims, reports lack.
    """

    injected: Injected
    gap: Gap | None = None
    rate_share: float | None = None
    noticed_s: float | None = None
    evicted_s: float | None = None
    back_s: float | None = None
    own_rate_share: float | None = None
    wrong: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    hub_away_s: float = 0.0
    unmeasured: tuple[str, ...] = ()


def control_of(
    rows: Sequence[Stepped],
    names: Iterable[str],
    span: tuple[float, float],
    stalls: Sequence[Stall] = (),
) -> Control:
    gaps = [gap for name in names if (gap := gap_of(rows, name, span, stalls)) is not None]
    rates = {name: rate for name in names if (rate := rate_of(rows, name, span)) is not None}
    return Control(*span, worst(gaps) or NO_GAP, rates)


def demand_rates(control: Control, names: Iterable[str]) -> None:
    lacking = [name for name in names if not control.rates.get(name)]
    if lacking:
        raise UserError(
            f"the control of {control.to_s - control.from_s:.1f} s shows no steps of "
            f"{', '.join(lacking)}, so nothing can be compared with it; set control_s to several "
            "heartbeats and several steps, or gap_most_s and step_rate_least to null"
        )


def finding_of(
    injected: Injected,
    all_injected: Sequence[Injected],
    learners: Sequence[str],
    rows: Sequence[Stepped],
    lines: Sequence[Line],
    control: Control,
    timing: Timing,
    stalls: Sequence[Stall] = (),
) -> Finding:
    if injected.missed:
        return Finding(injected)
    meanwhile = [
        o for o in all_injected if o.began_s < injected.until_s and injected.began_s < o.until_s
    ]
    victims_then = [name for other in meanwhile for name in other.injection.victims]
    others = [name for name in learners if name not in victims_then]
    span = (injected.began_s, injected.until_s)
    gaps = {name: gap for name in others if (gap := gap_of(rows, name, span, stalls)) is not None}
    shares = _shares(rows, others, span, control)
    own = injected.injection.victims if injected.injection.kind.of_links else ()
    own_shares = _shares(rows, own, (injected.began_s, injected.ended_s), control)
    within = [line for line in lines if injected.began_s <= line.at_s <= injected.until_s]
    evicted = [line for line in within if isinstance(line.entry, Evicted)]
    wrong, spared = _misjudged(injected, meanwhile, evicted, timing)
    return Finding(
        injected,
        gap=worst(gaps.values()),
        rate_share=min(shares.values(), default=None),
        noticed_s=_noticed_s(injected, within),
        evicted_s=_evicted_s(injected, evicted),
        back_s=_back_s(injected, lines, tuple(learners)),
        own_rate_share=min(own_shares.values(), default=None),
        wrong=wrong,
        spared=spared,
        hub_away_s=_hub_away_s(injected, meanwhile, timing),
        unmeasured=tuple(name for name in others if name not in gaps or name not in shares),
    )


def _shares(
    rows: Sequence[Stepped], names: Iterable[str], span: tuple[float, float], control: Control
) -> dict[str, float]:
    return {
        name: rate / control.rates[name]
        for name in names
        if (rate := rate_of(rows, name, span)) is not None and control.rates.get(name, 0.0) > 0
    }


# --- members ----------------------------------------------------------------------------------


def _misjudged(
    injected: Injected, meanwhile: Sequence[Injected], evicted: Sequence[Line], timing: Timing
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return who was evicted without a reason, and who was not though there was one."""
    evict_s = timing.scaled(timing.evict_s)
    may, must = set[str](), set[str]()
    for other in meanwhile:
        fault, kind = other.injection.fault, other.injection.kind
        silent_s = fault.silent_most_s(other.ended_s - other.began_s)
        if kind.ends_process or fault.disturbs or silent_s >= NEARLY * evict_s:
            may.update(other.injection.victims)
    fault = injected.injection.fault
    longest_s = fault.evicted_after_s(evict_s) + 2 * timing.scaled(timing.heartbeat_s)
    longest_s += _hub_away_s(injected, meanwhile, timing)
    if fault.silences and injected.ended_s - injected.began_s > longest_s:
        must.update(n for n in injected.injection.victims if n not in (SYNCER, SUPERVISOR))
    names = {line.entry.name: None for line in evicted if isinstance(line.entry, Evicted)}
    spared = tuple(name for name in sorted(must) if name not in names)
    return tuple(name for name in names if name not in may), spared


def _hub_away_s(injected: Injected, meanwhile: Sequence[Injected], timing: Timing) -> float:
    """Return for how long the supervisor could evict nobody on account of what else happened.

    While it is away it hears nobody; and whoever was a member before has, once it is back, the time
    for an eviction to be heard again.
    """
    away_s = 0.0
    for other in meanwhile:
        if other is injected or SUPERVISOR not in other.injection.victims or other.missed:
            continue
        back_s = other.until_s if other.injection.kind.ends_process else other.ended_s
        overlap_s = min(back_s, injected.until_s) - max(other.began_s, injected.began_s)
        if overlap_s > 0:
            longest_s = REDIAL_LONGEST_S + timing.evict_s
            away_s += overlap_s + timing.scaled(longest_s)
    return away_s


def _noticed_s(injected: Injected, within: Sequence[Line]) -> float | None:
    """Return how long it took until the supervisor recorded anything against a victim."""
    for line in within:
        entry = line.entry
        if not isinstance(entry, StatusChanged | Evicted | Left | ProcessEnded):
            continue
        if entry.name not in injected.injection.victims:
            continue
        if not isinstance(entry, StatusChanged) or entry.status != "live":
            return line.at_s - injected.began_s
    return None


def _evicted_s(injected: Injected, evicted: Sequence[Line]) -> float | None:
    victims = injected.injection.victims
    own = (e.at_s for e in evicted if isinstance(e.entry, Evicted) and e.entry.name in victims)
    return next((at_s - injected.began_s for at_s in own), None)


def _back_s(injected: Injected, lines: Sequence[Line], learners: tuple[str, ...]) -> float | None:
    """Return when all whom it took out of merges had taken part in one again.

    Whose process ended, or who was evicted, is back only once it was admitted again; and so are
    all, once a syncer or a supervisor that ended has started again.
    """
    victims = injected.injection.victims
    central = {SYNCER, SUPERVISOR} & {*victims}
    wanted = dict.fromkeys(learners if central else victims)
    gone = dict.fromkeys(victims if injected.injection.kind.ends_process else ())
    for line in lines:
        entry = line.entry
        if line.at_s < injected.began_s:
            continue
        if isinstance(entry, Evicted) and entry.name in wanted and line.at_s < injected.until_s:
            gone[entry.name] = None
        elif isinstance(entry, Admitted):
            gone.pop(entry.name, None)
        elif isinstance(entry, Started):
            gone.pop(line.actor, None)
        elif isinstance(entry, Merged) and line.at_s >= injected.ended_s:
            if not central & {*gone}:
                for name in entry.participants:
                    if name not in gone:
                        wanted.pop(name, None)
            if not wanted:
                return line.at_s - injected.ended_s
    return None


# --- the verdict -------------------------------------------------------------------------------

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
    """The judgement of a scenario: each injection's broken promises, and those of its history."""

    judged: tuple[Judged, ...]
    control: Control
    violations: tuple[Violation, ...]

    @property
    def kept(self) -> bool:
        """Whether every promise was kept; where no fault took place nothing was shown."""
        broken = any(each.broken for each in self.judged)
        return bool(self.judged) and not self.violations and not broken

    @property
    def sentence(self) -> str:
        if self.kept:
            return f"every promise was kept under {len(self.judged)} faults"
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
    control: Control,
    violations: Sequence[Violation],
) -> Verdict:
    timing = options.file.run.timing
    judged = tuple(
        Judged(finding, tuple(_broken(options, finding, control, timing))) for finding in findings
    )
    return Verdict(judged, control, tuple(violations))


def _broken(
    options: ChaosOptions, finding: Finding, control: Control, timing: Timing
) -> Iterator[str]:
    injected = finding.injected
    if injected.missed:
        yield f"it did not take place: {injected.missed}"
        return
    for name in finding.wrong:
        yield f"{name} was evicted, and nothing was wrong with it"
    for name in finding.spared:
        silent_s = injected.ended_s - injected.began_s
        yield f"{name} was silent for {silent_s:.1f} s and was not evicted"
    fault = injected.injection.fault
    latest_s = fault.evicted_after_s(timing.scaled(timing.evict_s)) + _late_s(timing)
    latest_s += finding.hub_away_s
    silent = fault.silences and SUPERVISOR not in injected.injection.victims
    if silent and finding.evicted_s is not None and finding.evicted_s > latest_s:
        yield f"the eviction came after {finding.evicted_s:.2f} s; it must within {latest_s:.2f} s"
    noticed_s, latest_s = finding.noticed_s, timing.scaled(timing.stalled_s) + _late_s(timing)
    if fault.kind is FaultKind.HANG and (noticed_s is None or noticed_s > latest_s):
        after = "never" if noticed_s is None else f"after {noticed_s:.1f} s"
        yield f"it was {after} seen that the victim hangs; it must within {latest_s:.1f} s"
    yield from _slow(options, finding, control)


def _late_s(timing: Timing) -> float:
    """Return by how much later than its limit the supervisor may act, which looks by heartbeats."""
    return max(LATE_EVICTION_S, timing.scaled(timing.heartbeat_s))


def _slow(options: ChaosOptions, finding: Finding, control: Control) -> Iterator[str]:
    most_s = options.back_most_s
    if finding.back_s is None:
        yield "its victim did not take part in a merge again"
    elif most_s is not None and finding.back_s > most_s:
        yield f"its victim was in a merge after {finding.back_s:.2f} s; it must within {most_s:g} s"
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
    own = finding.own_rate_share if finding.injected.injection.kind is FaultKind.LATENCY else None
    if least is not None and own is not None and own < least:
        yield f"its victim stepped at {own:.3f} of its rate; it must be {least:g}"
    if least is not None and finding.rate_share is not None and finding.rate_share < least:
        yield f"others stepped at {finding.rate_share:.3f} of their rate; it must be {least:g}"


# --- the table ---------------------------------------------------------------------------------

HEADS = ("gap of others", "machine's", "rate", "its own", "noticed", "evicted", "back")


def figures(finding: Finding, control: Control) -> tuple[str, ...]:
    """Return the figures of an injection as texts, in the order of `HEADS`.

    In brackets is what is judged: by how much the gap exceeds that of the control where the
    machine's own stalls are taken off both.
    """
    gap = machine = ""
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
