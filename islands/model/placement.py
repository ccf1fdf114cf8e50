"""The devices of a model, one or a mesh of several: its leaves, flat values and functions there.

A flat value of a fragment (the base, a snapshot) is cut evenly over all devices, padded where it
does not divide, so each device keeps and copies only its share. A leaf is cut in any way that a
`PartitionSpec` has. On one device there is no mesh, and this module adds no cost. A process can
read and fill only the parts of an array on its own devices; to do so is no collective, and waits
for no other process.

The mesh of a learner has two axes. The rows of a batch are sharded over `data`; a large tensor is
cut along one of its axes over `model`. XLA propagates this sharding through the step and adds the
communication; nothing in a task says where it runs. The optimizer's state is sharded like the
parameters, since the rule looks at the shape alone: a moment has the shape of its parameter.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)
from jax.stages import Compiled
from jaxtyping import PyTree
from numpy.typing import NDArray

from islands.model.interfaces import host_named
from islands.model.jax_settings import compiling
from islands.protocol.errors import SettingsError, TaskError
from islands.protocol.ranges import Ranges, held_by

Function = Callable[..., PyTree]


@dataclass(frozen=True, eq=False)
class Placement:
    """The devices of a model in the order of their mesh, which has any axes; None on one device."""

    devices: tuple[jax.Device, ...]
    mesh: Mesh | None

    @property
    def key(self) -> tuple[object, ...]:
        """Key of compiled functions; equal placements share them."""
        return self.devices if self.mesh is None else (self.mesh,)

    @property
    def axes(self) -> tuple[str, ...]:
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
        index: int = self.devices[0].client.process_index()  # of a remote device, too
        return index

    @cached_property
    def own_devices(self) -> tuple[jax.Device, ...]:
        return tuple(each for each in self.devices if each.process_index == self.process)

    @property
    def named(self) -> str:
        first, count = self.devices[0], len(self.devices)
        return host_named() if first.platform == "cpu" else f"{count} × {first.device_kind}"

    @cached_property
    def alone(self) -> bool:
        return len(self.own_devices) == len(self.devices)

    def held(self, size: int, process: int | None = None) -> Ranges:
        """Return the elements of a flat value that lie on a process's devices, without padding."""
        owners = [device.process_index for device in self.devices]
        return held_by(self.process if process is None else process, owners, size)

    def shares(self, size: int) -> tuple[Ranges, ...]:
        """Return what each process with some of the devices holds of a flat value, ascending."""
        processes = sorted({device.process_index for device in self.devices})
        return tuple(self.held(size, process) for process in processes)

    def put(self, x: NDArray[np.generic] | jax.Array, sharding: Sharding) -> jax.Array:
        """Put an array that every process has whole on the devices; none waits for another."""
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
        """Put this process's share of a value of so many elements on its devices (`held`).

        The caller may reuse the share at once.
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
        return -(-size // len(self.devices)) * len(self.devices)

    def tensor(self, shape: tuple[int, ...]) -> Sharding:
        """Return the sharding of a result of this shape, of a function of whole arrays."""
        return self.whole

    def rows(self, shape: tuple[int, ...]) -> Sharding:
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

        On one device, function and arguments are returned as they are, and no shardings. The
        function computes on whole arrays, or on each device's parts if `parts_to` gives the
        shardings of its results. Arguments on devices stay where they are; of arrays on the host,
        that of index `batch` is sharded by rows, and others are copied to every device. With
        `read_here` every process reads the whole results of a function of whole arrays.
        """
        if self.mesh is None:
            return function, arguments, None
        described = tuple(
            self._described(x, rows=index == batch) for index, x in enumerate(arguments)
        )
        if parts_to is None:
            gathered = read_here and not self.alone
            to = jax.tree.map(
                lambda x: self.whole if gathered else self.tensor(x.shape),
                jax.eval_shape(function, *described),
            )
            return function, described, to
        takes = jax.tree.map(lambda x: x.sharding.spec, described)
        gives = jax.tree.map(lambda sharding: sharding.spec, parts_to)
        # No check: JAX cannot prove that results declared whole are equal on all devices.
        function = jax.shard_map(
            function, mesh=self.mesh, in_specs=takes, out_specs=gives, check_vma=False
        )
        return function, described, parts_to

    def _described(self, tree: PyTree, *, rows: bool) -> PyTree:
        def described(x: NDArray[np.generic] | jax.Array | jax.ShapeDtypeStruct) -> object:
            if isinstance(x, jax.Array | jax.ShapeDtypeStruct):
                return x
            to = self.rows(x.shape) if rows else self.whole
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=to)  # type: ignore[no-untyped-call]  # untyped in JAX

        return jax.tree.map(described, tree)


DATA = "data"
MODEL = "model"
EVERYWHERE = (DATA, MODEL)

MIN_SPLIT_ELEMENTS = 2**14
"""A smaller tensor is kept whole on every device, as communicating its parts would cost more."""

Device = TypeVar("Device")


def choose(devices: Sequence[Device], spec: str) -> list[Device]:
    """Return the devices of a host that a setting names (`LearnerDevices`)."""
    if spec.strip() == "all":
        return list(devices)
    exist = "only device 0" if len(devices) == 1 else f"devices 0 to {len(devices) - 1}"
    chosen: list[int] = []
    for part in spec.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise SettingsError(
                f"devices is {spec!r}; it must be 'all', or numbers such as '0,1' or '0-3'"
            )
        start, stop = int(first), int(last or first)
        if start > stop or stop >= len(devices):
            raise SettingsError(f"devices is {spec!r}, but this host has {exist}")
        chosen.extend(range(start, stop + 1))
    if len(set(chosen)) < len(chosen):
        raise SettingsError(f"devices is {spec!r}, which names a device twice")
    return [devices[index] for index in chosen]


def devices_of_learner(spec: str) -> list[jax.Device]:
    """Return the devices that a setting names, for the learner of this process.

    Where the process is one of several of a program, the learner is theirs together and has the
    devices of all, in JAX's order.
    """
    if jax.process_count() == 1:
        return choose(jax.local_devices(), spec)
    if spec.strip() != "all":
        raise SettingsError(
            f"devices is {spec!r}, but the learner has the devices of {jax.process_count()} "
            "processes together, and none may be left out: leave the setting out, or set it to "
            "'all'"
        )
    return jax.devices()


def shares(learners: int, each: int | None) -> list[list[jax.Device] | None]:
    """Divide this process's devices among its learners; without a number all have the first."""
    if each is None:
        return [None] * learners
    devices = jax.local_devices()
    if each < 1 or learners * each > len(devices):
        raise SettingsError(
            f"{learners} learner(s) of {each} device(s) each need {learners * each}, and at least "
            f"1 each; this process has {len(devices)}"
        )
    return [devices[start : start + each] for start in range(0, learners * each, each)]


def learner_mesh(devices: Sequence[jax.Device], model_parallel: int = 1) -> Mesh:
    """Arrange the devices as a grid of `data` × `model`.

    Neighbours in the list share a copy of the parameters, so list devices with fast links between
    them next to one another.
    """
    count = len(devices)
    if model_parallel < 1 or count % model_parallel:
        allowed = [str(each) for each in range(1, count + 1) if count % each == 0]
        raise SettingsError(
            f"model_parallel is {model_parallel}; it must divide the learner's {count} device(s): "
            f"{', '.join(allowed)}"
        )
    grid = np.array(devices, dtype=object).reshape(-1, model_parallel)
    # Auto: XLA propagates the sharding. Newer releases of JAX would by default put it into types.
    return Mesh(grid, EVERYWHERE, axis_types=(AxisType.Auto, AxisType.Auto))


@dataclass(frozen=True, eq=False)
class LearnerPlacement(Placement):
    """The devices of a learner in the order of its setting, as a grid of `data` × `model`."""

    @property
    def birthplace(self) -> jax.Device:
        """Device that computes initial values: the host's CPU if they are sharded afterwards."""
        own = self.own_devices[0]
        if self.mesh is None:
            return own
        try:
            host: list[jax.Device] = jax.local_devices(backend="cpu")
        except RuntimeError:  # this process was told to use the accelerator alone
            return own
        return host[0]

    def tensor(self, shape: tuple[int, ...]) -> Sharding:
        """Return the sharding of a parameter, a moment or a leaf of the task's state.

        It is cut over `model` along its largest axis that divides evenly, of equal axes the first.
        Each device has the whole of it if it is small or no axis divides.
        """
        parts = 1 if self.mesh is None else self.mesh.shape[MODEL]
        axes = [axis for axis, length in enumerate(shape) if length and length % parts == 0]
        if parts == 1 or not axes or np.prod(shape, dtype=np.int64) < MIN_SPLIT_ELEMENTS:
            return self.whole
        largest = max(axes, key=lambda axis: (shape[axis], -axis))
        return self.sharding(*[None] * largest, MODEL)

    def rows(self, shape: tuple[int, ...]) -> Sharding:
        return self.sharding(DATA) if self._divides(shape) else self.whole

    def check_batch(self, batch: PyTree) -> None:
        """Refuse a batch that every device would have to compute whole.

        A later, shorter batch is not refused: every device computes the whole of it.
        """
        shapes = [leaf.shape for leaf in jax.tree.leaves(batch) if leaf.shape]
        if self.mesh is None or not shapes or any(self._divides(shape) for shape in shapes):
            return
        parts = self.mesh.shape[DATA]
        raise TaskError(
            f"a batch has {max(shape[0] for shape in shapes)} rows, which {parts} devices cannot "
            f"share evenly; make its rows a multiple of {parts}, or raise model_parallel"
        )

    def put_tree(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: self.put(x, self.tensor(x.shape)), tree)

    def _divides(self, shape: tuple[int, ...]) -> bool:
        parts = 1 if self.mesh is None else self.mesh.shape[DATA]
        return bool(shape) and shape[0] % parts == 0


def placed(devices: Sequence[jax.Device] | None, model_parallel: int = 1) -> LearnerPlacement:
    """Place a learner on these devices; None: on JAX's first device."""
    chosen = tuple(jax.local_devices()[:1] if devices is None else devices)
    if not chosen:
        raise SettingsError("a learner needs at least one device")
    mesh = learner_mesh(chosen, model_parallel)
    placement = LearnerPlacement(chosen, mesh if len(chosen) > 1 else None)
    if not placement.own_devices:
        raise SettingsError(
            f"a learner needs a device of each process that computes for it, but process "
            f"{placement.process} has none of {list(chosen)}: give it one of jax.local_devices()"
        )
    return placement


class CompiledFunctions:
    """Compiled functions by their names and the devices for which they were compiled.

    They are compiled ahead of time, under a lock: models that start together compile once, and a
    step never finds itself compiling because another thread was first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._compiled: dict[object, Compiled] = {}

    @property
    def compiling(self) -> bool:
        return self._lock.locked()

    def compile(
        self,
        placement: Placement,
        name: object,
        function: Callable[..., PyTree],
        arguments: tuple[PyTree, ...],
        *,
        donate: tuple[int, ...] = (),
        batch: int | None = None,
        parts_to: PyTree[Sharding] | None = None,
        read_here: bool = False,
    ) -> Compiled:
        """Return a function compiled for devices and shapes, compiling at most once for a name.

        One that is compiled is returned without the lock, so that no step waits. The arguments are
        like those of later calls, or their shapes; it may overwrite those that it is donated. For
        the others see `Placement.prepared`.
        """
        key = (name, placement.key)
        if (compiled := self._compiled.get(key)) is not None:
            return compiled
        function, arguments, results = placement.prepared(
            function, arguments, batch, parts_to, read_here=read_here
        )
        with self._lock:
            if key not in self._compiled:
                to = {} if results is None else {"out_shardings": results}
                jitted = jax.jit(function, donate_argnums=donate, **to)
                # shard_map refuses a mesh other than the one that the user's loop may have set.
                mesh = None if parts_to is None else placement.mesh
                context = nullcontext() if mesh is None else jax.set_mesh(mesh)
                with context, compiling(name):
                    self._compiled[key] = jitted.lower(*arguments).compile()
            return self._compiled[key]
