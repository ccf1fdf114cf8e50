"""The command line as a user meets it: help at once, and one sentence for a mistake."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from islands.cli import demo
from islands.cli.__main__ import main

ROOT = Path(__file__).parent.parent


def answer(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What `python -m islands.cli` does in a process of its own."""
    command = [sys.executable, "-m", "islands.cli", *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=env)


def test_help_answers_without_loading_jax(tmp_path: Path) -> None:
    """Help names the commands, and costs none of the heavy imports."""
    found = answer("--help", cwd=tmp_path)
    assert found.returncode == 0
    assert "demo" in found.stdout
    code = (
        "import sys; from islands.cli.__main__ import parser; parser().format_help();"
        "sys.exit(any(name in sys.modules for name in ('jax', 'numpy', 'flax', 'numba')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_subcommands_help_names_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    """Each option is there with its default."""
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert "--tokens TOKENS" in told
    assert str(inspect.signature(demo.run).parameters["tokens"].default) in told
    assert "<function" not in told


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("demo", "--tokenz", "3"), "unrecognized arguments: --tokenz 3"),
        (("demo", "--tokens", "many"), "many"),
        (("dance",), "invalid choice: 'dance'"),
        ((), "command"),
    ],
)
def test_an_unknown_key_ends_with_a_sentence(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong is in the last line, the exit code is 2, and no traceback is shown."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert sentence in told.strip().splitlines()[-1]
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--tokens", "0", "islands: budget_tokens is 0; it must be at least 1"),
        ("--learners", "0", "islands: learners is 0; it must be at least 1, or unlike names"),
    ],
)
def test_a_wrong_value_ends_with_a_sentence(
    option: str, value: str, sentence: str, tmp_path: Path
) -> None:
    """A value that cannot work is refused by its name before anything starts."""
    found = answer("demo", option, value, cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr.strip() == sentence


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    """Whoever looks for a bug of ours sees where it was raised."""
    found = answer("--debug", "demo", "--tokens", "0", cwd=tmp_path)
    assert found.returncode == 1
    assert "Traceback" in found.stderr
    assert "SettingsError" in found.stderr
