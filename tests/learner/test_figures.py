"""What a process tells of its steps."""

import pytest

from islands.protocol.learner.events import StepFinished
from islands.protocol.learner.reports import Figures


def test_figures_are_sums_over_the_process() -> None:
    """Totals are those of the last step; time spent waiting for data is counted apart."""
    figures = Figures("f00d")
    for steps in (1, 2):
        step = StepFinished(steps, 8 * steps, 0.5, finite=True, leases=())
        figures.stepped(step, 3.0 / steps, 0.001 * steps, 0.1)
    told = figures.message(bytes_up=5, bytes_down=7)
    assert (told.process, told.steps, told.tokens, told.loss) == ("f00d", 2, 16, 2.25)
    assert told.stepping_s == pytest.approx(1.0)
    assert told.waited_s == pytest.approx(0.2)
    assert (told.bytes_up, told.bytes_down) == (5, 7)
    assert sum(count for _, count in told.gap_bins) == 2
    assert told.gap_largest_s == pytest.approx(0.002)


def test_a_loss_is_the_mean_of_the_steps_since_it_was_told() -> None:
    """Each step has its share in the curve, however many there are between two heartbeats."""
    figures = Figures("f00d")
    told = []
    for losses in ((4.0, 2.0, 3.0), (1.0,), (), (float("nan"), 1.0), (2.0,)):
        for loss in losses:
            step = StepFinished(1, 8, 0.5, finite=True, leases=())
            figures.stepped(step, loss, 0.0, 0.0)
        told.append(figures.message(bytes_up=0, bytes_down=0).loss)
    assert told[:3] + told[4:] == [3.0, 1.0, 1.0, 2.0]
    assert told[3] != told[3], "what is no number is told as such"
