"""What a trainer has asked of the device and may read once it is there: losses and differences."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class JaxStep:
    """A dispatched step."""

    array: Array

    def loss(self) -> float:
        """Wait for the step and return its loss."""
        return float(self.array)

    def ready(self) -> bool:
        """Whether the device has computed the loss."""
        return _is_ready(self.array)


@dataclass(frozen=True, slots=True)
class JaxSnapshot:
    """This process's share of a difference in a buffer of its own, on its way to the host.

    Attributes:
        array: The padded flat value, cut evenly over the devices.
        size: Number of elements of the whole value, without padding.
    """

    array: Array
    size: int

    def buffer(self) -> memoryview:
        """Wait for the bytes and return them; they stay valid as long as the view is held."""
        return share_of(self.array, self.size).view(np.uint8).data.toreadonly()

    def ready(self) -> bool:
        """Whether the device has finished the buffer."""
        return _is_ready(self.array)


def share_of(array: Array, size: int) -> NDArray[np.generic]:
    """Wait for a flat value's elements on this process's devices, and return them.

    They are in the order of the value and read-only. No other process is waited for.

    Args:
        array: The padded flat value, cut evenly over the devices.
        size: Number of elements of the whole value, without padding.
    """
    if array.is_fully_addressable:
        return np.asarray(array)[:size]
    starts = {shard.index[0].start: shard.data for shard in array.addressable_shards}
    parts = [np.asarray(starts[start])[: max(0, size - start)] for start in sorted(starts)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _is_ready(array: Array) -> bool:
    ready: bool = array.is_ready()  # type: ignore[attr-defined]  # untyped in JAX
    return ready
