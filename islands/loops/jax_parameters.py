"""A tree of JAX arrays as the model that a learner exchanges.

The tree is the user's: its structure, dtypes and shardings stay as they are. Of its leaves, those
that the run's layout names are exchanged; the others pass through.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from operator import is_
from typing import Any
from weakref import ref

import jax
import numpy as np
from jaxtyping import Array, PyTree
from numpy.typing import NDArray

from islands.layout.leaves import Layout
from islands.learner.stepped_compute import Dispatched
from islands.loops.jax_moments import JaxMoments
from islands.loops.own_moments import OwnMoments, check_finite
from islands.loops.places import places_of
from islands.model.compiled_functions import CompiledFunctions
from islands.model.jax_model import JaxModel
from islands.model.leaf_checks import check_array
from islands.protocol.errors import TaskError
from islands.protocol.settings.run import RunSettings
from islands.tasks.task import path_of

NOT_TOLD = (
    "the run was joined with opt_state: hand in the state after the last step at each boundary and "
    "in done, and go on with run.opt_state"
)
NOT_JOINED = (
    "an opt_state was handed in, but the run was joined without one: islands.join takes it, too"
)

Loss = Array | NDArray[np.generic] | np.generic | float


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was dispatched: one number of the parameters that it made, and its loss."""

    number: Array
    loss: Loss | None

    def wait(self) -> float | None:
        """Wait until the step is done, and return its loss; nan if what it made is no number."""
        made = float(self.number)
        if not isfinite(made):
            return made
        if self.loss is None or (isinstance(self.loss, jax.Array) and self.loss.is_deleted()):
            return None
        return float(np.mean(np.asarray(self.loss, np.float64)))


class JoinedModel(OwnMoments, JaxModel):
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
        opt_state: state of the optimizer, of which peers may be given; None: it is not told.

    Raises:
        TaskError: the trained leaves are not those of the layout, or an array cannot be handled;
            names the first.
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
        opt_state: PyTree = None,
    ) -> None:
        flat, tree = jax.tree_util.tree_flatten_with_path(params)
        self._tree: Any = tree
        paths = [path_of(keys) for keys, _ in flat]
        self._leaves: list[Array] = [leaf for _, leaf in flat]
        shapes = [tuple(np.shape(leaf)) for leaf in self._leaves]
        dtypes = [str(getattr(leaf, "dtype", "")) for leaf in self._leaves]
        self._places = places_of(layout, paths, shapes, dtypes, rename or {}, trainable)
        functions = CompiledFunctions()
        self.model = JoinedModel.of(layout, self._chosen(), donate=donate, functions=functions)
        self._given: list[ref[Array]] = []  # the trained leaves of the last boundary
        self._moments: JaxMoments | None = None
        if opt_state is not None:
            to_run = rename or {}
            known = {
                path: (to_run.get(path, path), shape)
                for path, shape in zip(paths, shapes, strict=True)
            }
            self._moments = self.model.moments = JaxMoments(opt_state, known, functions)
        self.model.prepare(settings.precision.of_snapshots, settings.adoption)
        self.model.prepare_giving()
        check_finite(self.model)

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite since this was asked last."""
        return self.model.take_divergence()

    def take(self, params: PyTree, opt_state: PyTree = None) -> bool:
        """Hold the tree after a step, and the optimizer's state.

        Returns:
            Whether a step was taken. None was if all trained leaves are the arrays that the last
            boundary returned, or those that it was given: what it returned is held on then.

        Raises:
            TaskError: one has another structure than the one that joined, or a leaf was deleted, or
                an array of the optimizer's state has another dtype or shape.
        """
        if (opt_state is None) != (self._moments is None):
            raise TaskError(NOT_TOLD if opt_state is None else NOT_JOINED)
        leaves, tree = jax.tree.flatten(params)
        if self._tree != tree:
            raise TaskError(
                f"boundary was given a tree of another structure than the run was joined with: "
                f"{tree} in place of {self._tree}"
            )
        if self._moments is not None:
            self._moments.take(opt_state)
        self._leaves = leaves
        held, chosen = self.model.local, self._chosen()
        self.model.local = chosen
        before, self._given = self._given, [ref(leaf) for leaf in chosen]
        if _same(chosen, tuple(each() for each in before)):
            self.model.local = held
            return False
        return not _same(chosen, held)

    def give(self) -> PyTree:
        """Return the tree to go on with."""
        for place, leaf in zip(self._places, self.model.local, strict=True):
            self._leaves[place] = leaf
        return jax.tree.unflatten(self._tree, self._leaves)

    @property
    def opt_state(self) -> PyTree:
        """The optimizer's state to go on with; None where none was told."""
        return None if self._moments is None else self._moments.give()

    def dispatched(self, loss: object) -> Dispatched:
        """Return what tells that the last step has finished.

        Raises:
            TaskError: the loss is no number, and no array of numbers.
        """
        return Step(self.model.mark(), None if loss is None else checked(loss))

    def _chosen(self) -> tuple[Array, ...]:
        return tuple(self._leaves[place] for place in self._places)


def _same(leaves: Sequence[Array], others: Sequence[Array | None]) -> bool:
    """Whether these are the same arrays, not only equal ones."""
    return len(leaves) == len(others) and all(map(is_, leaves, others))


def check_leaves(params: PyTree, trainable: Callable[[str], bool]) -> None:
    """Refuse parameters of which a trained leaf is no array, before anybody is told of them.

    Raises:
        TaskError: names the first.
    """
    for keys, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        path = path_of(keys)
        if trainable(path):
            check_array(path, leaf)


def checked(loss: object) -> Loss:
    """Return a loss as it is, if it is one.

    Raises:
        TaskError: it is no number, and no array of numbers, or this process cannot read it.
    """
    if isinstance(loss, jax.Array) and not (loss.is_fully_addressable or loss.is_fully_replicated):
        raise TaskError(
            "the loss lies in parts on devices of several processes, of which each can read only "
            "its own: hand in its mean, computed by the step"
        )
    if isinstance(loss, jax.Array | np.ndarray | np.generic | float | int) and np.size(loss):
        return loss
    raise TaskError(
        f"the loss is a {type(loss).__name__}; hand in a number or an array of them, or nothing"
    )
