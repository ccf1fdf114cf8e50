"""Learners without JAX: deterministic, convergent, and truly without JAX."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from islands.lab.toys.toy import NumpyTrainer, SleepingDevice
from islands.model.interfaces import Trainer
from islands.protocol.errors import InvariantError
from islands.tasks.data.shards import ShardKey


def train(trainer: Trainer, steps: int, learning_rate: float = 0.1) -> list[float]:
    batches = trainer.batches(ShardKey(0, 0), 0)
    return [trainer.step(next(batches)[0], learning_rate).loss() for _ in range(steps)]


def test_it_imports_no_jax() -> None:
    code = (
        "import sys, islands.lab.toys.toy; sys.exit('jax' in sys.modules or 'flax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_equal_trainers_take_equal_steps() -> None:
    one, other = NumpyTrainer(4), NumpyTrainer(4)
    assert train(one, 20) == train(other, 20)
    np.testing.assert_array_equal(one.value(2), other.value(2))


def test_it_has_several_fragments_and_several_leaves() -> None:
    layout = NumpyTrainer(4).layout
    assert len(layout.fragments) == 4
    assert len(layout.leaves) == 6
    assert len(NumpyTrainer(1).layout.fragments) == 1


def test_steps_lower_the_true_loss() -> None:
    trainer = NumpyTrainer(3)
    before = trainer.evaluate([trainer.value(f) for f in range(3)])["loss"]
    train(trainer, 60)
    after = trainer.evaluate([trainer.value(f) for f in range(3)])["loss"]
    assert after < 0.01 * before


def test_a_snapshot_is_base_minus_local() -> None:
    """A contribution is what was learned since the adopted value, and keeps when stepping on."""
    trainer = NumpyTrainer(2)
    base = trainer.value(0)
    train(trainer, 3)
    local = trainer.value(0)
    snapshot = trainer.snapshot(0, "float32")
    narrow = trainer.snapshot(0, "bfloat16")
    train(trainer, 3)
    assert snapshot.ready()
    np.testing.assert_array_equal(np.frombuffer(snapshot.buffer(), np.float32), base - local)
    expected = (base - local).astype(ml_dtypes.bfloat16).tobytes()
    assert bytes(narrow.buffer()) == expected


def test_adoption_replaces() -> None:
    trainer = NumpyTrainer(2)
    train(trainer, 3)
    other, value = trainer.value(1), np.ones_like(trainer.value(0))
    trainer.adopt(0, value)
    np.testing.assert_array_equal(trainer.value(0), value)
    np.testing.assert_array_equal(trainer.value(1), other)
    assert not np.frombuffer(trainer.snapshot(0, "float32").buffer(), np.float32).any()


def test_a_broken_state_is_noticed_and_healed() -> None:
    trainer = NumpyTrainer(1)
    good = trainer.value(0)
    trainer.adopt(0, np.full_like(good, np.inf))
    train(trainer, 1)
    assert not trainer.finite()
    trainer.adopt(0, good)
    trainer.reset_moments()
    assert trainer.finite()


def test_sleeping_steps_queue_behind_one_another() -> None:
    device = SleepingDevice(0.001)
    first, second = device.occupy(1.0), device.occupy(2.0)
    assert second.loss() == 2.0
    assert first.ready()


def test_moments_travel_in_pieces() -> None:
    """Whoever takes all pieces of a trained learner, and its weights, goes on as it would."""
    one, other = (NumpyTrainer(1, moment_piece_bytes=500) for _ in range(2))
    train(one, 5)
    pieces = [one.read_moments(piece) for piece in range(one.moment_pieces)]
    weights = one.value(0)
    assert [len(piece.buffer()) for piece in pieces] == [500, 500, 500, 500, 180]
    train(one, 3)
    other.adopt(0, weights)
    other.load_moments([piece.buffer() for piece in pieces])
    train(other, 3)
    np.testing.assert_array_equal(one.value(0), other.value(0))


def test_moments_of_other_lengths_are_refused() -> None:
    trainer = NumpyTrainer(1, moment_piece_bytes=500)
    with pytest.raises(InvariantError, match="pieces of"):
        trainer.load_moments([memoryview(bytes(500))])


def test_the_schema_tells_what_can_be_exchanged() -> None:
    assert NumpyTrainer(2).moments_schema == NumpyTrainer(3).moments_schema != ""
    assert NumpyTrainer(shapes=[("x", (4,))]).moments_schema != NumpyTrainer().moments_schema
    plain = NumpyTrainer(momentum=0.0)
    assert (plain.moments_schema, plain.moment_pieces) == ("", 0)
