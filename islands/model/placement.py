"""The devices on which a model's leaves and flat values are: one device, or a mesh of several.

A flat value of a fragment (the base, a snapshot) is cut evenly over all devices, padded where it
does not divide, so each device keeps and copies only its share. A leaf is cut in any way that a
`PartitionSpec` tells.

On one device there is no mesh, and this module adds no cost.

The devices may belong to several processes of one program (`jax.distributed`), which call the same
functions in the same order. A process can read and fill only the parts of an array on its own
devices; to do so is no collective, and waits for no other process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from jaxtyping import PyTree
from numpy.typing import NDArray

from islands.protocol.ranges import Ranges, held_by

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

    @cached_property
    def process(self) -> int:
        """Index of this process in its program."""
        index: int = self.devices[0].client.process_index()  # of a remote device, too
        return index

    @cached_property
    def processes(self) -> tuple[int, ...]:
        """Indices of the processes that have some of the devices, ascending."""
        return tuple(sorted({device.process_index for device in self.devices}))

    @cached_property
    def own_devices(self) -> tuple[jax.Device, ...]:
        """The devices of this process, in the order of the mesh."""
        return tuple(each for each in self.devices if each.process_index == self.process)

    @cached_property
    def alone(self) -> bool:
        """Whether all devices are this process's."""
        return len(self.own_devices) == len(self.devices)

    def held(self, size: int, process: int | None = None) -> Ranges:
        """Return the elements of a flat value that lie on a process's devices, without padding.

        Args:
            size: Number of elements of the value.
            process: Index of the process; None: this one.
        """
        owners = [device.process_index for device in self.devices]
        return held_by(self.process if process is None else process, owners, size)

    def shares(self, size: int) -> tuple[Ranges, ...]:
        """Return what each of `processes` holds of a flat value."""
        return tuple(self.held(size, process) for process in self.processes)

    def put(self, x: NDArray[np.generic] | jax.Array, sharding: Sharding) -> jax.Array:
        """Put an array that every process has whole on the devices; none waits for another.

        Args:
            x: The array, on the host or on a device of this process.
            sharding: How it is sharded over the devices.
        """
        if sharding.is_fully_addressable:
            array: jax.Array = jax.device_put(x, sharding)
            return array
        # Not device_put: it would let all processes compare what they put, in a collective.
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            words = self.put(jax.random.key_data(x), sharding)
            keys: jax.Array = jax.random.wrap_key_data(words, impl=jax.random.key_impl(x))
            return keys
        whole = np.asarray(x)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    def put_share(self, share: NDArray[np.generic], size: int) -> jax.Array:
        """Put this process's share of a flat value on its devices; the share may be reused at once.

        Args:
            share: The elements that `held` tells, one range after the other.
            size: Number of elements of the whole value.
        """
        length = self.padded(size) // len(self.devices)
        own = self.own_devices
        copy = np.empty(length * len(own), share.dtype)
        copy[: share.size], copy[share.size :] = share, 0
        if self.alone:
            flat: jax.Array = jax.device_put(copy, self.flat)
            return flat
        parts = jax.device_put(np.split(copy, len(own)), list(own))
        return jax.make_array_from_single_device_arrays((self.padded(size),), self.flat, parts)

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
        *,
        read_here: bool = False,
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
            read_here: whether every process will read the whole results of a function of whole
                arrays; they are then gathered, but where one process has all devices anyway.
        """
        if self.mesh is None:
            return function, arguments, None
        described = tuple(
            self._described(x, self.rows if index == batch else self._copied)
            for index, x in enumerate(arguments)
        )
        if parts_to is None:
            shapes = jax.eval_shape(function, *described)
            lives = self._copied if read_here and not self.alone else self.tensor
            return function, described, jax.tree.map(lambda x: lives(x.shape), shapes)
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
