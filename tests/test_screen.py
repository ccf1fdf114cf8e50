"""What a person sees of a run on a terminal."""

import io

import pytest
from rich.console import Console

from islands.cli.screen import ECHO, LEARNERS_SHOWN, WIDEST, Screen
from islands.telemetry import LearnerFigures, RunFigures


def picture(columns: int, evaluations: int) -> list[str]:
    """The lines of a live screen of a terminal so wide."""
    figures = RunFigures(learners={"learner-0": LearnerFigures(steps=7)})
    figures.evaluations += [{"at_s": i, "bits": 9.0 - i} for i in range(evaluations)]
    figures.events.append("26.8 s  supervisor: commanded " + "told=something " * 20)
    screen = Screen(1_000_000)
    screen.console = Console(file=io.StringIO(), width=columns, force_terminal=False)
    screen.console.print(screen.picture(figures, 500_000, 12.0))
    assert isinstance(screen.console.file, io.StringIO)
    return screen.console.file.getvalue().splitlines()


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_the_picture_keeps_its_height_and_leaves_room_for_an_echo(columns: int) -> None:
    """Neither long events nor many evaluations add a line, at any width."""
    lines = picture(columns, evaluations=40)
    assert len(lines) == len(picture(columns, evaluations=0)) == 7
    assert max(map(len, lines)) == min(WIDEST, columns - ECHO)


def test_a_warning_is_printed_once_and_again_after_it_was_over() -> None:
    """Where there is no live picture, a line says it; the next lines do not repeat it."""
    screen = Screen(None)
    screen.console = Console(file=io.StringIO(), width=60)
    for at_s, warning in enumerate(("", "too long", "too long", "", "too long")):
        screen.show(RunFigures(warning=warning), 0, 10.0 * at_s)
    assert isinstance(screen.console.file, io.StringIO)
    assert screen.console.file.getvalue().count("warning: too long\n") == 2


def test_the_picture_shows_a_warning_whole() -> None:
    """A live screen has it above the events, over as many lines as it needs."""
    screen = Screen(None)
    screen.console = Console(file=io.StringIO(), width=60)
    screen.console.print(screen.picture(RunFigures(warning="swing " * 20 + "end"), 0, 0.0))
    assert isinstance(screen.console.file, io.StringIO)
    assert "end" in screen.console.file.getvalue()


def test_a_sentence_is_printed_as_it_is() -> None:
    """Neither the width of the terminal nor brackets change a path that a person will copy."""
    screen = Screen(None)
    screen.console = Console(file=io.StringIO(), width=20)
    sentence = "stopped; the same command with --folder /a/[bold]/very/long/path goes on"
    screen.say(sentence)
    assert isinstance(screen.console.file, io.StringIO)
    assert screen.console.file.getvalue() == sentence + "\n"


@pytest.mark.parametrize("live", [True, False])
def test_a_crowd_is_told_by_those_that_are_not_well(live: bool) -> None:  # noqa: FBT001  a parameter of pytest
    """Of a thousand learners some lines are shown, and how many more there are."""
    learners = {f"learner-{index:04}": LearnerFigures(status="live") for index in range(1000)}
    learners["learner-0777"].status = "suspect"
    screen = Screen(None)
    screen.console = Console(file=io.StringIO(), width=100)
    if live:
        screen.console.print(screen.picture(RunFigures(learners), 0, 0.0))
    else:
        screen.show(RunFigures(learners), 0, 0.0)
    assert isinstance(screen.console.file, io.StringIO)
    told = screen.console.file.getvalue()
    assert told.count("learner-") == LEARNERS_SHOWN
    assert "learner-0777" in told
    assert f"and {1000 - LEARNERS_SHOWN} more" in told
