"""Files that a power loss damaged, and where a run's key is kept."""

from pathlib import Path

import numpy as np
import pytest

from islands.run.hosting.process_runtime import key_file_of
from islands.run.records.model_files import load_model
from islands.run.records.run_values import mend_final, newest_values
from islands.settings.groups import ConnectOptions
from tests.cli.run_folders import KilledRun


@pytest.mark.parametrize("left", [None, b"", b"\0" * 4096, b"half"])
def test_a_damaged_final_file_is_written_again_from_the_journal(
    tmp_path: Path, left: bytes | None
) -> None:
    """Whatever a power loss left of it; one that can be read stays as it is."""
    run = KilledRun(tmp_path)
    for fragment in run.plan.layout.fragments:
        run.publish(fragment.index, 1, np.full(fragment.size, 0.5, np.float32))
    file = tmp_path / "final.safetensors"
    if left is not None:
        file.write_bytes(left)
    assert mend_final(tmp_path)
    found, wanted = load_model(file), newest_values(tmp_path).arrays
    assert {name: x.tolist() for name, x in found.items()} == {
        name: x.tolist() for name, x in wanted.items()
    }
    before = file.stat().st_mtime_ns
    assert not mend_final(tmp_path)
    assert file.stat().st_mtime_ns == before


def test_the_key_is_beside_the_token_so_that_it_outlives_the_folder(tmp_path: Path) -> None:
    """Unless the run's folder has one, or there is no file of a token to lie beside."""
    folder, token = tmp_path / "run", tmp_path / "secrets" / "token"
    token.parent.mkdir()
    folder.mkdir()
    beside = token.with_name("token.key")
    assert key_file_of(folder, ConnectOptions(token_file=token)) == beside
    assert key_file_of(folder, ConnectOptions()) == folder / "key"
    inside = ConnectOptions(token_file=folder / "token")
    assert key_file_of(folder, inside) == folder / "key"
    assert key_file_of(folder, inside, tmp_path / "named") == tmp_path / "named"
    (folder / "key").write_text("of a run that was begun before")
    assert key_file_of(folder, ConnectOptions(token_file=token)) == folder / "key"
