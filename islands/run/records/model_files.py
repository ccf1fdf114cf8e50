"""Files of parameters: tensors by their paths, and metadata that describes the run.

Metadata are strings, as the format requires; those in `AS_JSON` are JSON. A run begins from such a
file (`--start_from`), or from any other with the same names and shapes. Tensors are read one after
another, so a large file is not in memory twice.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.files.run_files import FINAL_FILE
from islands.files.tensor_files import DTYPES, Dtype, start_of_file
from islands.files.whole_files import atomic_write, open_plain
from islands.layout.leaves import MOMENTS_PREFIX, STATE_PREFIX, Layout
from islands.protocol.errors import DiskError, UserError
from islands.protocol.identities import FinalVersions
from islands.settings.run_spec import RunSpec

if TYPE_CHECKING:
    from jaxtyping import PyTree


FLOAT32 = DTYPES["F32"]
FLOATS = ("float16", "bfloat16", "float32", "float64")
NAMES_TOLD = 3
NOT_WRITTEN = "; a run writes it when it ends or is stopped"
AS_JSON = frozenset(("task_settings", "settings", "versions", "tokens"))


def metadata_of(spec: RunSpec, fingerprint: str, cut: FinalVersions) -> dict[str, str]:
    """Make the metadata of a file of parameters; the fingerprint is that of their layout."""
    settings = msgspec.to_builtins(spec.settings)
    return {
        "format": "np",
        "run": spec.settings.run,
        "task": spec.task,
        "task_settings": json.dumps(spec.task_settings, sort_keys=True),
        "settings": json.dumps(settings, sort_keys=True),
        "tokens": str(cut.tokens),
        "versions": json.dumps([str(version) for version in cut.versions]),
        "reason": cut.reason,
        "fingerprint": fingerprint,
    }


def write_model(
    path: Path, layout: Layout, values: list[NDArray[np.float32]], metadata: dict[str, str]
) -> None:
    """Replace a file by one that holds these values as float32 tensors by their paths."""
    tensors = {leaf.path: (FLOAT32, leaf.shape) for leaf in layout.leaves if _shown(leaf.path)}
    arrays = (array for leaf, array in layout.assembled(values) if _shown(leaf.path))
    _write(path, tensors, arrays, metadata)


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: dict[str, str]) -> None:
    """Replace a file by one that holds these tensors by their paths."""
    tensors = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    _write(path, tensors, arrays.values(), metadata)


def _shown(name: str) -> bool:
    return not name.startswith(MOMENTS_PREFIX)


def _write(
    path: Path,
    tensors: Mapping[str, tuple[Dtype, tuple[int, ...]]],
    arrays: Iterable[NDArray[Any]],
    metadata: dict[str, str],
) -> None:
    """Write tensors as they come, in this order, so that not all are in memory."""
    start = start_of_file(metadata, ((name, *about) for name, about in tensors.items()))
    try:
        with atomic_write(path) as file:
            file.write(start)
            for (dtype, _), array in zip(tensors.values(), arrays, strict=True):
                file.write(np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data)
    except OSError as error:
        raise DiskError(f"{path} cannot be written: {error}") from error


def described(path: Path | str) -> dict[str, object]:
    """Return the metadata of a file of parameters, with JSON decoded."""
    with _opened(_file(path), NOT_WRITTEN) as file:
        metadata = file.metadata() or {}
    return {key: json.loads(text) if key in AS_JSON else text for key, text in metadata.items()}


def load_model(path: Path | str, like: "PyTree" = None) -> "PyTree":
    """Load the parameters of a file.

    Args:
        path: the file, or the folder of a run.
        like: a tree of parameters, or of their shapes, as the task's `init` gives it; or a whole
            `TaskState`. Leaves that the file lacks, since they are frozen or each learner's own,
            are kept. None: a dictionary by path is returned.

    Returns:
        Arrays with the types of `like`, in the same tree; without it, float32 arrays by path, where
        the paths of the state's leaves begin with `state:`.
    """
    with _opened(_file(path), NOT_WRITTEN) as file:
        arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
    if like is None:
        return arrays
    from islands.tasks.task import TaskState

    file_path = _file(path)
    params = {name: x for name, x in arrays.items() if not name.startswith(STATE_PREFIX)}
    if not isinstance(like, TaskState):
        return _filled(params, like, file_path)
    state = {name.removeprefix(STATE_PREFIX): x for name, x in arrays.items() if name not in params}
    return TaskState(_filled(params, like.params, file_path), _filled(state, like.state, file_path))


def _filled(arrays: Mapping[str, NDArray[np.generic]], like: "PyTree", path: Path) -> "PyTree":
    import jax
    import jax.numpy as jnp

    from islands.tasks.task import path_of

    flat, tree = jax.tree_util.tree_flatten_with_path(like)
    names = [path_of(keys) for keys, _ in flat]
    extra = [name for name in arrays if name not in names]
    if extra:
        raise UserError(f"{path} is of another model: it holds {extra[0]}, which `like` has not")
    leaves = []
    for name, (_, leaf) in zip(names, flat, strict=True):
        if name not in arrays:
            if isinstance(leaf, jax.ShapeDtypeStruct):
                raise UserError(
                    f"{path} lacks {name}, and `like` has only its shape; give its value there"
                )
            leaves.append(leaf)
            continue
        array, shape = arrays[name], tuple(jnp.shape(leaf))
        if array.shape != shape:
            raise UserError(f"{path}: {name} is {list(array.shape)}, in `like` it is {list(shape)}")
        leaves.append(jnp.asarray(array, dtype=jnp.result_type(leaf)))
    return jax.tree.unflatten(tree, leaves)


def read_values(path: Path, layout: Layout) -> list[NDArray[np.float32]]:
    """Read the values of all fragments of a layout, in order; any floating type is converted."""
    with _opened(path, " to start from") as file:
        return fitted(file.keys(), file.get_tensor, layout, path)


def fitted(
    held: Iterable[str], tensor: Callable[[str], NDArray[np.generic]], layout: Layout, path: Path
) -> list[NDArray[np.float32]]:
    """Convert parameters by path to one flat value per fragment, if they are of this layout.

    `tensor` gives the parameter of a path, once; any floating type is converted.
    """
    wanted, names = {leaf.path: leaf.shape for leaf in layout.leaves}, set(held)
    at_rest = [name for name in wanted if name.startswith(MOMENTS_PREFIX) and name not in names]
    missing = [name for name in wanted if name not in names and name not in at_rest]
    extra = [name for name in sorted(names) if name not in wanted]
    if missing or extra:
        faults = [f"lacks {_some(missing)}"] if missing else []
        faults += [f"holds {_some(extra)}, which the model has not"] if extra else []
        raise UserError(f"{path} is of another model: it {' and '.join(faults)}")

    def leaves() -> Iterator[NDArray[np.float32]]:
        for name, shape in wanted.items():
            yield np.zeros(shape, np.float32) if name in at_rest else _leaf(name, shape)

    def _leaf(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        array = tensor(name)
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


def _some(names: list[str]) -> str:
    rest = len(names) - NAMES_TOLD
    return ", ".join(names[:NAMES_TOLD]) + (f" and {rest} more" if rest > 0 else "")


def _file(path: Path | str) -> Path:
    file = Path(path)
    return file / FINAL_FILE if file.is_dir() else file


class _File(Protocol):
    """An open file of tensors, as the package safetensors has it."""

    def metadata(self) -> dict[str, str] | None: ...

    def keys(self) -> list[str]: ...

    def get_tensor(self, name: str) -> NDArray[np.generic]: ...


@contextmanager
def _opened(path: Path, if_missing: str) -> Iterator["_File"]:
    """Open a file of tensors; if that or reading fails, raise an error of one sentence."""
    import ml_dtypes  # noqa: F401  NumPy then knows bfloat16
    from safetensors import SafetensorError, safe_open

    try:
        open_plain(path).close()
        with safe_open(path, framework="np") as file:
            yield file
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}{if_missing}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} cannot be read: it is no .safetensors file ({error})") from error
