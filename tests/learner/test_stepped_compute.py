"""Boundaries that a loop of the user's own comes to, and what is told of its steps."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import nan
from typing import TypeVar

import numpy as np
import pytest

from islands.lab.toys.toy import NumpyTrainer
from islands.learner.boundary import StepData
from islands.learner.compute import ComputeEvent, ComputeFailed, StepReport
from islands.learner.stepped_compute import SteppedCompute
from islands.protocol.identities import FragmentIndex, Incarnation, Lease, Version
from islands.protocol.learner import events
from islands.protocol.learner.actions import AdoptValue, AllowSteps, PlanSnapshots
from islands.protocol.settings.run import RunSettings
from islands.tasks.data.shards import ShardKey
from messaging.codec.tensors import as_buffer

LIMIT_S = 30.0
BATCH = 8
WHO = Incarnation(1, 1)
LEASES = (Lease(0, 0, 0),)
Told = TypeVar("Told")


@dataclass(frozen=True)
class Step:
    """A step that is done, or failed."""

    told: float | None = 1.0
    error: Exception | None = None

    def loss(self) -> float | None:
        if self.error is not None:
            raise self.error
        return self.told

    def metrics(self) -> dict[str, float]:
        return {}


class Loop:
    """A model that a test steps, and what its compute told."""

    def __init__(self) -> None:
        self.model = NumpyTrainer(2, batch_tokens=BATCH)
        self.model.setup()
        self.compute = SteppedCompute(
            *(self.model, RunSettings(fragments=2), "ana", StepData(BATCH)),
        )
        self.told: asyncio.Queue[ComputeEvent] = asyncio.Queue()
        self.compute.start(self.told.put_nowait)

    async def wait(self, kind: type[Told]) -> Told:
        while True:  # until the test's time is over
            event = await self.told.get()
            if isinstance(event, kind):
                return event

    async def arrive(self) -> bool:
        """Come to a boundary, on a thread such as the user's."""
        return await asyncio.to_thread(self.compute.arrive)

    def step(self, told: Step = Step()) -> None:
        batch, _ = next(iter(self.model.batches(ShardKey(0, 0), 0)))
        self.model.step(batch, 0.1)
        self.compute.stepped(told)

    def allow(self, steps: int, order: int = 1) -> None:
        self.compute.command(AllowSteps(steps * BATCH, LEASES, order))

    def adopt(self, number: int, fragment: int, at_steps: int = 0) -> None:
        size = self.model.layout.fragments[fragment].size
        value = as_buffer(np.full(size, number, np.float32))
        version = Version(1, number)
        self.compute.command(
            AdoptValue(FragmentIndex(fragment), version, 0.0, 1, WHO, value, at_steps=at_steps)
        )


@asynccontextmanager
async def open_loop() -> AsyncIterator[Loop]:
    """A loop for a limited time; what it began is ended."""
    loop = Loop()
    async with asyncio.timeout(LIMIT_S):
        yield loop
    loop.compute.stop()
    loop.compute.close()


async def test_it_is_ready_when_it_starts() -> None:
    async with open_loop() as loop:
        assert await loop.wait(events.TrainerMade) == events.TrainerMade(
            loop.model.moments_schema, loop.model.moment_pieces
        )
        assert await loop.wait(events.TrainerReady) == events.TrainerReady(BATCH)


async def test_a_step_is_counted_at_the_next_boundary() -> None:
    async with open_loop() as loop:
        loop.allow(3)
        for number in range(1, 4):
            assert await loop.arrive()
            loop.step()
            report = await loop.wait(StepReport)
            assert (report.event.steps, report.event.tokens) == (number, number * BATCH)
            assert report.event.finite
        waiting = asyncio.create_task(loop.arrive())
        idle = await loop.wait(events.Idled)
        assert (idle.steps, idle.tokens, idle.order) == (3, 3 * BATCH, 1)
        loop.compute.stop()
        assert not await waiting


async def test_it_waits_until_more_is_granted() -> None:
    async with open_loop() as loop:
        waiting = asyncio.create_task(loop.arrive())
        loop.adopt(4, fragment=0)
        loop.adopt(5, fragment=1)
        assert {(await loop.wait(events.ValueAdopted)).fragment for _ in range(2)} == {0, 1}
        assert loop.compute.boundary.versions
        loop.allow(0, order=2)
        assert (await loop.wait(events.Idled)).order == 2
        loop.allow(1, order=3)
        assert await waiting
        assert loop.model.value(1).tolist() == [5.0] * loop.model.layout.fragments[1].size


async def test_a_snapshot_holds_the_steps_that_were_counted() -> None:
    async with open_loop() as loop:
        loop.adopt(4, fragment=0)
        loop.adopt(5, fragment=1)
        loop.compute.command(PlanSnapshots((FragmentIndex(0),)))
        loop.allow(2)
        assert await loop.arrive()
        before = loop.model.value(0)
        loop.step()
        after = loop.model.value(0)
        assert await loop.arrive()
        taken = await loop.wait(events.SnapshotTaken)
        assert (taken.fragment, taken.steps, taken.tokens) == (0, 1, BATCH)
        np.testing.assert_array_equal(np.frombuffer(taken.payload, np.float32), before - after)


@pytest.mark.parametrize(("loss", "finite"), [(None, True), (0.5, True), (nan, False)])
async def test_a_loss_that_is_not_told_counts_as_sound(loss: float | None, finite: bool) -> None:  # noqa: FBT001
    async with open_loop() as loop:
        loop.allow(1)
        assert await loop.arrive()
        loop.step(Step(loss))
        report = await loop.wait(StepReport)
        assert report.event.finite is finite
        assert report.loss is loss


async def test_an_error_of_a_step_ends_the_learner() -> None:
    async with open_loop() as loop:
        loop.allow(1)
        assert await loop.arrive()
        loop.step(Step(error=RuntimeError("the device is gone")))
        assert str((await loop.wait(ComputeFailed)).error) == "the device is gone"


async def test_at_rest_it_answers_without_touching_the_model() -> None:
    async with open_loop() as loop:
        loop.allow(1)
        assert await loop.arrive()
        before = loop.model.value(0)
        loop.adopt(4, fragment=0)
        loop.allow(0, order=7)
        loop.compute.rest()
        assert (await loop.wait(events.Idled)).order == 7
        loop.allow(0, order=8)
        assert (await loop.wait(events.Idled)).order == 8
        np.testing.assert_array_equal(loop.model.value(0), before)
