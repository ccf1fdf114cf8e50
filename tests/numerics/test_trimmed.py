"""Median and trimmed mean: hand values, the float64 oracle, and one attacker among four."""

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics import trimmed
from islands.numerics.norms import measure
from islands.numerics.outer import Sgd, merge_with
from islands.numerics.trimmed import MEDIAN, combine_trimmed, dropped_per_side
from islands.protocol.errors import InvariantError
from tests.numerics import oracle

Flat = NDArray[np.float32]

UNITS = (
    Unit(0, 1, "average"),
    Unit(1, 300, "average"),
    Unit(301, 5000, "rda"),
    Unit(5301, 200, "average", stepped=False),
)
SIZE = 5501


def contributions(count: int, seed: int = 0, common: float = 1.0) -> list[Flat]:
    """Contributions that agree in part, of different lengths."""
    rng = np.random.default_rng(seed)
    shared = common * rng.standard_normal(SIZE)
    own = rng.standard_normal((count, SIZE)) * np.arange(1, count + 1)[:, None]
    return list((shared + own).astype(np.float32))


def merged(deltas: list[Flat], trim: float, units: tuple[Unit, ...] = UNITS) -> Flat:
    """The trimmed mean of contributions that are not measured yet."""
    return combine_trimmed([measure(delta, units) for delta in deltas], units, trim)


def whole(size: int, *, stepped: bool = True) -> tuple[Unit, ...]:
    """All elements as one unit."""
    return (Unit(0, size, "rda", stepped),)


def test_the_median_by_hand() -> None:
    """Median (1, 2) of norms 3, 5 and √5: its length √5 is rescaled to their median, 3."""
    rows = [[0.0, 3.0], [4.0, -3.0], [1.0, 2.0]]
    found = merged([np.array(row, np.float32) for row in rows], MEDIAN, whole(2))
    np.testing.assert_allclose(found, np.array([1, 2]) * 3 / np.sqrt(5), rtol=1e-6)


def test_the_trimmed_mean_by_hand() -> None:
    """Of five values a fifth is dropped per side: (1 + 2 + 1.5)/3, rescaled to the median 2."""
    rows = [[-100.0], [1.0], [2.0], [6.0], [1.5]]
    found = merged([np.array(row, np.float32) for row in rows], 0.2, whole(1))
    np.testing.assert_allclose(found, [2.0], rtol=1e-6)


def test_a_running_average_is_not_rescaled() -> None:
    """What is published of it is a median of values, not a step of usual length."""
    rows = [np.array([value], np.float32) for value in (1.0, 2.0, 3.0, 100.0, -9.0)]
    assert merged(rows, MEDIAN, whole(1, stepped=False)).tolist() == [2.0]


@pytest.mark.parametrize(
    ("count", "trim", "dropped"),
    [
        *((1, 0.25, 0), (2, 0.25, 0), (3, 0.25, 1), (4, 0.25, 1), (7, 0.25, 1), (8, 0.25, 2)),
        *((3, 1e-9, 1), (100, 0.07, 7), (3, MEDIAN, 1), (4, MEDIAN, 1), (9, MEDIAN, 4)),
        (4096, MEDIAN, 2047),
    ],
)
def test_how_many_are_dropped(count: int, trim: float, dropped: int) -> None:
    """At least one per side from three on, and something is always left."""
    assert dropped_per_side(count, trim) == dropped


@given(
    count=st.integers(1, 12),
    seed=st.integers(0, 1000),
    common=st.sampled_from([0.0, 1.0, 30.0]),
    trim=st.sampled_from([0.01, 0.1, 0.25, 0.4, 0.49, MEDIAN]),
)
def test_any_number_and_share_agrees_with_the_oracle(
    count: int, seed: int, common: float, trim: float
) -> None:
    """Units of all kinds, contributions that agree or cancel."""
    deltas = contributions(count, seed, common)
    wanted = oracle.trimmed(deltas, trim, UNITS)
    np.testing.assert_allclose(merged(deltas, trim), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [63, 64, 65, 130])
def test_many_contributions_agree_with_the_oracle(count: int) -> None:
    """Those that a network sorts, and those that are too many for it."""
    rows = list(np.random.default_rng(0).standard_normal((count, 9000)).astype(np.float32))
    wanted = oracle.trimmed(rows, 0.2, whole(9000))
    np.testing.assert_allclose(merged(rows, 0.2, whole(9000)), wanted, rtol=1e-5, atol=1e-6)


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many contributions that blocks are shorter than usual: the same bits."""
    deltas = contributions(5)
    usual = merged(deltas, 0.2)
    monkeypatch.setattr(trimmed, "SORTED_MOST", 50)
    np.testing.assert_allclose(merged(deltas, 0.2), usual, rtol=1e-6)


@pytest.mark.parametrize("trim", [0.25, MEDIAN])
def test_one_contribution_comes_back_bit_for_bit(trim: float) -> None:
    """The identity, also through the outer step."""
    delta = contributions(1)[0]
    delta[:3] = [-0.0, 1e-45, 3e38]
    assert merged([delta], trim).tobytes() == delta.tobytes()
    value, state = np.zeros_like(delta), Sgd().init(delta)
    step = merge_with(
        Sgd(), value, state, [delta], [1.0], UNITS, combined=partial(combine_trimmed, trim=trim)
    )
    np.testing.assert_array_equal(step.value, -delta)


def test_of_two_nothing_is_dropped() -> None:
    """Their plain mean, rescaled to the mean of their norms: two cannot outvote one another."""
    rows = [np.array(row, np.float32) for row in ([3.0, 0.0], [0.0, 4.0])]
    for trim in (0.25, MEDIAN):
        np.testing.assert_allclose(
            merged(rows, trim, whole(2)), np.array([1.5, 2.0]) / 2.5 * 3.5, rtol=1e-6
        )


def test_the_order_of_contributions_does_not_change_a_bit() -> None:
    """Values are summed in the order of their size."""
    deltas = contributions(4)
    first = merged(deltas, 0.25)
    for order in itertools.permutations(deltas):
        np.testing.assert_array_equal(merged(list(order), 0.25), first)


def test_weights_take_no_part() -> None:
    """They are what a contributor says of itself."""
    deltas, value = contributions(4), np.zeros(SIZE, np.float32)
    state = Sgd().init(value)
    plain, heavy = (
        merge_with(
            Sgd(),
            value,
            state,
            deltas,
            weights,
            UNITS,
            combined=partial(combine_trimmed, trim=MEDIAN),
        )
        for weights in ([1.0] * 4, [1e12, 1.0, 1.0, 1.0])
    )
    np.testing.assert_array_equal(plain.value, heavy.value)
    assert plain.norms == heavy.norms == tuple(measure(delta, UNITS).norm for delta in deltas)


def test_the_length_is_at_most_root_m_times_the_trimmed_means() -> None:
    """Contributions that cancel: a rest of random direction is not blown up to full length."""
    rows = [np.array([value], np.float32) for value in (1.0, -1.0, 1e-3, -1.0, 1.0)]
    assert abs(float(merged(rows, MEDIAN, whole(1))[0])) <= 1e-3 * np.sqrt(5) * 1.001
    assert not merged([rows[0], rows[1]], MEDIAN, whole(1)).any()


@pytest.mark.parametrize("trim", [0.25, MEDIAN])
@pytest.mark.parametrize("factor", [1000.0, -1.0, -1000.0, 0.0])
def test_one_attacker_of_four_hardly_turns_the_direction(trim: float, factor: float) -> None:
    """×1000, its sign flipped, or nothing at all: cosine above 0.9 to the honest merge.

    The length stays within that of the honest contributions. The average is turned round by the
    same attack, or lost in it.
    """
    rng = np.random.default_rng(3)
    units = whole(5000)
    shared = rng.standard_normal(5000)
    rows = list((shared + 0.5 * rng.standard_normal((4, 5000))).astype(np.float32))
    honest = merged(rows[:3], trim, units).astype(np.float64)
    attacked = [*rows[:3], np.float32(factor) * rows[3]]
    found = merged(attacked, trim, units).astype(np.float64)
    assert oracle.phi(found) @ oracle.phi(honest) > 0.9
    norms = [float(np.linalg.norm(row)) for row in rows[:3]]
    assert min(norms) * 0.99 <= np.linalg.norm(found) <= max(norms) * 1.01


@pytest.mark.parametrize("factor", [1000.0, -1000.0])
def test_an_embedding_is_not_open_to_one_contributor(factor: float) -> None:
    """Units that other rules average are merged by coordinate, too; so are running averages."""
    deltas = contributions(4, common=10.0)
    attacked = [*deltas[:3], np.float32(factor) * deltas[3]]
    for unit in UNITS[1:]:
        where = slice(unit.offset, unit.offset + unit.size)
        honest, found = (merged(each, MEDIAN)[where].astype(float) for each in (deltas, attacked))
        assert oracle.phi(found) @ oracle.phi(honest) > 0.9


def test_what_does_not_fit_together_is_refused() -> None:
    """No contribution, or some of another length."""
    short, long = np.ones(64, np.float32), np.ones(65, np.float32)
    with pytest.raises(InvariantError):
        combine_trimmed([], UNITS, MEDIAN)
    with pytest.raises(InvariantError):
        combine_trimmed([measure(x, whole(x.size)) for x in (short, long)], whole(64), MEDIAN)
