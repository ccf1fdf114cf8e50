"""A device's thread gives moments away and takes them over, stepping or standing still."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from islands.lab.toys.toy import NumpyTrainer
from islands.learner.boundary import PIECES_PER_BOUNDARY
from islands.learner.compute import FIRST_STEPS_COMPILE, ComputeEvent, ComputeFailed, StepReport
from islands.learner.compute_thread import ComputeThread
from islands.learner.moments import KEEP_INTERVAL_S, CheckpointFile
from islands.model.interfaces import MomentsCopy, PendingStep
from islands.protocol.errors import TaskError, TaskFailedError
from islands.protocol.identities import FragmentIndex, Incarnation, Lease, Version
from islands.protocol.learner import events
from islands.protocol.learner.actions import AdoptValue, AllowSteps, LoadMoments, ReadMoments
from islands.protocol.settings.run import RunSettings
from islands.tasks.data.shards import ShardKey
from messaging.clock import Clock
from messaging.codec.tensors import as_buffer

LIMIT_S = 30.0
BATCH = 8
PIECE_BYTES = 300
Told = TypeVar("Told")


class Device:
    """A thread with a toy trainer, and what it told."""

    def __init__(
        self,
        make: Callable[[], NumpyTrainer] | None = None,
        kept: CheckpointFile | None = None,
        clock: Clock | None = None,
    ) -> None:
        settings = RunSettings(fragments=2)
        self.compute = ComputeThread(make or made, settings, "ana", kept, clock=clock)
        self.told: asyncio.Queue[ComputeEvent] = asyncio.Queue()
        self.compute.start(self.told.put_nowait)

    async def wait(self, kind: type[Told]) -> Told:
        while True:  # until the test's time is over
            event = await self.told.get()
            if isinstance(event, kind):
                return event

    async def read(self, pieces: int) -> list[memoryview]:
        for piece in range(pieces):
            self.compute.command(ReadMoments(piece, "ben"))
        ready = [await self.wait(events.MomentsRead) for _ in range(pieces)]
        buffers = {read.piece: read.payload for read in ready}
        return [buffers[piece] for piece in range(pieces)]

    def end(self) -> None:
        self.compute.stop()
        assert self.compute.join(LIMIT_S)


def made() -> NumpyTrainer:
    """A trainer whose moments are many pieces."""
    return NumpyTrainer(2, batch_tokens=BATCH, moment_piece_bytes=PIECE_BYTES)


async def test_while_its_trainer_compiles_others_are_told_so() -> None:
    begun, done = threading.Event(), threading.Event()

    class Compiling(NumpyTrainer):
        """A trainer that compiles as long as the test likes."""

        @property
        def compiling(self) -> bool:
            return begun.is_set() and not done.is_set()

        def setup(self) -> None:
            begun.set()
            assert done.wait(LIMIT_S)

    device = Device(lambda: Compiling(2))
    async with asyncio.timeout(LIMIT_S):
        await device.wait(events.TrainerMade)
        await asyncio.to_thread(begun.wait, LIMIT_S)
        told = [device.compute.compiling]
        done.set()
        await device.wait(events.TrainerReady)
        told.append(device.compute.compiling)
    assert told == [True, False]
    device.end()


@pytest.mark.parametrize("steps", [0, 20], ids=["standing still", "stepping"])
async def test_all_pieces_are_read_and_taken_over(steps: int) -> None:
    donor, taker = Device(), Device()
    async with asyncio.timeout(LIMIT_S):
        first = await donor.wait(events.TrainerMade)
        assert first.moment_pieces > 2 * PIECES_PER_BOUNDARY
        await donor.wait(events.TrainerReady)
        donor.compute.command(AllowSteps(steps * BATCH, (Lease(0, 0, 0),)))
        if not steps:
            await donor.wait(events.Idled)
        pieces = await donor.read(first.moment_pieces)
        taker.compute.command(LoadMoments(tuple(pieces)))
        assert await taker.wait(events.MomentsLoaded) == events.MomentsLoaded(taken=True)
        assert await taker.read(len(pieces)) == pieces
    donor.end()
    taker.end()


async def test_a_step_that_its_dispatch_takes_is_timed_after_a_stop_as_well() -> None:
    class Clock:
        at_s = 0.0

        def now_s(self) -> float:
            return self.at_s

    class Inline(NumpyTrainer):
        """A step takes two seconds of the thread that dispatches it."""

        def step(self, batch: object, learning_rate: float) -> PendingStep:
            clock.at_s += 2.0
            return super().step(batch, learning_rate)

    clock = Clock()
    device = Device(lambda: Inline(2, batch_tokens=BATCH), clock=clock)
    times_s, gaps_s = [], []
    async with asyncio.timeout(LIMIT_S):
        await device.wait(events.TrainerReady)
        for steps in range(1, FIRST_STEPS_COMPILE + 4):
            device.compute.command(AllowSteps(steps * BATCH, (Lease(0, 0, 0),)))
            told = await device.wait(StepReport)
            times_s.append(told.event.step_time_s)
            await device.wait(events.Idled)
        for number in range(1, 4):
            clock.at_s += 600.0  # it is allowed no step for ten minutes, which is no gap
            until = (steps + 2 * number) * BATCH
            device.compute.command(AllowSteps(until, (Lease(0, 0, 0),)))
            gaps_s += [(await device.wait(StepReport)).gap_s for _ in range(2)]
            await device.wait(events.Idled)
    assert times_s == [0.0] * FIRST_STEPS_COMPILE + [2.0] * 3
    assert max(gaps_s) <= 2.0
    device.end()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"), TaskFailedError),
        (OSError("no space left"), TaskFailedError),
        (ConnectionResetError("the bucket is away"), TaskFailedError),
        (MemoryError(), TaskFailedError),
        (RuntimeError("shapes differ"), TaskError),
        (KeyError("price"), TaskError),
        (FileNotFoundError("corpus.txt"), TaskError),
        (PermissionError("corpus.txt"), TaskError),
    ],
)
async def test_only_what_may_pass_is_not_the_users_mistake(error: Exception, kind: type) -> None:
    """A device that is not free yet ends the process as a fault does, after which it restarts.

    A path that is wrong is wrong at every start. Either way the sentence begins with the place.
    """

    def fail() -> NumpyTrainer:
        raise error

    device = Device(fail)
    async with asyncio.timeout(LIMIT_S):
        told = await device.wait(ComputeFailed)
    assert type(told.error) is kind
    assert re.match(r".*test_compute\.py:\d+, in fail: ", str(told.error))
    device.end()


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
async def test_a_loader_that_fails_midway_is_told_by_its_line(
    kind: type[BaseException],
) -> None:
    """The process may do better when it is started again, so it is no mistake to be mended.

    A loader that exits ends no process, but its thread alone, and is told in the same way.
    """

    class Breaking(NumpyTrainer):
        def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
            for batch, after in super().batches(shard, position):
                if after > 3 * BATCH:
                    raise kind("record 7 is broken")
                yield batch, after

    device = Device(lambda: Breaking(2, batch_tokens=BATCH))
    async with asyncio.timeout(LIMIT_S):
        await device.wait(events.TrainerReady)
        device.compute.command(AllowSteps(100 * BATCH, (Lease(0, 0, 0),)))
        told = await device.wait(ComputeFailed)
    assert isinstance(told.error, TaskFailedError)
    assert f"in batches: {kind.__name__}: record 7 is broken" in str(told.error)
    assert 'raise kind("record 7 is broken")' in told.error.detail
    device.end()


def test_a_failure_while_moments_are_written_leaves_no_thread_behind(tmp_path: Path) -> None:
    """The interpreter would wait for one that waits for pieces, and the process never end."""
    before, taken = set(threading.enumerate()), list[int]()

    class Leaping:
        """A clock by which it is always time to write."""

        at_s = 0.0

        def now_s(self) -> float:
            self.at_s += 2 * KEEP_INTERVAL_S
            return self.at_s

    class Failing(NumpyTrainer):
        """Its second step raises, when some pieces of its moments were taken, and not all."""

        def read_moments(self, piece: int) -> MomentsCopy:
            taken.append(piece)
            return super().read_moments(piece)

        def step(self, batch: object, learning_rate: float) -> PendingStep:
            if self._moment.any():
                raise RuntimeError("the device is gone")
            return super().step(batch, learning_rate)

    async def main() -> None:
        trainer = Failing(2, batch_tokens=BATCH, moment_piece_bytes=8)
        device = Device(lambda: trainer, CheckpointFile(tmp_path, "run"), Leaping())
        for index, fragment in enumerate(trainer.layout.fragments):
            value = np.zeros(fragment.size, np.float32)
            which = FragmentIndex(index), Version(1, 0), 0.0, 1, Incarnation(1, 1)
            device.compute.command(AdoptValue(*which, as_buffer(value)))
        device.compute.command(AllowSteps(9 * BATCH, (Lease(0, 0, 0),)))
        async with asyncio.timeout(LIMIT_S):
            await device.wait(ComputeFailed)
        device.end()
        assert 0 < len(taken) < trainer.moment_pieces, "a write was under way"

    asyncio.run(main())
    writers = {t for t in threading.enumerate() if t.name.startswith("moments")} - before
    for writer in writers:
        writer.join(LIMIT_S)
        assert not writer.is_alive()


def test_a_step_never_waits_for_a_batch_that_can_be_read_ahead() -> None:
    go_on = threading.Semaphore(0)

    class Slow(NumpyTrainer):
        """A trainer whose batches come one by one, when the test says so."""

        def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
            for each in super().batches(shard, position):
                if threading.current_thread().name.startswith("read-"):
                    assert go_on.acquire(timeout=LIMIT_S)
                yield each

    async def main() -> list[StepReport]:
        device = Device(lambda: Slow(2, batch_tokens=BATCH))
        reports = []
        async with asyncio.timeout(LIMIT_S):
            device.compute.command(AllowSteps(3 * BATCH, (Lease(0, 0, 0),)))
            await device.wait(events.TrainerReady)
            await device.wait(events.Idled)  # nothing came for a while: no work, but not stalled
            for _ in range(3):
                go_on.release()
                report = await device.wait(StepReport)
                reports.append(report)
            go_on.release(3)  # it reads ahead
            ended = await device.wait(events.Idled)
            assert ended.leases == (Lease(0, 0, 3),)
        device.end()
        return reports

    reports = asyncio.run(main())
    assert [report.event.leases[0].position for report in reports] == [1, 2, 3]
    assert reports[0].data_wait_s > 0
