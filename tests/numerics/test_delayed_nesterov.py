"""Delayed Nesterov: hand values, the oracle, and the SGD that it is at N = 1."""

import numpy as np
import pytest

from islands.numerics.outer import DelayedNesterov, Sgd
from islands.protocol.errors import InvariantError
from islands.protocol.settings.outer import OuterSettings
from tests.numerics import oracle

VALUE = np.random.default_rng(0).standard_normal(50).astype(np.float32)
DELTAS = np.random.default_rng(1).standard_normal((9, 50)).astype(np.float32)


def test_two_merges_by_hand() -> None:
    """N = 2, η = 1, μ = 0.5: Δ = 4 steps by 2; Δ = 8 has v = 12/2 and steps by 4 + 3.

    After it the buffer is empty: Δ = 4 steps by 2 again, and Δ = 0 has v = 3 + 2, and steps by 2.5.
    """
    optimizer = DelayedNesterov(1.0, 0.5, 2)
    value, steps = np.zeros(1, np.float32), []
    state = optimizer.init(value)
    for delta in (4.0, 8.0, 4.0, 0.0):
        stepped, state = optimizer.update(np.array([delta], np.float32), state, value)
        steps.append(float(value[0] - stepped[0]))
        value = stepped
    assert steps == [2.0, 7.0, 2.0, 2.5]


def test_equal_directions_one_by_one_make_one_nesterov_step() -> None:
    """N of them from rest: η(1 + μ)Δ, as protocol §12 has it for one merge of all."""
    optimizer = DelayedNesterov(0.5, 0.75, 4)
    delta = np.array([8.0, -16.0], np.float32)
    value = np.zeros(2, np.float32)
    state = optimizer.init(value)
    for _ in range(4):
        value, state = optimizer.update(delta, state, value)
    np.testing.assert_array_equal(value, -0.5 * 1.75 * delta)


def test_with_a_delay_of_one_it_is_nesterov() -> None:
    ours, plain = DelayedNesterov(0.7, 0.9, 1), Sgd(0.7, 0.9)
    values, states = [VALUE, VALUE], [ours.init(VALUE), plain.init(VALUE)]
    for delta in DELTAS:
        values[0], states[0] = ours.update(delta, states[0], values[0])
        values[1], states[1] = plain.update(delta, states[1], values[1])
        np.testing.assert_allclose(values[0], values[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("delay", [1, 2, 4, 100])
def test_any_delay_agrees_with_the_oracle(delay: int) -> None:
    settings = OuterSettings(0.7, 0.9, optimizer="delayed_nesterov", delay_merges=delay)
    optimizer = DelayedNesterov.of(settings)
    value, state = VALUE, optimizer.init(VALUE)
    judge, memory = VALUE.astype(float), oracle.Memory()
    for delta in DELTAS:
        judge, memory = oracle.outer_step(settings, judge, memory, delta.astype(float))
        value, state = optimizer.update(delta, state, value)
        np.testing.assert_allclose(value, judge, rtol=1e-5, atol=1e-5)


def test_the_arguments_are_left_as_they_are() -> None:
    optimizer = DelayedNesterov(0.7, 0.9, 2)
    _, state = optimizer.update(DELTAS[0], optimizer.init(VALUE), VALUE)
    arrays = [VALUE, DELTAS[1], *state.values()]
    copies = [array.copy() for array in arrays]
    optimizer.update(DELTAS[1], state, VALUE)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InvariantError, match="momentum"):
        DelayedNesterov(0.7, 0.9, 2).update(VALUE, Sgd().init(VALUE), VALUE)
    with pytest.raises(InvariantError, match="delay_merges"):
        DelayedNesterov.of(OuterSettings())
