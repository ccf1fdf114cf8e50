"""The entries of a run as `scale` sees them: their islands, their speed, their region and price."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from islands.costs.bill import hour_cost
from islands.costs.places import Place, matching
from islands.costs.prices import Prices
from islands.engines.launcher import RECORDS_FILE, Records, records_in
from islands.engines.needs import Needs, entry_of
from islands.protocol.errors import UserError
from islands.run.records.figures import FIGURES_FILE, LearnerFigures, in_order, kept_in
from islands.run.records.run_values import require_folder
from islands.run.records.summary import SUMMARY_FILE
from islands.scaling.targets import Entry
from islands.settings.run_spec import RunPlan, RunSpec, read


@dataclass(frozen=True, slots=True)
class Fleet:
    """The islands of a run at one moment.

    Args:
        entries: of the run.
        islands: the names of those that are there or placed, by entry, in their order.
        tokens: that the run has processed.
        by_region: the same of the islands of each region.
        step_s: mean duration of the steps of those that step; None if none does.
    """

    entries: tuple[Entry, ...]
    islands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tokens: int = 0
    by_region: Mapping[str, int] = field(default_factory=dict)
    step_s: float | None = None

    def without(self, leaving: Mapping[str, object]) -> "Fleet":
        """Return the fleet without islands that were told to leave."""
        islands = {
            entry: tuple(name for name in names if name not in leaving)
            for entry, names in self.islands.items()
        }
        entries = (replace(each, present=len(islands.get(each.name, ()))) for each in self.entries)
        return replace(self, entries=tuple(entries), islands=islands)

    def newest(self, entry: str, number: int) -> Sequence[str]:
        """Return the islands of an entry that are to go first: those that came last."""
        return self.islands.get(entry, ())[::-1][:number]


def fleet_of(
    learners: Mapping[str, LearnerFigures],
    tokens: int,
    records: Records,
    prices: Prices | None,
    most: int,
    needs: Mapping[str, Needs] | None = None,
) -> Fleet:
    """Return the fleet of a run.

    Args:
        learners: the figures of each.
        tokens: that the run has processed.
        records: of its engines.
        prices: None: no hour has a price.
        most: islands that each entry may have.
        needs: further entries, of which there may be no island yet.

    Raises:
        Unpriced: a price is missing.
    """
    placed = [name for name, each in records.islands.items() if each.ended is None]
    here = {name: one for name, one in learners.items() if one.since_s is not None}
    names = sorted(dict.fromkeys([*here, *placed]), key=in_order)
    every = {**(needs or {}), **records.needs}
    islands: dict[str, list[str]] = {name: [] for name in every}
    for name in names:
        islands.setdefault(entry_of(name), []).append(name)
    patterns = {} if prices is None else prices.learners

    def place_of(entry: str, name: str) -> Place:
        told = every.get(entry)
        return (matching(name, patterns) or Place()) if told is None else Place.of(told)

    by_region: dict[str, int] = {}
    for name, one in learners.items():
        region = place_of(entry_of(name), name).region
        by_region[region] = by_region.get(region, 0) + one.tokens
    entries = []
    for entry, members in islands.items():
        place = place_of(entry, members[0] if members else f"{entry}-0")
        stepped = [here[name] for name in members if name in here and here[name].stepping_s > 0]
        known = [one.tokens / one.stepping_s for one in stepped if one.tokens]
        entries.append(
            Entry(
                entry,
                place.region,
                len(members),
                fmean(known) if known else None,
                None if prices is None else hour_cost(place, prices),
                len(members) if entry in members else most,  # none of another name can be added
            )
        )
    stepping = [one.step_time_s for one in here.values() if one.step_time_s > 0]
    kept = {entry: tuple(members) for entry, members in islands.items()}
    step_s = fmean(stepping) if stepping else None
    return Fleet(tuple(entries), kept, tokens, by_region, step_s)


def fleet_in_file(needs: Mapping[str, Needs], prices: Prices | None, most: int) -> Fleet:
    """Return the fleet of a run's file as it would begin."""
    entries = tuple(
        Entry(
            name,
            each.region or "",
            each.count,
            None,
            None if prices is None else hour_cost(Place.of(each), prices),
            most,
        )
        for name, each in needs.items()
    )
    names = {each.name: tuple(f"{each.name}-{i}" for i in range(each.present)) for each in entries}
    return Fleet(entries, names)


@dataclass(frozen=True, slots=True)
class Run:
    """The run of a folder: its settings, its plan, and its fleet at every look."""

    folder: Path
    spec: RunSpec
    plan: RunPlan

    @staticmethod
    def of(folder: Path) -> "Run":
        """Return the run of a folder.

        Raises:
            UserError: the folder holds none.
        """
        require_folder(folder)
        planned = read(folder)
        if planned is None:
            raise UserError(f"{folder} is not the folder of a run: it has no run.json")
        return Run(folder, *planned)

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return (self.folder / SUMMARY_FILE).exists()

    def fleet(self, prices: Prices | None, most: int) -> Fleet:
        """Return the fleet as the hub kept it last, some seconds ago.

        Raises:
            UserError: the hub's figures are damaged, or a price is missing.
        """
        kept, lost = kept_in(self.folder)
        if lost:
            raise UserError(f"{self.folder / FIGURES_FILE} is damaged; nobody knows who is there")
        told = kept.gone.counted.tokens + sum(one.tokens for one in kept.learners.values())
        records = records_in(self.folder / RECORDS_FILE)
        return fleet_of(kept.learners, max(kept.booked, told), records, prices, most)
