"""A fleet of which one link loses its bandwidth for a while: the production actors, virtual time.

links: 1 Gbit/s ──cut_s──▶ 5 Mbit/s, from one learner to the syncer ──back_s──▶ 1 Gbit/s
"""

import asyncio
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from islands.files.tape_writing import MemoryTape
from islands.lab.world.world import Costs, LearnerHost, Trainers, World
from islands.protocol.identities import SYNCER, FinalVersions
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.state import SyncerState
from islands.protocol.tape.entry import Line
from islands.protocol.tape.kinds import read
from islands.protocol.tape.member_entries import Adapted
from islands.run.records.summary import SyncerShare, share_of
from islands.syncer.workers import Hooks
from messaging.simulation.network import Route
from messaging.simulation.virtual_time import run_virtual

GBIT, MBIT = 1e9 / 8, 1e6 / 8
GOOD = Route(latency_s=0.001, bandwidth_bytes_per_s=GBIT)
CUT = replace(GOOD, bandwidth_bytes_per_s=5 * MBIT)
NEAR = "learner-0"
"""The learner whose link is cut."""


@dataclass(frozen=True, slots=True)
class Course:
    """Seconds at which the link is cut and whole again; without a cut it stays good."""

    cut_s: float | None
    back_s: float | None = None
    both_ways: bool = False


@dataclass(slots=True)
class Outcome:
    """What came of a run: the final values, the tape, and what a learner did at each look."""

    values: list[NDArray[np.float32]] = field(default_factory=list)
    share: SyncerShare = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    steps: list[tuple[float, int]] = field(default_factory=list)
    ended_s: float = 0.0

    @property
    def changes(self) -> list[tuple[float, Adapted]]:
        """When the learner whose link was cut was asked for another precision."""
        entries = [(one.at_s, one.entry) for one in self.lines if isinstance(one.entry, Adapted)]
        return [(at_s, entry) for at_s, entry in entries if entry.name == NEAR]

    def precision(self, at_s: float) -> str:
        """The precision that held at a time; the coarsest is where it begins."""
        before = [entry for changed_s, entry in self.changes if changed_s <= at_s]
        return before[-1].precision if before else "two_bit"

    def slowest(self) -> float:
        """Fewest steps per second of the learner between two looks, from its first to its last."""
        last = self.steps[-1][1]
        stepping = [(at_s, steps) for at_s, steps in self.steps if 0 < steps < last]
        return min(
            (later - steps) / (later_s - at_s)
            for (at_s, steps), (later_s, later) in pairwise(stepping)
        )


def play(
    settings: RunSettings,
    course: Course,
    hosts: dict[str, LearnerHost],
    trainers: Trainers | None = None,
    *,
    limit_s: float = 1000.0,
) -> Outcome:
    found, tape = Outcome(), MemoryTape()

    def export(values: list[NDArray[np.float32]], _: FinalVersions) -> None:
        found.values = values

    def report(state: SyncerState) -> bytes:
        found.share = share_of(state)
        return b"{}"

    world = World(
        settings,
        hosts,
        seed=0,
        tape=tape,
        costs=Costs((0.0001, 0.0002), route=GOOD),
        trainers=trainers,
        hooks=Hooks(export=export, report=report),
    )
    look_s = 20 * hosts[NEAR].step_s

    async def live() -> float:
        loop = asyncio.get_running_loop()
        world.start_all()
        while world.finished is None and not world.failures:
            await asyncio.sleep(look_s)
            now_s = loop.time()
            _weather(world, course, now_s)
            if NEAR in world.trainers and (learner := world.learner(NEAR)) is not None:
                found.steps.append((now_s, learner.state.compute.steps))
        ended_s = loop.time()
        await world.kill_all()
        assert not world.failures, world.failures
        return ended_s

    found.ended_s = run_virtual(live(), limit_s=limit_s)
    found.lines = read(tape.lines)
    return found


def _weather(world: World, course: Course, now_s: float) -> None:
    cut = course.cut_s is not None and now_s >= course.cut_s
    whole = course.back_s is not None and now_s >= course.back_s
    route = CUT if cut and not whole else GOOD
    world.network.set_route(NEAR, SYNCER, route)
    if course.both_ways:
        world.network.set_route(SYNCER, NEAR, route)
