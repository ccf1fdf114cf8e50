"""`islands init` writes a file that `islands run` understands."""

import sys
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.cli.parsing import parse
from islands.protocol.settings.presets import Preset
from islands.settings.host import RunOptions
from tests.run.hosting.test_process_runtime import Terminal


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(name: str = "run.yaml") -> RunOptions:
    return parse(RunOptions, [name], program="islands run")[0]


def test_options_become_a_file_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--preset", "diloco", "--learners", "0", "--tokens", "null", "--listen", "0.0.0.0:7"]
    assert main(["init", "my run.yaml", *words]) == 0
    options = written("my run.yaml")
    assert (options.file.preset, options.learners, options.listening.port) == (Preset.DILOCO, 0, 7)
    assert (options.file.run.budget_tokens, options.file.run.run) == (None, "run")
    assert options.connecting.token_file == Path("token")
    assert "islands run my run.yaml --dry-run" in capsys.readouterr().out
    assert main(["init", "my run.yaml"]) == 2
    assert "my run.yaml exists; name another file" in capsys.readouterr().err


def test_on_a_terminal_it_asks_until_an_answer_can_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("line\nline:Line\n-1\n2\n\n0.05\n\n"))
    assert main(["init"]) == 0
    options = written()
    assert (options.file.task, options.learners) == ("line:Line", 2)
    assert (options.file.run.budget_tokens, options.file.run.learning_rate) == (1_000_000, 0.05)
    told = capsys.readouterr().out
    assert "task is 'line'; it must be of the form package.module:Class" in told
    assert "learners is -1; it must be at least 0" in told


def test_questions_without_an_answer_write_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("line:Line\n"))
    assert main(["init"]) == 2
    assert "not all was answered, so nothing was written" in capsys.readouterr().err
    assert not list(Path().iterdir())
