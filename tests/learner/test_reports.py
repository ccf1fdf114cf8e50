"""A learner's reports on its process: figures for the hub, and sentences for the terminal."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Incarnation, LearnerName, Phase
from islands.protocol.learner.events import Event, FromSupervisor, FromSyncer, StepFinished, Ticked
from islands.protocol.learner.reports import PROGRESS_S, Figures, LearnerView, Narrator
from islands.protocol.messages.control import HARDWARE_MAX, METRICS_MAX
from islands.protocol.messages.membership import Evicted
from islands.protocol.settings.run import Timing


def test_figures_are_sums_over_the_process() -> None:
    figures = Figures("f00d")
    for steps in (1, 2):
        step = StepFinished(steps, 8 * steps, 0.5, finite=True, leases=())
        figures.stepped(step, 3.0 / steps, 0.001 * steps, 0.1, {})
    told = figures.message(bytes_up=5, bytes_down=7)
    assert (told.process, told.steps, told.tokens, told.loss) == ("f00d", 2, 16, 2.25)
    assert told.stepping_s == pytest.approx(1.0)
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


ANA = LearnerName("ana")
FIRST, SECOND = Incarnation(1, 1), Incarnation(1, 2)
STEPPING = LearnerView(
    FIRST, Phase.STEPPING, supervisor_up=True, syncer_up=True, steps=3, tokens=30, loss=2.5
)


class Terminal:
    """A narrator that has told of the first step already, and what it said since."""

    def __init__(self) -> None:
        self.narrator = Narrator(Timing())
        self.now_s = 0.0
        self.seen = STEPPING
        self.told: list[str] = []
        self.follow(STEPPING)
        self.told.clear()

    def follow(self, seen: LearnerView, event: Event | None = None, after_s: float = 0.0) -> None:
        """An event, so much later, led to this state."""
        self.now_s += after_s
        self.told += self.narrator.follow(event or Ticked(), seen, self.now_s)


def test_a_first_start_is_told_step_by_step() -> None:
    narrator = Narrator(Timing())
    joining = replace(STEPPING, incarnation=None, phase=Phase.JOINING, steps=0, tokens=0)
    states = [
        joining,
        replace(joining, incarnation=FIRST, phase=Phase.COMPILING),
        replace(joining, incarnation=FIRST, phase=Phase.HEALING),
        STEPPING,
        STEPPING,
    ]
    told = [sentence for seen in states for sentence in narrator.follow(Ticked(), seen, 1.0)]
    assert told == [
        "admitted, as incarnation 1.1",
        "it reads its data, and compiles its step",
        "its first step is done",
    ]


def test_a_hub_that_is_away_is_told_once_and_so_is_its_return() -> None:
    terminal = Terminal()
    away = replace(STEPPING, supervisor_up=False, syncer_up=False)
    terminal.follow(away)
    terminal.follow(STEPPING, after_s=1.0)
    assert terminal.told == []
    for _ in range(10):
        terminal.follow(away, after_s=1.0)
    terminal.follow(STEPPING, after_s=1.0)
    assert terminal.told == [
        "the supervisor cannot be reached; it is dialled until it is back",
        "the syncer cannot be reached; steps go on, as far as tokens were granted",
        "the supervisor is back after 10 s",
        "the syncer is back after 10 s",
    ]


def test_a_link_that_is_lost_again_and_again_is_told() -> None:
    terminal = Terminal()
    for _ in range(4):
        terminal.follow(replace(STEPPING, syncer_up=False), after_s=25.0)
        terminal.follow(STEPPING, after_s=1.0)
    (told,) = [told for told in terminal.told if "link" in told]
    assert told.startswith("the link to the syncer was lost 3 times in two minutes, and dialled")


def test_an_eviction_and_the_admission_after_it_are_told() -> None:
    terminal = Terminal()
    nobody = replace(STEPPING, incarnation=None, phase=Phase.JOINING)
    terminal.follow(nobody, FromSupervisor(Evicted(ANA, FIRST, "silent\x1b[2J")))
    terminal.follow(nobody, FromSyncer(Evicted(ANA, FIRST, "silent")))
    terminal.follow(replace(STEPPING, incarnation=SECOND))
    terminal.follow(replace(STEPPING, incarnation=SECOND), FromSyncer(Evicted(ANA, FIRST, "old")))
    ended, admitted = terminal.told
    assert ended.startswith("its incarnation has ended (silent")
    assert "\x1b" not in ended
    assert admitted == "admitted again, as incarnation 1.2"


def test_a_step_without_a_told_loss_is_progress_too() -> None:
    terminal = Terminal()
    terminal.follow(replace(STEPPING, loss=None), after_s=PROGRESS_S)
    assert terminal.told == ["3 steps, 30 tokens"]


def test_a_loss_that_is_no_number_is_told() -> None:
    terminal = Terminal()
    step = StepFinished(4, 40, 0.1, finite=False, leases=())
    terminal.follow(replace(STEPPING, incarnation=None, phase=Phase.JOINING), step)
    terminal.follow(replace(STEPPING, incarnation=None, phase=Phase.JOINING), step)
    assert len(terminal.told) == 1
    assert "not a finite number" in terminal.told[0]


def test_pauses_and_progress_are_told() -> None:
    terminal = Terminal()
    paused = replace(STEPPING, phase=Phase.PAUSED)
    terminal.follow(paused)
    terminal.follow(paused, after_s=PROGRESS_S)
    terminal.follow(STEPPING)
    terminal.follow(replace(STEPPING, steps=1234, tokens=12_340), after_s=PROGRESS_S)
    assert terminal.told == [
        "the run is paused",
        "the run goes on",
        "1,234 steps, 12,340 tokens, loss 2.5",
    ]
