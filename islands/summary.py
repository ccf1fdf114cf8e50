"""The figures by which one judges a run, from its telemetry and the syncer's last state."""

from dataclasses import asdict

from islands.syncer.state import SyncerState
from islands.telemetry import RunFigures

Summary = dict[str, object]


def summarise(
    telemetry: RunFigures, syncer: SyncerState, *, wall_s: float, figures: dict[str, float]
) -> Summary:
    """Sum a run up.

    Goodput is time spent stepping over time allocated (learners × wall time, absences included);
    yield is tokens that reached the published values over tokens processed, mean over fragments.
    A run is good only if both are high.

    Args:
        telemetry: what learners did.
        syncer: the syncer's state after the final cut.
        wall_s: seconds from the first start to the end.
        figures: of the final evaluation.

    Returns:
        JSON-able figures; `ledger` holds one row per fragment, in tokens, and the imbalance.
    """
    durable = syncer.durable
    rows = syncer.ledger_rows()
    processed = durable.ledger.processed
    stepping_s = sum(learner.stepping_s for learner in telemetry.learners.values())
    allocated_s = max(1, len(telemetry.learners)) * wall_s
    return {
        **figures,
        "reason": durable.finished,
        "tokens": processed,
        "wall_s": wall_s,
        "goodput": stepping_s / allocated_s,
        "yield": sum(row.applied for row in rows) / max(1, processed * len(rows)),
        "merges": durable.merges,
        "participation": durable.participants_sum / max(1, durable.present_sum),
        "staleness_mean": durable.staleness_sum / max(1, durable.participants_sum),
        "evictions": durable.evictions,
        "rejoins": durable.rejoins,
        "step_gap_p999_s": telemetry.gaps.quantile(0.999),
        "longest_stall_s": telemetry.gaps.largest_s,
        "bytes_up": sum(learner.bytes_up for learner in telemetry.learners.values()),
        "bytes_down": sum(learner.bytes_down for learner in telemetry.learners.values()),
        "ledger": {
            "imbalance": sum(abs(row.imbalance) for row in rows),
            "fragments": [asdict(row) for row in rows],
        },
        "learners": {
            name: {
                "steps": learner.steps,
                "tokens": learner.tokens,
                "incarnations": learner.incarnations,
            }
            for name, learner in sorted(telemetry.learners.items())
        },
    }
