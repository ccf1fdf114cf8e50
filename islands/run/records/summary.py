"""The summary of a run, from the syncer's share of it and from the learners' reports.

The syncer sends its share to the supervisor when a run ends; they may be on different hosts.
"""

from dataclasses import asdict
from typing import Any

import msgspec

from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.state import SyncerState
from islands.protocol.syncer.watches import DIVERGED
from islands.run.advice import Outcome, advice, data_advice
from islands.run.records.figures import RunFigures, in_order

Summary = dict[str, object]
SUMMARY_FILE = "summary.json"
OTHERS = "(others)"
"""The row of learners that have none of their own; no learner has such a name."""
SyncerShare = dict[str, Any]
"""The syncer's part of the summary, JSON-able; see `share_of`."""


def share_of(syncer: SyncerState) -> SyncerShare:
    """Return the figures that only the syncer knows, after its final cut.

    Yield is tokens that reached the published values over tokens processed, mean over fragments.
    Tokens that an earlier round should have merged, and only the end of the run did, do not count:
    in a run that merges nothing until it ends, every learner trained alone. Where learners gossip,
    they met all along, and only the end can say whose tokens are in the model.
    `ledger` holds one row per fragment, in tokens, and the imbalance; `learners` has the tokens
    that it booked for each name.
    """
    durable = syncer.durable
    rows = syncer.ledger_rows()
    processed = durable.ledger.processed
    belated_tokens = 0 if syncer.core.settings.gossip.on else durable.belated_tokens
    return {
        "reason": durable.finished,
        "tokens": processed,
        "yield": (sum(row.applied for row in rows) - belated_tokens)
        / max(1, processed * len(rows)),
        "merges": durable.merges,
        "participation": durable.participants_sum / max(1, durable.present_sum),
        "staleness_mean": durable.staleness_sum / max(1, durable.participants_sum),
        "rejoins": durable.rejoins,
        "ledger": {
            "imbalance": sum(abs(row.imbalance) for row in rows),
            "fragments": [asdict(row) for row in rows],
        },
        "learners": durable.ledger.by_name,
    }


def summarise(
    telemetry: RunFigures,
    share: SyncerShare,
    *,
    settings: RunSettings,
    wall_s: float,
    figures: dict[str, float],
) -> Summary:
    """Summarise a run.

    Goodput is time spent stepping over time allocated (learners × wall time, absences included).
    A run is good only if goodput and yield are both high. `data_wait` is the time in which learners
    waited for a batch, over that and the time of stepping. The tokens of `learners` sum to the
    ledger's total, by which the figures were settled. `unbooked_tokens` are not in it: processes
    that ended had told the hub of them, and not the syncer.

    Args:
        telemetry: what learners did.
        share: the syncer's part, from `share_of`.
        settings: what all members of the run agree on.
        wall_s: seconds from the first start to the end.
        figures: the results of the final evaluation.

    Returns:
        JSON-able figures, in the order in which they are read.
    """
    stepping_s = sum(learner.stepping_s for learner in telemetry.everybody())
    allocated_s = max(1, len(telemetry.learners) + telemetry.gone.names) * wall_s
    waited_s = sum(learner.waited_s for learner in telemetry.everybody())
    data_wait = waited_s / max(stepping_s + waited_s, 1e-9)
    gaps, gone = telemetry.gaps, telemetry.gone
    rows = sorted(telemetry.learners.items(), key=lambda item: in_order(item[0]))
    counted = {
        "unbooked_tokens": telemetry.unbooked,
        "wall_s": wall_s,
        "evictions": telemetry.evictions,
        "goodput": stepping_s / allocated_s,
        "data_wait": data_wait,
        "step_gap_p999_s": gaps.quantile(0.999),
        "longest_stall_s": gaps.largest_s,
        "bytes_up": sum(learner.bytes_up for learner in telemetry.everybody()),
        "bytes_down": sum(learner.bytes_down for learner in telemetry.everybody()),
    }
    learners = {
        name: {
            "steps": learner.steps,
            "tokens": learner.tokens,
            "incarnations": learner.incarnations,
            "step_gap_p999_s": learner.gaps.quantile(0.999),
            "longest_stall_s": learner.gaps.largest_s,
            **({"sends": learner.sends} if learner.sends else {}),
        }
        for name, learner in [*rows, *([(OTHERS, gone.counted)] if gone.counted.tokens else [])]
    }
    ledger = share["ledger"]
    outcome = Outcome.of(
        ledger.get("fragments", []),
        yield_share=share.get("yield", 0.0),
        merges=share.get("merges", 0),
        learner_steps=[learner.steps for learner in telemetry.learners.values() if learner.steps],
    )
    diverged = str(share.get("reason")).startswith(DIVERGED)
    told = "" if diverged else advice(outcome, settings)  # the reason says so already
    told = " ".join(filter(None, (told, data_advice(data_wait))))
    rest = {key: value for key, value in share.items() if key not in ("ledger", "learners")}
    return {**figures, **rest, **counted, "advice": told, "ledger": ledger, "learners": learners}


def as_json(summary: Summary) -> bytes:
    """Return the summary as the text of its file."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
