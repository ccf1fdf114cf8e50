"""The default tasks learn, and say what hosts must share."""

import sys
from dataclasses import replace

import pytest
from jaxtyping import PyTree

from examples import digits
from examples.digits import Digits
from islands.model.jax_trainer import JaxTrainer
from islands.protocol.errors import DataError, SettingsError
from islands.tasks.data.shards import ShardKey
from islands.tasks.models.decoder_config import CONFIGURATIONS, DecoderConfig
from islands.tasks.models.language import sample
from islands.tasks.stdlib_bytes import StdlibBytes
from islands.tasks.task import Task

pytestmark = pytest.mark.usefixtures("quickly_compiled")

TINY = StdlibBytes(
    DecoderConfig(width=32, layers=1, heads=2, head_width=16, hidden=64),
    length=32,
    validation_windows=64,
)


def learned(task: Task[PyTree], steps: int, learning_rate: float) -> list[dict[str, float]]:
    """Figures of merit before and after some steps over consecutive shards."""
    trainer = JaxTrainer(task, 4)
    trainer.setup()
    fragments = range(len(trainer.layout.fragments))
    figures = [trainer.evaluate([trainer.value(f) for f in fragments])]
    keys = (ShardKey(i // task.shards, i % task.shards) for i in range(steps))
    batches = (batch for key in keys for batch, _ in trainer.batches(key, 0))
    for _ in range(steps):
        trainer.step(next(batches), learning_rate)
    figures.append(trainer.evaluate([trainer.value(f) for f in fragments]))
    return figures


@pytest.mark.long("tests/test_examples.py::test_its_task_trains")
def test_the_byte_task_learns() -> None:
    before, after = learned(TINY, 150, 1e-2)
    assert before["val_bits_per_byte"] > 7
    assert after["val_bits_per_byte"] < 4.5


@pytest.mark.parametrize("name", ["length", "rows", "shard_count", "validation_windows"])
def test_sizes_of_the_byte_task_begin_at_one(name: str) -> None:
    assert getattr(replace(TINY, **{name: 1}), name) == 1  # type: ignore[arg-type]  # all are int
    with pytest.raises(SettingsError, match=f"{name} is 0; it must be at least 1"):
        replace(TINY, **{name: 0})  # type: ignore[arg-type]


def test_the_byte_task_predicts_bytes_whatever_decoder_it_is_given() -> None:
    """A named decoder may be one of more tokens, none of which it would ever read."""
    large = StdlibBytes(CONFIGURATIONS["2B"])
    assert CONFIGURATIONS["2B"].vocabulary > 256
    assert large.model == replace(CONFIGURATIONS["2B"], vocabulary=256)
    assert StdlibBytes(replace(TINY.model, vocabulary=300)).labels()["decoder"] == TINY.model.label
    assert StdlibBytes().labels()["decoder"] == DecoderConfig().label


def test_tokens_beyond_bytes_are_not_sampled_as_bytes() -> None:
    with pytest.raises(SettingsError, match="vocabulary is 257; to sample bytes, it must be at mo"):
        next(sample(replace(TINY.model, vocabulary=257), {}, b"a", 1))


def test_tasks_without_scikit_learn_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    digits.records.cache_clear()  # other tests may have loaded them
    with pytest.raises(DataError, match="scikit-learn, which is not installed"):
        next(iter(Digits().batches(ShardKey(0, 0), 0)))


def test_hosts_may_choose_their_batch_but_not_their_data() -> None:
    fingerprint = JaxTrainer(TINY).layout.fingerprint
    assert fingerprint == JaxTrainer(replace(TINY, rows=8)).layout.fingerprint
    assert fingerprint != JaxTrainer(replace(TINY, seed=1)).layout.fingerprint
    assert "corpus" in dict(JaxTrainer(TINY).layout.labels)


def test_the_embedding_is_averaged() -> None:
    roles = {leaf.path: leaf.role for leaf in JaxTrainer(TINY).layout.leaves}
    assert roles["embedding"] == "embedding"
    assert set(roles.values()) == {"embedding", "matrix"}
    assert roles["layers/0/attention/out"] == "matrix"
