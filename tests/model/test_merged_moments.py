"""Moments of the inner optimizer that are merged like parameters (`merge_moments`)."""

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

from islands.lab.settings.study import StudyOptions
from islands.lab.study.cells import trials_of
from islands.lab.study.trial import play
from islands.layout.leaves import MOMENTS_PREFIX, Role
from islands.model.compiled_steps import compiled_steps_for
from islands.model.jax_trainer import JaxTrainer
from islands.model.jax_workload import JaxWorkload
from islands.model.second_moments import Kept
from islands.protocol.settings.choices import Adoption, Pattern
from islands.protocol.settings.run import RunSettings
from islands.run.records.model_files import load_model, read_values, write_model
from islands.tasks.data.shards import ShardKey
from tests.lab.study.regression import Regression
from tests.model.training import values

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@dataclass(frozen=True)
class ByAdam(Regression):
    """Adam has a count, which has no average, beside its two moments."""

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(learning_rate))


@dataclass(frozen=True)
class BySquares(Regression):
    """RMSProp has averages of squares, and no first moments that could tell them."""

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.rmsprop(learning_rate)


@dataclass(frozen=True)
class InMiniSteps(Regression):
    """The gradients of four batches are summed before Adam takes a step."""

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.MultiSteps(optax.adam(learning_rate), 4).gradient_transformation()


def made(
    task: Regression | None = None,
    *,
    merges_moments: bool = True,
    learner_seed: int = 0,
    fragments: int = 2,
) -> JaxTrainer:
    """A trainer that has been set up, of `ByAdam` unless told."""
    trainer = JaxTrainer(
        task or ByAdam(),
        fragments,
        min_piece_bytes=4,
        learner_seed=learner_seed,
        adoption=Adoption.DELAY_CORRECTED,
        merges_moments=merges_moments,
    )
    trainer.setup()
    return trainer


def train(trainer: JaxTrainer, steps: int, shard: int = 0) -> list[float]:
    batches = [batch for batch, _ in trainer.batches(ShardKey(0, shard), 0)][:steps]
    return [trainer.step(batch, 0.05).loss() for batch in batches]


def test_the_arrays_of_the_optimizers_state_are_leaves_and_its_counts_are_not() -> None:
    """They are merged by average and take no outer step, as a task's own state.

    The second moment is told by how the first one changes, and is not merged.
    """
    leaves = {leaf.path: leaf for leaf in made().layout.leaves}
    moments = [path for path in leaves if path.startswith(MOMENTS_PREFIX)]
    assert len(leaves) == 2
    assert [path.split("/", 2)[2] for path in moments] == ["mu/weight"]
    assert all(leaves[path].role is Role.STATE for path in moments)


def test_where_moments_are_not_merged_a_merge_leaves_them_alone() -> None:
    trainer = made(merges_moments=False)
    for index, value in enumerate(values(trainer)):
        trainer.adopt(index, value)
    train(trainer, 3)
    learner = trainer._learner  # noqa: SLF001  (the optimizer's state is no part of the interface)
    assert learner is not None
    before = [np.asarray(x) for x in jax.tree.leaves(learner.optimizer_state)]
    for index, value in enumerate(values(trainer)):
        trainer.adopt(index, 2 * value)
    for one, other in zip(before, jax.tree.leaves(learner.optimizer_state), strict=True):
        np.testing.assert_array_equal(one, np.asarray(other))


def test_what_is_no_average_stays_each_learners_own() -> None:
    trainer = made(InMiniSteps())
    arrays = [leaf.path.removeprefix(MOMENTS_PREFIX) for leaf in trainer.layout.leaves]
    assert sorted(arrays) == [
        "inner_opt_state/0/mu/weight",
        "inner_opt_state/0/nu/weight",
        "weight",
    ]
    program = compiled_steps_for(InMiniSteps(), 2, Pattern.BALANCED, 4, merges_moments=True)
    assert program.alone == ("acc_grads/weight",)


def test_a_step_is_the_same_as_where_moments_stay() -> None:
    assert train(made(), 5) == train(made(merges_moments=False), 5)


@pytest.mark.parametrize("merges_moments", [True, False])
def test_who_adopts_the_average_steps_on_as_the_others_do(*, merges_moments: bool) -> None:
    """Two learners with one value take the same step on one batch, if their moments are one too.

    So it is of RMSProp; of Adam each learner's second moments are its own squares, and estimated.
    """
    one, other = (
        made(BySquares(), merges_moments=merges_moments, learner_seed=seed) for seed in (1, 2)
    )
    for trainer in (one, other):
        for index, value in enumerate(values(trainer)):
            trainer.adopt(index, value)
    train(one, 4, shard=1)
    train(other, 4, shard=2)
    for index, pair in enumerate(zip(values(one), values(other), strict=True)):
        mean = np.asarray(np.mean(pair, axis=0), np.float32)
        for trainer in (one, other):
            trainer.adopt(index, mean)
    train(one, 1)
    train(other, 1)
    same = [np.array_equal(*pair) for pair in zip(values(one), values(other), strict=True)]
    assert all(same) is merges_moments


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_moments_move_no_further_than_to_the_value_where_work_is_carried_on(level: float) -> None:
    trainer = made(BySquares())
    bases = values(trainer)
    train(trainer, 1)
    sent = [base - local for base, local in zip(bases, values(trainer), strict=True)]
    train(trainer, 1, shard=1)  # where a gradient is small, what was sent is more than what is left
    before = values(trainer)
    published = [np.full_like(local, level) for local in before]
    beyond = set[str]()
    for index, (base, taken, value) in enumerate(zip(bases, sent, published, strict=True)):
        trainer.carry_on(index, value, taken)
        plain = before[index] + (value - (base - taken))
        ends = np.minimum(before[index], value), np.maximum(before[index], value)
        names = trainer.layout.fragments[index].pieces
        for piece in names:
            here = slice(piece.offset, piece.offset + piece.size)
            path = trainer.layout.leaves[piece.leaf].path
            merged = path.startswith(MOMENTS_PREFIX)
            wanted = np.clip(plain, *ends)[here] if merged else plain[here]
            np.testing.assert_allclose(trainer.value(index)[here], wanted, rtol=1e-6, atol=1e-7)
            if merged and (plain[here] < ends[0][here] - 1e-6).any():
                beyond.add(path.rpartition("/")[0])
    assert bool(beyond) is (level == 0.0)
    moments = trainer.layout.assemble(values(trainer))
    assert (next(x for path, x in moments.items() if "/nu/" in path) >= 0).all()


def test_a_file_of_parameters_has_no_moments_and_a_run_begins_without_them(tmp_path: Path) -> None:
    trainer, plain = made(), made(merges_moments=False)
    train(trainer, 3)
    file = tmp_path / "final.safetensors"
    write_model(file, trainer.layout, values(trainer), {})
    assert sorted(load_model(file)) == ["weight"]
    (weight,) = (
        array for _, array in sorted(plain.layout.assemble(read_values(file, plain.layout)).items())
    )
    np.testing.assert_array_equal(weight, trainer.layout.assemble(values(trainer))["weight"])
    begun = trainer.layout.assemble(read_values(file, trainer.layout))
    np.testing.assert_array_equal(begun.pop("weight"), weight)
    assert len(begun) == 1
    assert not any(array.any() for array in begun.values())


def test_a_square_that_was_rounded_below_zero_counts_as_zero() -> None:
    trainer = made(BySquares())
    train(trainer, 2)
    for index, fragment in enumerate(trainer.layout.fragments):
        value = trainer.value(index).copy()
        for piece in fragment.pieces:
            if "/nu/" in trainer.layout.leaves[piece.leaf].path:
                value[piece.offset : piece.offset + piece.size] = -1e-9
        trainer.adopt(index, value)
    losses = train(trainer, 3)
    assert np.isfinite(losses).all()
    assert trainer.finite()


@pytest.mark.quick("int8")
@pytest.mark.parametrize(
    ("precision", "left"), [("int8", 0.1), ("fp4", 0.1), ("two_bit", 0.1), ("top_k", 0.25)]
)
def test_a_run_with_coarse_contributions_keeps_its_moments_exact(
    precision: str, left: float
) -> None:
    """A codec knows no sign: squares would become negative, and the next loss no number.

    Of 64 parameters, top-k sends two at a time.
    """
    settings = {"merge_moments": True, "precision": precision, "adoption": "overwrite"}
    options = StudyOptions(
        task="tests.model.test_merged_moments:ByAdam",
        task_settings={"seed": 2},
        tokens=1600,
        seeds=(0,),
        run=RunSettings(learning_rate=0.05, warmup_steps=5, fragments=1, interval_steps=6),
        cells={"cell": {"learners": 2, "run": {**settings, "quorum": None, "merge": "average"}}},
    )
    (trial,) = trials_of(options)
    result = play(trial)
    assert (result.tokens, result.reason) == (1600, "tokens")
    assert result.figures["loss"] < left * result.curve[0][2]["loss"]


def test_what_is_kept_of_second_moments_counts_as_memory() -> None:
    size, count = 4 * 8 * 8, 4
    memory = {
        merges: JaxWorkload(ByAdam()).trainer_memory(RunSettings(merge_moments=merges))
        for merges in (False, True)
    }
    assert memory[False].moments == 2 * size + count
    assert memory[True].moments == (1 + len(Kept._fields)) * size + count
    assert (memory[True].parameters, memory[True].base) == (2 * size, 2 * size)
