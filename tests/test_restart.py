"""A run that is begun anew where another one was: what is moved away, and when."""

import shutil
from pathlib import Path

from islands.config import RunSettings
from islands.run_claim import set_aside
from islands.telemetry import GROWING, RunFolder


def files_in(folder: Path) -> list[str]:
    """Names of all files, with their folders."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_journal_on_a_volume_of_its_own_is_set_aside(tmp_path: Path) -> None:
    """Its files are moved, for a folder on which a volume is mounted cannot be."""
    folder, volume = tmp_path / "run", tmp_path / "volume"
    folder.mkdir()
    volume.mkdir()
    (folder / "journal").symlink_to(volume)
    (volume / "state.a").write_text("old")
    set_aside(folder)
    assert files_in(volume) == ["lock"]
    assert files_in(folder / "earlier") == ["1/journal/state.a"]
    assert (folder / "journal").is_symlink()


def test_runs_that_were_set_aside_may_be_deleted(tmp_path: Path) -> None:
    """The next one gets a number above those that are left, whichever they are."""
    for _ in range(3):
        set_aside(tmp_path)
    for number in "12":
        shutil.rmtree(tmp_path / "earlier" / number)
    (tmp_path / "earlier" / "notes").mkdir()
    set_aside(tmp_path)
    assert sorted(path.name for path in (tmp_path / "earlier").iterdir()) == ["3", "4", "notes"]


def test_what_a_run_wrote_is_not_continued_by_the_next(tmp_path: Path) -> None:
    """Neither tape nor figures nor curves of the last one are the new one's, nor missed by it."""
    said: list[str] = []
    for _ in range(2):
        (tmp_path / "metrics.1.jsonl").write_text("old\n")
        folder = RunFolder(tmp_path, RunSettings(), say=said.append)
        for at_s in (1.0, 2.0):
            folder.evaluation(at_s, 0.0, {"loss": 1.0})
            folder.write(at_s, "syncer", "started", {"epoch": 1})
        folder.close()
        assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
        set_aside(tmp_path)
    assert said == []
    assert not [name for name in (*GROWING, "metrics.1.jsonl") if (tmp_path / name).exists()]
    assert files_in(tmp_path / "tensorboard") == []
    kept = files_in(tmp_path / "earlier" / "2")
    assert {"figures.json", "metrics.1.jsonl", *GROWING} <= set(kept)
    assert any(name.startswith("tensorboard/run/") for name in kept)
