"""On which devices one learner computes: one device, or a mesh of several.

A mesh has two axes. The rows of a batch are sharded over `data`; a large tensor is cut along one of
its axes over `model`. XLA propagates this sharding through the step and adds the communication;
nothing in a task says where it runs. The optimizer's state is sharded like the parameters, since
the rule looks at the shape alone: a moment has the shape of its parameter.

On one device there is no mesh. What does not depend on these two axes is in `placement.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, Sharding
from jaxtyping import PyTree

from islands.model.placement import Placement
from islands.protocol.errors import SettingsError, TaskError

DATA = "data"
MODEL = "model"
EVERYWHERE = (DATA, MODEL)

MIN_SPLIT_ELEMENTS = 2**14
"""A smaller tensor is kept whole on every device, as communicating its parts would cost more."""

Device = TypeVar("Device")


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


def devices_of_learner(spec: str) -> list[jax.Device]:
    """Return the devices that a setting names, for the learner of this process.

    Where the process is one of several of a program, the learner is theirs together and has the
    devices of all, in JAX's order.

    Raises:
        SettingsError: The setting is not one that `choose` accepts, or names only some of the
            devices that several processes have.
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
class LearnerPlacement(Placement):
    """The devices of a learner, and how its arrays are sharded over them.

    Args:
        devices: devices of the learner, in the order of its setting.
        mesh: grid of these devices, `data` × `model`; None on one device.
    """

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
        """Return the sharding of an array of a batch: by rows, or whole if they do not divide."""
        return self.sharding(DATA) if self._divides(shape) else self.whole

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

    def put_tree(self, tree: PyTree) -> PyTree:
        """Put parameters, state or moments on their devices."""
        return jax.tree.map(lambda x: self.put(x, self.tensor(x.shape)), tree)

    def _divides(self, shape: tuple[int, ...]) -> bool:
        parts = 1 if self.mesh is None else self.mesh.shape[DATA]
        return bool(shape) and shape[0] % parts == 0


def placed(devices: Sequence[jax.Device] | None, model_parallel: int = 1) -> LearnerPlacement:
    """Place a learner on these devices; None: on JAX's first device.

    Raises:
        SettingsError: there is no device, none of them is this process's, or `model_parallel` does
            not divide their number.
    """
    chosen = tuple(jax.local_devices()[:1] if devices is None else devices)
    if not chosen:
        raise SettingsError("a learner needs at least one device")
    mesh = learner_mesh(chosen, model_parallel)
    place = LearnerPlacement(chosen, mesh if len(chosen) > 1 else None)
    if not place.own_devices:
        raise SettingsError(
            f"a learner needs a device of each process that computes for it, but process "
            f"{place.process} has none of {list(chosen)}: give it one of jax.local_devices()"
        )
    return place
