"""Averages, quantiles, and losses of links, in bounded memory."""

import numpy as np
import pytest

from islands.protocol.identities import LearnerName
from islands.protocol.running_statistics import (
    LOSSES_KEPT,
    PER_DECADE,
    WITHIN_S,
    DurationHistogram,
    LostLinks,
    MovingAverage,
)
from islands.protocol.tape.member_entries import LinkUnsteady
from islands.run.records.tape_sentences import sentence
from tests.syncer.bench import seeded


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


def test_three_losses_in_two_minutes_are_told_and_then_once_in_two_minutes() -> None:
    link = LostLinks()
    assert [link.lost(at_s) for at_s in (0.0, 40.0, 80.0, 120.0, 160.0, 200.0)] == [
        *(None, None, 3),
        *(None, None, 3),
    ]
    seldom = LostLinks()
    assert {seldom.lost(hour * 3600.0) for hour in range(100)} == {None}
    apart = LostLinks()
    assert {apart.lost(number * WITHIN_S / 2) for number in range(100)} == {None}


def test_a_link_that_flaps_without_end_takes_bounded_memory() -> None:
    link = LostLinks()
    told = [times for number in range(10_000) if (times := link.lost(number / 1000)) is not None]
    assert told == [3]
    assert len(link.at_s) == LOSSES_KEPT


def test_the_syncer_tells_whose_link_it_is() -> None:
    bench, told_of = seeded("ana", "bo"), list[LinkUnsteady]()
    for _ in range(3):
        bench.drop("ana")
        told_of += bench.entries(LinkUnsteady)
        bench.hello("ana")
        bench.now_s += 30.0
    (found,) = told_of
    assert found == LinkUnsteady(LearnerName("ana"), 3)
    told = sentence("syncer", found)
    assert told.startswith("the link of ana to the syncer was lost 3 times in two minutes")
