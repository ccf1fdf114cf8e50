"""Slow steps, slow copies, slow links: seconds between merges against those computed by hand.

    python -m tests.benchmarks.slowness

plays the real states of a syncer and its learners (`tests.rounds.model`) on a virtual clock, for
combinations of step time, copy time, one-way latency, quorum K and fragments P, and prints a table:
the seconds between two merges as computed and as measured, the participation, and what was killed,
abandoned and lost. The last line is JSON with the number of cells and the largest deviation.

By hand (`computed_s`). Between two merges lie as many seconds as the largest of

    H/P · s                   the steps that a round needs: compute sets the pace
    2·l / o                   a round is open from its pull to its merge, o rounds at a time
    (4·l + 1.5·s) / (P · g)   who contributed to a fragment is asked for it again once it has
                              reported that it adopted the merge, at a boundary, and one more step
    c / g                     a learner copies a fragment for every merge that it is part of, one
                              at a time

with s the step, l the one-way latency, c the copy of a snapshot to the host. Merge and journal take
a millisecond each. A learner answers at most two pulls at a time, so o = min(rounds open at once,
2·g). g is the number of groups of learners that take turns, between 1 and M/K (M for K = all,
which is all that are eligible when the round opens): where the exchange hides behind the steps all
take part in every merge, g = 1; where it does not, those who wait for an update do not keep the
others from merging. So the slow cells have a range.

The model's heartbeats are half a step apart where that is more than a quarter of a second, for
otherwise most of what is played are heartbeats.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil

from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.members import UNANSWERED_MAX
from tests.rounds.model import TICK_S, Link, Model

STEPS_S = (0.01, 1.0, 40.0, 300.0)
COPY_STEPS = (0.1, 1.0, 5.0)
LATENCIES_S = (0.001, 1.0, 30.0)
QUORUMS = (1, 2, None)
FRAGMENTS = (1, 6, 48)
INTERVAL_STEPS = 24
LEARNERS = 3
HEARTBEAT_STEPS = 0.5
MERGES_LEAST = 8
MERGES_MOST = 96
STEPS_MOST = 20_000
"""So many steps at most are played before a cell is measured, and as many while it is."""

MANY_STEPS = 50
END_LIMIT_S = 1e6
WORK_S = 0.002
SHARD_S = 300.0
"""A shard lasts so long, as real ones do; an exchange of two minutes lies within it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination; times in seconds, `quorum` None for all."""

    step_s: float
    copy_steps: float
    latency_s: float
    quorum: int | None
    fragments: int

    @property
    def settings(self) -> RunSettings:
        return RunSettings(
            interval_steps=INTERVAL_STEPS, fragments=self.fragments, quorum=self.quorum
        )

    @property
    def copy_s(self) -> float:
        return self.copy_steps * self.step_s


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a cell: seconds between two merges, and what else was promised."""

    least_s: float
    most_s: float
    between_s: float
    participation: float
    abandoned: int
    killed: int
    lost: int

    @property
    def deviation(self) -> float:
        """By what share the measured time lies outside of the computed ones."""
        over, under = self.between_s / self.most_s - 1, 1 - self.between_s / self.least_s
        return max(0.0, over, under)


def computed_s(cell: Cell) -> tuple[float, float]:
    """Least and most seconds between two merges (see above)."""
    pace_s = INTERVAL_STEPS / cell.fragments * cell.step_s
    open_rounds = cell.settings.open_rounds_max(cell.fragments)

    def of(groups: float) -> float:
        rounds = min(open_rounds, int(UNANSWERED_MAX * groups))
        slot_s = (2 * cell.latency_s + WORK_S) / rounds
        cycle_s = (4 * cell.latency_s + 1.5 * cell.step_s) / (cell.fragments * groups)
        return max(pace_s, slot_s, cycle_s, cell.copy_s / groups)

    return of(LEARNERS / (cell.quorum or 1)), of(1)


def play(cell: Cell) -> Found:
    """Play one cell, then stop the run and see what the end loses."""
    least_s, most_s = computed_s(cell)
    link = Link(latency_s=cell.latency_s, copy_s=cell.copy_s)
    tick_s = max(TICK_S, HEARTBEAT_STEPS * cell.step_s)
    model = Model(
        cell.settings,
        [cell.step_s] * LEARNERS,
        link=link,
        noise=0.02,
        tick_s=tick_s,
        shard_records=ceil(SHARD_S / cell.step_s),
    )
    merges = min(MERGES_MOST, max(MERGES_LEAST, 4 * cell.fragments))
    played_s = min(merges * most_s, max(MERGES_LEAST * most_s, STEPS_MOST * cell.step_s))
    model.run(12 * cell.latency_s + 3 * cell.step_s + played_s)
    start_s = model.now_s
    model.run(played_s)
    times = [at_s for at_s, _, entry in model.tape if entry.kind == "merged" and at_s >= start_s]
    between_s = played_s / len(times) if times else float("inf")
    participation = model.participation(start_s) if times else 0.0
    abandoned = model.count("abandoned")
    model.stop("enough")
    model.run(END_LIMIT_S)
    rows = model.syncer.ledger_rows()
    killed = sum(model.count(kind) for kind in ("retired", "wrong_report"))
    lost = sum(row.lost + row.pending for row in rows) + (model.finished != "enough")
    return Found(least_s, most_s, between_s, participation, abandoned, killed, lost)


def grid() -> Iterator[Cell]:
    """All cells; few of those in which very many steps pass during an exchange."""
    for values in product(STEPS_S, COPY_STEPS, LATENCIES_S, QUORUMS, FRAGMENTS):
        cell = Cell(*values)
        steps = cell.latency_s / cell.step_s
        if steps <= MANY_STEPS or (cell.copy_steps == COPY_STEPS[-1] and cell.fragments == 1):
            yield cell


HEADER = (
    "| step s | copy, steps | one-way s | K | P | computed s | measured s | participation "
    "| abandoned | killed | lost |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def row(cell: Cell, found: Found) -> str:
    quorum = "all" if cell.quorum is None else cell.quorum
    computed = f"{found.most_s:.4g}"
    if found.least_s < found.most_s:
        computed = f"{found.least_s:.4g} to {computed}"
    return (
        f"| {cell.step_s:g} | {cell.copy_steps:g} | {cell.latency_s:g} | {quorum} "
        f"| {cell.fragments} | {computed} | {found.between_s:.4g} "
        f"| {found.participation:.2f} | {found.abandoned} | {found.killed} | {found.lost} |"
    )


def main(arguments: list[str]) -> int:
    """Print the table; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.slowness")
    parser.add_argument("--part", type=int, default=0, help="which of the parts to play")
    parser.add_argument("--parts", type=int, default=1, help="of how many")
    chosen = parser.parse_args(arguments)
    sys.stdout.write(HEADER + "\n")
    all_found: list[Found] = []
    for cell in list(grid())[chosen.part :: chosen.parts]:
        found = play(cell)
        all_found.append(found)
        sys.stdout.write(row(cell, found) + "\n")
        sys.stdout.flush()
    figures = {
        "cells": len(all_found),
        "deviation_most": round(max(found.deviation for found in all_found), 4),
        "deviate_by_5_percent": sum(found.deviation > 0.05 for found in all_found),
        "abandoned": sum(found.abandoned for found in all_found),
        "killed": sum(found.killed for found in all_found),
        "lost": sum(found.lost for found in all_found),
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
