"""A toy learner that remembers its steps and adoptions, for loops that redo a run."""

import numpy as np
from numpy.typing import NDArray

from islands.lab.toys.toy import NumpyTrainer, ToyBatch
from islands.model.interfaces import PendingStep


class Recorded(NumpyTrainer):
    """A learner whose batches, rates and adoptions can be looked up afterwards."""

    def setup(self) -> None:
        super().setup()
        self.steps: list[tuple[int, float]] = []
        self.adopted: list[tuple[int, int, NDArray[np.float32]]] = []
        self.parts = self._ranges
        self.facts = self._initial, self._target, self._noise

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        assert isinstance(batch, ToyBatch)
        self.steps.append((batch.seed, learning_rate))
        return super().step(batch, learning_rate)

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        self.adopted.append((fragment, len(self.steps), value.copy()))
        super().adopt(fragment, value)

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        self.adopted.append((fragment, len(self.steps), value.copy()))
        super().mix(fragment, value, share)
