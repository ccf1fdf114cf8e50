"""Second moments of the averaged gradient, from how the averaged first moments change.

Adam divides a step by the root of its second moment, a running average of squared gradients. That
of a learner holds the noise of its own small batches, and the average of M learners' second moments
holds as much of it: the steps of a run are shorter than those of one with batches M times as large,
most where noise is largest. The gradient that all learners had together is known to nobody, but its
running average is, where first moments are merged by average. Its own square is that of what lasts;
and where the noise of one step says nothing of the next one's, with a variance of s in a gradient,

    the variance of a running average m is   κ s,  κ = (1 − b₁)/(1 + b₁)
    and of its change over h steps, m' − m,  2 (1 − b₁ʰ) κ s

so a gradient's square is told by m'² + (1 − κ)/(2 (1 − b₁ʰ) κ) · (m' − m)². The second moment takes
a share of 1 − b₂ʰ of it at each merge. Between two merges every learner adds its own squares. What
it added since its last contribution is forgotten with the merge, while its first moment holds those
gradients; so it steps with no less than the square of its first moment, which no average of squares
can be below.

No source: the rule is ours. `docs/quality.md` tells what it is worth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree
from numpy.typing import NDArray

from islands.layout.device_transfer import Beside, PieceShape
from islands.layout.leaves import Fragment, Layout
from islands.layout.mesh import Split
from islands.training.task import path_of
from islands.training.task_trace import optax_promotion

FIRST, SECOND, COUNT = "mu", "nu", "count"
"""Names of Optax for the running averages of gradients and of their squares, and their steps."""

PROBE = 1e-3
"""The gradient that is put into an optimizer once: too small to be clipped."""

UNEVEN_MOST = 1e-2
"""By how much the decays of one array's elements may differ, as numbers of few bits are rounded."""


@dataclass(frozen=True, slots=True)
class Decays:
    """How an optimizer averages gradients and their squares.

    Attributes:
        first: b₁, the share of a first moment that a step keeps.
        second: b₂, the share of a second moment that a step keeps.
        scale: c/a², what the moments take of a gradient's square and of the gradient squared.
    """

    first: float
    second: float
    scale: float

    @property
    def unit(self) -> float:
        """What the second moment of a gradient that never changes is to its first one's square."""
        return self.scale * (1 - self.first) ** 2 / (1 - self.second)

    def advanced(
        self,
        second: Float[Array, " n"],
        before: Float[Array, " n"],
        after: Float[Array, " n"],
        age: Float[Array, ""],
        steps: Float[Array, ""],
    ) -> Float[Array, " n"]:
        """Return a second moment, advanced by what the averaged first moment tells.

        Args:
            second: v, as it was when the first moment was `before`.
            before: m, the average of first moments so many steps ago.
            after: m', the average of first moments now.
            age: steps from the start of the averages, at 0, to m'; as Adam does, both are taken
                for what they would be had they begun with it. Before h steps there was no m yet,
                nor does a change from it tell anything.
            steps: h, at least 1.
        """
        left, before_age = self.first**steps, jnp.maximum(age - steps, 0)
        begun = after / (1 - self.first**age)
        change = begun - before / jnp.where(before_age > 0, 1 - self.first**before_age, 1)
        spread = (1 - self.first) / (1 + self.first)
        noise = (1 - spread) / (2 * (1 - left) * spread) * jnp.square(change)
        square = jnp.square(begun) + jnp.where(before_age > 0, noise, 0)
        kept = self.second**steps
        return kept * second + (1 - kept) * self.unit * square

    def least(self, first: Float[Array, " n"], age: Float[Array, ""]) -> Float[Array, " n"]:
        """Return the least that the second moment beside a first one of this age may be."""
        begun = (1 - self.second**age) / jnp.square(1 - self.first**age)
        return self.unit * begun * jnp.square(first)


def decays_of(
    make: Callable[[], optax.GradientTransformationExtraArgs], params: PyTree
) -> Mapping[str, Decays]:
    """Measure the decays of an optimizer's second moments that lie beside first moments.

    It steps twice, on arrays of at most two rows and columns: once with a small gradient, once with
    none. An optimizer that does not take such arrays, or averages otherwise, has no such moments.

    Args:
        make: makes the optimizer.
        params: the parameters, or their shapes.

    Returns:
        By the path of the second moment in the optimizer's state.
    """
    small = jax.tree.map(lambda x: jnp.ones([min(n, 2) for n in x.shape], x.dtype), params)
    try:
        with optax_promotion():
            states = _probed(make(), small)
    except Exception:  # noqa: BLE001  a user's own optimizer may raise anything
        return {}
    once, twice = (
        {
            path_of(keys): np.asarray(x, np.float64)
            for keys, x in jax.tree_util.tree_leaves_with_path(state)
            if jnp.issubdtype(x.dtype, jnp.floating)
        }
        for state in states
    )
    found: dict[str, Decays] = {}
    for path in once:
        partner = first_of(path)
        if partner not in once or once[partner].shape != once[path].shape:
            continue
        with np.errstate(all="ignore"):
            told = [
                _even(twice[partner] / once[partner]),
                _even(twice[path] / once[path]),
                _even(once[path] / once[partner] ** 2),
            ]
        if None in told:
            continue
        decays = Decays(*(one for one in told if one is not None))
        if 0 <= decays.first < 1 and 0 < decays.second < 1 and decays.scale > 0:
            found[path] = decays
    return found


def first_of(path: str) -> str | None:
    """Return where the first moment lies that belongs to a second one; None if it is none."""
    parts = path.split("/")
    if SECOND not in parts:
        return None
    return "/".join(FIRST if part == SECOND else part for part in parts)


def count_of(path: str) -> str:
    """Return where the number of steps lies that a second moment has averaged, if it is kept."""
    return "/".join((*path.split("/")[: path.split("/").index(SECOND)], COUNT))


def _probed(optimizer: optax.GradientTransformationExtraArgs, params: PyTree) -> Sequence[PyTree]:
    """Return an optimizer's state after a step with a small gradient, and after one without."""
    state, states = optimizer.init(params), []
    for size in (PROBE, 0.0):
        slopes = jax.tree.map(lambda x, size=size: jnp.full_like(x, size), params)
        _, state = optimizer.update(slopes, state, params, value=jnp.float32(0), grad=slopes)
        states.append(state)
    return states


def _even(ratios: np.ndarray) -> float | None:
    """Return the ratio of all elements; None if they have no common one."""
    if not ratios.size or not np.isfinite(ratios).all():
        return None
    mean = float(ratios.mean())
    return mean if np.abs(ratios - mean).max() <= UNEVEN_MOST * abs(mean) else None


@dataclass(frozen=True, slots=True)
class Second:
    """A second moment that is told by how the averaged first one changes.

    Attributes:
        first: Index of the first moment among the local leaves.
        own: Index of the second moment with which the learner steps, among those of the
            optimizer's state that are not merged.
        held: Index of the one that merges alone have made, behind them.
        count: Index of the number of steps that both have averaged, among those; None: many.
        decays: How the optimizer averages.
    """

    first: int
    own: int
    held: int
    count: int | None
    decays: Decays


@dataclass(frozen=True, slots=True)
class RowsBeside:
    """The second moments beside the first moments of a fragment.

    Attributes:
        first: Indices of the first moments among the local leaves.
        places: Where they are found in the optimizer's state: those that merges alone have made,
            then those with which the learner steps.
        counts: Where each one's number of steps is found there; None: it has none.
        beside: Their rows, piece by piece.
        starts: First row of each of these.
    """

    first: tuple[int, ...]
    places: tuple[int, ...]
    counts: tuple[int | None, ...]
    beside: tuple[Beside, ...]
    starts: NDArray[np.int32]


def rows_beside(
    seconds: Sequence[Second],
    layout: Layout,
    fragment: Fragment,
    split: Callable[[tuple[int, ...]], Split | None],
) -> RowsBeside:
    """Find the second moments that lie beside a fragment's first ones; `split` cuts them."""
    of = {each.first: each for each in seconds}
    pieces = [piece for piece in fragment.pieces if piece.leaf in of]
    here = sorted({piece.leaf for piece in pieces})
    beside = []
    for piece in pieces:
        leaf, rows = layout.leaves[piece.leaf], piece.row_stop - piece.row_start
        cut = split(leaf.shape)
        shape = PieceShape(here.index(piece.leaf), leaf.shape, leaf.rows, rows, cut)
        beside.append(Beside(shape, piece.offset, of[piece.leaf].decays))
    places = (*(of[leaf].held for leaf in here), *(of[leaf].own for leaf in here))
    counts = tuple(of[leaf].count for leaf in here)
    starts = np.array([piece.row_start for piece in pieces], np.int32)
    return RowsBeside(tuple(here), places, counts, tuple(beside), starts)
