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
    """Return what a run has to plan for, from a tree of arrays or a PyTorch module.

    The arguments are those of `islands.join`; `transposed` are paths of matrices that the run holds
    transposed.
    """
    leaves = []
    for path, shape, dtype in _tensors(params, trainable):
        stack = shape[0] if stacked(path) and shape else 1
        held = shape[::-1] if path in transposed else shape
        name = (rename or {}).get(path, path)
        leaves.append(Leaf(name, held, dtype, default_role(name), stack))
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
