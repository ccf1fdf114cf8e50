"""Read version 0 from a .safetensors of parameters by path, checked against the run's layout.

    values = read_values(Path("final.safetensors"), layout)     # one flat float32 per fragment

Every run exports such a file when it ends; any other with the same names and shapes will do. A
file that does not fit is refused in one sentence that names the first difference. Tensors are read
one after another, so a large file is not in memory twice.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import MOMENTS_PREFIX, Layout
from islands.protocol.errors import UserError

FLOATS = ("float16", "bfloat16", "float32", "float64")
NAMES_TOLD = 3


def read_values(path: Path, layout: Layout) -> list[NDArray[np.float32]]:
    """Read the values of all fragments, in order.

    Args:
        path: the .safetensors file.
        layout: the run's layout; the file must have its names and shapes. Any floating type is
            converted.

    Raises:
        UserError: the file is missing, damaged or of another model, or holds numbers that are not
            finite.
    """
    with _opened(path) as tensors:
        return fitted(tensors, layout, path)


def fitted(
    arrays: Mapping[str, NDArray[np.generic]], layout: Layout, path: Path
) -> list[NDArray[np.float32]]:
    """Convert parameters by path to one flat value per fragment, if they are of this layout.

    Args:
        arrays: the parameters, each taken once; any floating type is converted.
        layout: must have their names and shapes.
        path: where they are from, for the error's sentence.

    Raises:
        UserError: they are of another model, or hold numbers that are not finite.
    """
    wanted = {leaf.path: leaf.shape for leaf in layout.leaves}
    at_rest = [name for name in wanted if name.startswith(MOMENTS_PREFIX) and name not in arrays]
    missing = [name for name in wanted if name not in arrays and name not in at_rest]
    extra = [name for name in sorted(arrays) if name not in wanted]
    if missing or extra:
        told = [f"lacks {_some(missing)}"] if missing else []
        told += [f"holds {_some(extra)}, which the model has not"] if extra else []
        raise UserError(f"{path} is of another model: it {' and '.join(told)}")

    def leaves() -> Iterator[NDArray[np.float32]]:
        for name, shape in wanted.items():
            yield np.zeros(shape, np.float32) if name in at_rest else _leaf(name, shape)

    def _leaf(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        array = arrays[name]
        if array.shape != shape:
            raise UserError(
                f"{path} is of another model: {name} has shape {array.shape}, the model's is "
                f"{shape}"
            )
        if array.dtype.name not in FLOATS:
            raise UserError(f"{path}: {name} is {array.dtype.name}; parameters must be floating")
        with np.errstate(over="ignore"):  # too large a number becomes infinite and is refused
            converted = array.astype(np.float32, copy=False)
        if not np.isfinite(converted).all():
            raise UserError(f"{path}: {name} holds numbers that are not finite")
        return converted

    return layout.flattened(leaves())


class _Tensors(Mapping[str, NDArray[np.generic]]):
    """The tensors of an open file, each read when it is asked for."""

    def __init__(self, file: "_File") -> None:
        self._file = file
        self._names = dict.fromkeys(sorted(file.keys()))

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        """Read a tensor."""
        return self._file.get_tensor(name)

    def __contains__(self, name: object) -> bool:
        """Whether the file holds a tensor, which need not be read for it."""
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._names)


class _File(Protocol):
    """An open file of tensors."""

    def keys(self) -> list[str]:
        """Return the names of the tensors."""

    def get_tensor(self, name: str) -> NDArray[np.generic]:
        """Read a tensor."""


@contextmanager
def _opened(path: Path) -> Iterator[_Tensors]:
    import ml_dtypes  # noqa: F401  NumPy then knows bfloat16
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            yield _Tensors(file)
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path} to start from") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is no .safetensors file that can be read here: {error}") from error


def _some(names: list[str]) -> str:
    rest = len(names) - NAMES_TOLD
    return ", ".join(names[:NAMES_TOLD]) + (f" and {rest} more" if rest > 0 else "")
