"""Moving averages and histograms of measured times."""

import numpy as np
import pytest

from islands.protocol.running_statistics import PER_DECADE, DurationHistogram, MovingAverage


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999, 1.0])
def test_quantiles_are_those_of_the_samples(share: float) -> None:
    samples = 10 ** np.random.default_rng(0).uniform(-6, -1, 5000)
    histogram = DurationHistogram()
    for sample in samples:
        histogram.add(float(sample))
    exact = float(np.quantile(samples, share, method="inverted_cdf"))
    assert exact <= histogram.quantile(share) <= 1.024 * exact
    assert histogram.quantile(1.0) == histogram.largest_s == samples.max()
    assert histogram.count == 5000


def test_no_gap_at_all_is_a_duration_too() -> None:
    histogram = DurationHistogram()
    assert histogram.quantile(0.999) == 0.0
    for _ in range(10):
        histogram.add(0.0)
    assert histogram.quantile(0.999) == 0.0
    histogram.add(3.0)
    assert histogram.quantile(0.9) < 1e-6
    assert histogram.quantile(0.999) == 3.0


def test_memory_is_bounded() -> None:
    histogram = DurationHistogram()
    for exponent in np.linspace(-9, 4, 20_000):
        histogram.add(float(10**exponent))
    assert histogram.count == 20_000
    assert histogram.quantile(1.0) == 1e4
    scale = {histogram.quantile(share) for share in np.linspace(0, 1, 5000)}
    assert len(scale) <= 11 * PER_DECADE + 2


def test_histograms_add_up() -> None:
    """What several learners counted is what one would have counted."""
    samples = 10 ** np.random.default_rng(1).uniform(-4, 0, 300)
    every, one, other = DurationHistogram(), DurationHistogram(), DurationHistogram()
    for index, sample in enumerate(samples):
        every.add(float(sample))
        (one, other)[index % 2].add(float(sample))
    both = DurationHistogram()
    both.merge(one.bins, one.largest_s)
    both.merge(other.bins, other.largest_s)
    assert (both.bins, both.count, both.largest_s) == (every.bins, every.count, every.largest_s)


def test_the_average_moves_by_a_fifth() -> None:
    average = MovingAverage()
    average.add(10.0)
    assert average.value == 10.0
    average.add(20.0)
    assert average.value == pytest.approx(12.0)
