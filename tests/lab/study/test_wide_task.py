"""A wide task is data-parallel training: the same gradient as the mean over its batches."""

from itertools import islice

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.testing import assert_allclose

from islands.lab.study.wide_task import WideTask
from islands.tasks.data.shards import ShardKey
from tests.lab.study.regression import Regression


class Stateless(Regression):
    """A task without a state may leave it out."""

    def evaluate(self, params: PyTree) -> dict[str, float]:  # type: ignore[override]
        return {"rows": float(len(params["weight"]))}


TASK = Regression(rows=3)
WIDE = WideTask(TASK, 4)
SHARD = ShardKey(0, 2)


def test_a_batch_is_several_of_the_other_task() -> None:
    each = list(TASK.batches(SHARD, 0))
    for index, ((x, y), after) in enumerate(islice(WIDE.batches(SHARD, 0), 3)):
        four = each[4 * index : 4 * index + 4]
        np.testing.assert_array_equal(x, np.concatenate([batch[0] for batch, _ in four]))
        np.testing.assert_array_equal(y, np.concatenate([batch[1] for batch, _ in four]))
        assert after == four[-1][1]
        assert WIDE.tokens((x, y)) == 4 * TASK.rows
    (x, _), _ = next(WIDE.batches(SHARD, each[4][1]))
    np.testing.assert_array_equal(x, np.concatenate([batch[0] for batch, _ in each[5:9]]))


def test_what_is_left_of_a_shard_is_not_read() -> None:
    """A smaller batch would be compiled anew."""
    each = sum(1 for _ in TASK.batches(SHARD, 0))
    assert sum(1 for _ in WideTask(TASK, 5).batches(SHARD, 0)) == each // 5


def test_its_gradient_is_the_mean_of_theirs() -> None:
    params, key = TASK.init(jax.random.key(1)).params, jax.random.key(2)
    (wide, _) = next(WIDE.batches(SHARD, 0))
    gradient = jax.grad(lambda p: WIDE.loss(p, None, wide, key)[0])(params)
    each = [
        jax.grad(lambda p, b=batch: TASK.loss(p, None, b, key)[0])(params)["weight"]
        for batch, _ in islice(TASK.batches(SHARD, 0), 4)
    ]
    assert_allclose(gradient["weight"], np.mean(each, axis=0), rtol=1e-5, atol=1e-6)


def test_it_is_another_model_for_nobody() -> None:
    start = WIDE.init(jax.random.key(0)).params
    assert_allclose(start["weight"], TASK.init(jax.random.key(0)).params["weight"])
    assert WIDE.evaluate(start, None) == TASK.evaluate(start, None)
    assert WideTask(Stateless(), 2).evaluate(start, None) == {"rows": 8.0}
    assert WideTask(Regression(rows=3), 4) == WIDE
    assert hash(WIDE) == hash(WideTask(Regression(rows=3), 4))
    assert WIDE.labels()["batches per step"] == "4"
