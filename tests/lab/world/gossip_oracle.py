"""Recomputes a run that gossiped in NumPy float64, from protocol §10 and the order of events alone.

What happened is taken from the run: which batches a learner stepped on, at which of its steps its
share was taken and the result adopted, and who met whom. Every value is computed anew, with no code
of ours, for one fragment.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from islands.lab.toys.toy import NumpyTrainer, ToyBatch
from islands.model.interfaces import PendingStep, Snapshot
from tests.numerics.oracle import noloco_momentum

Double = NDArray[np.float64]


class Watched(NumpyTrainer):
    """A trainer that notes the order of what it did."""

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **settings)  # type: ignore[arg-type]
        self.deeds: list[tuple[str, float, float]] = []
        self.held: list[Double] = []
        self.start = self._local.astype(np.float64)
        self.target = self._target.astype(np.float64)
        self.noises = self._noise.astype(np.float64)
        self.decay = float(self._momentum)

    def _note(self, kind: str, seed: float = 0.0, rate: float = 0.0) -> None:
        self.deeds.append((kind, seed, rate))
        self.held.append(self.local)

    @property
    def local(self) -> Double:
        return self._local.astype(np.float64)

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        assert isinstance(batch, ToyBatch)
        self._note("step", batch.seed, learning_rate)
        return super().step(batch, learning_rate)

    def snapshot(self, fragment: int, precision: str) -> Snapshot:
        self._note("share")
        return super().snapshot(fragment, precision)  # type: ignore[arg-type]

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        self._note("adopt")
        super().adopt(fragment, value)

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        self._note("adopt")
        super().carry_on(fragment, value, sent)


@dataclass
class Learner:
    """One learner's values, and how far its deeds have been recomputed."""

    trainer: Watched
    at: int = 0
    local: Double = field(default_factory=lambda: np.zeros(0))
    slow: Double = field(default_factory=lambda: np.zeros(0))
    momentum: Double = field(default_factory=lambda: np.zeros(0))
    speed: Double = field(default_factory=lambda: np.zeros(0))
    sent: Double = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        """Begin with version 0, which every learner adopts."""
        self.local = self.trainer.start.copy()
        self.slow, self.sent = self.local.copy(), self.local.copy()
        self.momentum, self.speed = np.zeros_like(self.local), np.zeros_like(self.local)
        self.until("adopt")

    def until(self, deed: str) -> None:
        """Step on until the next deed of this kind."""
        while True:
            kind, seed, rate = self.trainer.deeds[self.at]
            self.at += 1
            if kind == "step":
                noise = self.trainer.noises[int(seed) % len(self.trainer.noises)]
                gradient = self.local - self.trainer.target - noise
                self.speed = self.trainer.decay * self.speed + gradient
                self.local = self.local - rate * self.speed
            else:
                assert kind == deed, f"{kind}, and not {deed}"
                return


def recompute(learners: dict[str, Learner], rounds: list[dict[str, tuple[str, ...]]]) -> None:
    """Go through all rounds: by learner, with whom it met; with nobody, it steps on."""
    for met in rounds:
        for name in met:
            learners[name].until("share")
            learners[name].sent = learners[name].local.copy()
        slow = {name: learners[name].slow for name in met}
        moved = {name: learners[name].sent - learners[name].slow for name in met}
        for name, partners in met.items():
            if partners:
                one = learners[name]
                group = [(slow[other], moved[other]) for other in (name, *partners)]
                one.momentum = noloco_momentum(one.momentum, slow[name], group)
                one.slow = slow[name] + one.momentum
                one.until("adopt")
                one.local = one.local + one.slow - one.sent
