"""Samples of a run and of a syncer, from what these count themselves; pure.

No figure is computed anew: tokens, merges, yield, goodput, loss and time left are those of the
screen and of `islands status`, and at the end those of the summary.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from islands.metrics.catalogue import FIGURES_MOST, Sample
from islands.protocol.syncer.state import SyncerState
from islands.run.run_status import LEARNERS_SHOWN, LearnerLine, RunStatus, first_lines


def since_merge_s(status: RunStatus) -> float | None:
    """Return the seconds of work without a merge; None where no merge is to be expected."""
    figures = status.figures
    if figures.work.since_s is None or figures.ending or status.settings.gossip.on:
        return None
    return max(0.0, status.elapsed_s - max(figures.last_merge_s, figures.work.since_s))


def merge_interval_s(status: RunStatus) -> float:
    """Return the seconds between two merges that the slowest of the present learners allows."""
    steps_s = [each.step_time_s for each in status.figures.learners.values() if not each.gone]
    return status.settings.round_interval_steps(status.fragments) * max(steps_s, default=0.0)


def run_samples(status: RunStatus) -> Iterator[Sample]:
    figures, settings = status.figures, status.settings
    yield Sample("islands_run_info", 1, (settings.run,))
    yield Sample("islands_run_phase", 1, (status.phase,))
    yield Sample("islands_run_age_seconds", status.wall_s)
    yield from _known("islands_run_left_seconds", status.left_s)
    yield from _known("islands_run_budget_tokens", settings.budget_tokens)
    yield Sample("islands_run_tokens_total", figures.tokens)
    yield Sample("islands_run_unbooked_tokens_total", figures.unbooked)
    yield Sample("islands_run_merged_tokens_total", figures.merged_tokens)
    yield Sample("islands_run_tokens_per_second", status.tokens_per_s)
    yield Sample("islands_run_merges_total", figures.merges)
    yield Sample("islands_run_fragments", status.fragments)
    yield from _known("islands_run_since_merge_seconds", since_merge_s(status))
    yield Sample("islands_run_merge_interval_seconds", merge_interval_s(status))
    yield Sample("islands_run_evictions_total", figures.evictions)
    yield from _known("islands_run_loss", figures.loss)
    yield from _evaluation(status)
    yield Sample("islands_run_learning_rate", status.rate)
    yield Sample("islands_run_clock_steps", figures.clock)
    goodput = figures.goodput(status.wall_s)
    if not settings.gossip.on:  # only the end can say it then
        yield Sample("islands_run_yield_ratio", status.yield_so_far)
        yield Sample("islands_run_google_goodput_ratio", goodput * status.yield_so_far)
    yield Sample("islands_run_goodput_ratio", goodput)
    yield Sample("islands_run_warning", bool(figures.warning))
    yield from _learners(status)


def _known(name: str, value: float | None, labels: tuple[str, ...] = ()) -> Iterator[Sample]:
    if value is not None:
        yield Sample(name, value, labels)


def _evaluation(status: RunStatus) -> Iterator[Sample]:
    for name, value in islice(status.evaluation.items(), FIGURES_MOST):
        if name.isidentifier():
            yield Sample("islands_run_evaluation", value, (name,))


def _learners(status: RunStatus) -> Iterator[Sample]:
    every = status.lines()
    for state, number in sorted(Counter(line.state for line in every).items()):
        yield Sample("islands_learners", number, (state,))
    unlisted = max(0, len(every) - LEARNERS_SHOWN) + status.figures.gone.names
    yield Sample("islands_learners_unlisted", unlisted)
    for line in first_lines(every, LEARNERS_SHOWN):
        yield from _learner(line)


def _learner(line: LearnerLine) -> Iterator[Sample]:
    done, name = line.figures, (line.name,)
    yield Sample("islands_learner_state", 1, (line.name, line.state))
    yield Sample("islands_learner_steps_total", done.steps, name)
    yield Sample("islands_learner_tokens_total", done.tokens, name)
    yield Sample("islands_learner_incarnations_total", done.incarnations, name)
    yield Sample("islands_learner_stepping_seconds_total", done.stepping_s, name)
    yield Sample("islands_learner_data_wait_seconds_total", done.waited_s, name)
    yield Sample("islands_learner_sent_bytes_total", done.bytes_up, name)
    yield Sample("islands_learner_received_bytes_total", done.bytes_down, name)
    yield Sample("islands_learner_step_seconds", done.step_time_s, name)
    yield Sample("islands_learner_tokens_per_second", line.tokens_per_s, name)
    yield Sample("islands_learner_stall_seconds", done.gaps.largest_s, name)
    if done.loss is not None:
        yield Sample("islands_learner_loss", done.loss, name)
    for metric, value in done.metrics.items():
        yield from _known("islands_learner_metric", value, (line.name, metric))
    yield Sample("islands_learner_diverged", done.diverged, name)
    if line.silent_s is not None:
        yield Sample("islands_learner_silent_seconds", line.silent_s, name)
        yield Sample("islands_learner_unmerged_rounds", done.unmerged, name)


def syncer_samples(state: SyncerState) -> Iterator[Sample]:
    journal, rows = state.core.journal, state.ledger_rows()
    yield Sample("islands_journal_pending_records", len(journal.journalling))
    yield Sample("islands_journal_lag_seconds", journal.lag_s)
    yield Sample("islands_journal_records_total", state.durable.sequence)
    yield Sample("islands_rounds_open", len(state.core.rounds.open))
    for fate in ("applied", "rejected", "late", "stale", "overwritten", "lost", "pending"):
        yield Sample("islands_ledger_tokens", sum(getattr(row, fate) for row in rows), (fate,))
    yield Sample("islands_ledger_processed_tokens_total", state.durable.ledger.processed)
    imbalance = sum(abs(row.imbalance) for row in rows)
    yield Sample("islands_ledger_imbalance_tokens", imbalance)
