"""What a loss carries from step to step reaches evaluation, export and peers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array, PRNGKeyArray, PyTree
from numpy.typing import NDArray

import islands
from islands.layout.leaves import Unit
from islands.model.jax_trainer import JaxTrainer
from islands.numerics.optax_chain import OptaxChain
from islands.numerics.outer import OuterOptimizer, Sgd, merge_with
from islands.protocol.settings.run import RunSettings
from islands.run.single_process import LocalSystem
from islands.tasks.data.shards import ShardKey
from islands.tasks.task import Task, TaskState
from tests.numerics.oracle import AVERAGE

CENTRE = 5.0
Floats = NDArray[np.float32]


class Normalised(Task[Floats]):
    """Normalises its inputs by running averages, counts steps, and keeps an average of weights."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        w = jax.random.normal(key, (4,))
        state = {"mean": jnp.zeros(4), "average": w, "steps": jnp.int32(7), "key": key}
        return TaskState({"w": w}, state)

    def loss(
        self, params: PyTree, state: PyTree, batch: Floats, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        mean = 0.9 * state["mean"] + 0.1 * jnp.asarray(batch).mean(0)
        following = {
            "mean": mean,
            "average": 0.9 * state["average"] + 0.1 * params["w"],
            "steps": state["steps"] + 1,
            "key": jax.random.fold_in(state["key"], 1),
        }
        return jnp.mean(jnp.square((batch - mean) @ params["w"])), following

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.sgd(learning_rate, 0.9)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Floats, int]]:
        for place in range(position, 64):
            rng = np.random.default_rng((shard.shard, place))
            yield (rng.standard_normal((8, 4)) + CENTRE).astype(np.float32), place + 1

    def tokens(self, batch: Floats) -> int:
        return len(batch)

    def averaged(self, path: str) -> bool:
        return path != "average"

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        return {"mean": float(state["mean"].mean()), "steps": float(state["steps"])}


class WithoutState(Normalised):
    """Its evaluation knows nothing of a state."""

    def evaluate(self, params: PyTree) -> dict[str, float]:  # type: ignore[override]  # as users do
        return {"w": float(params["w"].sum())}


def made(task: Task[Floats] | None = None) -> JaxTrainer:
    trainer = JaxTrainer(task or Normalised(), 1)
    trainer.setup()
    return trainer


def train(trainer: JaxTrainer, steps: int) -> None:
    batches = trainer.batches(ShardKey(0, 0), 0)
    for _ in range(steps):
        trainer.step(next(batches)[0], 0.01).loss()


def test_floating_leaves_of_the_state_are_merged() -> None:
    leaves = {leaf.path: leaf.role.value for leaf in made().layout.leaves}
    assert leaves == {"w": "matrix", "state:mean": "state"}


def test_an_evaluation_gets_the_state_that_is_published() -> None:
    trainer, observer = made(), JaxTrainer(Normalised(), 1)
    train(trainer, 30)
    found = observer.evaluate([trainer.value(0)])
    assert found["mean"] == pytest.approx(CENTRE, abs=0.5)
    assert found["steps"] == 7
    assert made(WithoutState()).evaluate([trainer.value(0)]).keys() == {"w"}


def test_a_learner_heals_from_a_broken_task_state_and_compiles_nothing() -> None:
    trainer, fresh = made(), made()
    good = [trainer.value(0)]
    trainer.step(np.full((8, 4), np.nan, np.float32), 0.01)
    trainer.adopt(0, good[0])
    assert not trainer.finite()
    compiled = dict(trainer._program.functions._compiled)  # noqa: SLF001  what is counted here
    trainer.reset_moments()
    assert trainer.finite()
    state, expected = (each.state_of(good) for each in (trainer, fresh))
    for name in ("mean", "average", "steps"):
        np.testing.assert_array_equal(state[name], expected[name])
    train(trainer, 1)
    assert trainer.finite()
    assert trainer._program.functions._compiled == compiled  # noqa: SLF001


def test_a_peer_gives_what_is_not_merged_with_its_moments() -> None:
    donor, taker = made(), made()
    train(donor, 9)
    pieces = [donor.read_moments(piece).buffer() for piece in range(donor.moment_pieces)]
    taker.load_moments(pieces)
    theirs, ours = (each.state_of([donor.value(0)]) for each in (donor, taker))
    assert int(ours["steps"]) == 7 + 9
    np.testing.assert_array_equal(ours["average"], theirs["average"])
    one, other = (jax.random.key_data(state["key"]) for state in (theirs, ours))
    np.testing.assert_array_equal(one, other)
    train(taker, 1)


@pytest.mark.parametrize(
    "outer", [Sgd(), Sgd(0.7, 0.9), Sgd(0.5, 0.9, nesterov=False), OptaxChain(optax.sgd(0.3))]
)
def test_no_outer_step_acts_on_running_averages(outer: OuterOptimizer) -> None:
    units = (Unit(0, 3, AVERAGE), Unit(3, 2, AVERAGE, stepped=False))
    rng = np.random.default_rng(0)
    value = rng.standard_normal(5).astype(np.float32)
    state = outer.init(value)
    for _ in range(3):
        local = [rng.standard_normal(5).astype(np.float32) for _ in range(2)]
        step = merge_with(outer, value, state, [value - x for x in local], [1.0, 1.0], units)
        np.testing.assert_allclose(step.value[3:], np.mean(local, 0)[3:], rtol=1e-5)
        if outer != Sgd():
            assert not np.allclose(step.value[:3], np.mean(local, 0)[:3])
        value, state = step.value, step.state


def test_a_run_publishes_and_exports_its_state(tmp_path: Path) -> None:
    settings = RunSettings(interval_steps=8, budget_tokens=4000, learning_rate=0.01)
    system = LocalSystem(Normalised(), settings, learners=2)

    async def main() -> dict[str, object]:
        async with asyncio.timeout(90):
            return await system.run(tmp_path)

    summary = asyncio.run(main())
    assert cast("float", summary["mean"]) == pytest.approx(CENTRE, abs=0.5)
    start = Normalised().init(jax.random.key(0))
    loaded = islands.load(tmp_path, like=start)
    np.testing.assert_allclose(loaded.state["mean"], CENTRE, atol=0.5)
    assert int(loaded.state["steps"]) == 7
    assert islands.load(tmp_path, like=start.params)["w"].shape == (4,)
