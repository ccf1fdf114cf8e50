"""Runs of an island and of a learner on one host, and what came of them."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from islands.files.tape_writing import MemoryTape
from islands.lab.checker import judge
from islands.lab.checker.evidence import Limits
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.world import Costs, LearnerHost
from islands.protocol.settings.choices import Precision, UpdatePrecision
from islands.protocol.settings.run import RunSettings, Timing
from messaging.simulation.network import Route
from messaging.simulation.virtual_time import run_virtual
from tests.island.simulated_island import IslandWorld
from tests.oracle.wire import Disturbances, Tap

ISLAND, ALONE = "pair", "alone"
SHAPES = (("first", (64, 64)), ("second", (64, 64)), ("third", (33, 7)), ("bias", (5,)))
SIZE_BYTES = 4 * (2 * 64 * 64 + 33 * 7 + 5)
BATCH, RECORDS = 8, 64
GOOD = Route(latency_s=0.005)

Deeds = Callable[[IslandWorld], Awaitable[None]]


@dataclass
class Found:
    """What a run came to; `sent` and `received` are bytes of payloads, by host."""

    lines: list[dict[str, object]] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[dict[str, object]]:
        """The entries of a kind."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def merges(self) -> list[tuple[object, ...]]:
        """Every version with its digest and the contributions in it."""
        told = ("version", "fragment", "participants", "tokens", "norms")
        merged = [tuple(map(str, map(line.get, told))) for line in self.of("merged")]
        digests = [(str(line["version"]), str(line["digest"])) for line in self.of("committed")]
        return [*merged, *digests]


def play(
    owners: Sequence[int],
    precision: Precision,
    deeds: Deeds | None = None,
    *,
    budget_tokens: int = 800,
    quorum: int = 2,
    seed: int = 1,
    route: Route = GOOD,
    updates: UpdatePrecision = UpdatePrecision.FLOAT32,
) -> Found:
    """Play a run of an island and a learner on one host."""
    settings = RunSettings(
        interval_steps=8,
        fragments=4,
        budget_tokens=budget_tokens,
        precision=precision,
        update_precision=updates,
        quorum=quorum,
        timing=Timing(patience=0.3),
    )
    tape, found = MemoryTape(), Found()

    def trainer(_: str, __: LearnerHost) -> NumpyTrainer:
        return NumpyTrainer(4, shapes=SHAPES, momentum=0.0, batch_tokens=BATCH)

    host = LearnerHost(step_s=0.1, noise=0.0)

    async def live() -> None:
        world = IslandWorld(
            settings,
            {ALONE: host, ISLAND: host},
            seed=seed,
            tape=tape,
            costs=Costs(work_s=(0.001, 0.001), route=route),
            trainers=trainer,
        )
        world.owners, world.islands = {ISLAND: owners}, {}
        assert world.network.conditions is not None, "a simulated network has conditions"
        tap = world.network.conditions = Tap(world.network.conditions, Disturbances())
        world.start_all()
        if deeds is not None:
            await deeds(world)
        while world.finished is None:  # noqa: ASYNC110  the end makes no event here
            await asyncio.sleep(0.25)
        await asyncio.sleep(1.0)
        await world.kill_all()
        assert not world.failures
        found.sent = tap.payload_bytes
        for crossing in tap.crossings:
            found.received[crossing.target] += len(crossing.payload)

    run_virtual(live(), limit_s=2000.0)
    found.lines = [json.loads(line) for line in tape.lines]
    layout = trainer("", host).layout
    limits = Limits(
        fragment_elements=tuple(fragment.size for fragment in layout.fragments),
        open_rounds_max=settings.open_rounds_max(len(layout.fragments)),
        staleness_max=settings.staleness_max,
        quorum=settings.quorum_least,
        to_contributors=False,
        budget_tokens=settings.budget_tokens,
        batch_tokens={ALONE: BATCH, ISLAND: BATCH},
        records_per_shard=RECORDS,
        mailbox_most=256,
        moments_wait_s=settings.timing.scaled(settings.timing.resend_s),
    )
    found.wrong = list(map(str, judge(tape.lines, limits)))
    return found
