"""The summary of a run, from the syncer's share of it and from the learners' reports.

The syncer sends its share to the supervisor when a run ends; they may be on different hosts. If too
few of the tokens reached the published parameters, the summary says what to set. Each token has one
fate, and each fate its remedy:

============  ====================================================================================
overwritten   trained while an update was in transit. Transit takes about as many steps of a
              learner whatever H is, so this share falls as 1/H: the advice is the H with which it
              becomes `OVERWRITTEN_SHARE`
late          the round had closed. With K = all learners it waits for all that can be reached
stale         the base was too old: allow older ones
rejected      the log has the reason for each contribution
lost          the learner was killed or evicted
belated       merged at the very end only: the run was too short for its interval
============  ====================================================================================

The share of overwritten steps between two merges of a fragment tells how many steps an exchange
takes. Measured on the digits of `examples/` (two cores, steps of 1 ms): with two learners H = 8 had
a yield of 0.48, and the advised 115 one of 0.88; with three learners and K = 1 it was 0.22, and
0.90 with K = 3 and H = 115.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil, floor, log10
from typing import Any

import msgspec

from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.health import DIVERGED
from islands.protocol.syncer.state import SyncerState
from islands.run.records.figures import RunFigures, in_order

Summary = dict[str, object]
SUMMARY_FILE = "summary.json"
OTHERS = "(others)"
"""The row of learners that have none of their own; no learner has such a name."""
SyncerShare = dict[str, Any]
"""The syncer's part of the summary, JSON-able; see `share_of`."""


LOW_YIELD = 0.75
"""Advice is given for a yield below this."""
NOTABLE_SHARE = 0.1
"""A fate that took a smaller share of all tokens than this needs no remedy."""
OVERWRITTEN_SHARE = 0.1
DATA_WAIT_SHARE = 0.03
"""Advice on data is given if learners waited for it for a larger share of the time."""
INTERVALS_LEAST = 8
"""Merges of each fragment that a run should have time for."""


def share_of(syncer: SyncerState) -> SyncerShare:
    """Return the figures that only the syncer knows, after its final cut.

    `merged_at_all` is tokens that reached the published values over tokens processed, mean over
    fragments. Of these, `yield` has those that were **merged in time**: tokens that an earlier
    round should have merged, and only the end of the run did, do not count. In a run that merges
    nothing until it ends, every learner trained alone. Where learners gossip, they met all along,
    and only the end can say whose tokens are in the model.
    `ledger` holds one row per fragment, in tokens, and the imbalance; `learners` has the tokens
    that it booked for each name.
    """
    durable = syncer.durable
    rows = syncer.ledger_rows()
    processed = durable.ledger.processed
    belated_tokens = 0 if syncer.core.settings.gossip.on else durable.belated_tokens
    applied, all_ = sum(row.applied for row in rows), max(1, processed * len(rows))
    return {
        "reason": durable.finished,
        "tokens": processed,
        "yield": (applied - belated_tokens) / all_,
        "merged_at_all": applied / all_,
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

    Goodput is time spent stepping over time allocated (learners × wall time, absences included). A
    run is good only if goodput and yield are both high. `data_wait` is the time in which learners
    waited for a batch, over that and the time of stepping. The tokens of `learners` sum to the
    ledger's total, by which the figures were settled. `unbooked_tokens` are not in it: processes
    that ended had told the hub of them, and not the syncer. Figures are JSON-able, in the order in
    which they are read.
    """
    stepping_s = sum(learner.stepping_s for learner in telemetry.everybody())
    waited_s = sum(learner.waited_s for learner in telemetry.everybody())
    data_wait = waited_s / max(stepping_s + waited_s, 1e-9)
    gaps, gone = telemetry.gaps, telemetry.gone
    rows = sorted(telemetry.learners.items(), key=lambda item: in_order(item[0]))
    counted = {
        "unbooked_tokens": telemetry.unbooked,
        "wall_s": wall_s,
        "evictions": telemetry.evictions,
        "goodput": telemetry.goodput(wall_s),
        "data_wait": data_wait,
        "step_gap_p999_s": gaps.quantile(0.999),
        "longest_stall_s": gaps.largest_s,
        "bytes_up": telemetry.bytes_up,
        "bytes_down": telemetry.bytes_down,
    }
    parts = len(share["ledger"].get("fragments", [])) or 1
    learners = {
        name: {
            "steps": learner.steps,
            "tokens": learner.tokens,
            "incarnations": learner.incarnations,
            "merged_at_all": learner.merged_tokens / max(1, parts * learner.tokens),
            "merged_in_time": (learner.merged_tokens - learner.belated_tokens)
            / max(1, parts * learner.tokens),
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
        belated={name: one.belated_tokens for name, one in telemetry.learners.items()},
    )
    diverged = str(share.get("reason")).startswith(DIVERGED)
    told = "" if diverged else advice(outcome, settings)  # the reason says so already
    told = " ".join(filter(None, (told, data_advice(data_wait))))
    rest = {key: value for key, value in share.items() if key not in ("ledger", "learners")}
    return {**figures, **rest, **counted, "advice": told, "ledger": ledger, "learners": learners}


def as_json(summary: Summary) -> bytes:
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run.

    `shares` has the fraction of all tokens that met each fate, mean over fragments, and
    `yield_share` that which was merged, and not only at the end. `learner_steps` and `merges` are
    means over learners and fragments. `belated_by` is the learner that has most of what only the
    end merged; "" if all have.
    """

    shares: dict[str, float]
    yield_share: float
    learners: int
    learner_steps: float
    merges: float
    belated_by: str = ""

    @classmethod
    def of(
        cls,
        rows: list[dict[str, int]],
        *,
        yield_share: float,
        merges: int,
        learner_steps: list[int],
        belated: Mapping[str, int],
    ) -> "Outcome":
        """Compute the outcome from ledger rows, one per fragment, and each learner's steps."""
        processed = max(1, sum(row["processed"] for row in rows))
        fates = [key for key in (rows[0] if rows else {}) if key != "processed"]
        return cls(
            {fate: sum(row[fate] for row in rows) / processed for fate in fates},
            yield_share,
            len(learner_steps),
            sum(learner_steps) / max(1, len(learner_steps)),
            merges / max(1, len(rows)),
            _most(belated),
        )


def advice(outcome: Outcome, settings: RunSettings) -> str:
    """Say in a sentence why the yield is low and what to set; "" if it is not low."""
    if outcome.yield_share >= LOW_YIELD or not outcome.learner_steps:
        return ""
    belated = outcome.shares.get("applied", 0.0) - outcome.yield_share
    shares = {**outcome.shares, "belated": belated}
    remedies = (
        ("late", "came too late for their round", _late(outcome, settings)),
        ("overwritten", "were overwritten while updates travelled", _overwritten(outcome)),
        ("stale", "were too old", f"set run.staleness_max above {settings.staleness_max}"),
        ("rejected", "were refused", "run.log has the reasons"),
        ("lost", "were lost with learners that ended", "run.log tells which, and why"),
        ("belated", "were merged only when the run ended", _belated(outcome, settings)),
    )
    told = [
        f"{shares[fate]:.0%} {happened} ({remedy})"
        for fate, happened, remedy in remedies
        if shares.get(fate, 0.0) >= NOTABLE_SHARE
    ]
    if not told:
        return ""
    return f"Only {outcome.yield_share:.0%} was merged in time: of all tokens {'; '.join(told)}."


def data_advice(data_wait: float) -> str:
    """Say in a sentence that steps waited for data, and what to do; "" if they hardly did."""
    if data_wait < DATA_WAIT_SHARE:
        return ""
    return (
        f"Learners waited for data {data_wait:.0%} of the time: batches are read ahead, but by one "
        "thread; read less for each, or prepare more of it before the run."
    )


def _late(outcome: Outcome, settings: RunSettings) -> str:
    if not isinstance(settings.quorum, int) or settings.quorum >= outcome.learners:
        return "set run.overlap_steps higher, so that a round waits longer"
    return f"set run.quorum to {outcome.learners}, so that a round waits for all learners"


def _overwritten(outcome: Outcome) -> str:
    """Advise the interval at which the steps during an update's transit are a small share."""
    interval_steps = outcome.learner_steps / max(1.0, outcome.merges)
    away_steps = outcome.shares.get("overwritten", 0.0) * interval_steps
    advised = _rounded_up(away_steps / OVERWRITTEN_SHARE)
    told = f"about {away_steps:.0f} steps each time: set run.interval_steps to {advised}"
    if outcome.learner_steps < INTERVALS_LEAST * advised:
        told += ", and train for longer, or give each step a larger batch"
    return told


def _most(belated: Mapping[str, int]) -> str:
    """Return the name that has more than all others together, where there are others."""
    name = max(belated, key=lambda each: belated[each], default="")
    return name if len(belated) > 1 and 2 * belated[name] > sum(belated.values()) else ""


def _belated(outcome: Outcome, settings: RunSettings) -> str:
    if outcome.belated_by:
        return f"most of them of {outcome.belated_by}: run.log tells when it was not asked, and why"
    return f"train for longer, or set run.interval_steps below {settings.interval_steps}"


def _rounded_up(value: float) -> int:
    place: int = 10 ** max(0, floor(log10(max(1.0, value))) - 1)
    return place * ceil(value / place)
