"""The devices on which a model's leaves and flat values are: one device, or a mesh of several.

A flat value of a fragment (the base, a snapshot) is cut evenly over all devices, padded where it
does not divide, so each device keeps and copies only its share. A leaf is cut in any way that a
`PartitionSpec` tells.

On one device there is no mesh, and this module adds no cost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from jaxtyping import PyTree
from numpy.typing import NDArray

Function = Callable[..., PyTree]


@dataclass(frozen=True, eq=False)
class Placement:
    """The devices of a model, and how values are sharded over them.

    Args:
        devices: The devices, in the order of the mesh.
        mesh: The mesh that they form, of any axes; None on one device.
    """

    devices: tuple[jax.Device, ...]
    mesh: Mesh | None

    @property
    def key(self) -> tuple[object, ...]:
        """Key of compiled functions; equal placements share them."""
        return self.devices if self.mesh is None else (self.mesh,)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of the mesh."""
        return () if self.mesh is None else tuple(self.mesh.axis_names)

    @cached_property
    def whole(self) -> Sharding:
        """Sharding that keeps a copy on every device."""
        return self.sharding()

    @cached_property
    def flat(self) -> Sharding:
        """Sharding that cuts a vector evenly over all devices."""
        return self.sharding(self.axes)

    def padded(self, size: int) -> int:
        """Return the least length, from `size` up, that all devices can share evenly."""
        return -(-size // len(self.devices)) * len(self.devices)

    def tensor(self, shape: tuple[int, ...]) -> Sharding:
        """Return where a result of this shape lives, of a function of whole arrays."""
        return self.whole

    def rows(self, shape: tuple[int, ...]) -> Sharding:
        """Return the sharding of an array of a batch."""
        return self.whole

    def sharding(self, *axes: str | tuple[str, ...] | None) -> Sharding:
        """Return the sharding that cuts each dimension over these axes of the mesh."""
        if self.mesh is None:
            return SingleDeviceSharding(self.devices[0])
        spec = PartitionSpec(*axes)  # type: ignore[no-untyped-call]  # untyped in JAX
        return NamedSharding(self.mesh, spec)

    def prepared(
        self,
        function: Function,
        arguments: tuple[PyTree, ...],
        batch: int | None,
        parts_to: PyTree | None,
    ) -> tuple[Function, tuple[PyTree, ...], PyTree | None]:
        """Return the function and arguments to compile, and the shardings of the results.

        On one device, function and arguments are returned as they are, and no shardings.

        Args:
            function: computes on whole arrays, or on each device's parts if `parts_to` is given.
            arguments: those on devices stay where they are, as do shapes that tell a sharding; of
                arrays on the host, a batch is sharded by rows, and others are copied to every
                device.
            batch: index of the argument that is a batch, if one is.
            parts_to: shardings of the results; None: those of tensors of their shapes.
        """
        if self.mesh is None:
            return function, arguments, None
        described = tuple(
            self._described(x, self.rows if index == batch else self._copied)
            for index, x in enumerate(arguments)
        )
        if parts_to is None:
            shapes = jax.eval_shape(function, *described)
            return function, described, jax.tree.map(lambda x: self.tensor(x.shape), shapes)
        takes = jax.tree.map(lambda x: x.sharding.spec, described)
        gives = jax.tree.map(lambda sharding: sharding.spec, parts_to)
        # No check: JAX cannot prove that results declared whole are equal on all devices.
        function = jax.shard_map(
            function, mesh=self.mesh, in_specs=takes, out_specs=gives, check_vma=False
        )
        return function, described, parts_to

    def _described(self, tree: PyTree, lives: Callable[[tuple[int, ...]], Sharding]) -> PyTree:
        def described(x: NDArray[np.generic] | jax.Array | jax.ShapeDtypeStruct) -> object:
            if isinstance(x, jax.Array | jax.ShapeDtypeStruct):
                return x
            where = lives(x.shape)
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)  # type: ignore[no-untyped-call]  # untyped in JAX

        return jax.tree.map(described, tree)

    def _copied(self, _: tuple[int, ...]) -> Sharding:
        return self.whole
