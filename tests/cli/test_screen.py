"""What a person sees of a run on a terminal."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from islands.cli.results import sparkline
from islands.cli.screen import ECHO, LEARNERS_SHOWN, WIDEST, Screen
from islands.protocol.identities import Incarnation, Phase, Role, Status
from islands.protocol.settings.run import RunSettings
from islands.protocol.supervisor.eviction import MemberRecord
from islands.run.records.figures import LearnerFigures, RunFigures
from islands.run.run_status import Health, RunStatus, state_of
from islands.settings.quantities import count, duration

SETTINGS = RunSettings(run="r", budget_tokens=1_000_000, learning_rate=0.5, warmup_steps=0)
FOLDER = Path("runs/r")


def member(phase: Phase, heard_s: float = 10.0) -> MemberRecord:
    return MemberRecord(
        Role.LEARNER, "a", Incarnation(1, 1), Status.LIVE, 1, heard_s=heard_s, phase=phase
    )


def run_status(figures: RunFigures, settings: RunSettings = SETTINGS) -> RunStatus:
    members = dict.fromkeys(figures.learners, member(Phase.STEPPING))
    return RunStatus(figures, settings, members, 4, elapsed_s=10.0, now_s=10.0, folder=FOLDER)


def screen_of(columns: int, height: int | None = None) -> Screen:
    """A screen on a terminal so wide; it is live if its height is given."""
    screen = Screen()
    live = height is not None
    screen.console = Console(
        file=io.StringIO(), width=columns, height=height, force_terminal=live, color_system=None
    )
    return screen


def shown(screen: Screen) -> str:
    assert isinstance(screen.console.file, io.StringIO)
    return screen.console.file.getvalue()


def picture(where: RunStatus, columns: int = 80) -> list[str]:
    """The lines of a live screen of a terminal so wide."""
    screen = screen_of(columns)
    screen.console.print(screen.picture(where))
    return shown(screen).splitlines()


def busy(evaluations: int = 3) -> RunFigures:
    figures = RunFigures({"learner-0": LearnerFigures(steps=7, tokens=500_000, status="live")})
    figures.evaluations += [{"at_s": i, "bits": 9.0 - i / 10} for i in range(evaluations)]
    figures.events.append("26.8 s  operator: pause " + "told something " * 20)
    for step in range(100):
        figures.losses.add(step, 5.0 - step / 50)
    figures.speed.add(0.0, 0)
    figures.speed.add(10.0, 50_000)
    return figures


@pytest.mark.parametrize("columns", [60, 80, 160, 300])
def test_the_picture_keeps_its_height_and_leaves_room_for_an_echo(columns: int) -> None:
    lines = picture(run_status(busy(40)), columns)
    assert len(lines) == len(picture(run_status(busy(0)), columns)) == 9
    assert max(map(len, lines)) == min(WIDEST, columns - ECHO)


def test_the_picture_says_how_far_how_fast_how_long_and_how_well() -> None:
    figures = busy()
    figures.merged_tokens, figures.merges = 1_500_000, 12
    text = "\n".join(picture(run_status(figures), 160))
    for told in (
        *("training   10.0 s   500,000 of 1,000,000 tokens   5,000 tokens/s   1:40 left",),
        *("loss 5.000 → 3.020 █", "bits 9.000 → 8.800 █▅▁", "12 merges   75% of tokens merged"),
        *("learning rate 0.5", "islands: r"),
    ):
        assert told in text


def live(joined: int = 0, present: int = 0) -> RunFigures:
    learner = LearnerFigures(status="live", merges_joined=joined, merges_present=present)
    return RunFigures({"a": learner})


COMPILING = {"a": replace(member(Phase.COMPILING), phase_since_s=3.0), "b": member(Phase.JOINING)}
AWAY = RunFigures({"a": LearnerFigures(status="evicted")})


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    ("figures", "changed", "told"),
    [
        (live(), {"members": COMPILING}, "learners compile, for 7.0 s so far; then they train"),
        (live(), {"members": {**COMPILING, "b": member(Phase.STEPPING)}}, "no loss yet"),
        (busy(), {"members": {"syncer": member(Phase.BLOCKED)}}, "blocked"),
        (RunFigures(), {"members": {"syncer": member(Phase.JOINING)}}, "needs 5 to 15 s to start"),
        (live(), {"members": {"a": member(Phase.STEPPING, heard_s=6.0)}}, "4.0 s"),
        (RunFigures(warning="swing " * 8 + "end"), {}, "end"),
        (RunFigures({"[red]x[/red]": LearnerFigures(status="live")}), {}, "[red]x[/red]"),
        (AWAY, {"starts_in_s": {"a": 3.2}}, "back in 3 s"),
        (AWAY, {"running": ("a",)}, "starts again"),
        (AWAY, {}, "evicted"),
    ],
)
def test_the_picture_says(
    figures: RunFigures, changed: dict[str, Any], told: str, columns: int
) -> None:
    assert told in "\n".join(picture(replace(run_status(figures), **changed), columns))


@pytest.mark.parametrize(
    ("figures", "changed", "told"),
    [
        (live(), {"members": COMPILING}, "compiling for 7.0 s"),
        (
            busy(),
            {"members": {"syncer": member(Phase.BLOCKED)}},
            "the syncer's journal, or its second copy, cannot be written, so nothing is merged",
        ),
    ],
)
def test_a_line_in_a_pipe_says(figures: RunFigures, changed: dict[str, Any], told: str) -> None:
    pipe = screen_of(80)
    pipe.show(replace(run_status(figures), **changed))
    assert told in shown(pipe)


def test_who_is_away_is_counted_by_one_word() -> None:
    where = replace(run_status(AWAY), starts_in_s={"a": 3.2})
    assert [line.state for line in where.lines()] == ["evicted"]


def test_a_learner_that_rounds_leave_out_is_shown_with_the_reason() -> None:
    left_out = LearnerFigures(status="live", left_out="two pulls unanswered", step_time_s=0.1)
    assert state_of(left_out, Phase.STEPPING) == ("not asked", Health.ILL)
    assert state_of(left_out, Phase.COMPILING)[0] == "compiling"
    lines = picture(run_status(RunFigures({"a": left_out})), 120)
    assert any("not asked: two pulls unanswered" in line for line in lines)


def test_participation_of_the_last_minute_stands_beside_that_of_the_run() -> None:
    """A learner that is left out since a minute hides in the mean over hours."""
    figures = live(joined=3, present=4)
    assert "took part" not in "\n".join(picture(run_status(figures), 120))
    for at_s, joined, asked in ((-100.0, 2, 2), (5.0, 1, 2), (5.5, 0, 2)):
        figures.count_participation(at_s, joined, asked)
    told = "took part 25% in the last minute, 75% in all"
    assert told in "\n".join(picture(run_status(figures), 120))


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_the_time_that_is_left_is_never_cut(columns: int) -> None:
    settings = replace(SETTINGS, budget_tokens=12_345_678_901)
    (head,) = [line for line in picture(run_status(busy(), settings), columns) if "train" in line]
    assert head.rstrip("│ ").endswith("left")
    assert " tokens " in head


@pytest.mark.parametrize(
    ("status", "phase", "diverged", "told", "health"),
    [
        ("live", Phase.STEPPING, False, "stepping", Health.WELL),
        ("live", Phase.COMPILING, False, "compiling", Health.WAITING),
        ("live", Phase.PAUSED, False, "paused", Health.WAITING),
        ("live", Phase.STEPPING, True, "diverged", Health.ILL),
        ("live", Phase.JOINING, True, "diverged", Health.ILL),
        ("suspect", Phase.STEPPING, False, "suspect", Health.ILL),
        ("evicted", Phase.STEPPING, True, "evicted", Health.ILL),
        ("left", Phase.FINISHED, False, "left", Health.WAITING),
        ("starting", None, False, "starting", Health.WAITING),
    ],
)
def test_a_learner_is_shown_by_what_it_does(
    status: str, phase: Phase | None, told: str, health: Health, *, diverged: bool
) -> None:
    assert state_of(LearnerFigures(status=status, diverged=diverged), phase) == (told, health)


def test_a_budget_of_time_fills_the_bar_and_tells_what_is_left() -> None:
    where = run_status(RunFigures(), RunSettings(budget_s=40.0))
    assert (where.share, where.left_s) == (0.0, 40.0)
    where.figures.work.begin(0.0)
    assert (where.share, where.left_s) == (0.25, 30.0)
    both = replace(where, settings=RunSettings(budget_s=40.0, budget_tokens=100))
    assert both.left_s == 30.0
    where.figures.work.pause(10.0, paused=True)
    assert (where.phase, where.left_s, where.tokens_per_s) == ("paused", None, 0.0)
    where.figures.ending = "stopped by an operator"
    assert (where.phase, where.left_s) == ("ending", None)
    assert run_status(RunFigures(), RunSettings()).share is None


def test_who_was_not_heard_lately_is_told_since_when() -> None:
    figures = RunFigures({"a": LearnerFigures(status="live"), "b": LearnerFigures(status="live")})
    members = {"a": member(Phase.STEPPING), "b": member(Phase.STEPPING, heard_s=6.0)}
    lines = picture(replace(run_status(figures), members=members))
    assert [line.split()[-2] for line in lines if "stepping" in line] == ["now", "s"]
    assert "4.0 s" in "\n".join(lines)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0854, "85 ms"),
        (12.34, "12.3 s"),
        (303.0, "5:03"),
        (7503.0, "2:05:03"),
        (266_700.0, "3 d 2:05"),
    ],
)
def test_a_time_is_told_as_people_write_it(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_a_number_fits_its_column() -> None:
    numbers = (0.0, 99_999, 123_456, 5.5e6, 7.9e12, 2e15)
    assert [count(number) for number in numbers] == [
        *("0", "99,999", "123.5 k", "5.5 M", "7.9 T", "2000.0 T")
    ]


def test_a_warning_is_printed_once_and_again_after_it_was_over() -> None:
    screen = screen_of(60)
    for at_s, warning in enumerate(("", "too long", "too long", "", "too long")):
        screen.show(replace(run_status(RunFigures(warning=warning)), elapsed_s=10.0 * at_s))
    assert shown(screen).count("warning: too long\n") == 2


def test_a_sentence_is_printed_as_it_is() -> None:
    screen = screen_of(20)
    sentence = "stopped; the same command with --folder /a/[bold]/very/long/path goes on"
    screen.say(sentence)
    assert shown(screen) == sentence + "\n"


def test_lines_of_a_terminal_end_between_words() -> None:
    screen = screen_of(40, 24)
    command = "    islands join --supervisor ws://127.0.0.1:7070/supervisor --name a"
    page = f"http://127.0.0.1:7070/page/#{'5' * 32}"
    screen.say(f"\nwatch the run in a browser, read-only: {page}\n{command}")
    assert shown(screen).splitlines() == [
        *("", "watch the run in a browser, read-only:", page, command)
    ]


@pytest.mark.parametrize("live", [True, False])
def test_a_crowd_is_told_by_those_that_are_not_well(live: bool) -> None:  # noqa: FBT001  a parameter of pytest
    learners = {f"learner-{index}": LearnerFigures(status="live") for index in range(1000)}
    learners["learner-777"].status = "suspect"
    screen = screen_of(100)
    where = run_status(RunFigures(learners))
    if live:
        screen.console.print(screen.picture(where))
    else:
        screen.show(where)
    told = shown(screen)
    assert told.count("learner-") == LEARNERS_SHOWN
    assert told.index("learner-2 ") < told.index("learner-10")
    assert "learner-777" in told
    assert f"and {1000 - LEARNERS_SHOWN:,} more" in told


def test_a_low_terminal_shows_fewer_learners() -> None:
    """What would be cut off at its end are events and curves."""
    learners = {f"learner-{index}": LearnerFigures(status="live") for index in range(40)}
    screen = screen_of(80, height=24)
    screen.console.print(screen.picture(run_status(RunFigures(learners))))
    lines = shown(screen).splitlines()
    assert len(lines) < 24
    assert "and 31 more" in "\n".join(lines)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e308])
def test_an_evaluation_that_is_no_number_does_not_end_the_run(bad: float) -> None:
    figures = busy()
    figures.evaluations.extend({"at_s": 0.0, "bits": value} for value in (bad, -bad, bad))
    figures.learners["learner-0"].loss = bad
    assert "bits" in "\n".join(picture(run_status(figures)))
    assert sparkline([bad, 1.0, 2.0, bad]) == "▁█"
    assert sparkline([bad]) == ""
