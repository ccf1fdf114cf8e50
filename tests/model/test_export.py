"""The file of parameters that a run leaves behind: what it says of itself, and how it is loaded."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import islands
from islands.layout.fragments import plan
from islands.layout.leaves import Layout, Leaf
from islands.protocol.errors import UserError
from islands.protocol.identities import FinalVersions, Version
from islands.protocol.settings.run import RunSettings
from islands.run.records.export import metadata_of, write_arrays, write_model
from islands.run.warm_start import read_values
from islands.settings.run_spec import RunSpec

LAYOUT: Layout = plan(
    [Leaf("layers/0", (6, 4)), Leaf("scale", (), "bfloat16")], count=2, min_piece_bytes=4
)
SPEC = RunSpec(RunSettings(run="mine", seed=3), "mine:Task", {"width": 4})
CUT = FinalVersions("tokens", 1234, (Version(1, 5), Version(2, 6)))
LIKE = {"layers": [np.zeros((6, 4), np.float32)], "scale": jnp.bfloat16(0), "table": jnp.arange(3)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder with a model in it."""
    values = [np.arange(f.size, dtype=np.float32) + 0.5 for f in LAYOUT.fragments]
    write_model(
        tmp_path / "final.safetensors", LAYOUT, values, metadata_of(SPEC, LAYOUT.fingerprint, CUT)
    )
    return tmp_path


def test_no_other_file_of_the_folder_is_touched(tmp_path: Path) -> None:
    """The new file is made under a hidden name, whatever the user's own files are called."""
    mine = [tmp_path / name for name in ("final.new", "final.safetensors.new")]
    for path in mine:
        path.write_text("mine")
    write_arrays(tmp_path / "final.safetensors", {"w": np.zeros(2, np.float32)}, {})
    assert [path.read_text() for path in mine] == ["mine", "mine"]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_tree_like_the_tasks_own_is_filled(folder: Path) -> None:
    """Leaves keep their types; those that are frozen, and not in the file, are kept."""
    params = islands.load(folder, like=LIKE)
    assert params.keys() == LIKE.keys()
    assert params["scale"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(params["table"], [0, 1, 2])
    arrays = islands.load(folder / "final.safetensors")
    np.testing.assert_array_equal(params["layers"][0], arrays["layers/0"])
    assert set(arrays) == {"layers/0", "scale"}


def test_shapes_are_enough_for_what_the_file_holds(folder: Path) -> None:
    """Nobody has to compute initial values to load trained ones."""
    shapes = jax.eval_shape(lambda: {"layers": [jnp.zeros((6, 4))], "scale": jnp.bfloat16(0)})
    assert islands.load(folder, like=shapes)["layers"][0].shape == (6, 4)
    with pytest.raises(UserError, match="lacks table, and `like` has only its shape"):
        islands.load(folder, like={**shapes, "table": jax.ShapeDtypeStruct((3,), jnp.int32)})  # type: ignore[no-untyped-call]  # untyped in JAX


def test_the_file_says_what_it_is(folder: Path) -> None:
    """Run, task, settings, tokens and versions, as one would ask for them later."""
    told = islands.described(folder)
    assert (told["run"], told["task"], told["tokens"]) == ("mine", "mine:Task", 1234)
    assert told["task_settings"] == {"width": 4}
    assert told["versions"] == ["1.5", "2.6"]
    assert told["reason"] == "tokens"
    settings = told["settings"]
    assert isinstance(settings, dict)
    assert settings["seed"] == 3


def test_another_run_starts_from_it(folder: Path) -> None:
    """What is beside the tensors does not disturb."""
    values = read_values(folder / "final.safetensors", LAYOUT)
    assert [value[0] for value in values] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("like", "sentence"),
    [
        ({"layers": [np.zeros((6, 4))]}, "it holds scale, which `like` has not"),
        ({"layers": [np.zeros((4, 6))], "scale": 0.0}, r"layers/0 is \[6, 4\], in `like` it is"),
    ],
)
def test_a_file_of_another_model_is_refused(folder: Path, like: object, sentence: str) -> None:
    """The first difference is named."""
    with pytest.raises(UserError, match=sentence):
        islands.load(folder, like=like)


def test_a_file_that_is_not_there_or_none_is_told(tmp_path: Path) -> None:
    """In one sentence, not in those of a library."""
    with pytest.raises(UserError, match="a run writes it when it ends or is stopped"):
        islands.load(tmp_path)
    (tmp_path / "final.safetensors").write_bytes(b"none")
    with pytest.raises(UserError, match="cannot be read"):
        islands.described(tmp_path)
