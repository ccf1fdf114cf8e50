"""Fixtures of commands."""

from collections.abc import Callable
from pathlib import Path

import pytest

from islands.cli.__main__ import main


@pytest.fixture
def refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Give a command, in the test's folder, which has one sentence against it; returns that."""
    monkeypatch.chdir(tmp_path)

    def refused(*words: str) -> str:
        assert main([*words]) == 2
        told = capsys.readouterr()
        assert (told.out, told.err.count("\n")) == ("", 1)
        return told.err

    return refused
