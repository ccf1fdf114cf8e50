"""The newest values of a run, also where a power loss damaged what it exported."""

from pathlib import Path

import numpy as np
import pytest

from islands.run.records.model_files import load_model
from islands.run.records.run_values import mend_final, newest_values
from tests.cli.run_folders import KilledRun


@pytest.mark.parametrize("left", [None, b"", b"\0" * 4096, b"half"])
def test_a_damaged_final_file_is_written_again_from_the_journal(
    tmp_path: Path, left: bytes | None
) -> None:
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
