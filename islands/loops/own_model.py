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
        """Whether a loss was not finite since the last question; the user resets the optimizer."""

    def take(self, params: Tree, optimizer: object = None) -> bool:
        """Hold a step's results, whose buffers belong to the model now; was there a step at all?"""

    def give(self) -> Tree:
        """Return the parameters to go on with."""

    @property
    def optimizer(self) -> object:
        """The optimizer's state to go on with; None where the run was joined without it."""

    def checked(self, value: object, name: str) -> object:
        """Return a number of a step, or an array of one, to be kept until the step is done."""

    def dispatched(self, loss: object, metrics: Mapping[str, object] = NO_METRICS) -> Dispatched:
        """Return the step that made the held parameters, with its loss and `checked` metrics."""


class NamedArrays:
    """The state of a user's optimizer as arrays with paths, of which peers receive pieces.

    This one has none, as where a run was joined without an optimizer.
    """

    def __init__(self, leaves: Sequence[MomentLeaf] = ()) -> None:
        self.plan: MomentPlan = plan_leaves(leaves, MOMENT_PIECE_BYTES)

    def prepare(self) -> None:
        """Compile what `read` will call."""

    def read(self, piece: int) -> MomentsCopy:
        """Dispatch a copy of a piece into new buffers, and start their copy to the host."""
        raise InvariantError(f"there is no piece {piece} of moments")

    def load(self, pieces: Sequence[memoryview]) -> None:
        """Replace all arrays by a peer's, or none if they have other sizes or are not finite."""
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
        diverged, self._diverged = self._diverged, False
        return diverged

    def prepare_giving(self) -> None:
        self.moments.prepare()

    def read_moments(self, piece: int) -> MomentsCopy:
        return self.moments.read(piece)

    def load_moments(self, pieces: Sequence[memoryview]) -> None:
        self.moments.load(pieces)


def check_finite(model: Model) -> None:
    if not model.finite():
        raise TaskError("the parameters that join the run are not all finite numbers")


def leaf_indices(
    layout: Layout,
    paths: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[str],
    rename: Mapping[str, str],
    trainable: Callable[[str], bool],
) -> list[int]:
    """Return the index of each of the layout's leaves among those of a tree, which must match."""
    here = {rename.get(path, path): index for index, path in enumerate(paths) if trainable(path)}
    indices = []
    for leaf in layout.leaves:
        index = here.pop(leaf.path, None)
        if index is None:
            raise TaskError(
                f"the run trains {leaf.path}, which these parameters do not have (they begin with "
                f"{', '.join(paths[:3])}); rename= tells the run's path of each of them"
            )
        if shapes[index] != leaf.shape:
            raise TaskError(
                f"{leaf.path} has shape {shapes[index]} here and {leaf.shape} in the run"
            )
        if dtypes[index] != leaf.dtype:
            raise TaskError(
                f"{leaf.path} is {dtypes[index]} here and {leaf.dtype} in the run: convert these "
                f"parameters to {leaf.dtype} before they join, or write the run's layout from ones "
                f"in {dtypes[index]}"
            )
        indices.append(index)
    if here:
        raise TaskError(
            f"the run does not train {next(iter(here))}; trainable= tells which leaves of these "
            "parameters are trained"
        )
    return indices
