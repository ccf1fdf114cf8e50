"""The table `islands` on the command line: what is checked, planned and shown."""

from pathlib import Path

import msgspec
import pytest
import yaml

from islands.cli.control import show_placed
from islands.cli.dry_run import Findings, examine
from islands.cli.parsing import parse
from islands.cli.run import read_entries
from islands.protocol.errors import SettingsError
from islands.settings.commands import AddOptions
from islands.settings.host import RunOptions

OWN = "tests.engines.folder_engine:FolderEngine"


def run_file(folder: Path, **entry: object) -> Path:
    site = {"engine": OWN, "settings": {"folder": str(folder)}, **entry}
    told = {
        "task": "islands.lab.toys.toy_workload:Sleeping",
        "task_settings": {"step_s": 0.01, "megabytes": 0.25},
        "listen": "127.0.0.1:0",
        "islands": {"site": site},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(told))
    return path


def planned(path: Path, *words: str) -> tuple[RunOptions, Findings]:
    options, common = parse(
        RunOptions, [str(path), "--dry-run", *words], program="islands run", description=""
    )
    return options, examine(options, common)


def test_a_dry_run_shows_what_an_engine_would_be_given(tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path / "run")]
    _, found = planned(run_file(tmp_path, count=3, learner={"threads": 2}), *folder)
    assert (found.refused, found.learners, found.elsewhere) == ((), 3, 3)
    ((title, text),) = found.placed.items()
    assert title == f"3 of site, by {OWN}"
    assert "--name site-0 --threads 2" in text
    assert found.estimate is not None
    assert found.estimate.learners == 3
    assert found.learners == found.elsewhere
    assert any("islands of other hosts do not reach" in each for each in found.doubts)
    assert list(tmp_path.glob("*.job")) == []
    _, both = planned(run_file(tmp_path), *folder, "--learners", "2")
    assert both.estimate is not None
    assert (both.learners, both.elsewhere) == (3, 1)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"engine": "lsf"}, "engine is 'lsf'; it must be one of"),
        ({"engine": "no.such:Thing"}, "engine is 'no.such:Thing'; it cannot be found"),
        ({"learner": {"thread": 2}}, "thread"),
        ({"learner": {"devices": "x"}}, "devices"),
        ({"hosts": -1}, "hosts is -1"),
    ],
)
def test_a_wrong_table_is_refused_before_anything_begins(
    tmp_path: Path, entry: dict[str, object], sentence: str
) -> None:
    options, found = planned(run_file(tmp_path, **entry), "--folder", str(tmp_path / "run"))
    assert any(sentence in each for each in found.refused)
    with pytest.raises(SettingsError, match=sentence.split(";", maxsplit=1)[0]):
        read_entries(options)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], ("", 1)),
        (["3"], ("", 3)),
        (["site"], ("site", 1)),
        (["site-a:12"], ("site-a", 12)),
        (["0"], None),
        (["site:0"], None),
        (["3x"], None),
    ],
)
def test_islands_of_an_entry_are_added_by_name(
    words: list[str], told: tuple[str, int] | None
) -> None:
    arguments = [*words, "--folder", "runs/x"]
    if told is None:
        with pytest.raises(SettingsError, match="it must be a number, at least 1, or"):
            parse(AddOptions, arguments, program="islands add")
        return
    options, _ = parse(AddOptions, arguments, program="islands add")
    assert (options.entry, options.count) == told


def test_an_operator_sees_who_is_placed_where(capsys: pytest.CaptureFixture[str]) -> None:
    """By whom, since when, how often each was started again, and why one waits."""
    row = {"name": "site-10", "engine": "slurm", "job": "4711", "state": "running", "for_s": 7300.0}
    more = {"where": "node-3", "why": "", "restarts_by_engine": 1, "restarts_by_hub": 2}
    waits = {**row, **more, "name": "site-9", "state": "waiting", "for_s": None}
    quiet = {"where": "", "why": "Resources", "restarts_by_engine": 0, "restarts_by_hub": 0}
    show_placed(msgspec.json.encode({"islands": [{**row, **more}, {**waits, **quiet}]}))
    _, title, first, *rest = capsys.readouterr().out.splitlines()
    assert title.split() == ["island", "engine", "job", "state", "since", "restarts", "where"]
    assert first.split() == ["site-9", "slurm", "4711", "waiting", "none", "Resources"]
    assert "1 by slurm" in " ".join(rest)
    show_placed(b"{}")
    assert capsys.readouterr().out == "", "a run that places nothing shows no table"
