"""Tasks by name, and a user's own model in twenty lines."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands.layout.leaves import Role
from islands.model.jax_trainer import JaxTrainer
from islands.model.workload import load_workload
from islands.protocol.errors import TaskError
from islands.protocol.settings.run import RunSettings
from islands.settings.run_spec import RunSpec
from islands.tasks.data.shards import ShardKey
from islands.tasks.task import Task, TaskState, path_of
from tests.tasks.by_name import task_of


@jax.tree_util.register_dataclass
@dataclass
class Head:
    weight: Array


class Line(Task[NDArray[np.float32]]):
    """A straight line through noise: the README's twenty lines."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        return TaskState((jax.random.normal(key, ()), 0.0))

    def loss(
        self, params: PyTree, state: PyTree, batch: NDArray[np.float32], key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        slope, offset = params
        x, y = batch
        return jnp.mean(jnp.square(slope * x + offset - y)), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.sgd(learning_rate)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[NDArray[np.float32], int]]:
        for place in range(position, 100):
            seed = (shard.pass_index, shard.shard, place)
            x = np.random.default_rng(seed).standard_normal(32)
            yield np.stack([x, 3 * x - 1]).astype(np.float32), place + 1

    def tokens(self, batch: NDArray[np.float32]) -> int:
        return int(batch.shape[1])


def test_a_users_own_model_trains() -> None:
    trainer = JaxTrainer(Line())
    trainer.setup()
    for batch, _ in trainer.batches(ShardKey(0, 0), 0):
        trainer.step(batch, 0.2)
    assert len(trainer.layout.fragments) == 1
    np.testing.assert_allclose(trainer.value(0), [3, -1], atol=1e-3)
    assert trainer.evaluate([trainer.value(0)]) == {}
    assert {leaf.role for leaf in trainer.layout.leaves} == {Role.MATRIX}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("islands.tasks", "not of the form"),
        (":factory", "not of the form"),
        ("no_such_package:Task", "cannot be loaded"),
        ("islands.tasks.text:NoSuch", "cannot be loaded"),
        ("islands.tasks.task:Task", "refuses its settings"),
        ("builtins:dict", "is no class of a task; it must be derived from islands.Task"),
    ],
)
def test_a_name_that_makes_no_task_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(TaskError, match=sentence):
        load_workload(RunSpec(RunSettings(), name, {}), allowed=("no_such_package", "builtins"))


def test_settings_a_factory_does_not_know_are_refused() -> None:
    with pytest.raises(TaskError, match=r"StdlibBytes.*refuses its settings"):
        task_of("islands.tasks.stdlib_bytes:StdlibBytes", {"lenght": 3})


def test_paths_are_the_keys_of_the_tree() -> None:
    tree = {"layers": [(jnp.zeros(1),)], "head": Head(jnp.zeros(2))}
    paths = [path_of(keys) for keys, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    assert paths == ["head/weight", "layers/0/0"]
