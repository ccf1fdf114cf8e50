"""Files of parameters: what one says of itself, how it is loaded, and what a run begins from."""

from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

import islands
from islands.layout.fragments import plan
from islands.layout.leaves import Layout, Leaf
from islands.protocol.errors import UserError
from islands.protocol.identities import FinalVersions, Version
from islands.protocol.settings.run import RunSettings
from islands.run.records.model_files import metadata_of, read_values, write_arrays, write_model
from islands.settings.run_spec import RunSpec

LAYOUT: Layout = plan(
    [Leaf("layers/0", (6, 4)), Leaf("scale", (), "bfloat16")], count=2, min_piece_bytes=4
)
SPEC = RunSpec(RunSettings(run="mine", seed=3), "mine:Task", {"width": 4})
CUT = FinalVersions("tokens", 1234, (Version(1, 5), Version(2, 6)))
LIKE = {"layers": [np.zeros((6, 4), np.float32)], "scale": jnp.bfloat16(0), "table": jnp.arange(3)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    values = [np.arange(f.size, dtype=np.float32) + 0.5 for f in LAYOUT.fragments]
    write_model(
        tmp_path / "final.safetensors", LAYOUT, values, metadata_of(SPEC, LAYOUT.fingerprint, CUT)
    )
    return tmp_path


def test_no_other_file_of_the_folder_is_touched(tmp_path: Path) -> None:
    mine = [tmp_path / name for name in ("final.new", "final.safetensors.new")]
    for path in mine:
        path.write_text("mine")
    write_arrays(tmp_path / "final.safetensors", {"w": np.zeros(2, np.float32)}, {})
    assert [path.read_text() for path in mine] == ["mine", "mine"]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_tree_like_the_tasks_own_is_filled(folder: Path) -> None:
    params = islands.load(folder, like=LIKE)
    assert params.keys() == LIKE.keys()
    assert params["scale"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(params["table"], [0, 1, 2])
    arrays = islands.load(folder / "final.safetensors")
    np.testing.assert_array_equal(params["layers"][0], arrays["layers/0"])
    assert set(arrays) == {"layers/0", "scale"}


def test_shapes_are_enough_for_what_the_file_holds(folder: Path) -> None:
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


@pytest.mark.parametrize(
    ("like", "sentence"),
    [
        ({"layers": [np.zeros((6, 4))]}, "it holds scale, which `like` has not"),
        ({"layers": [np.zeros((4, 6))], "scale": 0.0}, r"layers/0 is \[6, 4\], in `like` it is"),
    ],
)
def test_a_file_of_another_model_is_refused(folder: Path, like: object, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        islands.load(folder, like=like)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a run writes it when it ends or is stopped"):
        islands.load(tmp_path)
    path = tmp_path / "nowhere.safetensors"
    assert told(path) == f"there is no file {path} to start from"


START_LAYOUT: Layout = plan(
    [Leaf("embed", (6, 4)), Leaf("layers/0/w", (8, 4)), Leaf("scale", ())],
    count=2,
    min_piece_bytes=4,
)


def parameters() -> dict[str, NDArray[np.generic]]:
    rng = np.random.default_rng(0)
    return {
        leaf.path: np.asarray(rng.standard_normal(leaf.shape), np.float32)
        for leaf in START_LAYOUT.leaves
    }


def saved(folder: Path, arrays: Mapping[str, NDArray[np.generic]]) -> Path:
    path = folder / "start.safetensors"
    save_file(dict(arrays), path)
    return path


def told(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_values(path, START_LAYOUT)
    return str(caught.value)


def test_a_file_becomes_one_value_per_fragment(tmp_path: Path) -> None:
    wanted = parameters()
    values = read_values(saved(tmp_path, wanted), START_LAYOUT)
    assert [value.shape for value in values] == [(f.size,) for f in START_LAYOUT.fragments]
    for name, array in START_LAYOUT.assemble(values).items():
        np.testing.assert_array_equal(array, wanted[name])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_any_floating_type_is_converted(tmp_path: Path, dtype: type) -> None:
    arrays: dict[str, NDArray[np.generic]] = {
        name: array.astype(dtype) for name, array in parameters().items()
    }
    values = read_values(saved(tmp_path, arrays), START_LAYOUT)
    assert all(value.dtype == np.float32 for value in values)
    got = START_LAYOUT.assemble(values)["layers/0/w"]
    np.testing.assert_array_equal(got, arrays["layers/0/w"].astype(np.float32))


@pytest.mark.parametrize("content", [b"", b"not a tensor", b"\x10\0\0\0\0\0\0\0{}"])
def test_what_is_no_such_file_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "start.safetensors"
    path.write_bytes(content)
    assert "cannot be read: it is no .safetensors file" in told(path)


def test_missing_and_extra_tensors_are_listed(tmp_path: Path) -> None:
    arrays = parameters()
    del arrays["scale"]
    arrays |= {f"other/{index}": np.zeros(1, np.float32) for index in range(5)}
    sentence = told(saved(tmp_path, arrays))
    assert sentence.endswith(
        "is of another model: it lacks scale and holds other/0, other/1, other/2 and 2 more, "
        "which the model has not"
    )


def test_another_shape_is_told_with_both(tmp_path: Path) -> None:
    arrays = parameters() | {"layers/0/w": np.zeros((4, 8), np.float32)}
    assert told(saved(tmp_path, arrays)).endswith(
        "layers/0/w has shape (4, 8), the model's is (8, 4)"
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_what_is_not_finite_is_refused(tmp_path: Path, bad: float) -> None:
    """Also what would not be finite as float32."""
    arrays = parameters()
    arrays["embed"] = arrays["embed"].astype(np.float64)
    arrays["embed"][2, 3] = bad
    assert "embed holds numbers that are not finite" in told(saved(tmp_path, arrays))


def test_integers_are_no_parameters(tmp_path: Path) -> None:
    arrays = parameters() | {"embed": np.zeros((6, 4), np.int32)}
    assert told(saved(tmp_path, arrays)).endswith("embed is int32; parameters must be floating")
