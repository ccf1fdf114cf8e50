"""The summary of a run, from the syncer's account and from the learners' reports.

The syncer sends its account to the supervisor when a run ends. If too few of the tokens reached the
published parameters, the summary says what to set. Each token has one fate, and each its remedy:

============  ====================================================================================
overwritten   trained while an update was in transit. Transit takes about as many steps of a
              learner whatever H is, so this falls as 1/H: the advice is the H with which it
              becomes `OVERWRITTEN_MOST`
late          the round had closed. With K = all learners it waits for all that can be reached
stale         the base was too old: allow older ones
rejected      the log has the reason for each contribution
lost          the learner was killed or evicted
belated       merged at the very end only: the run was too short for its interval
============  ====================================================================================

Measured on the digits of `examples/` (two cores, steps of 1 ms): with two learners H = 8 had a
yield of 0.48, and the advised 115 one of 0.88; with three learners and K = 1 it was 0.22, and 0.90
with K = 3 and H = 115.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil, floor, log10
from typing import Any

import msgspec

from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.state import SyncerState
from islands.protocol.syncer.timeouts import DIVERGED
from islands.run.records.figures import LearnerFigures, RunFigures, in_order

Summary = dict[str, object]
OTHERS = "(others)"
"""The row of learners that have none of their own; no learner has such a name."""
SyncerShare = dict[str, Any]
"""The syncer's part of the summary, JSON-able; see `share_of`."""

LOW_YIELD = 0.75
"""Advice is given for a yield below this."""
NOTABLE, OVERWRITTEN_MOST = 0.1, 0.1
"""A fate that took a smaller fraction of all tokens needs no remedy."""
DATA_WAIT_MOST = 0.03
"""Advice on data is given if learners waited for it for a larger fraction of the time."""
INTERVALS_LEAST = 8
"""Merges of each fragment that a run should have time for."""


def share_of(syncer: SyncerState) -> SyncerShare:
    """Return the figures that only the syncer knows, after its final cut.

    `merged_at_all` is tokens that reached the published values over tokens processed, mean over
    fragments. In `yield` tokens that an earlier round should have merged, and only the end of the
    run did, do not count; where learners gossip, only the end can say whose tokens are in the
    model. `ledger` has one row per fragment, in tokens; `learners` has each name's booked tokens.
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
    of_syncer: SyncerShare,
    *,
    settings: RunSettings,
    wall_s: float,
    figures: dict[str, float],
) -> Summary:
    """Summarise a run.

    Goodput is time spent stepping over time allocated (learners × wall time, absences included).
    `data_wait` is the time in which learners waited for a batch, over that and the time of
    stepping. The tokens of `learners` sum to the ledger's total, and `unbooked_tokens` are not in
    it: processes that ended had reported them to the hub, and not to the syncer.
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
    ledger = of_syncer["ledger"]
    parts = len(ledger.get("fragments", [])) or 1
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
    # A reason of divergence has its advice already.
    diverged = str(of_syncer.get("reason")).startswith(DIVERGED)
    of_yield = "" if diverged else advice(Outcome.of(of_syncer, telemetry.learners), settings)
    advices = " ".join(filter(None, (of_yield, data_advice(data_wait))))
    rest = {key: value for key, value in of_syncer.items() if key not in ("ledger", "learners")}
    return {**figures, **rest, **counted, "advice": advices, "ledger": ledger, "learners": learners}


def as_json(summary: Summary) -> bytes:
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run.

    `fates` has the fraction of all tokens that met each fate, mean over fragments, and `merged`
    that which was merged in time. `learner_steps` and `merges` are means over learners and
    fragments. `belated_by` is the learner that has most of what only the end merged.
    """

    fates: dict[str, float]
    merged: float
    learners: int
    learner_steps: float
    merges: float
    belated_by: str = ""

    @classmethod
    def of(cls, of_syncer: SyncerShare, learners: Mapping[str, LearnerFigures]) -> "Outcome":
        rows = of_syncer["ledger"].get("fragments", [])
        processed = max(1, sum(row["processed"] for row in rows))
        fates = [key for key in (rows[0] if rows else {}) if key != "processed"]
        steps = [learner.steps for learner in learners.values() if learner.steps]
        return cls(
            {fate: sum(row[fate] for row in rows) / processed for fate in fates},
            of_syncer.get("yield", 0.0),
            len(steps),
            sum(steps) / max(1, len(steps)),
            of_syncer.get("merges", 0) / max(1, len(rows)),
            _most({name: learner.belated_tokens for name, learner in learners.items()}),
        )


def advice(outcome: Outcome, settings: RunSettings) -> str:
    """Say in a sentence why the yield is low and what to set; "" if it is not low."""
    if outcome.merged >= LOW_YIELD or not outcome.learner_steps:
        return ""
    belated = outcome.fates.get("applied", 0.0) - outcome.merged
    fates = {**outcome.fates, "belated": belated}
    remedies = (
        ("late", "came too late for their round", _late(outcome, settings)),
        ("overwritten", "were overwritten while updates travelled", _overwritten(outcome)),
        ("stale", "were too old", f"set run.staleness_max above {settings.staleness_max}"),
        ("rejected", "were refused", "run.log has the reasons"),
        ("lost", "were lost with learners that ended", "run.log tells which, and why"),
        ("belated", "were merged only when the run ended", _belated(outcome, settings)),
    )
    sentences = [
        f"{fates[fate]:.0%} {happened} ({remedy})"
        for fate, happened, remedy in remedies
        if fates.get(fate, 0.0) >= NOTABLE
    ]
    if not sentences:
        return ""
    return f"Only {outcome.merged:.0%} was merged in time: of all tokens {'; '.join(sentences)}."


def data_advice(data_wait: float) -> str:
    """Say in a sentence that steps waited for data, and what to do; "" if they hardly did."""
    if data_wait < DATA_WAIT_MOST:
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
    away_steps = outcome.fates.get("overwritten", 0.0) * interval_steps
    advised = _rounded_up(away_steps / OVERWRITTEN_MOST)
    sentence = f"about {away_steps:.0f} steps each time: set run.interval_steps to {advised}"
    if outcome.learner_steps < INTERVALS_LEAST * advised:
        sentence += ", and train for longer, or give each step a larger batch"
    return sentence


def _most(belated: Mapping[str, int]) -> str:
    name = max(belated, key=lambda each: belated[each], default="")
    return name if len(belated) > 1 and 2 * belated[name] > sum(belated.values()) else ""


def _belated(outcome: Outcome, settings: RunSettings) -> str:
    if outcome.belated_by:
        return f"most of them of {outcome.belated_by}: run.log tells when it was not asked, and why"
    return f"train for longer, or set run.interval_steps below {settings.interval_steps}"


def _rounded_up(value: float) -> int:
    unit: int = 10 ** max(0, floor(log10(max(1.0, value))) - 1)
    return unit * ceil(value / unit)
