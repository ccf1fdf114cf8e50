"""What a process tells of its steps."""

import pytest

from islands.learner.events import StepFinished
from islands.learner.figures import Figures


def test_figures_are_sums_over_the_process() -> None:
    """Totals are those of the last step; time for data is no time of stepping."""
    figures = Figures("f00d")
    for steps in (1, 2):
        step = StepFinished(steps, 8 * steps, 0.5, finite=True, leases=())
        figures.stepped(step, 3.0 / steps, 0.001 * steps, 0.1)
    told = figures.told(bytes_up=5, bytes_down=7)
    assert (told.process, told.steps, told.tokens, told.loss) == ("f00d", 2, 16, 1.5)
    assert told.stepping_s == pytest.approx(0.8)
    assert (told.bytes_up, told.bytes_down) == (5, 7)
    assert sum(count for _, count in told.gap_bins) == 2
    assert told.gap_largest_s == pytest.approx(0.002)
