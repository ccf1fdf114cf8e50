"""Moments on a learner's own disk: whole or not there, and no step waits for them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from islands.lab.toys.toy import NumpyTrainer
from islands.learner.moments import (
    FILE,
    PIECES_PER_BOUNDARY,
    CheckpointFile,
    CheckpointWriter,
)
from islands.protocol.identities import Version
from islands.protocol.learner.memory import CheckpointedMoments
from islands.tasks.data.shards import ShardKey

VERSIONS = (Version(1, 4), Version(1, 5))
PIECES = tuple(memoryview(bytes([n]) * (10 + n)) for n in range(3))
KEPT = CheckpointedMoments("adam", 3, VERSIONS)


class Hand:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def now_s(self) -> float:
        return self.at_s


def trained() -> NumpyTrainer:
    """A trainer after some steps, whose moments are many pieces."""
    trainer = NumpyTrainer(2, batch_tokens=8, moment_piece_bytes=300)
    trainer.setup()
    batches = trainer.batches(ShardKey(0, 0), 0)
    for _ in range(3):
        trainer.step(next(batches)[0], 0.1)
    return trainer


def pieces_of(trainer: NumpyTrainer) -> tuple[bytes, ...]:
    return tuple(bytes(trainer.read_moments(n).buffer()) for n in range(trainer.moment_pieces))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path, "run")
    assert file.find() is None
    file.write(KEPT, PIECES)
    assert file.find() == KEPT
    assert file.read() == PIECES
    assert CheckpointFile(tmp_path, "another").find() is None
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("part", ["first line", "length", "piece", "digest", "cut off"])
def test_what_is_damaged_is_as_if_it_were_not_there(part: str, tmp_path: Path) -> None:
    file = CheckpointFile(tmp_path, "run")
    file.write(KEPT, PIECES)
    content = bytearray((tmp_path / FILE).read_bytes())
    line = content.index(b"\n")
    where = {"first line": 1, "length": line + 8, "digest": line + 20, "piece": line + 42}
    if part == "cut off":
        del content[-1]
    else:
        content[where[part]] ^= 1
    (tmp_path / FILE).write_bytes(content)
    assert file.find() is None or file.read() is None


def test_a_stop_leaves_the_moments_behind(tmp_path: Path) -> None:
    trainer, told = trained(), list[str]()
    keeper = CheckpointWriter(CheckpointFile(tmp_path, "run"), Hand(), told.append)
    keeper.at_boundary(trainer, VERSIONS, 3)
    keeper.at_the_end(trainer, VERSIONS, 3)
    pieces = CheckpointFile(tmp_path, "run").read()
    assert pieces is not None
    assert tuple(map(bytes, pieces)) == pieces_of(trainer)
    assert told == [""]
    other = NumpyTrainer(2, batch_tokens=8, moment_piece_bytes=300)
    other.setup()
    other.load_moments(pieces)
    assert pieces_of(other) == pieces_of(trainer)


def test_while_it_steps_they_are_written_now_and_then(tmp_path: Path) -> None:
    trainer, clock, told = trained(), Hand(), list[str]()
    done = threading.Event()

    def tell(error: str) -> None:
        told.append(error)
        done.set()

    keeper = CheckpointWriter(CheckpointFile(tmp_path, "run"), clock, tell, interval_s=100.0)
    keeper.at_boundary(trainer, VERSIONS, 3)
    assert not (tmp_path / FILE).exists()
    clock.at_s += 100.0
    boundaries = 0
    while not done.is_set() and boundaries < 10_000:
        keeper.at_boundary(trainer, VERSIONS, 3)
        boundaries += 1
        done.wait(0.001)
    assert boundaries >= trainer.moment_pieces / PIECES_PER_BOUNDARY
    found = CheckpointFile(tmp_path, "run").find()
    assert found == CheckpointedMoments(trainer.moments_schema, trainer.moment_pieces, VERSIONS)
    keeper.at_the_end(trainer, VERSIONS, 3)
    assert told == [""], "nothing was new at the end"


def test_a_full_disk_is_told_and_harms_nothing(tmp_path: Path) -> None:
    trainer, told = trained(), list[str]()
    file = CheckpointFile(tmp_path / "gone", "run")
    keeper = CheckpointWriter(file, Hand(), told.append)
    keeper.at_the_end(trainer, VERSIONS, 3)
    assert told == ["moments are not kept on disk: No such file or directory"]


def test_an_end_in_the_middle_of_a_write_leaves_the_newest(tmp_path: Path) -> None:
    trainer, clock = trained(), Hand()
    keeper = CheckpointWriter(
        CheckpointFile(tmp_path, "run"), clock, lambda _: None, interval_s=1.0
    )
    clock.at_s += 1.0
    keeper.at_boundary(trainer, VERSIONS, 3)
    batches: Iterator[tuple[object, int]] = trainer.batches(ShardKey(0, 1), 0)
    trainer.step(next(batches)[0], 0.1)
    keeper.at_the_end(trainer, VERSIONS, 4)
    pieces = CheckpointFile(tmp_path, "run").read()
    assert pieces is not None
    assert tuple(map(bytes, pieces)) == pieces_of(trainer)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_broken_moments_do_not_take_the_place_of_good_ones(tmp_path: Path) -> None:
    trainer, clock = NumpyTrainer(2, batch_tokens=8), Hand()
    trainer.setup()
    file = CheckpointFile(tmp_path, "run")
    file.write(KEPT, PIECES)
    keeper = CheckpointWriter(file, clock, lambda _: None, interval_s=1.0)
    trainer.adopt(0, np.full_like(trainer.value(0), np.nan))
    trainer.step(next(trainer.batches(ShardKey(0, 0), 0))[0], 0.1)
    clock.at_s += 1.0
    keeper.at_boundary(trainer, VERSIONS, 1)
    keeper.at_the_end(trainer, VERSIONS, 1)
    assert file.find() == KEPT
    assert file.read() == PIECES


def test_a_reset_gives_up_what_is_being_written(tmp_path: Path) -> None:
    trainer, clock = trained(), Hand()
    done = threading.Event()
    keeper = CheckpointWriter(
        CheckpointFile(tmp_path, "run"), clock, lambda _: done.set(), interval_s=1.0
    )
    clock.at_s += 1.0
    keeper.at_boundary(trainer, VERSIONS, 3)
    trainer.reset_moments()
    boundaries = 0
    while not done.is_set() and boundaries < 10_000:
        clock.at_s += 1.0
        keeper.at_boundary(trainer, VERSIONS, 3, resets=1)
        boundaries += 1
        done.wait(0.001)
    pieces = CheckpointFile(tmp_path, "run").read()
    assert pieces is not None
    assert tuple(map(bytes, pieces)) == pieces_of(trainer)
    keeper.abandon()
