"""Every metric: its name, type, unit, labels and meaning; docs/metrics.md has the same table.

Names follow Prometheus' conventions. Labels are of bounded sets: names of learners, of which
`run_status.LEARNERS_SHOWN` are shown, and words of this program.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

FIGURES_MOST = 16
"""Figures of the task's evaluation that have a series."""
KINDS = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
# name|type|unit|labels|told by|meaning
TABLE = """
build_info|gauge||version|all|1, with the version of Islands
ready|gauge|0 or 1||all|whether `/readyz` answers 200
run_info|gauge||run|hub|1, with the name of the run
run_phase|gauge|1|phase|hub|1 for what the run does: starting, training, paused, ending
run_age_seconds|gauge|seconds||hub|wall time of the run, over all starts of the hub
run_left_seconds|gauge|seconds||hub|until the budget is used up at this speed
run_budget_tokens|gauge|tokens||hub|the budget of tokens, if the run has one
run_tokens_total|counter|tokens||hub|tokens processed: the run's one total
run_unbooked_tokens_total|counter|tokens||hub|told by learners that ended, and in no book
run_merged_tokens_total|counter|tokens||hub|merged tokens, summed over fragments
run_tokens_per_second|gauge|tokens a second||hub|recent speed of all learners together
run_merges_total|counter|merges||hub|merges of a fragment
run_fragments|gauge|fragments||hub|P, the number of fragments
run_since_merge_seconds|gauge|seconds||hub|without a merge; absent at first, in a pause, with gossip
run_merge_interval_seconds|gauge|seconds||hub|time between merges by H, P and the slowest step
run_evictions_total|counter|evictions||hub|members that the supervisor evicted
run_loss|gauge|the task's||hub|mean smoothed loss of the learners that train
run_evaluation|gauge|the task's|figure|hub|newest evaluation of the published values
run_learning_rate|gauge|1||hub|inner learning rate at the fleet's clock
run_clock_steps|gauge|steps||hub|the fleet's clock at the last merge
run_yield_ratio|gauge|share||hub|tokens that reached the published values, of all processed
run_goodput_ratio|gauge|share||hub|learners' time spent stepping, of that allocated
run_google_goodput_ratio|gauge|share||hub|as Google counts goodput: ours times the yield
run_warning|gauge|0 or 1||hub|whether the hub has a warning for its operator
learners|gauge|learners|state|hub|learners by state
learners_unlisted|gauge|learners||hub|learners without series of their own
learner_state|gauge|1|learner,state|hub|1 for the state that the learner has now
learner_steps_total|counter|steps|learner|hub|steps over all its processes
learner_tokens_total|counter|tokens|learner|hub|tokens over all its processes
learner_incarnations_total|counter|admissions|learner|hub|admissions to the run
learner_stepping_seconds_total|counter|seconds|learner|hub|time spent on steps
learner_data_wait_seconds_total|counter|seconds|learner|hub|time without a step for lack of data
learner_sent_bytes_total|counter|bytes|learner|hub|bytes sent over all its links
learner_received_bytes_total|counter|bytes|learner|hub|bytes received over all its links
learner_step_seconds|gauge|seconds|learner|hub|duration of its last step
learner_tokens_per_second|gauge|tokens a second|learner|hub|its speed while it steps
learner_stall_seconds|gauge|seconds|learner|hub|its longest gap between two steps
learner_loss|gauge|the task's|learner|hub|its smoothed loss
learner_metric|gauge|the task's|learner,metric|hub|what steps report beside the loss: 16 at most
learner_diverged|gauge|0 or 1|learner|hub|whether its last loss was no finite number
learner_silent_seconds|gauge|seconds|learner|hub|since it was last heard, while present
learner_unmerged_rounds|gauge|rounds|learner|hub|merged since its last contribution, while live
disk_free_bytes|gauge|bytes||hub|free on the disk of the run's folder
disk_size_bytes|gauge|bytes||hub|size of the disk of the run's folder
disk_reserve_bytes|gauge|bytes||hub|free bytes below which the hub's alert fires
disk_failing|gauge|0 or 1||hub|whether files of the run's folder cannot be written now
disk_lost_entries_total|counter|entries||hub|entries of tape, log and metrics that were dropped
syncer_up|gauge|0 or 1||hub|whether the syncer answered the hub's last request
journal_pending_records|gauge|records||hub|journal records that are not durable yet
journal_lag_seconds|gauge|seconds||hub|how long the oldest of them has been seen to wait
journal_records_total|counter|records||hub|journal records written or being written
rounds_open|gauge|rounds||hub|rounds that are open
ledger_tokens|gauge|tokens|fate|hub|the ledger's tokens by fate, summed over fragments
ledger_processed_tokens_total|counter|tokens||hub|tokens processed, as the ledger has booked them
ledger_imbalance_tokens|gauge|tokens||hub|tokens without a fate; 0 unless there is a bug
"""


class Metric(NamedTuple):
    """One metric: a row of the table."""

    name: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    who: str
    meaning: str


def _metric(name: str, kind: str, unit: str, labels: str, who: str, meaning: str) -> Metric:
    return Metric(
        f"islands_{name}", kind, unit, tuple(filter(None, labels.split(","))), who, meaning
    )


METRICS = [_metric(*row.split("|")) for row in TABLE.strip().splitlines()]
BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of one series now."""

    name: str
    value: float
    labels: tuple[str, ...] = ()
    """Values of the metric's labels, in their order."""


def families(samples: Iterable[Sample]) -> Iterable[Family]:
    found: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for each in samples:
        metric = BY_NAME[each.name]
        if each.name not in found:
            found[each.name] = KINDS[metric.kind](each.name, metric.meaning, labels=metric.labels)
        found[each.name].add_metric(each.labels, float(each.value))
    return found.values()
