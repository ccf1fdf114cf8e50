"""What a run needs in order to go on is written again if somebody deletes its folder."""

import shutil
from pathlib import Path

from islands.run.run_claim import BEGINNING, kept_files, restore_files


def test_files_that_are_gone_are_written_again_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in BEGINNING[:-1]:
        (folder / name).write_text(name)
    kept = kept_files(folder)
    assert restore_files(kept) == []
    shutil.rmtree(folder)
    assert restore_files(kept) == [*BEGINNING[:-1]]
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        name: name for name in BEGINNING[:-1]
    }
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    (folder / BEGINNING[0]).write_text("newer")
    (folder / BEGINNING[1]).unlink()
    assert restore_files(kept) == [BEGINNING[1]]
    assert (folder / BEGINNING[0]).read_text() == "newer"
