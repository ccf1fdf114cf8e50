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
gradients; and a learner with fresh moments takes over a first one that is old. So it steps with no
less than what a lasting gradient of that mean would have left, and no step is longer than its rate.

The variances suppose that all learners began the interval with one first moment, and took h steps.
A learner that is slower than the others, or stood still, counts an interval's steps at least.

No source: the rule is ours. `docs/quality.md` tells what it is worth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree
from numpy.typing import NDArray

from islands.layout.device_transfer import FragmentShape, Leaves, assembled, flattened, written
from islands.layout.leaves import Fragment, Layout
from islands.layout.rectangles import Cut, PieceShape, piece_shape
from islands.training.task import path_of
from islands.training.task_trace import optax_promotion

FIRST, SECOND, COUNT = "mu", "nu", "count"
"""Names of Optax for the running averages of gradients and of their squares, and their steps."""

PROBES = (-1e-3, -2e-3)
"""The gradients that are put into an optimizer: too small to be clipped, with a sign, and unequal,
for an average of squares grows with their square."""

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

    def agrees(self, other: "Decays") -> bool:
        """Whether these are the same, but for rounding."""
        mine = (self.first, self.second, self.scale)
        theirs = (other.first, other.second, other.scale)
        return bool(np.allclose(mine, theirs, rtol=UNEVEN_MOST))

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
            steps: h. After none, v stays as it is.
        """
        age = jnp.maximum(age, 1)
        since = jnp.clip(steps, 1, age)
        left, before_age = self.first**since, age - since
        begun = after / (1 - self.first**age)
        change = begun - before / jnp.where(before_age > 0, 1 - self.first**before_age, 1)
        spread = (1 - self.first) / (1 + self.first)
        noise = (1 - spread) / (2 * (1 - left) * spread) * jnp.square(change)
        square = jnp.square(begun) + jnp.where(before_age > 0, noise, 0)
        kept = self.second**since
        advanced = kept * second + (1 - kept) * self.unit * square
        return jnp.where(steps > 0, advanced, second)

    def least(self, first: Float[Array, " n"], age: Float[Array, ""]) -> Float[Array, " n"]:
        """Return the least that the second moment beside a first one of this age may be."""
        age = jnp.maximum(age, 1)
        begun = (1 - self.second**age) / jnp.square(1 - self.first**age)
        return self.unit * begun * jnp.square(first)


def decays_of(
    make: Callable[[], optax.GradientTransformationExtraArgs], params: PyTree
) -> Mapping[str, Decays]:
    """Measure the decays of an optimizer's second moments that lie beside first moments.

    It steps twice, on arrays of at most two rows and columns: with a small gradient, then with
    none. An optimizer that does not take such arrays, or averages otherwise, has none of them.

    Args:
        make: makes the optimizer.
        params: the parameters, or their shapes.

    Returns:
        By the path of the second moment in the optimizer's state.
    """
    small = jax.tree.map(lambda x: jnp.zeros([min(n, 2) for n in x.shape], jnp.float32), params)
    try:
        with optax_promotion():
            probes = [_probed(make(), small, size) for size in PROBES]
    except Exception:  # noqa: BLE001  a user's own optimizer may raise anything
        return {}
    found: dict[str, Decays] = {}
    for path in probes[0][0]:
        both = [_decays(path, *states) for states in probes]
        if both[0] is not None and both[1] is not None and both[0].agrees(both[1]):
            found[path] = both[0]
    return found


def first_of(path: str) -> str | None:
    """Return where the first moment lies that belongs to a second one; None if it is none."""
    parts = path.split("/")
    if SECOND not in parts:
        return None
    place = parts.index(SECOND)
    return "/".join((*parts[:place], FIRST, *parts[place + 1 :]))


def count_of(path: str) -> str:
    """Return where the number of steps lies that a second moment has averaged, if it is kept."""
    return "/".join((*path.split("/")[: path.split("/").index(SECOND)], COUNT))


def _probed(
    optimizer: optax.GradientTransformationExtraArgs, params: PyTree, size: float
) -> Sequence[Mapping[str, NDArray[np.float64]]]:
    """Return an optimizer's averages after a step with a gradient, and after one without."""
    state, states = optimizer.init(params), []
    for gradient in (size, 0.0):
        slopes = jax.tree.map(lambda x, gradient=gradient: jnp.full_like(x, gradient), params)
        _, state = optimizer.update(slopes, state, params, value=jnp.float32(0), grad=slopes)
        states.append(
            {
                path_of(keys): np.asarray(x, np.float64)
                for keys, x in jax.tree_util.tree_leaves_with_path(state)
                if jnp.issubdtype(x.dtype, jnp.floating)
            }
        )
    return states


def _decays(
    path: str,
    once: Mapping[str, NDArray[np.float64]],
    twice: Mapping[str, NDArray[np.float64]],
) -> Decays | None:
    """Return how the second moment at a path is averaged; None if nothing there is one."""
    partner = first_of(path)
    if partner is None or partner not in once or once[partner].shape != once[path].shape:
        return None
    with np.errstate(all="ignore"):
        first = _even(twice[partner] / once[partner])
        second = _even(twice[path] / once[path])
        scale = _even(once[path] / once[partner] ** 2)
    if first is None or second is None or scale is None:
        return None
    sound = 0 <= first < 1 and 0 < second < 1 and scale > 0
    return Decays(first, second, scale) if sound else None


def _even(ratios: NDArray[np.float64]) -> float | None:
    """Return the ratio of all elements; None if they have no common one."""
    if not ratios.size or not np.isfinite(ratios).all():
        return None
    mean = float(ratios.mean())
    return mean if np.abs(ratios - mean).max() <= UNEVEN_MOST * abs(mean) else None


@dataclass(frozen=True, slots=True)
class SecondMoment:
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
class Beside:
    """Rows of a second moment, beside those of its first one.

    Attributes:
        piece: The rows; its `leaf` counts the second moments beside the fragment's leaves.
        offset: Where the first moment's rows begin in the fragment's flat value.
        decays: How the optimizer averages.
    """

    piece: PieceShape
    offset: int
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
    second_moments: Sequence[SecondMoment],
    layout: Layout,
    fragment: Fragment,
    cuts: Mapping[int, Cut],
) -> RowsBeside:
    """Find the second moments beside a fragment's first ones, which are cut as their leaves are."""
    of = {each.first: each for each in second_moments}
    pieces = [piece for piece in fragment.pieces if piece.leaf in of]
    here = sorted({piece.leaf for piece in pieces})
    beside = []
    for piece in pieces:
        leaf, rows = layout.leaves[piece.leaf], piece.row_stop - piece.row_start
        shape = piece_shape(here.index(piece.leaf), leaf, rows, cuts[piece.leaf])
        beside.append(Beside(shape, piece.offset, of[piece.leaf].decays))
    places = (*(of[leaf].held for leaf in here), *(of[leaf].own for leaf in here))
    counts = tuple(of[leaf].count for leaf in here)
    starts = np.array([piece.row_start for piece in pieces], np.int32)
    return RowsBeside(tuple(here), places, counts, tuple(beside), starts)


def advance(
    shape: FragmentShape,
    beside: Sequence[Beside],
    held: Sequence[Array],
    own: Sequence[Array],
    leaves: Sequence[Array],
    starts: Int[Array, " beside"],
    value: Float[Array, " n"],
    base: Float[Array, " n"],
    ages: Sequence[Array],
    steps: Float[Array, ""],
) -> Leaves:
    """Advance second moments on the device by how the published first ones change.

    Args:
        shape: shape of the fragment.
        beside: the rows of second moments that lie beside the fragment's pieces.
        held: what was computed so far. It is donated.
        own: arrays of the same shapes that take it over after any steps, and are never below the
            least. They are donated.
        leaves: the first moments, as they are now.
        starts: first row of each of the rows.
        value: this device's share of the published value.
        base: its share of the one before.
        ages: number of steps that each of these has averaged until now.
        steps: number of steps between the two.

    Returns:
        `held` and then `own`, both with the new elements.
    """
    after, before = assembled(shape, value), assembled(shape, base)
    alone = FragmentShape(tuple(each.piece for each in beside), shape.axes, shape.devices)
    flat, local = flattened(alone, held, starts), flattened(alone, leaves, starts)
    ends = np.cumsum([each.piece.size for each in beside]).tolist()
    parts, least = [], []
    for each, end in zip(beside, ends, strict=True):
        there = slice(each.offset, each.offset + each.piece.size)
        known = flat[end - each.piece.size : end]
        age = ages[each.piece.leaf].astype(jnp.float32)
        parts.append(each.decays.advanced(known, before[there], after[there], age, steps))
        least.append(each.decays.least(local[end - each.piece.size : end], age))
    new = jnp.concatenate(parts)
    taken = jnp.where(steps > 0, new, flattened(alone, own, starts))
    taken = jnp.maximum(taken, jnp.concatenate(least))
    return (*written(alone, held, starts, new), *written(alone, own, starts, taken))
