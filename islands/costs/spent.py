"""The bill of a run, from the figures that its hub keeps: of a folder, or of a hub in progress."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from islands.costs.bill import HOUR_S, Bill, Stay, bill_of
from islands.costs.prices import Machines, Prices
from islands.engines.engine import JobState
from islands.engines.launcher import RECORDS_FILE, records_in
from islands.files.run_files import FIGURES_FILE
from islands.protocol.errors import UserError
from islands.run.records.figures import LearnerFigures, RunFigures, restored
from islands.run.records.run_values import require_folder
from islands.run.records.summary import OTHERS
from islands.settings.run_spec import read

NOTHING = LearnerFigures()
"""The figures of an island that has not joined."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What an engine's record tells of an island.

    `running_s` is for how long all of its jobs have run until now, also those that never joined.
    """

    machines: Machines
    running_s: float


def bill_of_run(folder: Path, prices: Prices | None) -> Bill:
    """Return the bill of a run until its hub kept its figures last."""
    require_folder(folder)
    planned = read(folder)
    if planned is None or not (folder / FIGURES_FILE).exists():
        raise UserError(f"{folder} is not the folder of a run: it has no {FIGURES_FILE}")
    wall_s, figures, lost = restored(folder)
    if lost:
        raise UserError(f"{folder / FIGURES_FILE} is damaged, so nobody knows what was paid for")
    fragments = len(planned[1].layout.fragments)
    final = figures.settled_yield
    merged = None if final is None else final * figures.tokens
    placed = placed_by_engines(folder, figures.kept_s)
    stays = stays_of(figures, wall_s, fragments, prices, placed, merged)
    return bill_of(stays, prices, wall_s)


def stays_of(
    figures: RunFigures,
    now_s: float,
    fragments: int,
    prices: Prices | None,
    placed: Mapping[str, Placed],
    merged: float | None = None,
) -> list[Stay]:
    """Return what each island did, learners that are counted together as one.

    `now_s` is on the run's clock. `merged` are the tokens of all that were merged, mean over
    fragments; None: as merges reported so far.
    """
    rows = {**figures.learners, OTHERS: figures.gone.counted}
    every = {name: one for name, one in rows.items() if name != OTHERS or figures.gone.names}
    own = {name: float(one.merged_tokens) for name, one in every.items()}
    if not sum(own.values()):  # merges of very many tell none of their participants
        own = {name: float(one.tokens) for name, one in every.items()}
    if merged is None:
        merged = min(float(figures.tokens), figures.merged_tokens / fragments)
    fraction = merged / max(1.0, sum(own.values()))
    stays = []
    for name in dict.fromkeys([*every, *placed]):
        one, known = every.get(name, NOTHING), placed.get(name)
        paid_s, machines = one.member_s(now_s), None
        if known is not None:
            paid_s, machines = max(paid_s, known.running_s), known.machines
        elif prices is not None:
            machines = prices.machines_of(name)
        counts = one.bytes_up, one.bytes_down, one.tokens
        stays.append(Stay(name, machines, paid_s, *counts, fraction * own.get(name, 0.0)))
    return stays


def hour_of(
    machines: Mapping[str, Machines | None], prices: Prices, pace: "Pace | None" = None
) -> Bill:
    """Return the bill of one hour of a fleet that is planned, all of whose tokens are merged.

    Where an island's machines are not known, the prices tell them by its name.
    """
    stays = []
    for name, known in machines.items():
        sent, received, tokens = (round(HOUR_S * each) for each in pace or Pace())
        there = known or prices.machines_of(name)
        stays.append(Stay(name, there, HOUR_S, sent, received, tokens, tokens))
    return bill_of(stays, prices, HOUR_S)


class Pace(NamedTuple):
    """The bytes and tokens a second of an island; 0: not known."""

    sent: float = 0.0
    received: float = 0.0
    tokens: float = 0.0


def placed_by_engines(folder: Path, wall_s: float) -> dict[str, Placed]:
    """Return what the records of a run's engines tell of islands, by name; nothing without any."""
    records = records_in(folder / RECORDS_FILE)
    placed = {}
    for name, each in records.islands.items():
        if each.entry in records.needs:
            running = each.state is JobState.RUNNING and each.ended is None
            now_s = max(0.0, wall_s - each.since_s) if running else 0.0
            placed[name] = Placed(Machines.of(records.needs[each.entry]), each.ran_s + now_s)
    return placed
