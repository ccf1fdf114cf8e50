"""A folder that somebody else made ends no reader in a traceback, and makes none wait."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from islands.cli.__main__ import main
from islands.files.whole_files import open_plain, read_plain
from tests.page.run_folder import make_run

LIMIT_S = 60
LEAST = 4


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def deep(path: Path) -> None:
    """JSON that is nested deeper than any parser goes."""
    path.write_bytes(b"[" * 100_000)


def wrong(path: Path) -> None:
    """JSON of the right names and the wrong types."""
    path.write_bytes(b'{"t": [], "kind": {}, "name": 3, "settings": [], "tokens": "x"}\n')


def noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 64 + b"\n")


def test_a_regular_file_is_read_and_a_pipe_is_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    assert read_plain(tmp_path / "file") == b"text"
    pipe(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is no regular file"):
        open_plain(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        open_plain(tmp_path / "none")


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("words", ["report", "plot", "cost"])
@pytest.mark.parametrize("make", [pipe, folder, deep, wrong, noise])
def test_a_hostile_file_ends_a_command_with_a_sentence_at_most(
    make: Callable[[Path], None], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = make_run(tmp_path / "good", 10)
    names = [path.name for path in good.iterdir() if path.is_file()]
    assert len(names) > LEAST
    for index, spoiled in enumerate([*([name] for name in names), names]):
        run = shutil.copytree(good, tmp_path / f"run-{index}")
        for name in spoiled:
            (run / name).unlink()
            make(run / name)
        out = [] if words == "cost" else ["--out", str(run / "told")]
        code = main([words, str(run), *out])
        told = capsys.readouterr().err
        assert code in (0, 1, 2), (spoiled, told)
        assert "Traceback" not in told, (spoiled, told)
