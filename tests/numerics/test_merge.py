"""The merge kernel against hand values and against the float64 oracle, which shares no code."""

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics.merge import combine, merge_and_step
from islands.numerics.norms import measure
from islands.numerics.outer import Sgd
from islands.protocol.errors import InvariantError
from tests.numerics import oracle
from tests.numerics.oracle import AVERAGE, RDA

Flat = NDArray[np.float32]

MIXED = (
    Unit(0, 5, AVERAGE),
    Unit(5, 1, AVERAGE),
    Unit(6, 64, RDA),
    Unit(70, 4096, RDA),
    Unit(4166, 9001, RDA),
    Unit(13167, 5000, AVERAGE),
)
SIZE = 18167


def contributions(count: int, size: int = SIZE, seed: int = 0, common: float = 0.5) -> list[Flat]:
    """Contributions that agree in part, of different lengths."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(size)
    made = []
    for i in range(count):
        own = rng.standard_normal(size)
        made.append(((i + 1) * 1e-3 * (common * shared + own)).astype(np.float32))
    return made


def whole(size: int) -> tuple[Unit, ...]:
    return (Unit(0, size, RDA),)


def assert_close(actual: Flat, wanted: NDArray[np.float64], units: Sequence[Unit]) -> None:
    """Equal within 2e-6 of each unit's root mean square: float32, summed over few contributions."""
    for unit in units:
        where = slice(unit.offset, unit.offset + unit.size)
        scale = np.sqrt(np.mean(wanted[where] ** 2))
        np.testing.assert_allclose(actual[where], wanted[where], rtol=2e-6, atol=4e-6 * scale)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 13])
def test_units_of_all_kinds_agree_with_the_oracle(count: int) -> None:
    deltas = contributions(count, seed=count)
    weights = [1.0 + 0.37 * i for i in range(count)]
    assert_close(combine(deltas, weights, MIXED), oracle.merge(deltas, weights, MIXED), MIXED)


@given(
    count=st.integers(1, 9),
    size=st.integers(1, 300),
    seed=st.integers(0, 10_000),
    common=st.sampled_from([0.0, 0.5, 20.0]),
    exponent=st.integers(-30, 15),
)
@example(count=2, size=64, seed=0, common=0.0, exponent=-33)
def test_any_number_length_and_magnitude_agrees_with_the_oracle(
    count: int, size: int, seed: int, common: float, exponent: int
) -> None:
    """Also where squares in float32 would over- or underflow."""
    deltas = contributions(count, size, seed, common)
    deltas = [delta * np.float32(10.0**exponent) for delta in deltas]
    weights = list(np.random.default_rng(seed).uniform(0.1, 10, count))
    wanted = oracle.merge(deltas, weights, whole(size))
    scale = max(np.abs(deltas).max(), 1e-38)
    actual = combine(deltas, weights, whole(size))
    np.testing.assert_allclose(actual, wanted, rtol=2e-5, atol=2e-5 * scale)


def test_a_weight_of_zero_takes_no_part() -> None:
    first, second, idle = contributions(3)
    with_idle = combine([first, second, idle * 1000], [1.0, 2.0, 0.0], MIXED)
    without = combine([first, second], [1.0, 2.0], MIXED)
    np.testing.assert_allclose(with_idle, without, rtol=1e-6, atol=1e-9)


def test_only_ratios_of_weights_matter() -> None:
    deltas = contributions(3)
    small = combine(deltas, [1e-200, 2e-200, 4e-200], MIXED)
    large = combine(deltas, [1e200, 2e200, 4e200], MIXED)
    np.testing.assert_allclose(small, large, rtol=1e-6)


@pytest.mark.parametrize(("scale", "other"), [(0, 0), (1, -2)])
def test_nothing_and_opposites_merge_to_nothing(scale: float, other: float) -> None:
    delta = np.float32(scale) * contributions(1, 1000)[0]
    assert not combine([delta, np.float32(other) * delta], [1.0, 1.0], whole(1000)).any()


def test_a_contribution_below_normal_numbers_counts_as_zero() -> None:
    delta = contributions(1, 100)[0]
    merged = combine([delta, np.full_like(delta, 1e-45)], [1.0, 1.0], whole(100))
    np.testing.assert_allclose(merged, delta / 2, rtol=1e-6)


def test_a_unit_is_merged_without_regard_to_its_neighbours() -> None:
    units = (Unit(0, 100, RDA), Unit(100, 100, RDA))
    deltas = contributions(3, 200)
    louder = [np.concatenate([delta[:100], 1024 * delta[100:]]) for delta in deltas]
    quiet, loud = (combine(one, [1.0, 2.0, 3.0], units) for one in (deltas, louder))
    np.testing.assert_array_equal(quiet[:100], loud[:100])
    np.testing.assert_allclose(1024 * quiet[100:], loud[100:], rtol=1e-5)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_several_steps_agree_with_the_oracle(count: int, *, nesterov: bool) -> None:
    rng = np.random.default_rng(1)
    value = rng.standard_normal(SIZE).astype(np.float32)
    momentum = np.zeros_like(value)
    judge = oracle.Syncer(value.astype(float), momentum.astype(float), 0.7, 0.9, nesterov)
    weights = list(rng.uniform(1, 3, count))
    for merge in range(4):
        deltas = contributions(count, seed=merge)
        before = judge.momentum
        direction = oracle.merge(deltas, weights, MIXED)
        judge.step(direction)
        result = merge_and_step(
            value,
            momentum,
            deltas,
            weights,
            MIXED,
            learning_rate=0.7,
            momentum_decay=0.9,
            nesterov=nesterov,
        )
        value, momentum = result.value, Sgd.momentum_of(result.state)
        assert_close(momentum, judge.momentum, MIXED)
        np.testing.assert_allclose(value, judge.value, rtol=1e-6, atol=1e-6)
        assert result.norms == pytest.approx([np.linalg.norm(d.astype(float)) for d in deltas])
        assert result.direction_norm == pytest.approx(np.linalg.norm(direction), rel=1e-6)
        cosine = oracle.phi(direction) @ oracle.phi(before)
        assert result.cosine_to_previous == pytest.approx(cosine, abs=1e-6)


def test_inputs_are_left_as_they_are_and_may_be_read_only() -> None:
    deltas = contributions(3)
    value, momentum = contributions(2, seed=9)
    for array in (*deltas, value, momentum):
        array.flags.writeable = False
    copies = [array.copy() for array in (*deltas, value, momentum)]
    merge_and_step(value, momentum, deltas, [1.0] * 3, MIXED, learning_rate=1.0, momentum_decay=0.5)
    for array, copy in zip((*deltas, value, momentum), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_given_buffers_receive_the_same_bits() -> None:
    deltas = contributions(5)
    value, momentum = contributions(2, seed=9)
    own, target = momentum.copy(), np.full_like(value, np.nan)
    fresh, reused = (
        merge_and_step(
            value,
            start,
            deltas,
            [1.0] * 5,
            MIXED,
            learning_rate=0.7,
            momentum_decay=0.9,
            out=out,
        )
        for start, out in [(momentum, None), (own, (target, own))]
    )
    assert reused.value is target
    assert reused.state["momentum"] is own
    np.testing.assert_array_equal(reused.value, fresh.value)
    np.testing.assert_array_equal(own, fresh.state["momentum"])
    assert reused.cosine_to_previous == fresh.cosine_to_previous


def test_measured_contributions_give_the_same_bits() -> None:
    """Norms taken at arrival are the norms the merge would take."""
    deltas = contributions(4)
    plain = combine(deltas, [1.0, 2.0, 3.0, 4.0], MIXED)
    known = combine([measure(delta, MIXED) for delta in deltas], [1.0, 2.0, 3.0, 4.0], MIXED)
    np.testing.assert_array_equal(plain, known)


def test_arrays_that_are_not_contiguous_or_aligned_are_read_correctly() -> None:
    deltas = contributions(2)
    strided = np.repeat(deltas[0], 2)[::2]
    odd = np.frombuffer(b"\0" + deltas[1].tobytes(), np.uint8)[1:].view(np.float32)
    np.testing.assert_array_equal(
        combine([strided, odd], [1.0, 1.0], MIXED), combine(deltas, [1.0, 1.0], MIXED)
    )


@pytest.mark.parametrize(
    ("weights", "units"),
    [
        ([1.0], MIXED),
        ([1.0, -1.0], MIXED),
        ([0.0, 0.0], MIXED),
        ([1.0, float("nan")], MIXED),
        ([1.0, 1.0], MIXED[:-1]),
        ([1.0, 1.0], MIXED[::-1]),
    ],
)
def test_what_does_not_fit_together_is_refused(weights: list[float], units: list[Unit]) -> None:
    with pytest.raises(InvariantError):
        combine(contributions(2), weights, units)


def test_contributions_of_other_lengths_are_refused() -> None:
    short = measure(np.ones(64, np.float32), whole(64))
    long = measure(np.ones(65, np.float32), whole(65))
    with pytest.raises(InvariantError):
        combine([short, long], [1.0, 1.0], whole(64))
    with pytest.raises(InvariantError):
        combine([], [], whole(64))


def test_a_buffer_on_top_of_an_input_is_refused() -> None:
    value, momentum, delta = contributions(3)
    for out in [(value, momentum), (delta, momentum), (momentum, momentum), (momentum, value)]:
        with pytest.raises(InvariantError):
            merge_and_step(
                value,
                momentum,
                [delta],
                [1.0],
                MIXED,
                learning_rate=1.0,
                momentum_decay=0.0,
                out=out,
            )


REPEAT = """
import hashlib
from tests.numerics.test_merge import MIXED, contributions
from islands.numerics.merge import merge_and_step
value, momentum = contributions(2, seed=9)
result = merge_and_step(value, momentum, contributions(5), [1.0, 2.0, 3.0, 4.0, 5.0], MIXED,
                        learning_rate=0.7, momentum_decay=0.9)
digest = hashlib.blake2b(result.value.tobytes() + result.state["momentum"].tobytes()).hexdigest()
print(digest, result.norms, result.direction_norm, result.cosine_to_previous)
"""


def test_two_processes_compute_the_same_bits() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", REPEAT], capture_output=True, check=True, text=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout) > 100
