"""Which tensors of a user's model are trained, as a hub has to know them.

A path joins the keys of a tree by `/`, as do the names of a PyTorch module. Equal paths and shapes
are all that loops of different frameworks need in common.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from importlib import import_module
from inspect import isroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from islands.layout.layout_file import SHARDS, write_leaves
from islands.layout.leaves import Leaf, Role, default_role
from islands.protocol.errors import TaskError
from islands.tasks.source_location import task_error

if TYPE_CHECKING:
    from jaxtyping import PyTree

PathTest = Callable[[str], bool]


def write_layout(
    file: Path | str,
    params: "PyTree",
    *,
    trainable: PathTest = lambda _: True,
    stacked: PathTest = lambda _: False,
    role: Callable[[str], Role] = default_role,
    records: int = 0,
    shards: int = SHARDS,
) -> list[Leaf]:
    """Write the file by which a hub plans a run of loops of one's own.

    Args:
        file: the file to write.
        params: a tree of arrays or of their shapes, a PyTorch module, or a function that returns
            one; a function of JAX is only traced.
        trainable: whether the leaf at a path is trained and merged.
        stacked: whether the leaf at a path holds all layers, stacked along its first axis.
        role: how the leaf at a path is merged.
        records: number of records of the data, if the syncer leases them (`JoinedRun.batches`).
        shards: number of shards in which they are leased; each must have room for a batch.

    Returns:
        The leaves, as the file has them.

    Raises:
        TaskError: a leaf is no floating array, or nothing is trained.
        SettingsError: there are shards without a record.
        UserError: the file cannot be written.
    """
    leaves = leaves_of(params, trainable=trainable, stacked=stacked, role=role)
    write_leaves(Path(file), leaves, records=records, shards=shards)
    return leaves


def leaves_of(
    params: "PyTree",
    *,
    trainable: PathTest = lambda _: True,
    stacked: PathTest = lambda _: False,
    role: Callable[[str], Role] = default_role,
    rename: Mapping[str, str] | None = None,
    transposed: Collection[str] = (),
) -> list[Leaf]:
    """Return the leaves that a run has to plan for.

    Args:
        params: see `write_layout`, as are the arguments that follow.
        rename: path in the run by path in `params`, where both differ.
        transposed: paths of the matrices that the run holds transposed.

    Raises:
        TaskError: a leaf is no floating array, or nothing is trained.
    """
    leaves = []
    for path, shape, dtype in _tensors(params, trainable):
        stack = shape[0] if stacked(path) and shape else 1
        told = shape[::-1] if path in transposed else shape
        name = (rename or {}).get(path, path)
        leaves.append(Leaf(name, told, dtype, role(name), stack))
    if not leaves:
        raise TaskError("nothing is trained: the parameters have no leaf, or trainable has none")
    for leaf in leaves:
        if not leaf.dtype.startswith(("float", "bfloat")):
            raise TaskError(
                f"{leaf.path} is {leaf.dtype}: only floating leaves are trained; trainable tells "
                "which they are"
            )
    return leaves


def parameters_named(name: str) -> object:
    """Import the parameters that are named as `package.module:name`.

    Raises:
        TaskError: there is no such module or name, or its import fails.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # the user's own code may raise anything
        raise task_error(error, f"{name} cannot be imported") from error


def _tensors(
    params: Any,  # noqa: ANN401  a tree, a module or a function of the user's
    trainable: PathTest,
) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Yield path, shape and dtype of each leaf that is trained."""
    if isroutine(params) or isinstance(params, type | partial):
        yield from _tensors(_called(params), trainable)
        return
    if hasattr(params, "named_parameters"):
        for name, tensor in params.named_parameters():
            path = name.replace(".", "/")
            if tensor.requires_grad and trainable(path):
                yield path, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        return
    import jax

    from islands.tasks.task import path_of

    for keys, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        path = path_of(keys)
        if not trainable(path):
            continue
        if not hasattr(leaf, "shape"):
            raise TaskError(f"{path} is a {type(leaf).__name__}, and no array")
        yield path, tuple(leaf.shape), str(leaf.dtype)


def _called(function: Callable[[], Any]) -> Any:  # noqa: ANN401  as above
    """Return what a function returns: its shapes, if JAX can trace it."""
    try:
        import jax

        return jax.eval_shape(function)
    except (ImportError, TypeError):  # PyTorch's modules are no arrays that JAX knows
        return function()
