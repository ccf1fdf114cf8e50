"""Version 0 from a file, checked against the run's layout."""

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from islands.layout.fragments import plan
from islands.layout.leaves import Layout, Leaf
from islands.protocol.errors import UserError
from islands.run.warm_start import read_values

LAYOUT: Layout = plan(
    [Leaf("embed", (6, 4)), Leaf("layers/0/w", (8, 4)), Leaf("scale", ())],
    count=2,
    min_piece_bytes=4,
)


def parameters() -> dict[str, NDArray[np.generic]]:
    """What fits the layout."""
    rng = np.random.default_rng(0)
    return {
        leaf.path: np.asarray(rng.standard_normal(leaf.shape), np.float32) for leaf in LAYOUT.leaves
    }


def saved(folder: Path, arrays: Mapping[str, NDArray[np.generic]]) -> Path:
    """A file that holds them."""
    path = folder / "start.safetensors"
    save_file(dict(arrays), path)
    return path


def told(path: Path) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises(UserError) as caught:
        read_values(path, LAYOUT)
    return str(caught.value)


def test_a_file_becomes_one_value_per_fragment(tmp_path: Path) -> None:
    """Put together again they are the same parameters, bit for bit."""
    wanted = parameters()
    values = read_values(saved(tmp_path, wanted), LAYOUT)
    assert [value.shape for value in values] == [(f.size,) for f in LAYOUT.fragments]
    for name, array in LAYOUT.assemble(values).items():
        np.testing.assert_array_equal(array, wanted[name])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_any_floating_type_is_converted(tmp_path: Path, dtype: type) -> None:
    """A checkpoint of another program need not be float32."""
    arrays: dict[str, NDArray[np.generic]] = {
        name: array.astype(dtype) for name, array in parameters().items()
    }
    values = read_values(saved(tmp_path, arrays), LAYOUT)
    assert all(value.dtype == np.float32 for value in values)
    got = LAYOUT.assemble(values)["layers/0/w"]
    np.testing.assert_array_equal(got, arrays["layers/0/w"].astype(np.float32))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """One sentence, no traceback of a library."""
    path = tmp_path / "nowhere.safetensors"
    assert told(path) == f"there is no file {path} to start from"


@pytest.mark.parametrize("content", [b"", b"not a tensor", b"\x10\0\0\0\0\0\0\0{}"])
def test_what_is_no_such_file_is_told(tmp_path: Path, content: bytes) -> None:
    """Empty, text, or cut off."""
    path = tmp_path / "start.safetensors"
    path.write_bytes(content)
    assert "is no .safetensors file" in told(path)


def test_missing_and_extra_tensors_are_listed(tmp_path: Path) -> None:
    """The first few of each, by name, and how many more."""
    arrays = parameters()
    del arrays["scale"]
    arrays |= {f"other/{index}": np.zeros(1, np.float32) for index in range(5)}
    sentence = told(saved(tmp_path, arrays))
    assert sentence.endswith(
        "is of another model: it lacks scale and holds other/0, other/1, other/2 and 2 more, "
        "which the model has not"
    )


def test_another_shape_is_told_with_both(tmp_path: Path) -> None:
    """The first difference in the order of the model."""
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
    """A file with the right names may still hold something else."""
    arrays = parameters() | {"embed": np.zeros((6, 4), np.int32)}
    assert told(saved(tmp_path, arrays)).endswith("embed is int32; parameters must be floating")
