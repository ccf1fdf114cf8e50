"""Second moments of the averaged gradient, from how first moments change before and after a merge.

Adam divides a step by the root of its second moment, a running average of squared gradients. That
of a learner, w, holds the noise of its own small batches, and the average of M learners' second
moments holds as much of it: the steps of a run are shorter than those of one with batches M times
as large, most where noise is largest. The gradient that all learners had together is known to
nobody, but its running average is, where first moments are merged by average: m' after a merge, and
m after the one before it, h steps ago. Where the noise of a step says nothing of the next one's,

    e = m'² + c (m' − m)²,   c = (1 − κ)/(2 (1 − b₁ʰ) κ),   κ = (1 − b₁)/(1 + b₁)

is the square of the mean gradient, as κ s is the variance of a running average of gradients with a
variance of s, and 2 (1 − b₁ʰ) κ s that of its change. Real noise remembers, and gradients swing, of
which a running average keeps nearly nothing. But the learner's own running average mᵢ, with which
it contributed to m', went through the same filter. The same of it, from the same m, is

    eᵢ = mᵢ² + c ((1 + λ) (mᵢ − m)² − λ (m' − m)²),   λ = (1 − b₁ʰ)/(1 + b₁ʰ)

where λ corrects for m, which has the noise of all learners. So a second moment is estimated by

    v = w · min(1, E[e] / E[eᵢ])

where E is a running average over merges with a share of b₂ʰ kept. What all learners have in common,
be it lasting or swinging, is in both averages, and v = w; noise of each one's own is in e only by
its share, and v = w/M, whatever its spectrum. Of a learner that is merged alone v is w exactly.

Between two merges every learner adds its own squares to v as its optimizer does, which it is also
told by. A learner with fresh moments takes over a first one that is old. So it steps with no less
than what a lasting gradient of that mean would have left, and no step is longer than its rate.

All learners are supposed to begin the interval with one first moment, and to take h steps. For one
that is slower than the others, or stood still, h is an interval's steps at least in e, and its own
steps in eᵢ. Where signal and noise have unlike spectra, v is between w/M and w, but is not exact.

No source: the rule is ours. `docs/second_moments.md` tells what it is worth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree
from numpy.typing import NDArray

from islands.layout.leaves import Fragment, Layout
from islands.model.device_transfer import (
    Cut,
    FragmentShape,
    Leaves,
    PieceShape,
    assembled,
    flattened,
    piece_shape,
    written,
)
from islands.tasks.task import path_of
from islands.tasks.task_trace import optax_promotion

FIRST, SECOND, COUNT = "mu", "nu", "count"
"""Names of Optax for the running averages of gradients and of their squares, and their steps."""

PROBES = (-1e-3, -2e-3)
"""The gradients that are put into an optimizer: too small to be clipped, with a sign, and unequal,
for an average of squares grows with their square."""

LATE_STEPS = 1_000_000
"""The step at which an optimizer is asked once more, for its decays may be scheduled."""

UNEVEN_MOST = 1e-2
"""By how much the decays of one array's elements may differ, as numbers of few bits are rounded."""


@dataclass(frozen=True, slots=True)
class Decays:
    """How an optimizer averages gradients and their squares.

    A step keeps the fractions b₁ of a first moment and b₂ of a second one. The scale is c/a², what
    the moments take of a gradient's square and of the gradient squared.
    """

    first: float
    second: float
    scale: float

    def agrees(self, other: "Decays") -> bool:
        """Whether these are the same, but for rounding."""
        return bool(np.allclose(astuple(self), astuple(other), rtol=UNEVEN_MOST))

    @property
    def unit(self) -> float:
        """What the second moment of a gradient that never changes is to its first one's square."""
        return self.scale * (1 - self.first) ** 2 / (1 - self.second)

    def advanced(
        self,
        kept: "Kept",
        second: Float[Array, " n"],
        firsts: "Firsts",
        age: Float[Array, ""],
        steps: Float[Array, ""],
        taken: Float[Array, ""],
    ) -> tuple["Kept", Float[Array, " n"]]:
        """Return what to keep of a second moment after a merge, and v, in float32 by element.

        Args:
            kept: what was kept at the last merge.
            second: v now, to which the learner added its own squares since.
            firsts: the first moments before and after.
            age: steps from the start of the averages, at 0, to m'; as Adam does, all are taken for
                what they would be had they begun with it. Before h steps there was no m yet, nor
                does a change from it tell anything.
            steps: h. After none, all stays as it is.
            taken: the learner's own steps since the last merge.
        """
        age = jnp.maximum(age, 1)
        since = jnp.clip(steps, 1, age)
        mine = jnp.clip(taken, 1, since)
        left, mine_left, before_age = self.first**since, self.first**mine, age - since
        known = jnp.where(before_age > 0, 1.0, 0.0)
        whole = 1 - self.first**age
        before = firsts.before / jnp.where(before_age > 0, 1 - self.first**before_age, 1)
        after, own = firsts.after / whole, firsts.mine / whole
        change = known * jnp.square(after - before)
        own_change = known * jnp.square(own - before)
        spread = (1 - self.first) / (1 + self.first)
        shown = (1 - spread) / spread
        scale = shown / (2 * (1 - left))
        back = (1 - mine_left) / (1 + mine_left)
        square = jnp.square(after) + scale * change
        own_scale = shown / (1 - jnp.square(mine_left))
        own_square = jnp.square(own) + own_scale * own_change - back * scale * change
        stays = self.second**since
        merged = stays * kept.merged + (1 - stays) * square
        alone = stays * kept.alone + (1 - stays) * own_square
        mine_stays = self.second**mine
        added = jnp.maximum(second - mine_stays * _estimate(kept), 0)
        new = Kept(mine_stays * kept.own + added, merged, alone)
        moved = (steps > 0) & (taken > 0)
        new = Kept(*(jnp.where(moved, x, y) for x, y in zip(new, kept, strict=True)))
        return new, jnp.where(moved, _estimate(new), second)

    def least(self, first: Float[Array, " n"], age: Float[Array, ""]) -> Float[Array, " n"]:
        """Return the least that the second moment beside a first one of this age may be."""
        age = jnp.maximum(age, 1)
        begun = (1 - self.second**age) / jnp.square(1 - self.first**age)
        return self.unit * begun * jnp.square(first)


class Kept(NamedTuple):
    """What a learner keeps of a second moment from one merge to the next, each float32[n].

    These are w, the running average of its own squares, E[e] and E[eᵢ].
    """

    own: Array
    merged: Array
    alone: Array


class Firsts(NamedTuple):
    """First moments, each float32[n].

    These are m, the average of the last merge, m' of this one, and mᵢ, the learner's own before it.
    """

    before: Array
    after: Array
    mine: Array


def _estimate(kept: Kept) -> Float[Array, " n"]:
    """Return v: w · min(1, E[e]/E[eᵢ])."""
    below = kept.alone > kept.merged
    return kept.own * jnp.where(below, kept.merged / jnp.where(below, kept.alone, 1), 1)


def decays_of(
    make: Callable[[], optax.GradientTransformationExtraArgs], params: PyTree
) -> Mapping[str, Decays]:
    """Measure the decays of second moments that lie beside first ones, by their paths.

    The optimizer steps twice, on arrays of at most two rows and columns: with a small gradient,
    then with none; and it does so once more with all counts far ahead. One that does not take such
    arrays, averages otherwise, or changes its decays with its steps has no second moments here.
    """
    small = jax.tree.map(lambda x: jnp.zeros([min(n, 2) for n in x.shape], jnp.float32), params)
    try:
        with optax_promotion():
            probes = [_probed(make(), small, size) for size in PROBES]
            probes.append(_probed(make(), small, PROBES[0], LATE_STEPS))
    except Exception:  # noqa: BLE001  a user's own optimizer may raise anything
        return {}
    found: dict[str, Decays] = {}
    for path in probes[0][0]:
        first, *others = (_decays(path, *states) for states in probes)
        if first is not None and all(each is not None and first.agrees(each) for each in others):
            found[path] = first
    return found


def first_of(path: str) -> str:
    """Return the path of the first moment that belongs to a second one; "" if it is none."""
    parts = path.split("/")
    if SECOND not in parts:
        return ""
    index = parts.index(SECOND)
    return "/".join((*parts[:index], FIRST, *parts[index + 1 :]))


def count_of(path: str) -> str:
    """Return the path of the number of steps that a second moment has averaged, if it is kept."""
    return "/".join((*path.split("/")[: path.split("/").index(SECOND)], COUNT))


def _probed(
    optimizer: optax.GradientTransformationExtraArgs,
    params: PyTree,
    size: float,
    counted: int = 0,
) -> Sequence[Mapping[str, NDArray[np.float64]]]:
    """Return an optimizer's averages after a step with a gradient, and after one without.

    Before, it has counted some steps: its integers of no dimension are raised by them.
    """
    state = jax.tree.map(lambda x: x + counted if _is_count(x) else x, optimizer.init(params))
    states = []
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


def _is_count(leaf: jax.typing.ArrayLike) -> bool:
    return not jnp.ndim(leaf) and bool(jnp.issubdtype(jnp.result_type(leaf), jnp.integer))


def _decays(
    path: str,
    once: Mapping[str, NDArray[np.float64]],
    twice: Mapping[str, NDArray[np.float64]],
) -> Decays | None:
    """Return how the second moment at a path is averaged; None if nothing there is one."""
    partner = first_of(path)
    if not partner or partner not in once or once[partner].shape != once[path].shape:
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
    """A second moment that is estimated from how the averaged first one changes.

    Attributes:
        first: Index of the first moment among the local leaves.
        own: Index of the second moment with which the learner steps, among those of the
            optimizer's state that are not merged.
        kept: Indices of what is kept from merge to merge, behind them, as `Kept` has it.
        count: Index of the number of steps that both have averaged, among those; None: many.
        decays: How the optimizer averages.
    """

    first: int
    own: int
    kept: tuple[int, int, int]
    count: int | None
    decays: Decays


@dataclass(frozen=True, slots=True)
class Beside:
    """Rows of a second moment, beside those of its first one in a fragment's flat value.

    The `leaf` of the piece counts the second moments beside the fragment's leaves.
    """

    piece: PieceShape
    offset: int
    decays: Decays


@dataclass(frozen=True, slots=True)
class RowsBeside:
    """The second moments beside the first moments of a fragment.

    Attributes:
        first: Indices of the first moments among the local leaves.
        seconds: Indices in the optimizer's state of those with which the learner steps, then of
            what is kept of each from merge to merge, as `Kept` has it.
        counts: Index there of each one's number of steps; None: it has none.
        beside: Their rows, piece by piece.
        starts: First row of each of these.
    """

    first: tuple[int, ...]
    seconds: tuple[int, ...]
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
    kept = (of[leaf].kept[part] for part in range(len(Kept._fields)) for leaf in here)
    seconds = (*(of[leaf].own for leaf in here), *kept)
    counts = tuple(of[leaf].count for leaf in here)
    starts = np.array([piece.row_start for piece in pieces], np.int32)
    return RowsBeside(tuple(here), seconds, counts, tuple(beside), starts)


def advance(
    shape: FragmentShape,
    beside: Sequence[Beside],
    state: Sequence[Array],
    leaves: Sequence[Array],
    starts: Int[Array, " beside"],
    values: tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, " n"]],
    ages: Sequence[Array],
    steps: Float[Array, ""],
    taken: Float[Array, ""],
) -> Leaves:
    """Advance second moments on the device by how the published first ones change.

    `state` is as `RowsBeside.seconds` has it, and is donated; the result has the new elements.
    `leaves` are the first moments as they are now. `values` are this device's parts of the
    published value before, of that now, and of the learner's own when it contributed. There were
    `steps` between the two, of which the learner has `taken` its own; `ages` count those averaged
    until now.
    """
    before, after, mine = (assembled(shape, value) for value in values)
    alone = FragmentShape(tuple(each.piece for each in beside), shape.axes, shape.devices)
    count = len(leaves)
    arrays = [state[first : first + count] for first in range(0, len(state), count)]
    second, *kept = (flattened(alone, each, starts) for each in arrays)
    local = flattened(alone, leaves, starts)
    ends = np.cumsum([each.piece.size for each in beside]).tolist()
    parts = []
    for each, end in zip(beside, ends, strict=True):
        here = slice(end - each.piece.size, end)
        there = slice(each.offset, each.offset + each.piece.size)
        age = ages[each.piece.leaf].astype(jnp.float32)
        firsts = Firsts(before[there], after[there], mine[there])
        known = Kept(*(x[here] for x in kept))
        new, v = each.decays.advanced(known, second[here], firsts, age, steps, taken)
        parts.append((jnp.maximum(v, each.decays.least(local[here], age)), *new))
    flat = [jnp.concatenate(each) for each in zip(*parts, strict=True)]
    pairs = zip(arrays, flat, strict=True)
    return tuple(x for old, new in pairs for x in written(alone, old, starts, new))
