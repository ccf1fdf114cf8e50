"""A tree of JAX arrays as the model that a learner exchanges.

The tree is the user's: its structure, dtypes and shardings stay as they are. Of its leaves, those
that the run's layout names are exchanged; the others pass through.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PyTree

from islands.errors import TaskError
from islands.joining.places import places_of
from islands.joining.without_moments import WithoutMoments
from islands.layout.leaves import Layout
from islands.learner.stepped_compute import Dispatched
from islands.settings.run import RunSettings
from islands.training.jax_model import JaxModel
from islands.training.task import path_of


@dataclass(frozen=True, slots=True)
class Told:
    """A step whose loss the user tells."""

    loss: object

    def wait(self) -> float:
        """Wait until the loss is computed, and return it."""
        return float(np.mean(np.asarray(self.loss)))


@dataclass(frozen=True, slots=True)
class Untold:
    """A step whose loss is not known: one number of the parameters that it made."""

    number: Array

    def wait(self) -> None:
        """Wait until the step is done."""
        self.number.block_until_ready()


class JoinedModel(WithoutMoments, JaxModel):
    """The trained leaves of a user's tree; the optimizer that steps them is the user's own."""


class JaxParameters:
    """The user's tree of parameters.

    Args:
        params: the tree.
        layout: the layout of the run.
        settings: settings of the run.
        donate: whether an adoption may reuse the buffers of the leaves that it replaces; False for
            a loop that keeps another reference to them.
        rename: path in the layout by path in the tree, where both differ.
        trainable: whether the leaf at a path is trained; by default all are.

    Raises:
        TaskError: the trained leaves are not those of the layout; names the first difference.
    """

    def __init__(
        self,
        params: PyTree,
        layout: Layout,
        settings: RunSettings,
        *,
        donate: bool = True,
        rename: Mapping[str, str] | None = None,
        trainable: Callable[[str], bool] = lambda _: True,
    ) -> None:
        flat, tree = jax.tree_util.tree_flatten_with_path(params)
        self._tree: Any = tree
        paths = [path_of(keys) for keys, _ in flat]
        self._leaves: list[Array] = [leaf for _, leaf in flat]
        shapes = [tuple(np.shape(leaf)) for leaf in self._leaves]
        self._places = places_of(layout, paths, shapes, rename or {}, trainable)
        self.model = JoinedModel.of(layout, self._chosen(), donate=donate)
        self.model.prepare(settings.precision.of_snapshots, settings.adoption)
        if not self.model.finite():
            raise TaskError("the parameters that join the run are not all finite numbers")

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite since this was asked last."""
        found, self.model.diverged = self.model.diverged, False
        return found

    def take(self, params: PyTree) -> None:
        """Hold the tree after a step.

        Raises:
            TaskError: it has another structure than the one that joined, or a leaf was deleted.
        """
        leaves, tree = jax.tree.flatten(params)
        if self._tree != tree:
            raise TaskError(
                f"boundary was given a tree of another structure than the run was joined with: "
                f"{tree} in place of {self._tree}"
            )
        self._leaves = leaves
        self.model.local = self._chosen()

    def give(self) -> PyTree:
        """Return the tree to go on with."""
        for place, leaf in zip(self._places, self.model.local, strict=True):
            self._leaves[place] = leaf
        return jax.tree.unflatten(self._tree, self._leaves)

    def dispatched(self, loss: object) -> Dispatched:
        """Return what tells that the last step has finished."""
        if loss is not None:
            return Told(loss)
        return Untold(self.model.mark())

    def _chosen(self) -> tuple[Array, ...]:
        return tuple(self._leaves[place] for place in self._places)
