"""The moving average of measured times and rates."""

import pytest

from islands.protocol.running_statistics import MovingAverage


def test_the_average_moves_by_a_fifth() -> None:
    """The first sample counts fully, each newer one by 0.2."""
    average = MovingAverage()
    average.add(10.0)
    assert average.value == 10.0
    average.add(20.0)
    assert average.value == pytest.approx(12.0)
