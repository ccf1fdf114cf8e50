"""A whole run of the real actors, and all that an oracle may know of it.

Three learners of two batch sizes and three speeds; one gets its values late. One contribution
arrives twice, one when its round has closed. The syncer is killed in the middle, and goes on.
"""

import asyncio
import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.world import LearnerHost, NumpyTrainers, World
from islands.layout.leaves import Layout
from islands.model.interfaces import PendingStep
from islands.protocol.identities import SYNCER
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings, Timing
from messaging.simulation.virtual_time import run_virtual
from tests.oracle.wire import Disturbances, Tap

HOSTS = {
    "ana": LearnerHost(step_s=0.10, batch_tokens=8),
    "ben": LearnerHost(step_s=0.13, batch_tokens=12),
    "eve": LearnerHost(step_s=0.24, batch_tokens=8),
}
DISTURBANCES = Disturbances(
    twice={"ana": 6, "ben": 9},
    late={"ben": (14, 0.6), "ana": (20, 0.6)},
    slow_values={"eve": 0.55},
)
KILLED_S = 7.0
DOWN_S = 0.4
ENDED_S = 14.0

SETTINGS = RunSettings(
    interval_steps=4,
    fragments=2,
    learning_rate=0.15,
    warmup_steps=0,
    outer=OuterSettings(learning_rate=0.7, momentum=0.9),
    timing=Timing(patience=0.5),
)

Line = dict[str, object]


class RecordingTrainer(NumpyTrainer):
    """A learner whose every step and adoption can be looked up afterwards.

    Attributes:
        after: The weights after so many steps, before anything was adopted at that boundary.
        adopted: Of each adoption: the fragment, the value and the steps done before it.
        carried: Of each adoption that carried work on, by its place in `adopted`: the local value
            before and after it, the base before it, and what was merged (None for nothing).
        tokens_after: Tokens of all steps so far, by number of steps.
        began_s: When each step began.
    """

    after: list[NDArray[np.float32]]
    adopted: list[tuple[int, NDArray[np.float32], int]]
    carried: dict[int, tuple[NDArray[np.float32] | None, ...]]
    tokens_after: list[int]
    began_s: list[float]

    def setup(self) -> None:
        super().setup()
        self.carried = {}
        self.after, self.adopted, self.tokens_after, self.began_s = [], [], [0], []

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        self.began_s.append(asyncio.get_running_loop().time())
        pending = super().step(batch, learning_rate)
        self.after.append(self._local.copy())
        self.tokens_after.append(self.tokens_after[-1] + self.tokens(batch))
        return pending

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        self.adopted.append((fragment, value.copy(), len(self.tokens_after) - 1))
        super().adopt(fragment, value)

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        where, merged = self._ranges[fragment], None if sent is None else sent.copy()
        before, base = self._local[where].copy(), self._base[where].copy()
        super().carry_on(fragment, value, sent)
        self.carried[len(self.adopted)] = (before, self._local[where].copy(), base, merged)
        self.adopted.append((fragment, value.copy(), len(self.tokens_after) - 1))

    def done_by(self, at_s: float) -> int:
        """Steps that were done at a time: each ends when the next one begins."""
        return sum(began_s <= at_s for began_s in self.began_s) - 1

    def part(self, fragment: int, steps: int) -> NDArray[np.float32]:
        return self.after[steps - 1][self._ranges[fragment]]


@dataclass(frozen=True)
class Case:
    """One setting under which the run is played."""

    name: str
    settings: RunSettings = SETTINGS
    hosts: dict[str, LearnerHost] = field(default_factory=lambda: dict(HOSTS))
    disturbances: Disturbances = DISTURBANCES


@dataclass(frozen=True)
class Recording:
    """What an oracle knows of a run."""

    settings: RunSettings
    layout: Layout
    tap: Tap
    tape: list[Line]
    trainers: dict[str, RecordingTrainer]
    bytes_up: dict[str, int]

    def lines(self, kind: str) -> list[Line]:
        return [line for line in self.tape if (line["actor"], line["kind"]) == (SYNCER, kind)]


def play(case: Case) -> Recording:
    """Play the run under these settings; the same bytes at every call."""
    return run_virtual(_live(case), limit_s=2 * ENDED_S)


async def _live(case: Case) -> Recording:
    tape = MemoryTape()
    trainers = NumpyTrainers(case.settings, kind=RecordingTrainer)
    world = World(case.settings, dict(case.hosts), seed=7, tape=tape, trainers=trainers)
    assert world.network.conditions is not None, "a simulated network has conditions"
    tap = Tap(world.network.conditions, case.disturbances)
    world.network.conditions = tap
    world.start_all()
    await asyncio.sleep(KILLED_S)
    await world.kill(SYNCER)
    await asyncio.sleep(DOWN_S)
    world.start(SYNCER)
    await asyncio.sleep(ENDED_S - KILLED_S - DOWN_S)
    learners = {name: world.learner(name) for name in case.hosts}
    bytes_up = {name: learner.bytes_up for name, learner in learners.items() if learner}
    await world.kill_all()
    assert world.failures == []
    return Recording(
        settings=case.settings,
        layout=world.layout,
        tap=tap,
        tape=[json.loads(line) for line in tape.lines],
        trainers={n: t for n, t in world.trainers.items() if isinstance(t, RecordingTrainer)},
        bytes_up=bytes_up,
    )
