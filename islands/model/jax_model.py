"""The leaves of a layout on their devices, and each fragment's base: what a boundary works on.

A `JaxTrainer` steps such a model itself. In a loop of the user's own it is made of the user's
leaves (`JaxModel.of`); then `local` is set to what each step returned, and read before the next.

Donation: an adoption donates the leaves of its fragment, so that there is one copy of the model. A
snapshot or a value that leaves the device is always a new buffer, which nothing donates: copying to
the host a buffer that the next step consumes would fail, and a NumPy view of a live buffer would
silently turn its donation into a copy. The base is kept as one flat float32 buffer per fragment.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding
from jax.stages import Compiled
from jaxtyping import Array, PyTree
from numpy.typing import NDArray

from islands.layout.leaves import Layout
from islands.model import leaf_checks
from islands.model.device_transfer import (
    LOST,
    FragmentShape,
    Leaves,
    Stored,
    all_finite,
    cut_of,
    difference,
    first_number,
    first_rows,
    gather,
    mix,
    overwrite,
    rounding,
    shape_of,
    shift,
    touched,
)
from islands.model.interfaces import Snapshot
from islands.model.placement import CompiledFunctions, Placement
from islands.protocol.errors import InvariantError, TaskError
from islands.protocol.ranges import Ranges, size_of
from islands.protocol.settings.choices import Adoption, SnapshotPrecision

_Call = tuple[Compiled, tuple[PyTree, ...]]  # a compiled function, its arguments


@dataclass(frozen=True, slots=True)
class JaxSnapshot:
    """This process's share of a difference of so many elements, on its way to the host."""

    array: Array
    size: int

    def buffer(self) -> memoryview:
        return share_of(self.array, self.size).view(np.uint8).data.toreadonly()

    def ready(self) -> bool:
        return bool(self.array.is_ready())  # type: ignore[attr-defined]  # untyped in JAX


def share_of(array: Array, size: int) -> NDArray[np.generic]:
    """Wait for a flat value's elements on this process's devices, and return them.

    They are in the order of the value and read-only. No other process is waited for. The array is
    padded and cut evenly over the devices; the value has so many elements without padding.
    """
    if array.is_fully_addressable:
        return np.asarray(array)[:size]
    starts = {shard.index[0].start: shard.data for shard in array.addressable_shards}
    parts = [np.asarray(starts[start])[: max(0, size - start)] for start in sorted(starts)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the functions of a fragment were compiled for.

    Attributes:
        kinds: Shape, dtype and sharding of each leaf that the fragment touches.
        shape: The shape of the fragment, of leaves cut like that.
        name: What the names of its compiled functions say of it. Several shardings cut alike, and
            share them: steps may return another than they were given.
    """

    kinds: tuple[tuple[object, ...], ...]
    shape: FragmentShape
    name: tuple[object, ...]


class JaxModel:
    """The leaves of a layout on their devices, and each fragment's base.

    With `donate`, an adoption overwrites the buffers of the leaves that it changes. Models of one
    process may share their compiled functions. The base of a fragment is the value that was adopted
    last, cut evenly over the devices; at first that of the leaves. What rounding it into leaves
    took away is kept beside it, and is a part of the local value (`device_transfer`).
    """

    def __init__(
        self,
        layout: Layout,
        leaves: Sequence[Array],
        placement: Placement,
        functions: CompiledFunctions,
        *,
        donate: bool = True,
    ) -> None:
        self.layout: Layout = layout
        self._placement = placement
        self._functions = functions
        self._compile = partial(functions.compile, placement)
        self._donated = (0,) if donate else ()
        self._touched = [touched(each) for each in layout.fragments]
        self._first_rows = [first_rows(each) for each in layout.fragments]
        self._shares = [placement.held(each.size) for each in layout.fragments]
        self._known: list[_Known | None] = [None] * len(layout.fragments)
        self._smallest = min(_numbers(layout), key=lambda leaf: layout.leaves[leaf].size)
        self.local = tuple(leaves)
        self._lost = [self._nothing_lost(index) for index in range(len(layout.fragments))]
        self.base: list[Array] = [self._gather(index) for index in range(len(layout.fragments))]

    @classmethod
    def of(
        cls,
        layout: Layout,
        leaves: Sequence[Array],
        *,
        donate: bool = True,
        functions: CompiledFunctions | None = None,
    ) -> Self:
        """Make a model of a user's own leaves, which stay where they are.

        Go on with its `local`: an array that is two leaves is there two arrays, and one that JAX
        was free to move is on its device to stay, so that no step is compiled anew for it. A loop
        that keeps another reference to them, such as an average of its own, does not donate them.
        """
        _check_number(layout, leaves)
        by_path = dict(zip((leaf.path for leaf in layout.leaves), leaves, strict=True))
        placement = leaf_checks.placement_of(by_path)
        for leaf in layout.leaves:
            leaf_checks.check_kind(leaf.path, by_path[leaf.path], leaf)
        functions = CompiledFunctions() if functions is None else functions
        return cls(layout, _settled(leaves), placement, functions, donate=donate)

    @property
    def local(self) -> Leaves:
        """The leaves. Once a step has donated them, set them to what the step returned."""
        return self._local

    @local.setter
    def local(self, leaves: Leaves) -> None:
        _check_number(self.layout, leaves)
        for like, leaf in zip(self.layout.leaves, leaves, strict=True):
            leaf_checks.check_array(like.path, leaf)
        self._local: Leaves = tuple(leaves)

    def prepare(self, precision: SnapshotPrecision, adoption: Adoption) -> None:
        self.mark()
        for fragment in range(len(self.base)):
            self.prepare_fragment(fragment, precision, adoption)

    def prepare_fragment(
        self, fragment: int, precision: SnapshotPrecision, adoption: Adoption
    ) -> None:
        """Compile all functions that boundaries need of one fragment."""
        base = self.base[fragment]
        self._difference(fragment, precision)
        self._overwrite(fragment, base)
        if adoption is Adoption.MIX:
            self._mix(fragment, base, 0.0)
        if adoption is Adoption.DELAY_CORRECTED:
            self._shift(fragment, base, base)

    @property
    def hardware(self) -> str:
        return self._placement.named

    @property
    def compiling(self) -> bool:
        """Whether this model, or one that shares its functions, is compiling now."""
        return self._functions.compiling

    def share(self, fragment: int) -> Ranges:
        return self._shares[fragment]

    def shares(self, fragment: int) -> tuple[Ranges, ...]:
        return self._placement.shares(self.layout.fragments[fragment].size)

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> Snapshot:
        compiled, arguments = self._difference(fragment, precision)
        array = compiled(*arguments)
        array.copy_to_host_async()
        return JaxSnapshot(array, self.layout.fragments[fragment].size)

    def value(self, fragment: int) -> NDArray[np.float32]:
        size = self.layout.fragments[fragment].size
        return np.array(share_of(self._gather(fragment), size))

    def base_of(self, fragment: int) -> NDArray[np.float32]:
        size = self.layout.fragments[fragment].size
        return np.array(share_of(self.base[fragment], size))

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        base = self._upload(fragment, value)
        self._take_over(fragment, base, self._overwrite(fragment, base))

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        base = self._upload(fragment, value)
        if sent is None:  # zeros need no function of their own, and leave the base as it is
            sent = np.zeros(size_of(self._shares[fragment]), np.float32)
        taken = self._upload(fragment, sent)
        self._take_over(fragment, base, self._shift(fragment, base, taken))

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        base = self._upload(fragment, value)
        self._take_over(fragment, base, self._mix(fragment, base, share))

    def finite(self, beside: PyTree = ()) -> bool:
        self._check_alive(range(len(self._local)))
        tree = (self._local, beside)
        leaves = jax.tree.leaves(tree)
        kinds = tuple((x.shape, str(x.dtype), cut_of(x.sharding, x.ndim)) for x in leaves)
        compiled = self._compile(
            ("finite", jax.tree.structure(tree), kinds),
            partial(all_finite, self._placement.axes),
            (tree,),
            parts_to=self._placement.whole,
        )
        return bool(compiled(tree))

    def mark(self) -> Array:
        """Dispatch a copy of one number of the leaves, which is there once their step is done."""
        self._check_alive([self._smallest])
        leaf = self._local[self._smallest]
        name = ("mark", leaf.shape, str(leaf.dtype), cut_of(leaf.sharding, leaf.ndim))
        function = partial(first_number, () if self._placement.alone else self._placement.axes)
        compiled = self._compile(name, function, (leaf,), parts_to=self._placement.whole)
        marked: Array = compiled(leaf)
        return marked

    def contributed(self, fragment: int, sent: NDArray[np.float32] | None) -> Array:
        """Dispatch a new array with this process's share of what was contributed of a fragment."""
        if sent is None:
            return self._gather(fragment)
        value: Array = self.prepare_contributed(fragment)(
            self.base[fragment], self._upload(fragment, sent)
        )
        return value

    def prepare_contributed(self, fragment: int) -> Compiled:
        """Compile what `contributed` calls."""
        base = self.base[fragment]
        return self._compile(
            ("contributed", base.shape), jnp.subtract, (base, base), parts_to=self._placement.flat
        )

    def _upload(self, fragment: int, value: NDArray[np.float32]) -> Array:
        """Copy a share to the devices, so that the caller may reuse its buffer at once."""
        size = size_of(self._shares[fragment])
        if value.shape != (size,) or value.dtype != np.float32:
            found = f"{value.dtype}{list(value.shape)}"
            raise InvariantError(f"fragment {fragment} is float32[{size}] here, not {found}")
        return self._placement.put_share(value, self.layout.fragments[fragment].size)

    def _take_over(self, fragment: int, base: Array, call: _Call) -> None:
        """Replace a fragment's leaves by the results of a call, and its base by the new base."""
        compiled, arguments = call
        local = list(self._local)
        stored, self._lost[fragment] = compiled(*arguments)
        for leaf, array in zip(self._touched[fragment], stored, strict=True):
            local[leaf] = _sharded_as(local[leaf].sharding, array)
        self._local = tuple(local)
        self.base[fragment] = base

    def _gather(self, fragment: int) -> Array:
        known, arguments = self._pieces(fragment)
        function, flat = partial(gather, known.shape), self._placement.flat
        name = ("gather", known.name)
        compiled = self._compile(name, function, arguments, parts_to=flat)
        value: Array = compiled(*arguments)
        return value

    def _difference(self, fragment: int, precision: SnapshotPrecision) -> _Call:
        known, pieces = self._pieces(fragment)
        arguments = (self.base[fragment], *pieces)
        function, flat = partial(difference, known.shape, precision), self._placement.flat
        name = ("difference", precision, known.name)
        compiled = self._compile(name, function, arguments, parts_to=flat)
        return compiled, arguments

    def _overwrite(self, fragment: int, value: Array) -> _Call:
        return self._writing("overwrite", overwrite, fragment, value)

    def _mix(self, fragment: int, value: Array, share: float) -> _Call:
        return self._writing("mix", mix, fragment, value, np.float32(share))

    def _shift(self, fragment: int, value: Array, sent: Array) -> _Call:
        return self._writing("shift", shift, fragment, value, self.base[fragment], sent)

    def _writing(
        self, kind: str, function: Callable[..., Stored], fragment: int, *behind: PyTree
    ) -> _Call:
        known, pieces = self._pieces(fragment)
        arguments = (*pieces, *behind)
        lost_to = None if self._lost[fragment] is None else self._placement.flat
        compiled = self._compile(
            (kind, self._donated, known.name),
            partial(function, known.shape),
            arguments,
            donate=self._donated,
            parts_to=(tuple(leaf.sharding for leaf in pieces[0]), lost_to),
        )
        return compiled, arguments

    def _nothing_lost(self, fragment: int) -> Array | None:
        """Return zeros for what rounding took away; None if no leaf of a fragment rounds."""
        held = self.layout.fragments[fragment]
        if not rounding(self.layout, held):
            return None
        return self._placement.put_share(np.zeros(size_of(self._shares[fragment]), LOST), held.size)

    def _pieces(
        self, fragment: int
    ) -> tuple[_Known, tuple[Leaves, NDArray[np.int32], Array | None]]:
        """Return what is known of a fragment, and the arguments that all of its functions take.

        A step whose results JAX shards may return a leaf that is cut otherwise than before.
        """
        self._check_alive(self._touched[fragment])
        leaves = tuple(self._local[leaf] for leaf in self._touched[fragment])
        kinds = tuple((x.shape, x.dtype, x.sharding) for x in leaves)
        known = self._known[fragment]
        if known is None or known.kinds != kinds:
            shape = self._shape(fragment, leaves)
            name = (shape, tuple(str(x.dtype) for x in leaves))
            known = self._known[fragment] = _Known(kinds, shape, name)
        return known, (leaves, self._first_rows[fragment], self._lost[fragment])

    def _check_alive(self, leaves: Iterable[int]) -> None:
        for leaf in leaves:
            leaf_checks.check_alive(self.layout.leaves[leaf].path, self._local[leaf])

    def shape(self, fragment: int) -> FragmentShape:
        return self._pieces(fragment)[0].shape

    def _shape(self, fragment: int, leaves: Leaves) -> FragmentShape:
        cuts = {}
        for index, array in zip(self._touched[fragment], leaves, strict=True):
            leaf = self.layout.leaves[index]
            leaf_checks.check_leaf(leaf.path, array)
            leaf_checks.check_kind(leaf.path, array, leaf)
            leaf_checks.check_placement(leaf.path, array, self._placement, "the model")
            cuts[index] = cut_of(array.sharding, array.ndim)
        return shape_of(self.layout, self.layout.fragments[fragment], cuts, self._placement)


def _numbers(layout: Layout) -> list[int]:
    """Return the indices of the leaves that hold any number."""
    return [index for index, leaf in enumerate(layout.leaves) if leaf.size]


def _check_number(layout: Layout, leaves: Sequence[Array]) -> None:
    if len(leaves) != len(layout.leaves):
        raise TaskError(
            f"{len(leaves)} leaves were handed in, but the layout of the run has "
            f"{len(layout.leaves)}: hand in all of them, in its order"
        )


def _settled(leaves: Sequence[Array]) -> Leaves:
    """Return leaves of which no two are one array, each on its devices to stay."""
    seen: set[int] = set()
    settled = []
    for leaf in leaves:
        own = jnp.copy(leaf) if id(leaf) in seen else leaf
        seen.add(id(leaf))
        # A leaf on devices of several processes is never one that JAX was free to move.
        settled.append(jax.device_put(own, leaf.sharding) if own.is_fully_addressable else own)
    return tuple(settled)


def _sharded_as(sharding: Sharding, array: Array) -> Array:
    """Return an array whose sharding is named as before, so that no step is compiled anew."""
    if array.sharding == sharding:
        return array
    parts = [shard.data for shard in array.addressable_shards]
    return jax.make_array_from_single_device_arrays(array.shape, sharding, parts)
