"""`islands scale`: of a run's file and folder, and one sentence for a mistake."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.cli.scale import Source, target_of
from islands.protocol.errors import SettingsError
from islands.protocol.settings.run import RunSettings
from islands.scaling.fleet import Fleet
from islands.scaling.targets import Deadline, Entry
from islands.settings.commands import ScaleOptions
from tests.page.run_folder import make_run

FILE = """
run: {run: priced, budget_tokens: 1000000000, interval_steps: 2, fragments: 2}
islands:
  site: {engine: slurm, count: 2, hosts: 2, accelerators: "H100:8", region: eu, preemptible: true}
"""
PRICES = "accelerator_hour: {H100: {eu: 2}}\n"


def test_a_file_tells_what_money_pays_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sixteen accelerators at two each are 32 an hour."""
    (tmp_path / "run.yaml").write_text(FILE)
    (tmp_path / "prices.yaml").write_text(PRICES)
    line = ["scale", str(tmp_path / "run.yaml"), "--prices", str(tmp_path / "prices.yaml")]
    assert main([*line, "--per_hour", "100"]) == 0
    assert capsys.readouterr().out == (
        "site  eu: 2 now, 3 wanted: 3 at 32.00 an hour each, of the 100.00 that are left\n"
    )
    assert main([*line, "--deadline", "12h", "--step_s", "2", "--tokens_per_step", "10000"]) == 0
    assert "5 wanted: 5 for 1.0 G tokens within" in capsys.readouterr().out


def test_the_gain_of_one_more_is_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the actors on a virtual clock, with the settings of the run."""
    (tmp_path / "run.yaml").write_text(FILE)
    line = ["scale", str(tmp_path / "run.yaml"), "--yield_at_least", "0.4", "--step_s", "1"]
    assert main([*line, "--parameters", "1e6"]) == 0
    assert "3 of 3 in all: one more would add less than 40.0%" in capsys.readouterr().out


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def now_s(self) -> float:
        return self.at_s


def test_a_deadline_is_of_the_command_and_not_of_each_look() -> None:
    """What is left of the budget, and of a region's data, is less at each look."""
    clock, settings = Hand(), RunSettings(budget_tokens=1000)
    options = ScaleOptions(Path("run"), deadline="1h", data={"eu": 300})
    fleet = Fleet((Entry("a", "eu"),), tokens=200, by_region={"eu": 50})
    target = target_of(options, Source(settings, lambda: fleet), clock)
    assert target(fleet) == Deadline(3600.0, 500.0, {"eu": 300.0})
    clock.at_s += 600.0
    later = replace(fleet, tokens=700, by_region={"eu": 150})
    assert target(later) == Deadline(3000.0, 100.0, {"eu": 200.0})
    assert target(replace(later, tokens=5000, by_region={"eu": 4000})) == Deadline(
        3000.0, 0.0, {"eu": 0.0}
    )


def test_a_deadline_needs_something_to_do() -> None:
    """A run without a budget of tokens has no end that could be too late."""
    source = Source(RunSettings(budget_tokens=None), lambda: None)
    with pytest.raises(SettingsError, match="deadline is set, and the run has no budget_tokens"):
        target_of(ScaleOptions(Path("run"), deadline="1h"), source)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "place is not set; name the folder of a run, or its YAML file"),
        (("run",), "a fleet follows one of deadline, per_hour and yield_at_least"),
        (("run", "--deadline", "1h", "--per_hour", "3"), "a fleet follows one of deadline"),
        (("run", "--deadline", "soon"), "deadline is 'soon'; it must be a time, such as 12h"),
        (("run", "--deadline", "0h"), "deadline is '0h'; it must be a time, such as 12h"),
        (("run", "--deadline", "1h", "--data.x", "many"), "data.x is 'many'; it must be a number"),
        (("run", "--deadline", "1h", "--data.x", "3"), "data names x; no entry of the run is in"),
        (("run", "--per_hour", "3"), "per_hour is set; it needs prices"),
        (("run", "--per_hour", "3", "--data.x", "3"), "data is set; it needs a deadline"),
        (("run", "--yield_at_least", "2"), "yield_at_least is 2.0; it must be above 0"),
        (("run.yaml", "--yield_at_least", "0.1"), "step_s is not set, and no island steps"),
        (("run.yaml", "--deadline", "1h", "--apply"), "apply is set and run.yaml is a file"),
        (("none", "--deadline", "1h"), "there is no folder none"),
        (("run", "--deadline", "1h", "--most", "5000"), "most is 5000; it must be in [0, 4096]"),
        (
            ("run", "--per_hour", "3", "--prices", "p.yaml"),
            "there is no price of an hour of a host",
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    """Which says how to mend it."""
    make_run(tmp_path / "run")
    (tmp_path / "run.yaml").write_text(FILE)
    (tmp_path / "p.yaml").write_text(PRICES)
    assert sentence in refused("scale", *arguments)
