"""Metrics of training steps: of a task's forward and backward pass, and those it cannot report."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array, PRNGKeyArray, PyTree

from islands.model.jax_trainer import JaxTrainer
from islands.protocol.errors import TaskError
from islands.tasks.data.shards import ShardKey
from islands.tasks.task import Metrics, TaskState
from tests.broken_tasks import Sound

pytestmark = pytest.mark.usefixtures("quickly_compiled")


class Slope(Sound):
    """A sum of four weights, beside a frozen one, with these metrics beside its loss."""

    def __init__(self, given: object = None) -> None:
        self.given = given

    def init(self, key: PRNGKeyArray) -> TaskState:
        return TaskState({"fixed": jnp.ones(()), "w": jnp.zeros(4)})

    def trainable(self, path: str) -> bool:
        return path == "w"

    def loss(  # type: ignore[override]  # with metrics
        self, params: PyTree, state: PyTree, batch: PyTree, key: PRNGKeyArray
    ) -> tuple[Array, PyTree, object]:
        loss = jnp.sum(batch["x"] @ params["w"]) + params["fixed"]
        return loss, state, self.given or {"rows": len(batch["x"])}

    def metrics(self, params: PyTree, gradients: PyTree, updates: PyTree) -> Metrics:
        assert gradients["fixed"] is None, "it is frozen"
        norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(gradients)))
        return {"gradient/norm": norm, "fixed": params["fixed"]}

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.sgd(learning_rate)


def test_a_step_reports_metrics_of_both_of_its_passes() -> None:
    trainer = JaxTrainer(Slope(), 1, min_piece_bytes=4)
    trainer.setup()
    batch, _ = next(Slope().batches(ShardKey(0, 0), 0))
    step = trainer.step(batch, 0.5)
    norm = float(np.linalg.norm(batch["x"].sum(axis=0)))
    assert step.loss() == 1.0
    assert step.metrics() == pytest.approx({"rows": 2.0, "gradient/norm": norm, "fixed": 1.0})
    assert trainer.step(batch, 0.5).loss() == pytest.approx(1.0 - 0.5 * norm**2)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([1.0], "the metrics are a list; they must be a dictionary"),
        ({"a b": 1.0}, "a metric of a step is named 'a b'"),
        ({f"m{index}": 1.0 for index in range(16)}, "there are 18 metrics of a step; 16 can be"),
        ({"rows": np.zeros(3)}, "the metric rows is a ndarray; it must be one number"),
        ({"text": "x"}, "the metric text is a str; it must be one number"),
    ],
)
def test_metrics_that_cannot_be_reported_are_refused(given: object, says: str) -> None:
    with pytest.raises(TaskError, match=says) as refused:
        JaxTrainer(Slope(given), 1, min_piece_bytes=4).setup()
    assert "test_step_metrics.py" in str(refused.value)
