"""Read version 0 from a .safetensors of parameters by path, checked against the run's layout.

    values = read_values(Path("final.safetensors"), layout)     # one flat float32 per fragment

Every run exports such a file when it ends; any other with the same names and shapes will do. A
file that does not fit is refused in one sentence that names the first difference.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from islands.errors import UserError
from islands.layout.leaves import MOMENTS_PREFIX, Layout

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
    return fitted(_load(path), layout, path)


def fitted(
    arrays: Mapping[str, NDArray[np.generic]], layout: Layout, path: Path
) -> list[NDArray[np.float32]]:
    """Convert parameters by path to one flat value per fragment, if they are of this layout.

    Args:
        arrays: the parameters; any floating type is converted.
        layout: must have their names and shapes.
        path: where they are from, for the error's sentence.

    Raises:
        UserError: they are of another model, or hold numbers that are not finite.
    """
    found: dict[str, NDArray[np.generic]] = {}
    moments = [leaf for leaf in layout.leaves if leaf.path.startswith(MOMENTS_PREFIX)]
    at_rest = {leaf.path: np.zeros(leaf.shape, np.float32) for leaf in moments}
    arrays = {**at_rest, **arrays}
    wanted = {leaf.path: leaf.shape for leaf in layout.leaves}
    missing = [name for name in wanted if name not in arrays]
    extra = [name for name in sorted(arrays) if name not in wanted]
    if missing or extra:
        told = [f"lacks {_some(missing)}"] if missing else []
        told += [f"holds {_some(extra)}, which the model has not"] if extra else []
        raise UserError(f"{path} is of another model: it {' and '.join(told)}")
    for name, shape in wanted.items():
        array = arrays[name]
        if array.shape != shape:
            raise UserError(
                f"{path} is of another model: {name} has shape {array.shape}, the model's is "
                f"{shape}"
            )
        if array.dtype.name not in FLOATS:
            raise UserError(f"{path}: {name} is {array.dtype.name}; parameters must be floating")
        with np.errstate(over="ignore"):  # too large a number becomes infinite and is refused
            found[name] = converted = array.astype(np.float32)
        if not np.isfinite(converted).all():
            raise UserError(f"{path}: {name} holds numbers that are not finite")
    return layout.disassemble(found)


def _load(path: Path) -> dict[str, NDArray[np.generic]]:
    import ml_dtypes  # noqa: F401  NumPy then knows bfloat16
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path} to start from") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is no .safetensors file that can be read here: {error}") from error


def _some(names: list[str]) -> str:
    rest = len(names) - NAMES_TOLD
    return ", ".join(names[:NAMES_TOLD]) + (f" and {rest} more" if rest > 0 else "")
