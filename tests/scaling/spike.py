"""A run of two regions on the virtual clock, to one of which more data comes than it can train.

Supervisor, syncer and learners are the production actors; the fleet is followed by what `islands
scale --apply` runs, from the figures that a hub keeps, and told by an operator's messages.
"""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from islands.costs.bill import Bill, bill_of
from islands.costs.prices import Prices, read_prices
from islands.costs.spent import stays_of
from islands.engines.launcher import Records
from islands.engines.needs import entry_of
from islands.lab.world.world import Costs, LearnerHost, World
from islands.protocol.identities import SUPERVISOR, SYNCER, Phase
from islands.protocol.messages.control import CommandAnswer, Verb
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing
from islands.run.records.run_folder import RunFolder
from islands.scaling.fleet import Fleet, fleet_of
from islands.scaling.looking import Scaler
from islands.scaling.targets import Deadline
from messaging.simulation.network import Route
from messaging.simulation.virtual_time import run_virtual

HOST = LearnerHost(step_s=5.0, noise=0.05)
SPEED = HOST.batch_tokens / HOST.step_s
"""Tokens of one island in a second."""

SPIKE_S, WITHIN_S, END_S = 300.0, 600.0, 1050.0
BACKLOG = 4 * SPEED * WITHIN_S * 0.9
"""Data that comes to eu at once: more than three islands more can train in the time."""

HORIZON_S = 600.0
USUAL = {"eu": 0.9 * SPEED, "us": 1.9 * SPEED}
"""Tokens that come in a second all the time: one island in eu, two in us."""

SETTINGS: RunSettings = replace(
    PRESETS[Preset.DECOUPLED_DILOCO], interval_steps=6, fragments=6, timing=Timing(patience=4.0)
)
PRICES = """
accelerator_hour: {H100: {eu: {preemptible: 2}, us: 3}}
traffic_gb: {eu: {us: 2000}, us: {eu: 3000, us: 500}}
hub: {region: us, hosts: 1}
host_hour: {us: 0.5}
learners:
  eu-*: {region: eu, accelerators: H100:8, preemptible: true, hosts: 2}
  us-*: {region: us, accelerators: H100:8}
"""
"""Traffic is dear, for a toy's is small beside its hours."""


@dataclass(slots=True)
class Followed:
    """What became of the run.

    Args:
        folder: its records.
        bill: what it has cost.
        present: (time, islands of eu, islands of us) at each look.
        stays_s: when the process of each island began and ended.
        backlog_done_s: when the data that came at once was trained; None: it was not.
        commands: what was told to the supervisor, and to whoever starts islands.
        imbalance: tokens by which the ledger does not balance.
        traffic: bytes that each island sent and received.
    """

    folder: RunFolder
    bill: Bill | None = None
    present: list[tuple[float, int, int]] = field(default_factory=list)
    stays_s: dict[str, list[float]] = field(default_factory=dict)
    backlog_done_s: float | None = None
    commands: list[tuple[float, Verb, str, int]] = field(default_factory=list)
    imbalance: int = 0
    traffic: dict[str, tuple[int, int]] = field(default_factory=dict)


class Spike:
    """The run, and the scaler that follows it."""

    def __init__(self, folder: Path) -> None:
        self.prices: Prices = read_prices(yaml.safe_load(PRICES), "prices")
        self.records = RunFolder(folder, SETTINGS, fragments=SETTINGS.fragments)
        self.found = Followed(self.records)
        self.world = World(
            SETTINGS,
            dict.fromkeys(("eu-0", "us-0", "us-1"), HOST),
            seed=7,
            tape=self.records,
            costs=Costs(route=Route(latency_s=0.03)),
            figures=lambda name, told: self.records.on_figures(name, self.now_s, told),
        )
        self.done_before = 0.0

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return asyncio.get_running_loop().time()

    async def play(self) -> None:
        """Begin with the usual islands, follow the fleet to the end, and take the bill."""
        for name in (SUPERVISOR, SYNCER, *self.world.hosts):
            self.start(name)
        await asyncio.sleep(30.0)
        assert all(self.steps(name) for name in self.world.hosts)
        scaler = Scaler(self.look, self.target, self.tell, lambda _: None, interval_s=10.0)
        while self.now_s < END_S and await scaler.step():
            self.note()
            await asyncio.sleep(scaler.interval_s)
        self.note()
        state = self.world.syncer_state
        assert state is not None
        self.found.imbalance = sum(abs(row.imbalance) for row in state.ledger_rows())
        stays = stays_of(
            self.records.figures, self.now_s, SETTINGS.fragments, self.prices, placed={}
        )
        self.found.bill = bill_of(stays, self.prices, self.now_s)
        for name in self.found.stays_s:
            self.end(name)
        assert not self.world.failures
        await self.world.kill_all()

    def start(self, name: str) -> None:
        """Start a process, and note when."""
        self.world.start(name)
        if name not in (SUPERVISOR, SYNCER):
            self.found.stays_s[name] = [self.now_s]

    def end(self, name: str) -> None:
        """Note the end of an island, unless it is noted."""
        if len(self.found.stays_s[name]) == 1:
            self.found.stays_s[name].append(self.now_s)

    def steps(self, name: str) -> bool:
        """Whether a learner steps."""
        learner = self.world.learner(name)
        return learner is not None and learner.state.phase is Phase.STEPPING

    def note(self) -> None:
        """Note who is there, and what each has sent until now."""
        here = [name for name in self.found.stays_s if name in self.world.processes]
        for name in self.found.stays_s:
            learner = self.world.learner(name)
            if learner is None:
                self.end(name)
            else:
                self.found.traffic[name] = (learner.bytes_up, learner.bytes_down)
        counts = [sum(entry_of(name) == region for name in here) for region in ("eu", "us")]
        self.found.present.append((self.now_s, *counts))  # type: ignore[arg-type]  # two of them

    # --- what the scaler is given -----------------------------------------------------------------

    def look(self) -> Fleet:
        """The fleet as a hub's figures tell it."""
        figures = self.records.figures
        return fleet_of(figures.learners, figures.tokens, Records({}), self.prices, most=64)

    def target(self, fleet: Fleet) -> Deadline:
        """What comes all the time, and what came at once."""
        if self.now_s < SPIKE_S:
            self.done_before = fleet.by_region["eu"]
            return Deadline(
                HORIZON_S, 0.0, {name: HORIZON_S * each for name, each in USUAL.items()}
            )
        since_s = self.now_s - SPIKE_S
        done = fleet.by_region["eu"] - self.done_before - USUAL["eu"] * since_s
        left = max(0.0, BACKLOG - done)
        if not left and self.found.backlog_done_s is None:
            self.found.backlog_done_s = self.now_s
        within_s = max(60.0, WITHIN_S - since_s) if self.found.backlog_done_s is None else HORIZON_S
        backlog = left if self.found.backlog_done_s is None else 0.0
        data = {name: within_s * each for name, each in USUAL.items()}
        return Deadline(within_s, 0.0, {**data, "eu": data["eu"] + backlog})

    async def tell(self, verb: Verb, name: str, count: int) -> CommandAnswer:
        """Start islands as an engine would, and tell the supervisor the rest."""
        self.found.commands.append((self.now_s, verb, name, count))
        if verb is Verb.ADD:
            taken = sum(entry_of(each) == name for each in self.found.stays_s)
            for number in range(taken, taken + count):
                self.world.hosts[f"{name}-{number}"] = HOST
                self.start(f"{name}-{number}")
            return CommandAnswer(done=True, told="started")
        answer = await self.world.command(verb, name)
        assert answer is not None
        return answer


def follow_spike(folder: Path) -> Followed:
    """Play the run."""

    async def main() -> Followed:
        spike = Spike(folder)
        await spike.play()
        spike.records.keep(spike.now_s)
        return spike.found

    found = run_virtual(main(), limit_s=10 * END_S)
    found.folder.close()
    return found
