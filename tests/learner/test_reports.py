"""A learner's reports on its process: figures for the hub, and sentences for the terminal."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Incarnation, Phase
from islands.protocol.learner.events import StepFinished
from islands.protocol.learner.state import Figures, Narrator
from islands.protocol.messages.control import HARDWARE_MAX, METRICS_MAX


def test_figures_are_sums_over_the_process() -> None:
    figures = Figures("f00d")
    assert figures.message(bytes_up=0, bytes_down=0).step_time_s == 0.0
    for steps in (1, 2):
        step = StepFinished(steps, 8 * steps, 0.75 / steps, finite=True, leases=())
        figures.stepped(step, 3.0 / steps, 0.001 * steps, 0.1, {})
    told = figures.message(bytes_up=5, bytes_down=7)
    assert (told.process, told.steps, told.tokens, told.loss) == ("f00d", 2, 16, 2.25)
    assert told.stepping_s == pytest.approx(1.125)
    assert told.step_time_s == 0.375  # of the last one
    assert told.waited_s == pytest.approx(0.2)
    assert (told.bytes_up, told.bytes_down) == (5, 7)
    assert sum(count for _, count in told.gap_bins) == 2
    assert told.gap_largest_s == pytest.approx(0.002)


def test_a_loss_is_the_mean_of_the_steps_since_it_was_told() -> None:
    figures = Figures("f00d")
    told = []
    for losses in ((4.0, 2.0, 3.0), (1.0,), (), (float("nan"), 1.0), (2.0,)):
        for loss in losses:
            step = StepFinished(1, 8, 0.5, finite=True, leases=())
            figures.stepped(step, loss, 0.0, 0.0, {})
        told.append(figures.message(bytes_up=0, bytes_down=0).loss)
    assert told[:3] + told[4:] == [3.0, 1.0, 1.0, 2.0]
    assert told[3] != told[3], "what is no number is told as such"


@pytest.mark.parametrize("length", [0, HARDWARE_MAX, HARDWARE_MAX + 1, 9999])
def test_hardware_is_named_within_its_bound(length: int) -> None:
    figures = Figures("f00d")
    figures.hardware = length * "x"
    told = figures.message(bytes_up=0, bytes_down=0)
    assert told.hardware == min(length, HARDWARE_MAX) * "x"
    assert told.believable
    assert replace(told, hardware=figures.hardware).believable is (length <= HARDWARE_MAX)


def test_a_metric_is_the_mean_of_the_steps_that_reported_it() -> None:
    figures = Figures("f00d")
    step = StepFinished(1, 8, 0.5, finite=True, leases=())
    for metrics in ({"accuracy": 0.25}, {}, {"accuracy": 0.75, "norm": 2.0}):
        figures.stepped(step, 1.0, 0.0, 0.0, metrics)
    first, then = (figures.message(bytes_up=0, bytes_down=0) for _ in range(2))
    assert (first.metrics, then.metrics) == ((("accuracy", 0.5), ("norm", 2.0)), ())
    for index in range(2 * METRICS_MAX):
        figures.stepped(step, 1.0, 0.0, 0.0, {f"m{index}": 1.0})
    last = figures.message(bytes_up=0, bytes_down=0)
    assert len(last.metrics) == METRICS_MAX
    assert last.believable


@pytest.mark.parametrize(
    "metrics",
    [
        *((("", 1.0),), (("a" * 49, 1.0),), (("a\nb", 1.0),), (("<b>", 1.0),)),
        tuple((f"m{index}", 1.0) for index in range(METRICS_MAX + 1)),
    ],
)
def test_metrics_that_no_honest_loop_reports_are_not_believed(
    metrics: tuple[tuple[str, float], ...],
) -> None:
    """Their names would be curves, labels and keys of their own; values may be any numbers."""
    told = Figures("f00d").message(bytes_up=0, bytes_down=0)
    assert replace(told, metrics=(("loss/z", float("nan")),)).believable
    assert not replace(told, metrics=metrics).believable


FIRST, SECOND = Incarnation(1, 1), Incarnation(1, 2)


class Terminal:
    """A narrator, and what it said since it was looked at last."""

    def __init__(self) -> None:
        self.narrator = Narrator()
        self.told: list[str] = []

    def follow(
        self,
        incarnation: Incarnation | None = FIRST,
        phase: Phase = Phase.STEPPING,
        steps: int = 3,
    ) -> None:
        """An event led to this state."""
        self.told += self.narrator.follow(incarnation, phase, steps)

    def take(self) -> list[str]:
        told, self.told = self.told, []
        return told


def stepping() -> Terminal:
    """A terminal that was told of the first step."""
    terminal = Terminal()
    terminal.follow()
    terminal.take()
    return terminal


def test_a_first_start_is_told_step_by_step() -> None:
    terminal = Terminal()
    terminal.follow(None, Phase.JOINING, steps=0)
    for phase in (Phase.COMPILING, Phase.HEALING, Phase.STEPPING):
        terminal.follow(FIRST, phase, steps=0)
    terminal.follow()
    terminal.follow()
    assert terminal.told == [
        "admitted, as incarnation 1.1",
        "it reads its data, and compiles its step",
        "its first step is done",
    ]


def test_an_end_of_its_membership_and_the_admission_after_it_are_told() -> None:
    terminal = stepping()
    terminal.follow(None, Phase.JOINING)
    terminal.follow(None, Phase.JOINING)
    terminal.follow(SECOND)
    terminal.follow(SECOND)
    assert terminal.told == [
        "it is no member any more: it keeps its moments, and joins again",
        "admitted again, as incarnation 1.2",
    ]


def test_pauses_are_told() -> None:
    terminal = stepping()
    for phase in (Phase.PAUSED, Phase.PAUSED, Phase.STEPPING):
        terminal.follow(phase=phase)
    assert terminal.told == ["the run is paused", "the run goes on"]
