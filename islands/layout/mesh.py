"""On which devices one learner computes: one device, or a mesh of several.

A mesh has two axes. The rows of a batch are sharded over `data`; a large tensor is cut along one of
its axes over `model`. XLA propagates this sharding through the step and adds the communication;
nothing in a task says where it runs. The optimizer's state is sharded like the parameters, since
the rule looks at the shape alone: a moment has the shape of its parameter.

A flat value of a fragment (the base, a snapshot) is cut evenly over all devices, padded where it
does not divide, so each device keeps and copies only its share.

On one device there is no mesh, and this module adds no cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)
from jaxtyping import PyTree
from numpy.typing import NDArray

from islands.errors import SettingsError, TaskError

DATA = "data"
MODEL = "model"
EVERYWHERE = (DATA, MODEL)

MIN_SPLIT_ELEMENTS = 2**14
"""A smaller tensor is kept whole on every device, as communicating its parts would cost more."""

Device = TypeVar("Device")
Function = Callable[..., PyTree]


@dataclass(frozen=True, slots=True)
class Split:
    """How a tensor is cut over the mesh's `model` axis."""

    axis: int
    parts: int


def choose(devices: Sequence[Device], spec: str) -> list[Device]:
    """Return the devices that a setting names.

    Args:
        devices: all devices of this host.
        spec: `all`, or numbers and ranges such as `0,1` or `0-3`, counted from 0.

    Raises:
        SettingsError: the setting is malformed, or names a device twice or one that does not
            exist; correct it as the sentence says.
    """
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


def shares(learners: int, each: int | None) -> list[list[jax.Device] | None]:
    """Divide this process's devices among its learners, so that no two of them share one.

    Args:
        learners: number of learners in this process.
        each: devices per learner. None: each gets None, and all share the first device.

    Raises:
        SettingsError: this process has too few devices.
    """
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

    Raises:
        SettingsError: `model_parallel` does not divide the number of devices.
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
class Placement:
    """The devices of a learner, and how its arrays are sharded over them.

    Args:
        devices: devices of the learner, in the order of its setting.
        mesh: grid of these devices; None on one device.
    """

    devices: tuple[jax.Device, ...]
    mesh: Mesh | None

    @property
    def key(self) -> tuple[object, ...]:
        """Key of compiled functions; equal placements share them."""
        return self.devices if self.mesh is None else (self.mesh,)

    @cached_property
    def whole(self) -> Sharding:
        """Sharding that keeps a copy on every device."""
        return self._sharding(_spec())

    @cached_property
    def flat(self) -> Sharding:
        """Sharding that cuts a vector evenly over all devices."""
        return self._sharding(_spec(EVERYWHERE))

    @property
    def birthplace(self) -> jax.Device:
        """Device that computes initial values: the host's CPU if they are sharded afterwards."""
        if self.mesh is None:
            return self.devices[0]
        try:
            host: list[jax.Device] = jax.local_devices(backend="cpu")
        except RuntimeError:  # this process was told to use the accelerator alone
            return self.devices[0]
        return host[0]

    def padded(self, size: int) -> int:
        """Return the least length, from `size` up, that all devices can share evenly."""
        return -(-size // len(self.devices)) * len(self.devices)

    def split(self, shape: tuple[int, ...]) -> Split | None:
        """Choose how a tensor is cut over `model`: along its largest axis that divides evenly.

        Of equal axes the first is taken. None: each device has the whole tensor, because it is
        small or no axis divides.
        """
        parts = 1 if self.mesh is None else self.mesh.shape[MODEL]
        axes = [axis for axis, length in enumerate(shape) if length and length % parts == 0]
        if parts == 1 or not axes or np.prod(shape, dtype=np.int64) < MIN_SPLIT_ELEMENTS:
            return None
        return Split(max(axes, key=lambda axis: (shape[axis], -axis)), parts)

    def tensor(self, shape: tuple[int, ...]) -> Sharding:
        """Return the sharding of a parameter, a moment or a leaf of the task's state."""
        return self._sharding(_spec_of(self.split(shape)))

    def rows(self, shape: tuple[int, ...]) -> Sharding:
        """Return the sharding of an array of a batch: by rows, or whole if they do not divide."""
        return self._sharding(_spec(DATA) if self._divides(shape) else _spec())

    def check_batch(self, batch: PyTree) -> None:
        """Refuse a batch that every device would have to compute whole.

        A later, shorter batch is not refused: every device computes the whole of it.

        Raises:
            TaskError: no array of the batch can be sharded by rows.
        """
        shapes = [leaf.shape for leaf in jax.tree.leaves(batch) if leaf.shape]
        if self.mesh is None or not shapes or any(self._divides(shape) for shape in shapes):
            return
        parts = self.mesh.shape[DATA]
        raise TaskError(
            f"a batch has {max(shape[0] for shape in shapes)} rows, which {parts} devices cannot "
            f"share evenly; make its rows a multiple of {parts}, or raise model_parallel"
        )

    def put(self, tree: PyTree) -> PyTree:
        """Put parameters, state or moments on their devices."""
        return jax.tree.map(lambda x: jax.device_put(x, self.tensor(x.shape)), tree)

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
            arguments: those on devices stay where they are; of arrays on the host, a batch is
                sharded by rows, and others are copied to every device.
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
        def described(x: NDArray[np.generic] | jax.Array) -> object:
            if isinstance(x, jax.Array):
                return x
            where = lives(x.shape)
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)  # type: ignore[no-untyped-call]  # untyped in JAX

        return jax.tree.map(described, tree)

    def _copied(self, _: tuple[int, ...]) -> Sharding:
        return self.whole

    def _divides(self, shape: tuple[int, ...]) -> bool:
        parts = 1 if self.mesh is None else self.mesh.shape[DATA]
        return bool(shape) and shape[0] % parts == 0

    def _sharding(self, spec: PartitionSpec) -> Sharding:
        if self.mesh is None:
            return SingleDeviceSharding(self.devices[0])
        return NamedSharding(self.mesh, spec)


def placed(devices: Sequence[jax.Device] | None, model_parallel: int = 1) -> Placement:
    """Place a learner on these devices; None: on JAX's first device.

    Raises:
        SettingsError: there is no device, or `model_parallel` does not divide their number.
    """
    chosen = tuple(jax.local_devices()[:1] if devices is None else devices)
    if not chosen:
        raise SettingsError("a learner needs at least one device")
    mesh = learner_mesh(chosen, model_parallel)
    return Placement(chosen, mesh if len(chosen) > 1 else None)


def _spec_of(split: Split | None) -> PartitionSpec:
    return _spec() if split is None else _spec(*[None] * split.axis, MODEL)


def _spec(*axes: str | tuple[str, ...] | None) -> PartitionSpec:
    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]  # untyped in JAX
