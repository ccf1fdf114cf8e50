"""Which leaf of a user's parameters is which leaf of the run."""

from collections.abc import Callable, Mapping, Sequence

from islands.layout.leaves import Layout
from islands.protocol.errors import TaskError


def places_of(
    layout: Layout,
    paths: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[str],
    rename: Mapping[str, str],
    trainable: Callable[[str], bool],
) -> list[int]:
    """Return where each leaf of the layout is found among the leaves of a tree.

    Args:
        layout: the layout of the run.
        paths: the paths of all leaves.
        shapes: their shapes, in the same order.
        dtypes: names of their dtypes, in the same order.
        rename: path in the layout by path in the tree, where both differ.
        trainable: whether the leaf at a path is trained.

    Raises:
        TaskError: one is missing, has another shape or dtype, or is left over; says what to do.
    """
    found = {rename.get(path, path): place for place, path in enumerate(paths) if trainable(path)}
    places = []
    for leaf in layout.leaves:
        place = found.pop(leaf.path, None)
        if place is None:
            raise TaskError(
                f"the run trains {leaf.path}, which these parameters do not have (they begin with "
                f"{', '.join(paths[:3])}); rename= tells the run's path of each of them"
            )
        if shapes[place] != leaf.shape:
            raise TaskError(
                f"{leaf.path} has shape {shapes[place]} here and {leaf.shape} in the run"
            )
        if dtypes[place] != leaf.dtype:
            raise TaskError(
                f"{leaf.path} is {dtypes[place]} here and {leaf.dtype} in the run: convert these "
                f"parameters to {leaf.dtype} before they join, or write the run's layout from ones "
                f"in {dtypes[place]}"
            )
        places.append(place)
    if found:
        raise TaskError(
            f"the run does not train {next(iter(found))}; trainable= tells which leaves of these "
            "parameters are trained"
        )
    return places
