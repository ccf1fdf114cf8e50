"""The JAX trainer: plain training to the bit, odd trees, exact boundaries, donation kept."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import optax.contrib
import pytest
from jaxtyping import Array, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands.layout.leaves import Layout
from islands.model.compiled_steps import compiled_steps_for
from islands.model.jax_trainer import JaxTrainer
from islands.protocol.errors import InvariantError, TaskError
from islands.protocol.settings.choices import Adoption, Pattern
from islands.tasks.data.shards import ShardKey, ShardPlan
from islands.tasks.task import Task, TaskState
from tests.model.training import values

pytestmark = pytest.mark.usefixtures("quickly_compiled")

Floats = NDArray[np.float32]


class OddTask(Task[Floats]):
    """Regression with a tree of tuples, scalars, a bfloat16 leaf, frozen leaves and a state.

    One tensor, `large`, is 60 % of the trainable elements.
    """

    frozen: tuple[str, ...] = ("mask", "table")

    def init(self, key: PRNGKeyArray) -> TaskState:
        one, two, three = jax.random.split(key, 3)
        params = {
            "large": jax.random.normal(one, (60, 64)) * 0.1,
            "pair": (
                jax.random.normal(two, (64, 32), jnp.bfloat16),
                [jax.random.normal(three, (8, 64)) * 0.1],
            ),
            "gain": 0.5,
            "mask": jnp.arange(60, dtype=jnp.int32) % 2,
            "table": jnp.ones((4,)),
        }
        return TaskState(params, {"seen": jnp.zeros((), jnp.int32)})

    def trainable(self, path: str) -> bool:
        return path not in self.frozen

    def loss(
        self, params: PyTree, state: PyTree, batch: Floats, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        hidden = jnp.tanh(batch @ params["large"]) * (1 + jax.random.normal(key, ()) * 0.01)
        narrow, (row,) = params["pair"]
        mask = params["mask"].astype(jnp.float32)
        wide = hidden @ narrow.astype(jnp.float32)
        error = params["gain"] * wide.sum() + (row * hidden[:8]).sum() - params["table"].sum()
        weighed = jnp.square(error) + jnp.sum(jnp.square(params["large"]).mean(1) * mask)
        return weighed * 1e-3, {"seen": state["seen"] + 1}

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        adamw = optax.adamw(learning_rate, weight_decay=0.1)
        return optax.chain(optax.clip_by_global_norm(1.0), adamw)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Floats, int]]:
        for records, after in ShardPlan(512, self.shards).groups(shard, position, 1):
            rng = np.random.default_rng(int(records[0]))
            yield rng.standard_normal((16, 60)).astype(np.float32), after

    def tokens(self, batch: Floats) -> int:
        return len(batch)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        return {"gain": float(params["gain"]), "frozen": float(params["table"].sum())}


TASK = OddTask()


def made(*, seed: int = 0, learner_seed: int = 0, carries: bool = False) -> JaxTrainer:
    trainer = JaxTrainer(
        *(TASK, 4),
        min_piece_bytes=64,
        seed=seed,
        learner_seed=learner_seed,
        adoption=Adoption.DELAY_CORRECTED if carries else Adoption.OVERWRITE,
    )
    trainer.setup()
    return trainer


class AnyRows(OddTask):
    """Whoever traces its loss is asked whether it compiles."""

    def __init__(self) -> None:
        self.compiling: list[bool] = []
        self.trainer: JaxTrainer | None = None

    def loss(
        self, params: PyTree, state: PyTree, batch: Floats, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        assert self.trainer is not None
        self.compiling.append(self.trainer.compiling)
        return super().loss(params, state, batch, key)


def test_a_step_on_a_new_shape_says_that_it_compiles() -> None:
    task = AnyRows()
    task.trainer = trainer = JaxTrainer(task, 4, min_piece_bytes=64)
    trainer.setup()
    seen = len(task.compiling)
    batch = next(trainer.batches(ShardKey(0, 0), 0))[0]
    assert isinstance(batch, np.ndarray)
    trainer.step(batch, 1e-3).loss()
    assert len(task.compiling) == seen
    trainer.step(batch[:8], 1e-3).loss()
    assert len(task.compiling) > seen
    assert all(task.compiling)
    assert not trainer.compiling


def train(trainer: JaxTrainer, steps: int, shard: int = 0) -> list[float]:
    batches = trainer.batches(ShardKey(0, shard), 0)
    pending = [trainer.step(next(batches)[0], 1e-3 * (i + 1)) for i in range(steps)]
    return [step.loss() for step in pending]


def test_plain_training_equals_a_direct_optax_loop_to_the_bit() -> None:
    trainer = made()
    losses = train(trainer, 8)
    start = TASK.init(jax.random.key(0))
    params = {k: v for k, v in start.params.items() if k not in TASK.frozen}
    params = jax.tree.map(jnp.asarray, params)
    frozen = {k: v for k, v in start.params.items() if k in TASK.frozen}

    @jax.jit
    def step(
        params: PyTree, moments: PyTree, state: PyTree, batch: PyTree, count: Array, rate: Array
    ) -> PyTree:
        def loss(params: PyTree) -> PyTree:
            key = jax.random.fold_in(jax.random.key(0), count)
            return TASK.loss(params | frozen, state, batch, key)

        (value, state), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        with jax.numpy_dtype_promotion("standard"):  # which Optax relies on
            updates, moments = TASK.optimizer(rate).update(gradients, moments, params)
            return optax.apply_updates(params, updates), moments, state, value

    moments, state, direct = TASK.optimizer(0.0).init(params), start.state, []
    batches = TASK.batches(ShardKey(0, 0), 0)
    for i in range(8):
        rate = np.float32(1e-3 * (i + 1))
        batch, count = next(batches)[0], np.uint32(i)
        params, moments, state, loss = step(params, moments, state, batch, count, rate)
        direct.append(float(loss))
    assert losses == direct
    trained = trainer.layout.assemble(values(trainer))
    np.testing.assert_array_equal(trained["large"], params["large"])
    np.testing.assert_array_equal(trained["gain"], params["gain"])
    np.testing.assert_array_equal(trained["pair/0"], params["pair"][0].astype(np.float32))
    np.testing.assert_array_equal(trained["pair/1/0"], params["pair"][1][0])


def test_the_layout_takes_any_tree() -> None:
    layout = made().layout
    assert [(leaf.path, leaf.shape, leaf.dtype) for leaf in layout.leaves] == [
        ("gain", (), "float32"),
        ("large", (60, 64), "float32"),
        ("pair/0", (64, 32), "bfloat16"),
        ("pair/1/0", (8, 64), "float32"),
    ]
    large = [p for f in layout.fragments for p in f.pieces if p.path == "large"]
    assert len(large) >= 3


def test_values_and_snapshots_are_exact_and_survive_later_steps() -> None:
    trainer = made()
    base = values(trainer)
    train(trainer, 3)
    local = values(trainer)
    taken = [trainer.snapshot(f, "float32") for f in range(4)]
    narrow = trainer.snapshot(1, "bfloat16")
    train(trainer, 3)
    for fragment, snapshot in enumerate(taken):
        sent = np.frombuffer(snapshot.buffer(), np.float32)
        np.testing.assert_array_equal(sent, base[fragment] - local[fragment])
        assert snapshot.ready()
    expected = (base[1] - local[1]).astype(ml_dtypes.bfloat16).tobytes()
    assert bytes(narrow.buffer()) == expected


def test_adoption_round_trip_is_exact_for_every_fragment() -> None:
    trainer = made()
    train(trainer, 2)
    rng = np.random.default_rng(0)
    narrow = rng.standard_normal(trainer.layout.size).astype(ml_dtypes.bfloat16)
    wanted, start = [], 0
    for fragment in trainer.layout.fragments:
        wanted.append(narrow[start : start + fragment.size].astype(np.float32))
        start += fragment.size
    for index, value in enumerate(wanted):
        mine = value.copy()
        trainer.adopt(index, mine)
        mine[:] = np.nan  # the caller's buffer is its own again
    for index, value in enumerate(wanted):
        np.testing.assert_array_equal(trainer.value(index), value)
        sent = np.frombuffer(trainer.snapshot(index, "float32").buffer(), np.float32)
        assert not sent.any()


def test_adoption_touches_its_fragment_alone() -> None:
    trainer, control = made(), made()
    train(trainer, 2)
    train(control, 2)
    before = values(trainer)
    trainer.adopt(0, np.zeros_like(before[0]))
    for fragment in range(1, 4):
        np.testing.assert_array_equal(trainer.value(fragment), before[fragment])
    trainer.adopt(0, before[0])
    assert train(trainer, 3, shard=1) == train(control, 3, shard=1)


@pytest.mark.parametrize("merged", [True, False])
def test_what_a_value_does_not_contain_is_carried_on(*, merged: bool) -> None:
    trainer = made(carries=True)
    bases = values(trainer)
    train(trainer, 1)
    taken = [base - local for base, local in zip(bases, values(trainer), strict=True)]
    train(trainer, 1)
    for index, (base, sent) in enumerate(zip(bases, taken, strict=True)):
        local, value = trainer.value(index), np.zeros_like(base)
        trainer.carry_on(index, value, sent if merged else None)
        known = base - sent if merged else base
        wanted, rounding = local + (value - known), 2.0**-8  # some leaves are in bfloat16
        np.testing.assert_allclose(trainer.value(index), wanted, rtol=rounding, atol=1e-6)
        assert np.abs(wanted).max() > 1e-4
        left = np.frombuffer(trainer.snapshot(index, "float32").buffer(), np.float32)
        np.testing.assert_array_equal(left, value - trainer.value(index))


def test_a_broken_learner_heals() -> None:
    trainer = made()
    good = values(trainer)
    trainer.adopt(0, np.full_like(good[0], np.nan))
    train(trainer, 1)
    assert not trainer.finite()
    for fragment, value in enumerate(good):
        trainer.adopt(fragment, value)
    assert not trainer.finite()
    trainer.reset_moments()
    assert trainer.finite()
    assert np.isfinite(train(trainer, 2)).all()


def test_moments_from_a_peer_are_as_good_as_ones_own() -> None:
    donor, taker = made(), made()
    train(donor, 3)
    train(taker, 3, shard=2)  # as many steps, on other data
    assert donor.moments_schema == taker.moments_schema != ""
    taken = [donor.read_moments(piece) for piece in range(donor.moment_pieces)]
    found = values(donor)
    following = train(donor, 3, shard=1)
    pieces = [bytearray(snapshot.buffer()) for snapshot in taken]
    taker.load_moments([memoryview(piece) for piece in pieces])
    for piece in pieces:
        piece[:] = bytes(len(piece))  # the caller's buffers are its own again
    for fragment, value in enumerate(found):
        taker.adopt(fragment, value)
    assert train(taker, 3, shard=1) == following


def test_moments_that_are_not_its_own_are_refused() -> None:
    trainer, control = made(), made()
    piece = trainer.read_moments(0).buffer()
    for pieces in ([], [piece, piece], [piece[:-1]]):
        with pytest.raises(InvariantError, match="moments are pieces of"):
            trainer.load_moments(pieces)
    assert train(trainer, 2) == train(control, 2)


def test_donation_is_kept_while_snapshots_are_held() -> None:
    trainer = made()
    kept = [trainer.snapshot(f, "float32").buffer() for f in range(4)]
    train(trainer, 1)
    learner = trainer._learner  # noqa: SLF001  (buffers are no part of the interface)
    assert learner is not None
    model = learner.model
    for _ in range(3):
        before = model.local
        moments = jax.tree.leaves(learner.optimizer_state)
        pointers = sorted(x.unsafe_buffer_pointer() for x in (*before, *moments))
        kept += [trainer.snapshot(f, "float32").buffer() for f in range(4)]
        train(trainer, 1)
        assert all(x.is_deleted() for x in (*before, *moments))
        after = (*model.local, *jax.tree.leaves(learner.optimizer_state))
        large = [x.unsafe_buffer_pointer() for x in after if x.size > 64]
        assert set(large) <= set(pointers)
        touched = model.local
        trainer.adopt(1, np.array(trainer.value(1)))
        pieces = trainer.layout.fragments[1].pieces
        assert all(touched[piece.leaf].is_deleted() for piece in pieces)
    assert len({bytes(view) for view in kept}) > 1


def on_threads(act: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=act, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_learners_on_threads_share_one_program_and_do_not_disturb_each_other() -> None:
    """They are set up at once, and each compiles nothing afterwards."""
    trainers = [JaxTrainer(TASK, 3, min_piece_bytes=64, learner_seed=i) for i in range(3)]
    on_threads(lambda i: trainers[i].setup())
    assert len({id(trainer._program) for trainer in trainers}) == 1  # noqa: SLF001
    compiled = trainers[0]._program.functions._compiled  # noqa: SLF001
    before = dict(compiled)
    alone = []
    for i in range(3):
        trainer = JaxTrainer(TASK, 3, min_piece_bytes=64, learner_seed=i)
        trainer.setup()
        alone.append(train(trainer, 6, shard=i))
    together: dict[int, list[float]] = {}
    on_threads(lambda i: together.update({i: train(trainers[i], 6, shard=i)}))
    assert [together[i] for i in range(3)] == alone
    for trainer in trainers:
        trainer.snapshot(0, "float32").buffer()
        trainer.adopt(0, trainer.value(0))
    assert compiled == before


def test_evaluation_takes_a_published_model_without_setup() -> None:
    observer = JaxTrainer(TASK, 4, min_piece_bytes=64)
    zeros = [np.zeros(fragment.size, np.float32) for fragment in observer.layout.fragments]
    assert observer.evaluate(zeros) == {"gain": 0.0, "frozen": 4.0}


def test_a_trainer_is_refused_before_its_setup_and_with_wrong_values() -> None:
    trainer = JaxTrainer(TASK, 4, min_piece_bytes=64)
    with pytest.raises(InvariantError, match="before its setup"):
        trainer.value(0)
    trainer.setup()
    size = trainer.layout.fragments[0].size
    with pytest.raises(InvariantError, match=f"fragment 0 is float32\\[{size}\\]"):
        trainer.adopt(0, np.zeros(size + 1, np.float32))


class StatelessTask(OddTask):
    def init(self, key: PRNGKeyArray) -> TaskState:
        params: TaskState = super().init(key).params  # the mistake: no TaskState at all
        return params


def test_a_task_that_cannot_train_is_refused() -> None:
    with pytest.raises(TaskError, match="TaskState"):
        JaxTrainer(StatelessTask())


@dataclass
class UnhashableTask(OddTask):
    width: int = 1


def test_an_unhashable_task_trains_with_a_program_of_its_own() -> None:
    task = UnhashableTask()
    one, other = (compiled_steps_for(task, 4, Pattern.BALANCED, 64) for _ in range(2))
    assert one is not other
    layouts: tuple[Layout, Layout] = (one.layout, other.layout)
    assert layouts[0] == layouts[1]


@dataclass(frozen=True)
class SharedTask(OddTask):
    """Two leaves that are one array, which could not be donated twice."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        start = super().init(key)
        shared: Array = start.params["large"]
        return TaskState(start.params | {"large": shared, "twin": shared}, start.state)


def test_leaves_that_share_an_array_are_taken_apart() -> None:
    trainer = JaxTrainer(SharedTask(), 4, min_piece_bytes=64)
    trainer.setup()
    assert np.isfinite(train(trainer, 2)).all()


def test_a_learner_that_is_ready_to_give_compiles_nothing_to_give() -> None:
    trainer = made()
    trainer.prepare_giving()
    train(trainer, 2)
    compiled = dict(trainer._program.functions._compiled)  # noqa: SLF001  what is counted here
    for piece in range(trainer.moment_pieces):
        trainer.read_moments(piece).buffer()
    assert trainer._program.functions._compiled == compiled  # noqa: SLF001


class Polyak(OddTask):
    """Its step is as long as the loss says."""

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.polyak_sgd(max_learning_rate=1e-3)


def test_an_optimizer_that_asks_for_the_loss_works() -> None:
    """It is given it as `value`, as optax names it."""
    trainer = JaxTrainer(Polyak(), 4, min_piece_bytes=64)
    trainer.setup()
    assert np.isfinite(train(trainer, 3)).all()
