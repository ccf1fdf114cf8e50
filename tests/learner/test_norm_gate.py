"""How far a neighbour's values may be from the own ones."""

import pytest

from islands.protocol.gossip.exchanges import DISTANCES_KEPT, DISTANCES_LEAST, NormGate


def test_a_refused_distance_moves_no_limit() -> None:
    """However often it is tried, the same distance is refused, and what is usual stays so."""
    gate = NormGate(10.0)
    for _ in range(DISTANCES_LEAST):
        assert gate.judge(1.0) is None
    for _ in range(3 * DISTANCES_KEPT):
        assert gate.judge(11.0) is not None
    assert gate.judge(11.0) is not None
    assert gate.judge(1.0) is None


@pytest.mark.parametrize("known", range(DISTANCES_LEAST))
def test_before_enough_was_seen_the_own_norm_is_the_reference(known: int) -> None:
    """The very first values may not be a million times as far as the own ones are long."""
    gate = NormGate(10.0)
    for _ in range(known):
        assert gate.judge(0.5, own=1.0) is None
    assert gate.judge(1e6, own=1.0) is not None
    assert gate.judge(10.1, own=1.0) is not None
    assert gate.judge(10.0, own=1.0) is None


def test_values_that_are_all_zero_say_nothing_of_what_is_usual() -> None:
    """The first distance from them is taken in, and is the reference of the next."""
    gate = NormGate(10.0)
    assert gate.judge(1.0, own=0.0) is None
    assert gate.judge(11.0, own=0.0) is not None
    assert gate.judge(9.0, own=0.0) is None


@pytest.mark.parametrize("norm", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused(norm: float) -> None:
    """At any time, and it is not taken in."""
    gate = NormGate(10.0)
    assert gate.judge(norm, own=1.0) == "its values are not finite"
    assert not gate.norms
