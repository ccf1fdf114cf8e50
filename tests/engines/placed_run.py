"""A run whose hub places islands, watched by a test: its merges, its steps, and its records.

run = Run(room, environment)
run.start_hub()
await run.merged("site-0", "site-1")
gap = run.gap(("site-0",), (began_s, ended_s), stalls)
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from islands.engines.launcher import RECORDS_FILE, records_in
from islands.engines.placing import Placement
from islands.lab.faults.bare_loop import Stall
from islands.lab.faults.fleet import WATCHED_FILE, Reader
from islands.lab.faults.gaps import Gap, Span, gap_of, worst
from tests.integration.programs import Program, Room


@dataclass(slots=True)
class Run:
    """A run in a room beside a cluster."""

    room: Room
    environment: Mapping[str, str] = field(default_factory=dict)
    hubs: list[Program] = field(default_factory=list)
    watched: Reader = field(init=False)

    def __post_init__(self) -> None:
        self.watched = Reader(self.folder / WATCHED_FILE)

    @property
    def folder(self) -> Path:
        return self.room.folder / "run"

    def start_hub(self) -> Program:
        words = ("run", "run.yaml", "--folder", "run")
        hub = self.room.start("tests.engines.watched_run", *words, environment=self.environment)
        self.hubs.append(hub)
        return hub

    def placed(self) -> dict[str, Placement]:
        """What the hub has written down of its islands."""
        return records_in(self.folder / RECORDS_FILE).islands

    async def merged(self, *names: str, limit_s: float = 90.0) -> float:
        """Wait until each of these merges and reports its steps from now on; return the time."""
        since_s = now_s()

        def done() -> bool:
            self.watched.read()
            told = (self.watched.merged_s, self.watched.reported_s)
            return all(each.get(name, 0.0) > since_s for name in names for each in told)

        await self.room.wait(done, limit_s)
        return now_s()

    def gap(self, names: Sequence[str], span: Span, stalls: Sequence[Stall]) -> Gap:
        self.watched.read()
        gaps = [gap_of(self.watched.rows, name, span, stalls) for name in names]
        assert None not in gaps, f"too few reports of {names} in {span}"
        found = worst(gap for gap in gaps if gap is not None)
        assert found is not None
        return found


def now_s() -> float:
    """The time of the loop, which all processes of this host share."""
    return asyncio.get_running_loop().time()
