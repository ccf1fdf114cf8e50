"""What a trainer has asked of the device and may read once it is there: losses and differences."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Array


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
    """A difference in a buffer of its own, on its way to the host."""

    array: Array
    size: int

    def buffer(self) -> memoryview:
        """Wait for the bytes and return them; they stay valid as long as the view is held."""
        return np.asarray(self.array)[: self.size].view(np.uint8).data.toreadonly()

    def ready(self) -> bool:
        """Whether the device has finished the buffer."""
        return _is_ready(self.array)


def _is_ready(array: Array) -> bool:
    ready: bool = array.is_ready()  # type: ignore[attr-defined]  # untyped in JAX
    return ready
