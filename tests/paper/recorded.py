"""A run of toy learners that remember their steps and adoptions, for loops that redo it."""

import asyncio

import numpy as np
from numpy.typing import NDArray

from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer, ToyBatch
from islands.lab.world.world import LearnerHost, NumpyTrainers, World
from islands.model.interfaces import PendingStep
from islands.protocol.settings.run import RunSettings
from messaging.simulation.virtual_time import run_virtual


class Recorded(NumpyTrainer):
    """A learner whose batches, rates and adoptions can be looked up afterwards."""

    def setup(self) -> None:
        super().setup()
        self.steps: list[tuple[int, float]] = []
        self.adopted: list[tuple[int, int, NDArray[np.float32]]] = []
        self.parts = self._ranges
        self.facts = self._initial, self._target, self._noise

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        assert isinstance(batch, ToyBatch)
        self.steps.append((batch.seed, learning_rate))
        return super().step(batch, learning_rate)

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        self.adopted.append((fragment, len(self.steps), value.copy()))
        super().adopt(fragment, value)

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        self.adopted.append((fragment, len(self.steps), value.copy()))
        super().mix(fragment, value, share)


def play(
    settings: RunSettings, hosts: dict[str, LearnerHost], seconds: float
) -> tuple[dict[str, Recorded], list[bytes]]:
    """Play a run for so many virtual seconds; returns its learners by name, and its tape."""
    tape = MemoryTape()
    trainers = NumpyTrainers(settings, kind=Recorded)
    world = World(settings, dict(hosts), seed=3, tape=tape, trainers=trainers)

    async def live() -> None:
        world.start_all()
        await asyncio.sleep(seconds)
        await world.kill_all()

    run_virtual(live(), limit_s=500)
    assert world.failures == []
    found = {name: one for name, one in world.trainers.items() if isinstance(one, Recorded)}
    return found, list(tape.lines)
