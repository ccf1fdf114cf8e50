"""Second moments that are told by how the averaged first moments change."""

from collections.abc import Callable
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from jaxtyping import Array
from numpy.typing import NDArray

from islands.model.jax_trainer import JaxTrainer
from islands.model.second_moments import Decays, Firsts, Kept, decays_of, first_of
from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.stdlib_bytes import StdlibBytes
from tests.model import training
from tests.model.training import values

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

train = partial(training.train, rate=0.01)

pytestmark = pytest.mark.usefixtures("quickly_compiled")

ADAM = Decays(first=0.9, second=0.99, scale=1.0)  # (1 − b₂)/(1 − b₁)²
ADVANCED = jax.jit(ADAM.advanced)
SHAPES = {"matrix": (5, 7), "vector": (9,)}


def measured(make: Callable[[], optax.GradientTransformation]) -> dict[str, Decays]:
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
    found = measured(make)
    assert {path.split("/")[-1] for path in found} == set(SHAPES)
    for decays in found.values():
        assert decays.first == pytest.approx(0.8, rel=5e-3)
        assert decays.second == pytest.approx(0.95, rel=1e-5)
        assert decays.scale == pytest.approx(0.05 / 0.2**2, rel=5e-3)


def test_parameters_may_be_named_as_moments_are() -> None:
    params = {"mu": jnp.zeros((2, 2)), "nu": jnp.zeros((2, 2))}
    found = decays_of(lambda: optax.with_extra_args_support(optax.adam(0.1)), params)
    assert sorted(found) == ["0/nu/mu", "0/nu/nu"]
    assert [first_of(path) for path in sorted(found)] == ["0/mu/mu", "0/mu/nu"]


def test_muon_has_second_moments_where_it_is_adam() -> None:
    assert [path.split("/")[-1] for path in measured(lambda: optax.contrib.muon(0.1))] == ["vector"]


def refusing() -> optax.GradientTransformation:
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
    assert measured(make) == {}


def schedule(count: Array) -> Array:
    """A decay that begins low and nears 1, as 1 − t^(−0.8)."""
    return 1 - (jnp.asarray(count, jnp.float32) + 2) ** -0.8


@pytest.mark.parametrize("name", ["b1", "b2"])
def test_a_decay_that_changes_with_the_steps_is_not_taken_for_a_constant(name: str) -> None:
    def make() -> optax.GradientTransformation:
        return optax.inject_hyperparams(optax.adam)(0.1, **{name: schedule})

    assert measured(make) == {}


SIGNALS = {
    "white": (0.0, 0.0, 1.0),
    "rho=0.5": (0.0, 0.5, 1.0),
    "rho=-0.5": (0.0, -0.5, 1.0),
    "rho=0.9": (0.0, 0.9, 1.0),
    "rho=-0.9": (0.0, -0.9, 1.0),
    "lasting": (1.0, 0.0, 0.0),
    "alternating": (-1.0, 0.0, 0.0),
    "half lasting": (0.5, 0.0, 1.0),
}
"""What all learners' gradients have in common, which lasts or (below 0) changes its sign at every
step; the correlation ρ of noise of each one's own from a step to the next; its deviation."""


def excess(kind: str, interval: int, learners: int) -> float:
    """Return the mean of the second moment that is told, in units of that of the mean gradient.

    Learners draw gradients and merge their first moments in lock-step, in float64; the mean
    gradient's own second moment is averaged over the same elements and the last half of the steps.
    """
    signal, rho, noise = SIGNALS[kind]
    rng = np.random.default_rng(0)
    draw = rng.standard_normal((learners, 1000))
    first, before, told, truth = np.zeros_like(draw), np.zeros(1000), np.zeros(1000), 0.0
    kept = Kept(*(jnp.zeros(1000) for _ in Kept._fields))
    found, wanted = [], []
    merges = max(40, 600 // interval)
    for number in range(merges):
        for step_ in range(interval):
            t = number * interval + step_
            sign = 1 if signal >= 0 or t % 2 else -1
            gradients = sign * abs(signal) + noise * draw
            first = ADAM.first * first + (1 - ADAM.first) * gradients
            told = ADAM.second * told + (1 - ADAM.second) * gradients[0] ** 2
            truth = ADAM.second * truth + (1 - ADAM.second) * float((gradients.mean(0) ** 2).mean())
            fresh = rng.standard_normal(draw.shape)
            draw = rho * draw + np.sqrt(1 - rho**2) * fresh
        after, age = first.mean(0), jnp.float32((number + 1) * interval)
        firsts = Firsts(*(jnp.asarray(x) for x in (before, after, first[0])))
        steps = jnp.float32(interval)
        kept, advanced = ADVANCED(kept, jnp.asarray(told), firsts, age, steps, steps)
        told = np.asarray(advanced)
        first[:], before = after, after
        if number >= merges // 2:
            found.append(float(told.mean()))
            wanted.append(truth)
    return float(np.mean(found) / np.mean(wanted))


@pytest.mark.parametrize(
    ("kind", "interval", "learners"),
    list(zip(SIGNALS, (3, 24, 5, 6, 24, 3, 5, 6), (2, 8, 4, 8, 2, 4, 8, 4), strict=True)),
)
def test_it_is_the_square_of_the_gradient_that_all_learners_have_together(
    kind: str, interval: int, learners: int
) -> None:
    """Of noise of each one's own, 1/M is left, whatever its spectrum; what swings alike is whole.

    Each learner's own second moment, and so their average, would be up to M times as large.
    """
    assert 0.65 < excess(kind, interval, learners) < 1.35


@pytest.mark.parametrize("interval", [1, 24])
def test_a_learner_alone_keeps_its_own_second_moment(interval: int) -> None:
    assert excess("half lasting", interval, 1) == pytest.approx(1, rel=2e-3)


def test_at_any_age_it_is_a_number() -> None:
    one = jnp.ones(3)
    for times in product([0.0, 1.0, float("inf")], [0.0, 1.0, 1e9], [0.0, 1.0, 1e9]):
        age, steps, taken = map(jnp.float32, times)
        known, firsts = Kept(one, one, one), Firsts(one, 2 * one, 3 * one)
        kept, second = ADVANCED(known, one, firsts, age, steps, taken)
        for array in (*kept, second, ADAM.least(one, age)):
            assert bool(jnp.isfinite(array).all() & (array >= 0).all())
        assert bool((second == 1).all()) or steps > 0


def test_the_least_is_what_a_lasting_gradient_has() -> None:
    gradient = jnp.array([0.5, -2.0])
    for decays in (ADAM, Decays(0.9, 0.999, 0.1)):
        np.testing.assert_allclose(decays.least(gradient, jnp.float32(1e6)), gradient**2, rtol=1e-4)


# --- on a trainer -----------------------------------------------------------------------------

SMALL = DecoderConfig(width=16, layers=1, heads=2, kv_heads=1, head_width=8, hidden=32)


def trainer_of(seed: int) -> JaxTrainer:
    """A decoder in three fragments, set up; its values are those of version 0."""
    task = StdlibBytes(decoder=SMALL, rows=1, length=32)
    trainer = JaxTrainer(task, 3, min_piece_bytes=256, learner_seed=seed, merges_moments=True)
    trainer.setup()
    for index in range(len(trainer.layout.fragments)):
        trainer.adopt(index, trainer.value(index))
    return trainer


def state_of(trainer: JaxTrainer) -> dict[str, dict[str, Floats]]:
    """Second moments by the path of the first: those that step, and what is kept of them."""
    learner = trainer._learner  # noqa: SLF001  (the optimizer's state is no part of the interface)
    assert learner is not None
    state, found = learner.optimizer_state, {}
    for each in trainer._program.second_moments:  # noqa: SLF001
        places = dict(zip(("steps", *Kept._fields), (each.own, *each.kept), strict=True))
        found[trainer.layout.leaves[each.first].path] = {
            name: np.asarray(state[place]) for name, place in places.items()
        }
    return found


class Oracle:
    """The rule in NumPy and float64, for rows of one first moment."""

    def __init__(self, size: int) -> None:
        self.own, self.merged, self.alone, self.v = np.zeros((4, size))

    def merge(
        self, now: int, steps: int, second: Doubles, m: Doubles, n: Doubles, own: Doubles
    ) -> None:
        """Advance by one merge at a number of steps: m before, n after, `own` of the learner."""
        b, kappa = 0.9**steps, 0.1 / 1.9
        began = now > steps
        m = m / (1 - 0.9 ** (now - steps)) if began else m
        n, own = n / (1 - 0.9**now), own / (1 - 0.9**now)
        c = (1 - kappa) / (2 * (1 - b) * kappa) * began
        lam = (1 - b) / (1 + b)
        e = n**2 + c * (n - m) ** 2
        e_own = own**2 + c * ((1 + lam) * (own - m) ** 2 - lam * (n - m) ** 2)
        kept = 0.99**steps
        self.own = kept * self.own + (second - kept * self.v)
        self.merged = kept * self.merged + (1 - kept) * e
        self.alone = kept * self.alone + (1 - kept) * e_own
        self.v = self.own * np.where(self.alone > self.merged, self.merged / self.alone, 1)


def test_a_trainer_advances_what_lies_beside_the_fragment_it_adopts() -> None:
    one, other = trainer_of(1), trainer_of(2)
    layout = one.layout
    oracles: dict[tuple[int, str, int], Oracle] = {}
    before: dict[tuple[str, int], Doubles] = {}
    since = dict.fromkeys(range(len(layout.fragments)), 0)

    def rows(trainer: JaxTrainer, name: str, path: str, row: int, size: int) -> Doubles:
        leaf = next(leaf for leaf in layout.leaves if leaf.path == path)
        array = state_of(trainer)[path][name].reshape(leaf.rows, -1)
        return array[row : row + size // array.shape[1]].reshape(-1).astype(np.float64)

    for number in range(9):
        for index in since:
            since[index] += 2
        train(one, 2, number)
        train(other, 2, number + 9)
        index = number % len(layout.fragments)
        mine = [trainer.value(index) for trainer in (one, other)]
        mean = (mine[0] + mine[1]) / np.float32(2)
        pieces = [piece for piece in layout.fragments[index].pieces if "/mu/" in piece.path]
        for place, trainer in enumerate((one, other)):
            for piece in pieces:
                there, key = (
                    slice(piece.offset, piece.offset + piece.size),
                    (piece.path, piece.row_start),
                )
                second = rows(trainer, "steps", *key, piece.size)
                after, own = (x[there].astype(np.float64) for x in (mean, mine[place]))
                oracle = oracles.setdefault((place, *key), Oracle(piece.size))
                zero = np.zeros_like(after)
                oracle.merge(
                    2 * number + 2, since[index], second, before.get(key, zero), after, own
                )
            trainer.adopt(index, mean)
        for piece in pieces:
            there = slice(piece.offset, piece.offset + piece.size)
            before[piece.path, piece.row_start] = mean[there].astype(np.float64)
        since[index] = 0
    assert len(oracles) == 2 * sum("/mu/" in p.path for f in layout.fragments for p in f.pieces)
    for (place, path, row), oracle in oracles.items():
        for name in Kept._fields:
            wanted = getattr(oracle, name)
            found = rows((one, other)[place], name, path, row, wanted.size)
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-5 * np.abs(wanted).max())


def test_a_learner_alone_steps_as_its_optimizer_does() -> None:
    trainer = trainer_of(1)
    for number in range(4):
        train(trainer, 3, number)
        before = state_of(trainer)
        for index in range(len(trainer.layout.fragments)):
            trainer.adopt(index, trainer.value(index))
        local = trainer.layout.assemble(values(trainer))
        age = jnp.float32(3 * number + 3)
        for path, after in state_of(trainer).items():
            flat = ADAM.least(jnp.asarray(local[path]).reshape(-1), age)
            least = np.asarray(flat).reshape(local[path].shape)
            wanted = np.maximum(before[path]["steps"], least)
            np.testing.assert_allclose(after["steps"], wanted, rtol=1e-4, atol=1e-5 * wanted.max())


def test_what_was_sent_is_compared_and_not_what_was_done_since() -> None:
    patient, hasty = trainer_of(1), trainer_of(1)
    train(patient, 3, 0)
    train(hasty, 3, 0)
    merged = values(patient)
    begun = [np.asarray(base) for base in hasty._learner.model.base]  # type: ignore[union-attr]  # noqa: SLF001
    train(hasty, 2, 1)
    for index, value in enumerate(merged):
        patient.adopt(index, value)
        hasty.carry_on(index, value, begun[index] - value)
    for kept in state_of(hasty).values():
        wanted = kept["merged"]
        np.testing.assert_allclose(kept["alone"], wanted, rtol=1e-3, atol=1e-5 * wanted.max())


def test_it_steps_with_no_less_than_the_square_of_its_first_moment() -> None:
    """It adopts others' values, in which its own gradients since are not."""
    trainer = trainer_of(1)
    bases = values(trainer)
    train(trainer, 3, 0)
    for index, base in enumerate(bases):
        trainer.carry_on(index, base, None)  # as if all others had stood still
    local = trainer.layout.assemble(values(trainer))
    for path, kept in state_of(trainer).items():
        assert not kept["merged"].any()
        least = ADAM.least(jnp.asarray(local[path]).reshape(-1), jnp.float32(3))
        np.testing.assert_allclose(kept["steps"].reshape(-1), least, rtol=1e-4)


def test_who_took_no_step_keeps_its_second_moments() -> None:
    trainer = trainer_of(1)
    train(trainer, 4, 0)
    begun = values(trainer)
    for index, value in enumerate(begun):
        trainer.adopt(index, value)
    once = state_of(trainer)
    assert any(array["merged"].any() for array in once.values())
    for index, value in enumerate(begun):
        trainer.adopt(index, 2 * value)
    for path, kept in state_of(trainer).items():
        for name in Kept._fields:
            np.testing.assert_array_equal(kept[name], once[path][name])


def largest_step(trainer: JaxTrainer, shard: int) -> float:
    """By how much the next step changes an element at most; its rate is 0.01."""
    names = [leaf.path for leaf in trainer.layout.leaves if "/mu/" not in leaf.path]
    before = trainer.layout.assemble(values(trainer))
    train(trainer, 1, shard)
    after = trainer.layout.assemble(values(trainer))
    return max(float(np.abs(before[name] - after[name]).max()) for name in names)


@pytest.mark.parametrize("fresh", ["newcomer", "reset"])
def test_fresh_moments_take_over_a_first_moment_that_is_old(fresh: str) -> None:
    veteran, other = trainer_of(1), trainer_of(2)
    train(veteran, 30, 0)
    if fresh == "reset":
        train(other, 30, 1)
    for index in range(len(veteran.layout.fragments)):
        other.adopt(index, veteran.value(index))
    if fresh == "reset":
        other.reset_moments()
    assert largest_step(veteran, 2) < 0.03
    assert [largest_step(other, shard) < 0.03 for shard in (3, 4, 5)] == [True] * 3


@pytest.mark.long("test_a_learner_alone_keeps_its_own_second_moment")
def test_who_is_slow_takes_an_interval_for_its_own() -> None:
    task = StdlibBytes(decoder=SMALL, rows=1, length=32)
    slow, steady = (
        JaxTrainer(task, 1, min_piece_bytes=256, merges_moments=True, interval_steps=10)
        for _ in range(2)
    )
    for trainer, steps in ((slow, 1), (steady, 10)):
        trainer.setup()
        trainer.adopt(0, trainer.value(0))
        train(trainer, 20, 0)
        value = trainer.value(0)
        trainer.adopt(0, value)
        train(trainer, steps, 1)
        trainer.adopt(0, 1.5 * value)
    found = [state_of(trainer) for trainer in (slow, steady)]
    for path, kept in found[0].items():
        np.testing.assert_allclose(kept["merged"], found[1][path]["merged"], rtol=0.2)
