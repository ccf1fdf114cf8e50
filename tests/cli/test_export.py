"""`islands model export`: one file of a run's newest values, without the run's task."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import islands
from islands.cli.__main__ import main
from islands.settings.run_spec import write
from tests.cli.run_folders import SPEC, WIDTH, KilledRun

WEIGHT = np.arange(WIDTH * WIDTH, dtype=np.float32).reshape(WIDTH, WIDTH)


@pytest.fixture
def killed(tmp_path: Path) -> KilledRun:
    run = KilledRun(tmp_path / "run")
    run.durable.ledger.closed_processed = 4321
    run.publish_all(3, {"weight": WEIGHT})
    write(run.folder, replace(SPEC, task="no_such_module:Task"), run.plan)
    return run


def test_the_file_holds_the_values_and_what_they_are(
    killed: KilledRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`islands.load` reads it, and `islands.described` says of which run it is."""
    file = tmp_path / "model.safetensors"
    assert main(["model", "export", str(killed.folder), str(file)]) == 0
    size = f"{file.stat().st_size / 1024:.0f} KiB"
    told = f"tensors: 1, {size}, versions 1.3 to 1.3, after 4,321 tokens"
    assert told in capsys.readouterr().out
    np.testing.assert_array_equal(islands.load(file)["weight"], WEIGHT)
    facts = islands.described(file)
    assert (facts["run"], facts["task"], facts["tokens"]) == ("mine", "no_such_module:Task", 4321)
    assert facts["versions"] == ["1.3", "1.3"]
    assert facts["fingerprint"] == killed.plan.layout.fingerprint
    assert sorted(tmp_path.iterdir()) == [file, killed.folder]


def test_a_file_that_exists_stays(
    killed: KilledRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"mine")
    assert main(["model", "export", str(killed.folder), str(file)]) == 2
    assert "exists; choose another name, or give --overwrite" in capsys.readouterr().err
    assert file.read_bytes() == b"mine"
    assert main(["model", "export", str(killed.folder), str(file), "--overwrite"]) == 0
    np.testing.assert_array_equal(islands.load(file)["weight"], WEIGHT)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "folder is not set"),
        (("x",), "file is not set; it must be a .safetensors file"),
        (("x", "y.npz"), "file is y.npz; it must be a .safetensors file"),
        (("x", "y.safetensors"), "there is no folder x"),
        (("x", "none/y.safetensors"), "there is no folder none"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert sentence in refused("model", "export", *arguments)
    assert list(tmp_path.iterdir()) == []
