"""What happens at a step boundary: commands in order, snapshots, then the next step."""

from dataclasses import replace

import numpy as np
import pytest

from islands.lab.toys.toy import NumpyTrainer
from islands.learner.boundary import PIECES_PER_BOUNDARY, EngineEvent
from islands.learner.compute import enqueue
from islands.protocol.identities import FragmentIndex, Incarnation, Lease, Version
from islands.protocol.learner.actions import (
    AdoptValue,
    AllowSteps,
    EngineAction,
    LoadMoments,
    PlanSnapshots,
    ReadMoments,
    ResetMoments,
)
from islands.protocol.learner.events import MomentsLoaded, ValueAdopted
from islands.protocol.messages.training import Merged
from islands.protocol.settings.run import RunSettings
from messaging.codec.tensors import as_buffer
from tests.learner.bench import Copies, TrainedBoundary

WHO = Incarnation(1, 1)
FIRST = FragmentIndex(0)
BATCH = 8
RECORDS = 4


class Bench:
    def __init__(self) -> None:
        trainer = NumpyTrainer(
            2, batch_tokens=BATCH, shards=4, batches_per_shard=RECORDS, moment_piece_bytes=512
        )
        self.adopted: list[ValueAdopted] = []
        self.loaded: list[MomentsLoaded] = []
        copies = Copies()
        self.taken, self.given = copies.snapshots, copies.pieces
        self.boundary = TrainedBoundary(
            trainer,
            RunSettings(fragments=2),
            report=self._report,
            copier=copies,
        )

    def _report(self, event: EngineEvent) -> None:
        if isinstance(event, MomentsLoaded):
            self.loaded.append(event)
        elif isinstance(event, ValueAdopted):
            self.adopted.append(event)

    def adopt(self, number: int, fragment: int = 0) -> AdoptValue:
        """A command to adopt a version whose every element is its number."""
        index = FragmentIndex(fragment)
        size = self.boundary.trainer.layout.fragments[fragment].size
        value = as_buffer(np.full(size, number, np.float32))
        return AdoptValue(index, Version(1, number), 0.0, 1, WHO, value)

    def do(self, *commands: EngineAction) -> None:
        """Give commands, then come to a boundary."""
        for command in commands:
            enqueue(self.boundary.commands, command)
        self.boundary.carry_out()

    def step(self) -> None:
        assert self.boundary.has_work()
        self.boundary.dispatch()


def test_a_newer_value_replaces_one_that_waits() -> None:
    bench = Bench()
    commands: list[EngineAction] = []
    for number in range(100):
        enqueue(commands, bench.adopt(number))
        enqueue(commands, bench.adopt(number, fragment=1))
    assert len(commands) == 2
    bench.do(*commands)
    assert [(event.fragment, event.version.number) for event in bench.adopted] == [
        (0, 99),
        (1, 99),
    ]


@pytest.mark.parametrize("second", [5, 3, -1])
def test_what_is_merged_is_taken_from_the_local_value_once(second: int) -> None:
    bench = Bench()
    bench.do(bench.adopt(0), PlanSnapshots((FIRST,)), AllowSteps(10 * BATCH, (Lease(0, 0, 0),)))
    bench.step()
    bench.do()
    sent = bench.taken[0].snapshot.buffer()
    bench.step()
    left = bench.boundary.trainer.value(0) + np.frombuffer(sent, np.float32)
    for number, round_ in ((1, 5), (2, second)):
        merged = Merged(epoch=1, round=round_, steps=1, tokens=BATCH)
        bench.do(replace(bench.adopt(number), carry=True, merged=merged, sent=sent))
    np.testing.assert_allclose(bench.boundary.trainer.value(0), 2 + left, rtol=1e-5, atol=1e-6)
    assert np.abs(left).max() > 1e-4
    assert [event.carried for event in bench.adopted] == [False, True, True]


@pytest.mark.parametrize("between", [(), (3,), (3, -5, 40)])
def test_values_that_come_before_the_one_with_it_add_nothing_twice(
    between: tuple[int, ...],
) -> None:
    """What others did comes with each of them, and what was sent is told from it as a difference.

    The base is no longer the one that the contribution was sent from when the value that contains
    it arrives.
    """
    bench = Bench()
    bench.do(bench.adopt(0), PlanSnapshots((FIRST,)), AllowSteps(10 * BATCH, (Lease(0, 0, 0),)))
    bench.step()
    bench.do()
    sent = bench.taken[0].snapshot.buffer()
    bench.step()
    bench.do()
    done = bench.boundary.trainer.value(0)
    left = done + np.frombuffer(sent, np.float32)
    for number, others in enumerate(between, start=1):
        bench.do(replace(bench.adopt(others), version=Version(1, number), carry=True))
        value = bench.boundary.trainer.value(0)
        np.testing.assert_allclose(value, others + done, rtol=1e-5, atol=1e-5)
    merged = Merged(epoch=1, round=5, steps=1, tokens=BATCH)
    bench.do(replace(bench.adopt(99), carry=True, merged=merged, sent=sent))
    np.testing.assert_allclose(bench.boundary.trainer.value(0), 99 + left, rtol=1e-5, atol=1e-5)
    assert np.abs(left).max() > 1e-4


def test_where_nothing_is_left_the_value_is_taken_as_it_is() -> None:
    """All that was done is in it: nothing is added and subtracted that would only be rounded."""
    bench = Bench()
    bench.do(bench.adopt(0), PlanSnapshots((FIRST,)), AllowSteps(10 * BATCH, (Lease(0, 0, 0),)))
    bench.step()
    bench.do()
    merged = Merged(epoch=1, round=0, steps=1, tokens=BATCH)
    sent = bench.taken[0].snapshot.buffer()
    bench.do(replace(bench.adopt(7), carry=True, merged=merged, sent=sent))
    assert set(bench.boundary.trainer.value(0)) == {7.0}
    bench.do()
    assert len(bench.taken) == 1  # and there is nothing to send


def test_other_commands_keep_their_order() -> None:
    commands: list[EngineAction] = []
    for command in (ResetMoments(), AllowSteps(8, ()), ResetMoments(), AllowSteps(16, ())):
        enqueue(commands, command)
    assert commands == [ResetMoments(), AllowSteps(8, ()), ResetMoments(), AllowSteps(16, ())]


@pytest.mark.parametrize("position", [RECORDS, RECORDS + 1, 10**12])
def test_a_shard_that_was_read_to_its_end_is_left_behind(position: int) -> None:
    bench = Bench()
    finished, fresh = Lease(0, 1, position), Lease(0, 2, 0)
    bench.do(AllowSteps(10 * BATCH, (finished, fresh)))
    bench.step()
    assert bench.boundary.data.leases == (Lease(0, 1, position, done=True), Lease(0, 2, 1))


def test_only_shards_at_their_ends_are_reported_done() -> None:
    bench = Bench()
    ended = tuple(Lease(0, shard, RECORDS) for shard in (0, 1))
    bench.do(AllowSteps(10 * BATCH, ended))
    assert not bench.boundary.has_work()
    assert all(lease.done and lease.position == RECORDS for lease in bench.boundary.data.leases)


def test_a_snapshot_is_taken_once_per_boundary_and_base() -> None:
    bench = Bench()
    bench.do(bench.adopt(0), PlanSnapshots((FIRST,)), AllowSteps(10 * BATCH, (Lease(0, 0, 0),)))
    bench.do()
    assert bench.taken == []
    bench.step()
    bench.do()
    bench.do()
    bench.do(bench.adopt(1))
    assert [(taken.steps, taken.base.number) for taken in bench.taken] == [(1, 0)]
    bench.step()
    bench.do()
    assert [(taken.steps, taken.base.number) for taken in bench.taken] == [(1, 0), (2, 1)]


@pytest.mark.parametrize("quota_batches", [0, 1, 3])
def test_it_never_steps_over_its_quota(quota_batches: int) -> None:
    bench = Bench()
    bench.do(AllowSteps(quota_batches * BATCH + BATCH - 1, (Lease(0, 0, 0),)))
    for _ in range(quota_batches):
        bench.step()
    assert not bench.boundary.has_work()
    assert bench.boundary.tokens == quota_batches * BATCH


def test_moments_are_read_a_few_pieces_per_boundary() -> None:
    """A large state takes several; that some wait is known, so that no boundary is missed."""
    bench = Bench()
    wanted = [ReadMoments(piece, "ben") for piece in range(PIECES_PER_BOUNDARY + 1)]
    bench.do(*wanted)
    assert [taken.piece for taken in bench.given] == list(range(PIECES_PER_BOUNDARY))
    assert bench.boundary.unread
    bench.do()
    assert [taken.piece for taken in bench.given] == [read.piece for read in wanted]
    assert not bench.boundary.unread


@pytest.mark.parametrize("broken", ["short", "few", "nan"])
def test_moments_that_are_no_good_are_refused(broken: str) -> None:
    bench = Bench()
    trainer = bench.boundary.trainer
    buffers = [
        bytes(trainer.read_moments(piece).buffer()) for piece in range(trainer.moment_pieces)
    ]
    if broken == "short":
        buffers[-1] = buffers[-1][:-1]
    elif broken == "few":
        buffers.pop()
    else:
        buffers[0] = np.full(len(buffers[0]) // 4, np.nan, np.float32).tobytes()
    bench.do(LoadMoments(tuple(memoryview(buffer) for buffer in buffers)))
    assert bench.loaded == [MomentsLoaded(taken=False)]
    assert trainer.finite()
