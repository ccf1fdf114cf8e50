"""Every metric: its name, type, unit, labels and meaning; docs/metrics.md has the same table.

Names follow Prometheus' conventions: the prefix `islands_`, base units, `_total` for what only
grows, `_ratio` for shares, `_info` for what is text. Labels are of bounded sets: names of learners,
of which `run_status.LEARNERS_SHOWN` are shown, and words of this program. No text of a peer is one.
"""

from dataclasses import dataclass
from enum import StrEnum

FIGURES_MOST = 16
"""Figures of the task's evaluation that have a series."""


class Kind(StrEnum):
    """The type of a metric, as Prometheus knows it."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Who(StrEnum):
    """The processes that tell a metric."""

    ALL = "all"
    HUB = "hub"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `labels` are the names of its labels."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    who: Who = Who.HUB

    @property
    def tells_words(self) -> bool:
        """Whether it tells its labels, and its value is always 1."""
        return bool(self.labels) and self.unit in ("", "1")


def _gauge(name: str, unit: str, meaning: str, *labels: str, who: Who = Who.HUB) -> Metric:
    return Metric(f"islands_{name}", Kind.GAUGE, unit, meaning, labels, who)


def _counter(name: str, unit: str, meaning: str, *labels: str, who: Who = Who.HUB) -> Metric:
    return Metric(f"islands_{name}_total", Kind.COUNTER, unit, meaning, labels, who)


METRICS = (
    # --- each process -------------------------------------------------------------------------
    _gauge("build_info", "", "1, with the version of Islands", "version", who=Who.ALL),
    _gauge("ready", "0 or 1", "whether `/readyz` answers 200", who=Who.ALL),
    # --- the run ------------------------------------------------------------------------------
    _gauge("run_info", "", "1, with the name of the run", "run"),
    _gauge(
        "run_phase", "1", "1 for what the run does: starting, training, paused, ending", "phase"
    ),
    _gauge("run_age_seconds", "seconds", "wall time of the run, over all starts of the hub"),
    _gauge("run_left_seconds", "seconds", "until the budget is used up at this speed"),
    _gauge("run_budget_tokens", "tokens", "the budget of tokens, if the run has one"),
    _counter("run_tokens", "tokens", "tokens processed: the run's one total"),
    _counter("run_unbooked_tokens", "tokens", "told by learners that ended, and in no book"),
    _counter("run_merged_tokens", "tokens", "merged tokens, summed over fragments"),
    _gauge("run_tokens_per_second", "tokens a second", "recent speed of all learners together"),
    _counter("run_merges", "merges", "merges of a fragment"),
    _gauge("run_fragments", "fragments", "P, the number of fragments"),
    _gauge(
        "run_since_merge_seconds",
        "seconds",
        "work without a merge until now; absent before the first step, in a pause and with gossip",
    ),
    _gauge(
        "run_merge_interval_seconds",
        "seconds",
        "time between merges that H, P and the slowest learner's step lead to expect",
    ),
    _counter("run_evictions", "evictions", "members that the supervisor evicted"),
    _gauge("run_loss", "the task's", "mean smoothed loss of the learners that train"),
    _gauge("run_evaluation", "the task's", "newest evaluation of the published values", "figure"),
    _gauge("run_learning_rate", "1", "inner learning rate at the fleet's clock"),
    _gauge("run_clock_steps", "steps", "the fleet's clock at the last merge"),
    _gauge(
        "run_yield_ratio", "share", "tokens that reached the published values, of all processed"
    ),
    _gauge("run_goodput_ratio", "share", "learners' time spent stepping, of that allocated"),
    _gauge(
        "run_google_goodput_ratio",
        "share",
        "as Google counts goodput, productive and preserved: ours times the yield",
    ),
    _gauge("run_warning", "0 or 1", "whether the hub has a warning for its operator"),
    # --- learners -----------------------------------------------------------------------------
    _gauge("learners", "learners", "learners by state", "state"),
    _gauge("learners_unlisted", "learners", "learners without series of their own"),
    _gauge("learner_state", "1", "1 for the state that the learner has now", "learner", "state"),
    _counter("learner_steps", "steps", "steps over all its processes", "learner"),
    _counter("learner_tokens", "tokens", "tokens over all its processes", "learner"),
    _counter("learner_incarnations", "admissions", "admissions to the run", "learner"),
    _counter("learner_stepping_seconds", "seconds", "time spent on steps", "learner"),
    _counter(
        "learner_data_wait_seconds", "seconds", "time without a step for lack of data", "learner"
    ),
    _counter("learner_sent_bytes", "bytes", "bytes sent over all its links", "learner"),
    _counter("learner_received_bytes", "bytes", "bytes received over all its links", "learner"),
    _gauge("learner_step_seconds", "seconds", "duration of its last step", "learner"),
    _gauge("learner_tokens_per_second", "tokens a second", "its speed while it steps", "learner"),
    _gauge("learner_stall_seconds", "seconds", "its longest gap between two steps", "learner"),
    _gauge("learner_loss", "the task's", "its smoothed loss", "learner"),
    _gauge(
        "learner_metric",
        "the task's",
        "what its steps report beside the loss, smoothed: 16 metrics at most",
        *("learner", "metric"),
    ),
    _gauge("learner_diverged", "0 or 1", "whether its last loss was no finite number", "learner"),
    _gauge(
        "learner_silent_seconds", "seconds", "since it was last heard, while present", "learner"
    ),
    _gauge(
        "learner_unmerged_rounds",
        "rounds",
        "merged rounds since the last one with a contribution of it, while it is live",
        "learner",
    ),
    # --- disks --------------------------------------------------------------------------------
    _gauge("disk_free_bytes", "bytes", "free on the disk of the run's folder"),
    _gauge("disk_size_bytes", "bytes", "size of the disk of the run's folder"),
    _gauge("disk_reserve_bytes", "bytes", "free bytes below which the hub's alert fires"),
    _gauge("disk_failing", "0 or 1", "whether files of the run's folder cannot be written now"),
    _counter("disk_lost_entries", "entries", "entries of tape, log and metrics that were dropped"),
    # --- the syncer ---------------------------------------------------------------------------
    _gauge("syncer_up", "0 or 1", "whether the syncer answered the hub's last request"),
    _gauge("journal_pending_records", "records", "journal records that are not durable yet"),
    _gauge("journal_lag_seconds", "seconds", "how long the oldest of them has been seen to wait"),
    _counter("journal_records", "records", "journal records written or being written"),
    _gauge("rounds_open", "rounds", "rounds that are open"),
    _gauge("ledger_tokens", "tokens", "the ledger's tokens by fate, summed over fragments", "fate"),
    _counter(
        "ledger_processed_tokens", "tokens", "tokens processed, as the ledger has booked them"
    ),
    _gauge("ledger_imbalance_tokens", "tokens", "tokens without a fate; 0 unless there is a bug"),
)

BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of one series now."""

    name: str
    value: float
    labels: tuple[str, ...] = ()
    """Values of the metric's labels, in their order."""


def table() -> str:
    """Return the table of docs/metrics.md."""
    lines = ["| metric | type | unit | labels | told by | meaning |", "|---|---|---|---|---|---|"]
    for each in METRICS:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        lines.append(
            f"| `{each.name}` | {each.kind} | {each.unit} | {labels} "
            f"| {each.who} | {each.meaning} |"
        )
    return "\n".join(lines)
