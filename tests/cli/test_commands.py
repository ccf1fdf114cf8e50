"""The command line as a user meets it: help at once, and one sentence for a mistake."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.cli.command import main as run_command
from islands.cli.commands import COMMANDS
from islands.settings.host import SupervisorOptions

ROOT = Path(__file__).parents[2]
HEAVY = (
    *("jax", "numpy", "flax", "optax", "numba", "aiohttp", "rich", "msgpack", "uvloop"),
    "messaging.simulation",
)
LABORATORY = "lab"
ROLES = ("learner", "syncer", "supervisor", "observer")


def answer(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)


LINES = [
    ["islands", "--help"],
    ["islands.cli", "--help"],
    *(["islands.cli", *name.split(), "--help"] for name in COMMANDS),
    *([f"islands.{role}", "--help"] for role in ROLES),
    ["islands.cli", "run", "--print_config"],
    ["islands.cli", "run", "--learners", "x"],
]
READ = """
import runpy, sys
for sys.argv in {lines}:
    said = " ".join(sys.argv)
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        assert ended.code in (0, 2), (said, ended.code)
    loaded = [name for name in {heavy} if name in sys.modules]
    assert not loaded, (said, loaded)
"""


@pytest.mark.parametrize("own", [True, False], ids=["the laboratory's", "the others"])
def test_help_and_refusals_need_none_of_the_heavy_packages(*, own: bool, tmp_path: Path) -> None:
    """What only reads settings loads nothing that computes, draws or talks.

    The laboratory is loaded by its own commands alone.
    """
    lines = [each for each in LINES if (each[1] == LABORATORY) is own]
    assert lines
    heavy = HEAVY if own else (*HEAVY, "islands.lab")
    found = answer("-c", READ.format(lines=lines, heavy=heavy), cwd=tmp_path)
    assert found.returncode == 0, found.stderr


def test_help_is_printed_where_the_locale_lacks_its_letters(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found = answer("-m", "islands.cli", "run", "--help", "all", cwd=tmp_path, **ascii_only)
    assert (found.returncode, found.stderr) == (0, "")


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in COMMANDS)
    assert "python -m islands.<role>" in told


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("more", [(), ("all",)], ids=["short", "all"])
def test_a_subcommands_help_is_grouped_and_fits_a_terminal(
    name: str, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help", *more])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Of this command:" in lines
    assert max(map(len, lines)) <= 80
    measured = [line for line in lines if line.startswith("  --") and "_s " in line]
    assert all(("GBIT/S" if "gbit_s" in line else "SECONDS") in line for line in measured)


def test_help_names_every_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help", "all"])
    told = " ".join(capsys.readouterr().out.split())
    assert "--learners N how many learners start on this machine (default: 3)" in told
    assert "--run.interval_steps STEPS H, inner steps between two merges" in told
    assert "--run.pace_by median|fastest|slowest" in told
    assert "ISLANDS_RUN_AN__OPTION" in told
    assert "--help all shows." not in told


def test_help_shows_what_matters_and_says_how_to_see_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = []
    for more in ((), ("all",)):
        with pytest.raises(SystemExit):
            main(["run", "--help", *more])
        told = capsys.readouterr().out
        shown.append(re.findall(r"^  --([a-z_.]+)", told, re.MULTILINE))
        hidden = re.search(r"Few need the (\d+)\s+others, which\s+--help all shows", told)
        if not more:
            assert hidden is not None
            left_out = int(hidden[1])
    short, every = shown
    assert sum(name == "preset" or name.startswith("run.") for name in short) == 20
    assert [name for name in every if name in short] == short
    assert len(every) - len(short) == left_out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("demo", "--tokenz", "3"),
            "islands demo: unknown option --tokenz; did you mean --tokens?",
        ),
        (("demo", "--tokens", "many"), "islands demo: tokens is many; it must be a whole number"),
        (("demo", "--tokens", "0"), "islands demo: tokens is 0; it must be at least 1"),
        (("demo", "--learners", "0"), "islands demo: learners is 0; it must be at least 1"),
        (("statsu",), "islands: there is no command statsu; did you mean status?"),
        (("evaluate",), "islands: there is no command evaluate; did you mean model evaluate?"),
        (("lab", "chaso", "x"), "islands: there is no command lab chaso; did you mean lab chaos?"),
        (("lab",), "islands: lab needs a second word; the command must be one of lab chaos, lab"),
        (("xyz",), "islands: there is no command xyz; islands --help lists them"),
        (("learner",), "islands: there is no command learner; it starts by python -m islands.le"),
        ((), "islands: no command; islands --help lists them"),
        (("--x",), "islands: there is no command --x; islands --help lists them"),
        (("stop",), "islands stop: neither folder nor supervisor is set; name the run's folder by"),
        (("status", "--folder", "none"), "islands status: none/hub.json cannot be read"),
        (("init", "x.json"), "islands init: file is x.json; it must be a .yaml file to write"),
        (("init", "none/x.yaml"), "islands init: none/x.yaml cannot be written: No such file"),
        (("init", "--learners", "-1"), "islands init: learners is -1; it must be at least 0"),
        (("init", "--task", "x"), "islands init: task is 'x'; it must be of the form package"),
        (("init", "--listen", "x:y"), "islands init: listen is 'x:y'; it must be host:port"),
    ],
)
def test_a_mistake_ends_with_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert refused(*arguments).startswith(sentence)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "wanted"), [("run", "the YAML file"), ("check", "the task")])
def test_a_command_that_is_told_nothing_shows_its_usage(
    name: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command without a word starts no training that would never end."""
    assert main([name]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"usage: islands {name} CONFIG [options]"
    assert told[1].startswith(f"islands {name}: name {wanted}")
    assert len(told) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_environment_may_say_what_to_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISLANDS_CHECK_TASK", "nowhere")
    assert main(["check"]) == 2


@pytest.mark.parametrize(("megabytes", "code"), [(1, 0), (10_000_000, 1)])
def test_a_dry_run_ends_with_1_where_the_host_is_too_small(
    megabytes: int, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = ("--task", "islands.lab.toys.toy_workload:Sleeping")
    settings = ("--task_settings.megabytes", str(megabytes), "--listen", "127.0.0.1:0")
    words = [*task, *settings, "--folder", str(tmp_path / "run"), "--dry-run"]
    told = {"program": "python -m islands.supervisor", "description": ""}
    assert run_command(lambda *_: 3, SupervisorOptions, words, **told) == code
    assert ("and this host has" in capsys.readouterr().out) is (code == 1)


def test_the_package_is_the_command(tmp_path: Path) -> None:
    """Where scripts are not on the path, `python -m islands` does what `islands` does."""
    for arguments in (("--help",), ("run", "--learners", "x"), ("nothing",)):
        package, command = (
            answer("-m", name, *arguments, cwd=tmp_path) for name in ("islands", "islands.cli")
        )
        assert (package.returncode, package.stdout) == (command.returncode, command.stdout)
        assert package.stderr == command.stderr


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("islands ")


def test_a_checkout_without_a_version_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", version)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "islands of a checkout, which pip has not installed\n"


@pytest.mark.parametrize(
    "arguments", [("--debug", "demo", "--tokens", "0"), ("demo", "--tokens", "0", "--debug")]
)
def test_debug_shows_the_traceback(arguments: tuple[str, ...], tmp_path: Path) -> None:
    found = answer("-m", "islands.cli", *arguments, cwd=tmp_path)
    assert found.returncode == 1
    assert "Traceback" in found.stderr
    assert "SettingsError" in found.stderr
