"""Other forms of a run's values: another type, a folder of files, a checkpoint of Orbax.

FOLDER/encoder.safetensors             what is under one key of the model's tree
state.safetensors               what the model keeps beside its parameters
model.safetensors.index.json    which file holds which tensor
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.files.folder_lock import make_private
from islands.files.whole_files import flush, replace_file
from islands.layout.leaves import MOMENTS_PREFIX, STATE_PREFIX, Layout
from islands.protocol.errors import UserError, unusable
from islands.run.records.model_files import write_arrays
from islands.settings.commands import ExportType

INDEX = "model.safetensors.index.json"

Arrays = Mapping[str, NDArray[Any]]


def converted(arrays: Arrays, dtype: ExportType, layout: Layout | None) -> dict[str, NDArray[Any]]:
    """Return parameters and state, without moments, in a type, which they must not exceed."""
    if dtype is ExportType.MODEL and layout is None:
        raise UserError("dtype is model, and no plan.json is there to tell it; name a type")
    own = {} if layout is None else {leaf.path: leaf.dtype for leaf in layout.leaves}
    found = {}
    for name, array in arrays.items():
        if name.startswith(MOMENTS_PREFIX):
            continue
        to = own[name] if dtype is ExportType.MODEL else dtype.value
        with np.errstate(over="ignore"):
            found[name] = array.astype(to)
        if not np.isfinite(found[name]).all() and np.isfinite(array).all():
            raise UserError(f"{name} holds {abs(array).max():g}, which {to} cannot hold")
    return found


def write_folder(path: Path, arrays: Arrays, metadata: dict[str, str]) -> None:
    """Make a folder of one file for each key at the top of the model's tree, and an index."""
    files: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        top = "state" if name.startswith(STATE_PREFIX) else name.partition("/")[0] or "model"
        files.setdefault(f"{top}.safetensors", {})[name] = array
    index = {
        "metadata": {"total_size": sum(array.nbytes for array in arrays.values())},
        "weight_map": {name: file for file, held in files.items() for name in held},
    }
    fresh = path.with_name(f".{path.name}.new")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        make_private(fresh)
        for file, held in files.items():
            write_arrays(fresh / file, held, metadata)
        replace_file(fresh / INDEX, msgspec.json.format(msgspec.json.encode(index)))
        fresh.rename(path)
        flush(path.parent)
    except OSError as error:
        raise unusable(f"{path} cannot be written", error) from error


def write_orbax(path: Path, arrays: Arrays, metadata: dict[str, str]) -> None:
    """Save parameters as nested dictionaries, under `params` beside `state` if there is a state."""
    import orbax.checkpoint

    held = [name.startswith(STATE_PREFIX) for name in arrays]
    tree: dict[str, Any] = {}
    for (name, array), is_state in zip(arrays.items(), held, strict=True):
        top = [] if not any(held) else ["state" if is_state else "params"]
        *above, last = [*top, *name.removeprefix(STATE_PREFIX).split("/")]
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = array
    try:
        with orbax.checkpoint.StandardCheckpointer() as saver:
            saver.save(path.absolute(), tree, custom_metadata=metadata)
    except OSError as error:
        raise unusable(f"{path} cannot be written", error) from error
