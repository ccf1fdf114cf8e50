"""The user's parameters as the model of a learner: what JAX's and PyTorch's have in common.

The user steps the inner optimizer. Where its state was handed in, a restarted learner receives a
peer's, as learners of tasks do; what is broken is the user's to reset.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Layout
from islands.learner.boundary import Dispatched
from islands.model.interfaces import MOMENT_PIECE_BYTES, Model, MomentsCopy
from islands.model.moment_plan import MomentLeaf, MomentPlan, joined, plan_leaves
from islands.protocol.errors import InvariantError, TaskError

Tree = TypeVar("Tree")
NO_METRICS: Mapping[str, object] = MappingProxyType({})


class Parameters(Protocol[Tree]):
    """The user's parameters, in the form of their framework, and the model that they are."""

    @property
    def model(self) -> Model:
        """The model that is exchanged."""

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite, so that the user has to reset the optimizer's state."""

    def take(self, params: Tree, optimizer: object = None) -> bool:
        """Hold what a step made, whose buffers belong to the model from now on.

        Returns:
            Whether a step was taken; False if nothing has changed since the last boundary.
        """

    def give(self) -> Tree:
        """Return the parameters to go on with."""

    @property
    def optimizer(self) -> object:
        """The optimizer's state to go on with; None where the run was joined without it."""

    def checked(self, value: object, name: str) -> object:
        """Return a number of a step, or an array of one, as it is kept until the step is done.

        Raises:
            TaskError: it is neither.
        """

    def dispatched(self, loss: object, metrics: Mapping[str, object] = NO_METRICS) -> Dispatched:
        """Return what tells that the step which made the held parameters has finished.

        Args:
            loss: its loss; None if it is not told.
            metrics: what else it reports, as `checked` returned it.

        Raises:
            TaskError: the loss is no number.
        """


class NamedArrays:
    """The state of a user's optimizer as arrays with paths, of which pieces are given to peers.

    This one has none, as where the state is not told: it is neither given nor taken.
    """

    def __init__(self, leaves: Sequence[MomentLeaf] = ()) -> None:
        self.plan: MomentPlan = plan_leaves(leaves, MOMENT_PIECE_BYTES)

    def prepare(self) -> None:
        """Compile what `read` will call."""

    def read(self, piece: int) -> MomentsCopy:
        """Dispatch a copy of a piece into new buffers, and start their copy to the host."""
        raise InvariantError(f"piece {piece} of a state that is not told was asked for")

    def load(self, pieces: Sequence[memoryview]) -> None:
        """Replace all arrays by a peer's.

        Raises:
            InvariantError: the pieces are of other sizes, or not finite; nothing was changed.
        """
        arrays = joined(self.plan, pieces)
        for values in arrays:
            if values.dtype.kind not in "biu" and not np.isfinite(values).all():
                raise InvariantError("moments that are not all finite numbers were given")
        for leaf, values in enumerate(arrays):
            self._put(leaf, values)

    def _put(self, leaf: int, values: NDArray[np.generic]) -> None:
        """Replace an array of the plan, where it is."""


class OwnMoments:
    """A model whose inner optimizer is its user's."""

    moments = NamedArrays()
    _diverged = False

    @property
    def moments_schema(self) -> str:
        return self.moments.plan.schema

    @property
    def moment_pieces(self) -> int:
        return len(self.moments.plan.pieces)

    def reset_moments(self) -> None:
        """Note that the user has to reset the optimizer's state."""
        self._diverged = True

    def take_divergence(self) -> bool:
        """Return whether the user has to reset the optimizer's state, and forget it."""
        found, self._diverged = self._diverged, False
        return found

    def prepare_giving(self) -> None:
        self.moments.prepare()

    def read_moments(self, piece: int) -> MomentsCopy:
        return self.moments.read(piece)

    def load_moments(self, pieces: Sequence[memoryview]) -> None:
        self.moments.load(pieces)


def check_finite(model: Model) -> None:
    """Refuse a model that would spoil those of others.

    Raises:
        TaskError: its parameters are not all finite.
    """
    if not model.finite():
        raise TaskError("the parameters that join the run are not all finite numbers")


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
        rename: path in the layout by path in the tree, where both differ.

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
