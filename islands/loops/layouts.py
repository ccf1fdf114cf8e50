"""Which tensors of a user's model are trained, as a hub has to know them.

A path joins the keys of a tree by `/`, as do the names of a PyTorch module. Equal paths and shapes
are all that loops of different frameworks need in common.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from islands.layout.leaves import Leaf, default_role
from islands.layout.loop_layout import SHARDS, LoopLayout
from islands.protocol.errors import TaskError

if TYPE_CHECKING:
    from jaxtyping import PyTree

PathTest = Callable[[str], bool]


def layout_of(
    params: "PyTree",
    *,
    trainable: PathTest = lambda _: True,
    stacked: PathTest = lambda _: False,
    rename: Mapping[str, str] | None = None,
    transposed: Collection[str] = (),
    records: int = 0,
    shards: int = SHARDS,
) -> LoopLayout:
    """Return what a run has to plan for.

    Args:
        params: a tree of arrays or of their shapes, or a PyTorch module.
        trainable: whether the leaf at a path is trained and merged.
        stacked: whether the leaf at a path holds all layers, stacked along its first axis.
        rename: path in the run by path in `params`, where both differ.
        transposed: paths of the matrices that the run holds transposed.
        records: number of records of the data, if the syncer leases them (`JoinedRun.batches`).
        shards: number of shards in which they are leased; each must have room for a batch.

    Raises:
        TaskError: a leaf is no floating array, or nothing is trained.
        SettingsError: there are shards without a record.
    """
    leaves = []
    for path, shape, dtype in _tensors(params, trainable):
        stack = shape[0] if stacked(path) and shape else 1
        told = shape[::-1] if path in transposed else shape
        name = (rename or {}).get(path, path)
        leaves.append(Leaf(name, told, dtype, default_role(name), stack))
    if not leaves:
        raise TaskError("nothing is trained: the parameters have no leaf, or trainable has none")
    for leaf in leaves:
        if not leaf.dtype.startswith(("float", "bfloat")):
            raise TaskError(
                f"{leaf.path} is {leaf.dtype}: only floating leaves are trained; trainable tells "
                "which they are"
            )
    return LoopLayout(tuple(leaves), records, shards)


def _tensors(
    params: Any,  # noqa: ANN401  a tree or a module of the user's
    trainable: PathTest,
) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Yield path, shape and dtype of each leaf that is trained."""
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
