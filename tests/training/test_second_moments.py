"""Second moments that are told by how the averaged first moments change."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from numpy.typing import NDArray

from islands.data.shards import ShardKey
from islands.models.decoder import DecoderConfig
from islands.tasks.stdlib_bytes import StdlibBytes
from islands.training.jax_trainer import JaxTrainer
from islands.training.second_moments import Decays, decays_of, first_of

Floats = NDArray[np.float32]

pytestmark = pytest.mark.usefixtures("quickly_compiled")

ADAM = Decays(first=0.9, second=0.99, scale=1.0)  # (1 − b₂)/(1 − b₁)²
SHAPES = {"matrix": (5, 7), "vector": (9,)}


def measured(make: Callable[[], optax.GradientTransformation]) -> dict[str, Decays]:
    """The decays of an optimizer of two parameters."""
    params = {name: jnp.zeros(shape) for name, shape in SHAPES.items()}
    return dict(decays_of(lambda: optax.with_extra_args_support(make()), params))


@pytest.mark.parametrize(
    "make",
    [
        lambda: optax.adamw(0.1, b1=0.8, b2=0.95),
        lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1, b1=0.8, b2=0.95)),
        lambda: optax.nadamw(0.1, b1=0.8, b2=0.95, weight_decay=0.3),
        lambda: optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.1, b1=0.8, b2=0.95)),
        lambda: optax.inject_hyperparams(optax.adam)(0.1, b1=0.8, b2=0.95),
        lambda: optax.adam(0.1, b1=0.8, b2=0.95, mu_dtype=jnp.bfloat16),
    ],
    ids=["adamw", "behind a clip", "nadamw", "behind a decay", "injected", "bfloat16"],
)
def test_the_decays_of_adam_and_its_kin_are_measured(
    make: Callable[[], optax.GradientTransformation],
) -> None:
    """Also behind a chain; what else an optimizer does leaves its averages as they are."""
    found = measured(make)
    assert {path.split("/")[-1] for path in found} == set(SHAPES)
    for decays in found.values():
        assert decays.first == pytest.approx(0.8, rel=5e-3)
        assert decays.second == pytest.approx(0.95, rel=1e-5)
        assert decays.scale == pytest.approx(0.05 / 0.2**2, rel=5e-3)


def test_parameters_may_be_named_as_moments_are() -> None:
    """The first of the names in a path is the optimizer's own."""
    params = {"mu": jnp.zeros((2, 2)), "nu": jnp.zeros((2, 2))}
    found = decays_of(lambda: optax.with_extra_args_support(optax.adam(0.1)), params)
    assert sorted(found) == ["0/nu/mu", "0/nu/nu"]
    assert [first_of(path) for path in sorted(found)] == ["0/mu/mu", "0/mu/nu"]


def test_muon_has_second_moments_where_it_is_adam() -> None:
    """Its matrices have a first moment only."""
    assert [path.split("/")[-1] for path in measured(lambda: optax.contrib.muon(0.1))] == ["vector"]


def refusing() -> optax.GradientTransformation:
    """An optimizer that takes no small arrays."""

    def init(params: optax.Params) -> optax.OptState:
        raise ValueError(params)

    return optax.GradientTransformation(init, lambda updates, state, _: (updates, state))


@pytest.mark.parametrize(
    "make",
    [
        lambda: optax.sgd(0.1, momentum=0.9),
        lambda: optax.lion(0.1),
        lambda: optax.rmsprop(0.1),  # no first moment
        lambda: optax.adafactor(0.1),
        lambda: optax.adabelief(0.1),  # squares of another difference
        lambda: optax.adamax(0.1),  # the largest gradient, and no square
        refusing,
    ],
    ids=["sgd", "lion", "rmsprop", "adafactor", "adabelief", "adamax", "refusing"],
)
def test_other_optimizers_have_none(make: Callable[[], optax.GradientTransformation]) -> None:
    """What they average is merged as before."""
    assert measured(make) == {}


@pytest.mark.parametrize("interval", [1, 3, 24])
@pytest.mark.parametrize(("signal", "noise"), [(0.0, 1.0), (1.0, 0.0), (0.5, 1.0)])
def test_it_is_the_square_of_the_gradient_that_four_learners_have_together(
    interval: int, signal: float, noise: float
) -> None:
    """Four gradients with noise of their own: the mean's square is signal² + noise²/4.

    Each learner's own second moment, and so their average, would be signal² + noise².
    """
    rng = np.random.default_rng(0)
    first, second = np.zeros((4, 4000), np.float32), jnp.zeros(4000)
    before = jnp.asarray(first.mean(0))
    for number in range(1500 // interval):
        for _ in range(interval):
            gradients = signal + noise * rng.standard_normal(first.shape)
            first = (ADAM.first * first + (1 - ADAM.first) * gradients).astype(np.float32)
        after = jnp.asarray(first.mean(0))
        first[:] = after
        age = jnp.float32((number + 1) * interval)
        second = ADAM.advanced(second, before, after, age, jnp.float32(interval))
        before = after
    assert float(second.mean()) == pytest.approx(signal**2 + noise**2 / 4, rel=0.04)


@pytest.mark.parametrize("age", [0.0, 1.0, float("inf")])
@pytest.mark.parametrize("steps", [0.0, 1.0, 1e9])
def test_at_any_age_it_is_a_number(age: float, steps: float) -> None:
    """An optimizer may withhold steps, keep no count, or be out for long."""
    one, times = jnp.ones(3), (jnp.float32(age), jnp.float32(steps))
    second = ADAM.advanced(one, one, 2 * one, *times)
    least = ADAM.least(one, times[0])
    assert bool(jnp.isfinite(second).all() & jnp.isfinite(least).all())
    assert bool((second == 1).all()) is (steps == 0)


def test_the_least_is_what_a_lasting_gradient_has() -> None:
    """Adam's step is then as long as its rate."""
    gradient = jnp.array([0.5, -2.0])
    for decays in (ADAM, Decays(0.9, 0.999, 0.1)):
        np.testing.assert_allclose(decays.least(gradient, jnp.float32(1e6)), gradient**2, rtol=1e-4)


# --- on a trainer -----------------------------------------------------------------------------

SMALL = DecoderConfig(width=16, layers=2, heads=2, kv_heads=1, head_width=8, hidden=32)


def trainer_of(seed: int) -> JaxTrainer:
    """A decoder in four fragments, set up; its values are those of version 0."""
    task = StdlibBytes(decoder=SMALL, rows=1, length=32)
    trainer = JaxTrainer(task, 4, min_piece_bytes=256, learner_seed=seed, merges_moments=True)
    trainer.setup()
    for index in range(len(trainer.layout.fragments)):
        trainer.adopt(index, trainer.value(index))
    return trainer


def state_of(trainer: JaxTrainer, *, held: bool) -> dict[str, Floats]:
    """Second moments by the path of the first: those of merges alone, or those that step."""
    learner = trainer._learner  # noqa: SLF001  (the optimizer's state is no part of the interface)
    assert learner is not None
    return {
        trainer.layout.leaves[each.first].path: np.asarray(
            learner.optimizer_state[each.held if held else each.own]
        )
        for each in trainer._program.second_moments  # noqa: SLF001
    }


def step(trainer: JaxTrainer, steps: int, shard: int) -> None:
    """Train on the first batches of a shard."""
    batches = trainer.batches(ShardKey(0, shard), 0)
    for _ in range(steps):
        trainer.step(next(batches)[0], 0.01)


def test_a_trainer_advances_what_lies_beside_the_fragment_it_adopts() -> None:
    """Fragment after fragment, each with its own interval, against the rule in float64."""
    one, other = trainer_of(1), trainer_of(2)
    layout = one.layout
    held: dict[tuple[str, int], NDArray[np.float64]] = {}
    before: dict[tuple[str, int], NDArray[np.float64]] = {}
    since = dict.fromkeys(range(len(layout.fragments)), 0)
    for number in range(9):
        for index in since:
            since[index] += 2
        step(one, 2, number)
        step(other, 2, number + 9)
        index = number % len(layout.fragments)
        mean = (one.value(index) + other.value(index)) / np.float32(2)
        for trainer in (one, other):
            trainer.adopt(index, mean)
        for piece in layout.fragments[index].pieces:
            if "/mu/" not in piece.path:
                continue
            after = mean[piece.offset : piece.offset + piece.size].astype(np.float64)
            key, zero = (piece.path, piece.row_start), np.zeros_like(after)
            now, steps = 2 * number + 2, since[index]
            begun = after / (1 - 0.9**now)
            square = begun**2
            if now > steps:
                change = begun - before[key] / (1 - 0.9 ** (now - steps))
                square += (1 - 1 / 19) * 19 / (2 * (1 - 0.9**steps)) * change**2
            held[key] = 0.99**steps * held.get(key, zero) + (1 - 0.99**steps) * square
            before[key] = after
        since[index] = 0
    assert len(held) == sum("/mu/" in p.path for f in layout.fragments for p in f.pieces)
    for trainer in (one, other):
        found = state_of(trainer, held=True)
        for (path, row), wanted in held.items():
            leaf = next(leaf for leaf in layout.leaves if leaf.path == path)
            rows = found[path].reshape(leaf.rows, -1)
            there = rows[row : row + wanted.size // rows.shape[1]].reshape(-1)
            np.testing.assert_allclose(there, wanted, rtol=1e-4, atol=1e-7 * wanted.max())


def test_it_steps_with_no_less_than_the_square_of_its_first_moment() -> None:
    """It adopts others' values, in which its own gradients since are not."""
    trainer = trainer_of(1)
    bases = [trainer.value(index) for index in range(len(trainer.layout.fragments))]
    step(trainer, 3, 0)
    for index, base in enumerate(bases):
        trainer.carry_on(index, base, None)  # as if all others had stood still
    held, own = state_of(trainer, held=True), state_of(trainer, held=False)
    local = trainer.layout.assemble(
        [trainer.value(index) for index in range(len(trainer.layout.fragments))]
    )
    for path, second in own.items():
        assert not held[path].any()
        least = ADAM.least(jnp.asarray(local[path]).reshape(-1), jnp.float32(3))
        np.testing.assert_allclose(second.reshape(-1), least, rtol=1e-4)


def test_who_took_no_step_keeps_its_second_moments() -> None:
    """The same value twice says nothing more."""
    trainer = trainer_of(1)
    step(trainer, 4, 0)
    values = [trainer.value(index) for index in range(len(trainer.layout.fragments))]
    for index, value in enumerate(values):
        trainer.adopt(index, value)
    once = state_of(trainer, held=True)
    assert any(array.any() for array in once.values())
    for index, value in enumerate(values):
        trainer.adopt(index, 2 * value)
    for path, array in state_of(trainer, held=True).items():
        np.testing.assert_array_equal(array, once[path])


def test_a_state_donor_gives_what_merges_have_made() -> None:
    """A newcomer goes on from it, and both then advance alike."""
    giver, taker = trainer_of(1), trainer_of(2)
    step(giver, 4, 0)
    values = [giver.value(index) for index in range(len(giver.layout.fragments))]
    for index, value in enumerate(values):
        giver.adopt(index, value)
        taker.adopt(index, value)
    pieces = [giver.read_moments(piece).buffer() for piece in range(giver.moment_pieces)]
    taker.load_moments([memoryview(bytes(piece)) for piece in pieces])
    for trainer in (giver, taker):
        step(trainer, 2, 1)
        for index, value in enumerate(values):
            trainer.adopt(index, value + 1)
    for path, array in state_of(giver, held=True).items():
        np.testing.assert_array_equal(array, state_of(taker, held=True)[path])


def largest_step(trainer: JaxTrainer, shard: int) -> float:
    """By how much the next step changes an element at most; its rate is 0.01."""
    names = [leaf.path for leaf in trainer.layout.leaves if "/mu/" not in leaf.path]
    fragments = range(len(trainer.layout.fragments))
    before = trainer.layout.assemble([trainer.value(index) for index in fragments])
    step(trainer, 1, shard)
    after = trainer.layout.assemble([trainer.value(index) for index in fragments])
    return max(float(np.abs(before[name] - after[name]).max()) for name in names)


@pytest.mark.parametrize("fresh", ["newcomer", "reset"])
def test_fresh_moments_take_over_a_first_moment_that_is_old(fresh: str) -> None:
    """Nothing is known of the second one; no step is much longer than the rate."""
    veteran, other = trainer_of(1), trainer_of(2)
    step(veteran, 30, 0)
    if fresh == "reset":
        step(other, 30, 1)
    for index in range(len(veteran.layout.fragments)):
        other.adopt(index, veteran.value(index))
    if fresh == "reset":
        other.reset_moments()
    assert largest_step(veteran, 2) < 0.03
    assert [largest_step(other, shard) < 0.03 for shard in (3, 4, 5)] == [True] * 3


def test_who_is_slow_takes_an_interval_for_its_own() -> None:
    """One step of its own beside ten of the others: what changed came of ten."""
    task = StdlibBytes(decoder=SMALL, rows=1, length=32)
    slow, steady = (
        JaxTrainer(task, 1, min_piece_bytes=256, merges_moments=True, interval_steps=10)
        for _ in range(2)
    )
    for trainer, steps in ((slow, 1), (steady, 10)):
        trainer.setup()
        trainer.adopt(0, trainer.value(0))
        step(trainer, 20, 0)
        value = trainer.value(0)
        trainer.adopt(0, value)
        step(trainer, steps, 1)
        trainer.adopt(0, 1.5 * value)
    found = [state_of(trainer, held=True) for trainer in (slow, steady)]
    for path, array in found[0].items():
        np.testing.assert_allclose(array, found[1][path], rtol=0.2)
