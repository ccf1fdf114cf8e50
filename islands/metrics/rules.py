"""The alert rules, each twice: as an expression of Prometheus, and as a function of samples.

Both have the same thresholds and durations (`Thresholds`). The file of Prometheus is written from
here (`python -m islands.metrics.rules > deploy/prometheus/islands.rules.yaml`), and a test holds
both forms against the same series.

=====================  =============================================================================
rule                   fires when
=====================  =============================================================================
IslandsNothingMerged   the run works, and nothing was merged for many of the intervals expected
IslandsLearnerFlaps    a learner was admitted again and again within a short time
IslandsYieldLow        of many merges' tokens, too few reached the published values
IslandsDisk            files of the run cannot be written, or the disk is nearly full
IslandsJournalLags     what was merged is not durable, so it is not published either
IslandsLossNotFinite   a learner's loss is no finite number
IslandsClockSkewed     a host's clock was set, or differs from that of Prometheus
IslandsCertificateEnds a certificate ends soon
=====================  =============================================================================

Prometheus has one more (`IslandsDown`): a hub that is away can tell nobody. And it alone can
compare clocks of hosts; by itself a process only sees that its own was set.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import yaml

from islands.metrics.catalogue import Sample

Labels = tuple[str, ...]
Series = Mapping[Labels, float]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The numbers of all rules; durations are in seconds.

    Args:
        merge_intervals: expected times between merges without one, after which that is told.
        unmerged_s: least time for which nothing, or nothing of a learner, must have been merged.
        unmerged_cycles: cycles of P merges without a contribution of a learner that is live.
        flaps: further admissions of a learner within `flap_window_s`.
        flap_window_s: the time in which they are counted.
        yield_least: least yield.
        yield_merges: merges of each fragment before which the yield is not judged.
        yield_for_s: for how long the yield must be low.
        journal_s: age of a journal record that is not durable.
        skew_s: difference between clocks.
        certificate_s: remaining time of a certificate.
        down_s: for how long a process must not have answered Prometheus.
        keep_s: for how long a cause must be gone before the alert clears.
    """

    merge_intervals: float = 10
    unmerged_s: float = 60
    unmerged_cycles: float = 10
    flaps: int = 3
    flap_window_s: float = 600
    yield_least: float = 0.5
    yield_merges: int = 8
    yield_for_s: float = 300
    journal_s: float = 30
    skew_s: float = 5
    certificate_s: float = 14 * 86400
    down_s: float = 60
    keep_s: float = 60


@dataclass(slots=True)
class Readings:
    """The samples of one moment by metric, and what must be remembered of earlier ones.

    Args:
        window_s: for how long admissions are remembered.
    """

    window_s: float
    now_s: float = 0.0
    wall_s: float = 0.0
    series: dict[str, dict[Labels, float]] = field(default_factory=dict)
    admissions: deque[tuple[float, dict[Labels, float]]] = field(default_factory=deque)

    def take(self, samples: Iterable[Sample], now_s: float) -> None:
        """Take the samples of now in place of those before."""
        self.now_s, self.series = now_s, {}
        for sample in samples:
            self.series.setdefault(sample.name, {})[sample.labels] = sample.value
        self.wall_s = self.value("islands_process_time_seconds") or 0.0
        self.admissions.append((now_s, self.all("islands_learner_incarnations_total")))
        while self.admissions[0][0] < now_s - self.window_s:
            self.admissions.popleft()

    def all(self, name: str) -> dict[Labels, float]:
        """Return a metric's values by labels."""
        return self.series.get(name, {})

    def value(self, name: str) -> float | None:
        """Return the value of a metric without labels; None if there is none."""
        return self.all(name).get(())


Condition = Callable[[Readings, Thresholds], dict[Labels, float]]
"""Returns the labels for which a rule's cause holds, with a figure that tells how much."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Args:
        name: its name.
        severity: `critical` if the run loses something now, else `warning`.
        expression: of Prometheus; it names the thresholds in braces.
        holds: the same as a function.
        labels: the labels of what fires.
        for_s: name of the threshold that tells for how long the cause must hold; empty: no time.
        summary: a sentence, which may name labels in braces.
        action: what to do.
    """

    name: str
    severity: str
    expression: str
    holds: Condition | None
    labels: tuple[str, ...]
    for_s: str
    summary: str
    action: str


def _nothing_merged(now: Readings, limits: Thresholds) -> dict[Labels, float]:
    since_s = now.value("islands_run_since_merge_seconds")
    interval_s = now.value("islands_run_merge_interval_seconds") or 0.0
    if since_s is None or since_s <= max(limits.unmerged_s, limits.merge_intervals * interval_s):
        return {}
    return {(): since_s}


def _learner_unmerged(now: Readings, limits: Thresholds) -> dict[Labels, float]:
    most = limits.unmerged_cycles * (now.value("islands_run_fragments") or 0.0)
    rounds = now.all("islands_learner_unmerged_rounds")
    return {labels: count for labels, count in rounds.items() if count > most}


def _flaps(now: Readings, limits: Thresholds) -> dict[Labels, float]:
    least: dict[Labels, float] = {}
    most: dict[Labels, float] = {}
    for _, admissions in now.admissions:
        for labels, count in admissions.items():
            least[labels] = min(count, least.get(labels, count))
            most[labels] = max(count, most.get(labels, count))
    again = {labels: most[labels] - least[labels] for labels in most}
    return {labels: count for labels, count in again.items() if count >= limits.flaps}


def _yield_low(now: Readings, limits: Thresholds) -> dict[Labels, float]:
    share = now.value("islands_run_yield_ratio")
    merges = now.value("islands_run_merges_total") or 0.0
    fragments = now.value("islands_run_fragments") or 0.0
    if share is None or merges <= limits.yield_merges * fragments or share >= limits.yield_least:
        return {}
    return {(): share}


def _disk(now: Readings, _: Thresholds) -> dict[Labels, float]:
    free = now.value("islands_disk_free_bytes")
    reserve = now.value("islands_disk_reserve_bytes")
    full = free is not None and reserve is not None and free < reserve
    failing = now.value("islands_disk_failing") == 1
    return {(): free or 0.0} if full or failing else {}


def _journal_lags(now: Readings, limits: Thresholds) -> dict[Labels, float]:
    lag_s = now.value("islands_journal_lag_seconds")
    return {} if lag_s is None or lag_s <= limits.journal_s else {(): lag_s}


def _not_finite(now: Readings, _: Thresholds) -> dict[Labels, float]:
    return {k: v for k, v in now.all("islands_learner_diverged").items() if v == 1}


def _clock(now: Readings, limits: Thresholds) -> dict[Labels, float]:
    drift_s = now.value("islands_process_clock_drift_seconds") or 0.0
    return {(): drift_s} if abs(drift_s) > limits.skew_s else {}


def _certificate(now: Readings, limits: Thresholds) -> dict[Labels, float]:
    ends = now.all("islands_certificate_expiry_timestamp_seconds")
    left = {labels: end_s - now.wall_s for labels, end_s in ends.items()}
    return {labels: left_s for labels, left_s in left.items() if left_s < limits.certificate_s}


RULES = (
    Rule(
        "IslandsNothingMerged",
        "critical",
        "islands_run_since_merge_seconds > {unmerged_s} and islands_run_since_merge_seconds"
        " > {merge_intervals} * islands_run_merge_interval_seconds",
        _nothing_merged,
        (),
        "",
        "Learners step, and nothing has been merged for many intervals.",
        "Look at `islands control status` and at run.log for nothing_merged, abandoned and "
        "waits_for: is the syncer there, is run.quorum above the number of learners that are, are "
        "links too slow for run.overlap_steps?",
    ),
    Rule(
        "IslandsLearnerUnmerged",
        "warning",
        "islands_learner_unmerged_rounds"
        " > {unmerged_cycles} * on() group_left() islands_run_fragments",
        _learner_unmerged,
        ("learner",),
        "unmerged_s",
        "Learner {learner} steps, and none of its work is merged.",
        "Look at run.log for left_out, which has the reason, and at the learner's line in `islands "
        "control status`: is its link too slow for a fragment, or are its steps much slower than "
        "those of the others? A larger run.interval_steps or an int8 run.precision helps both.",
    ),
    Rule(
        "IslandsLearnerFlaps",
        "warning",
        "max_over_time(islands_learner_incarnations_total[{flap_window_s}s])"
        " - min_over_time(islands_learner_incarnations_total[{flap_window_s}s]) >= {flaps}",
        _flaps,
        ("learner",),
        "",
        "Learner {learner} is admitted again and again.",
        "Look at its own output and at run.log for its evictions and ends: it crashes, its link "
        "breaks, or its steps take longer than run.timing allows.",
    ),
    Rule(
        "IslandsYieldLow",
        "warning",
        "islands_run_yield_ratio < {yield_least}"
        " and islands_run_merges_total > {yield_merges} * islands_run_fragments",
        _yield_low,
        (),
        "yield_for_s",
        "Most of what learners train does not reach the published values.",
        "Look at islands_ledger_tokens for the fate that takes the most: overwritten wants a "
        "higher run.interval_steps, late a longer run.overlap_steps, stale a higher "
        "run.staleness_max, and rejected has its reasons in run.log.",
    ),
    Rule(
        "IslandsDisk",
        "critical",
        "islands_disk_failing == 1 or islands_disk_free_bytes < islands_disk_reserve_bytes",
        _disk,
        (),
        "",
        "The disk of the run's folder is full, nearly so, or fails.",
        "Free space or extend the disk; the run goes on by itself, and writes what waits. Lower "
        "--file_mib bounds what tape, log and metrics take.",
    ),
    Rule(
        "IslandsJournalLags",
        "critical",
        "islands_journal_lag_seconds > {journal_s}",
        _journal_lags,
        (),
        "",
        "What was merged is not durable, so nobody is sent it.",
        "Look at the disk of the syncer's journal: is it full, does it fail, or is it slower than "
        "a fragment each merge?",
    ),
    Rule(
        "IslandsLossNotFinite",
        "critical",
        "islands_learner_diverged == 1",
        _not_finite,
        ("learner",),
        "",
        "The loss of learner {learner} is no finite number.",
        "One learner alone: look at its data and its devices; it begins again from the published "
        "values. All of them: lower the learning rate, or go back to an earlier export.",
    ),
    Rule(
        "IslandsClockSkewed",
        "warning",
        "abs(islands_process_clock_drift_seconds) > {skew_s}"
        " or abs(timestamp(islands_process_time_seconds) - islands_process_time_seconds)"
        " > {skew_s}",
        _clock,
        (),
        "",
        "The clock of a host is wrong, or was set.",
        "Let NTP keep the host's clock. No decision of a run depends on it, but times in logs and "
        "the validity of certificates do.",
    ),
    Rule(
        "IslandsCertificateEnds",
        "warning",
        "islands_certificate_expiry_timestamp_seconds - time() < {certificate_s}",
        _certificate,
        ("kind",),
        "",
        "A certificate ({kind}) ends within two weeks.",
        "Renew it, and start the process again, which reads it at its start; a hub goes on where "
        "it was.",
    ),
)
"""The rules in both forms."""

DOWN = Rule(
    "IslandsDown",
    "critical",
    'up{{job="islands"}} == 0',
    None,
    ("instance",),
    "down_s",
    "Process {instance} of the run does not answer.",
    "Start it again in its folder: a hub goes on from its journal, and learners that run stay.",
)
"""Of Prometheus alone."""

RUNBOOK = "docs/metrics.md#alerts"


def prometheus_rules(limits: Thresholds | None = None) -> dict[str, object]:
    """Return the rules as a file of Prometheus holds them."""
    limits = limits or Thresholds()
    rules = [_as_prometheus(rule, limits) for rule in (*RULES, DOWN)]
    return {"groups": [{"name": "islands", "rules": rules}]}


def _as_prometheus(rule: Rule, limits: Thresholds) -> dict[str, object]:
    numbers = {name: f"{getattr(limits, name):g}" for name in Thresholds.__slots__}
    numbers["certificate_s"] = f"{limits.certificate_s:.0f}"
    named = {label: f"{{{{ $labels.{label} }}}}" for label in rule.labels}
    held = {"for": f"{numbers[rule.for_s]}s"} if rule.for_s else {}
    return {
        "alert": rule.name,
        "expr": rule.expression.format(**numbers),
        **held,
        "keep_firing_for": f"{numbers['keep_s']}s",
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": rule.summary.format(**named),
            "description": rule.action,
            "runbook": RUNBOOK,
        },
    }


def rules_file(limits: Thresholds | None = None) -> str:
    """Return the text of the rules' file."""
    head = "# Written by python -m islands.metrics.rules; docs/metrics.md explains the rules.\n"
    return head + yaml.safe_dump(prometheus_rules(limits), sort_keys=False, width=100)


if __name__ == "__main__":
    import sys

    sys.stdout.write(rules_file())
