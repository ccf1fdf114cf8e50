"""Outer optimizers: the built-in one, any optax chain, and their states for the journal."""

import numpy as np
import optax
import pytest

from islands.layout.leaves import Unit
from islands.numerics.norms import measure
from islands.numerics.optax_chain import OptaxChain
from islands.numerics.outer import OuterOptimizer, OuterState, Sgd, merge_with
from islands.protocol.errors import InvariantError
from islands.protocol.settings.outer import OuterSettings
from tests.numerics import oracle

UNITS = (Unit(0, 200, "average"), Unit(200, 5000, "rda"))
SIZE = 5200
RNG = np.random.default_rng(0)
VALUE = RNG.standard_normal(SIZE).astype(np.float32)
DELTAS = list(RNG.standard_normal((6, 3, SIZE)).astype(np.float32))
WEIGHTS = [1.0, 2.0, 4.0]


def test_the_first_nesterov_step_from_rest() -> None:
    """Protocol §12: η(1 + μ)Δ."""
    optimizer = Sgd(learning_rate=0.5, momentum=0.25)
    delta = np.array([8.0, -16.0], np.float32)
    zero = np.zeros_like(delta)
    value, _ = optimizer.update(delta, optimizer.init(zero), zero)
    np.testing.assert_array_equal(value, -0.5 * 1.25 * delta)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_fused_path_gives_the_bits_of_the_plain_one(momentum: float, *, nesterov: bool) -> None:
    """One contribution, so that the direction is exact: update and kernel may not differ."""
    optimizer = Sgd(0.7, momentum, nesterov)
    value, state = VALUE, optimizer.init(VALUE)
    plain_value, plain_state = VALUE, optimizer.init(VALUE)
    for deltas in DELTAS:
        step = merge_with(optimizer, value, state, [deltas[0]], [3.0], UNITS)
        plain_value, plain_state = optimizer.update(deltas[0], plain_state, plain_value)
        value, state = step.value, step.state
        np.testing.assert_array_equal(value, plain_value)
        np.testing.assert_array_equal(state["momentum"], plain_state["momentum"])


@pytest.mark.parametrize("nesterov", [True, False])
def test_optax_sgd_follows_the_built_in_optimizer(*, nesterov: bool) -> None:
    ours: OuterOptimizer = Sgd(0.7, 0.9, nesterov)
    theirs: OuterOptimizer = OptaxChain(optax.sgd(0.7, momentum=0.9, nesterov=nesterov))
    values, states = [VALUE, VALUE], [ours.init(VALUE), theirs.init(VALUE)]
    for deltas in DELTAS:
        steps = [
            merge_with(optimizer, value, state, list(deltas), WEIGHTS, UNITS)
            for optimizer, value, state in zip((ours, theirs), values, states, strict=True)
        ]
        values, states = [step.value for step in steps], [step.state for step in steps]
        np.testing.assert_allclose(values[0], values[1], rtol=1e-5, atol=1e-5)
        assert steps[0].norms == steps[1].norms
        assert steps[0].direction_norm == pytest.approx(steps[1].direction_norm, rel=1e-5)


def test_adam_as_an_outer_chain_agrees_with_its_formula() -> None:
    optimizer = OptaxChain(optax.adam(0.1))
    value, state = VALUE, optimizer.init(VALUE)
    judge, m, v = VALUE.astype(float), np.zeros(SIZE), np.zeros(SIZE)
    for count, deltas in enumerate(DELTAS, start=1):
        direction = oracle.merge(list(deltas), WEIGHTS, UNITS)
        m, v = 0.9 * m + 0.1 * direction, 0.999 * v + 0.001 * direction**2
        m_hat, v_hat = m / (1 - 0.9**count), v / (1 - 0.999**count)
        judge -= 0.1 * m_hat / (np.sqrt(v_hat) + 1e-8)
        step = merge_with(optimizer, value, state, list(deltas), WEIGHTS, UNITS)
        value, state = step.value, step.state
    np.testing.assert_allclose(value, judge, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "optimizer",
    [Sgd(), OptaxChain(optax.adam(0.1)), OptaxChain(optax.sgd(0.5)), OptaxChain(optax.adafactor())],
    ids=["sgd", "adam", "stateless", "adafactor"],
)
def test_a_state_goes_through_the_journal_unchanged(optimizer: OuterOptimizer) -> None:
    value, state = VALUE, optimizer.init(VALUE)
    for deltas in DELTAS[:3]:
        value, state = optimizer.update(deltas[0], state, value)
    restored: OuterState = {
        name: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
        for name, array in state.items()
    }
    live, revived = (
        merge_with(optimizer, value, one, list(DELTAS[3]), WEIGHTS, UNITS)
        for one in (state, restored)
    )
    np.testing.assert_array_equal(live.value, revived.value)
    assert live.state.keys() == revived.state.keys()


def test_a_state_of_another_optimizer_is_refused() -> None:
    sgd, adam = Sgd(), OptaxChain(optax.adam(0.1))
    with pytest.raises(InvariantError, match="momentum"):
        sgd.update(VALUE, adam.init(VALUE), VALUE)
    with pytest.raises(InvariantError, match="momentum"):
        adam.update(VALUE, sgd.init(VALUE), VALUE)
    with pytest.raises(InvariantError, match="outer state"):
        adam.update(VALUE, adam.init(VALUE[:5]), VALUE)


@pytest.mark.parametrize("optimizer", [Sgd(), OptaxChain(optax.adam(0.1))], ids=["sgd", "adam"])
def test_merging_leaves_value_state_and_contributions_alone(optimizer: OuterOptimizer) -> None:
    state = optimizer.init(VALUE)
    arrays = [VALUE, *state.values(), *DELTAS[0]]
    copies = [array.copy() for array in arrays]
    measured = [measure(delta, UNITS) for delta in DELTAS[0]]
    step = merge_with(optimizer, VALUE, state, measured, WEIGHTS, UNITS)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert step.value.flags.writeable
    assert step.norms == tuple(one.norm for one in measured)


def test_buffers_may_be_reused() -> None:
    optimizer = Sgd()
    state = optimizer.init(VALUE)
    fresh = merge_with(optimizer, VALUE, state, list(DELTAS[0]), WEIGHTS, UNITS)
    out = (np.empty_like(VALUE), np.empty_like(VALUE))
    reused = merge_with(optimizer, VALUE, state, list(DELTAS[0]), WEIGHTS, UNITS, out=out)
    assert reused.value is out[0]
    assert reused.state["momentum"] is out[1]
    np.testing.assert_array_equal(reused.value, fresh.value)
    np.testing.assert_array_equal(out[1], fresh.state["momentum"])


def test_the_cosine_compares_with_the_momentum_before() -> None:
    optimizer = Sgd()
    delta = DELTAS[0][0]
    first = merge_with(optimizer, VALUE, optimizer.init(VALUE), [delta], [1.0], UNITS)
    assert first.cosine_to_previous == 0
    for sign in (1.0, -1.0):
        again = merge_with(
            optimizer, first.value, first.state, [np.float32(sign) * delta], [1.0], UNITS
        )
        assert again.cosine_to_previous == pytest.approx(sign, abs=1e-6)


def test_settings_describe_the_optimizer() -> None:
    assert Sgd.of(OuterSettings(0.3, 0.2, nesterov=False)) == Sgd(0.3, 0.2, nesterov=False)
