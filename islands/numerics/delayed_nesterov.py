"""Delayed Nesterov: an outer step for contributions that are merged one by one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from islands.numerics.outer import OuterState
from islands.numerics.types import Flat
from islands.protocol.errors import InvariantError
from islands.protocol.settings.outer import OuterSettings

# Shapes are checked under test (jaxtyping).

STATE = {"momentum": np.float32, "buffer": np.float32, "merges": np.int64}


@dataclass(frozen=True, slots=True)
class DelayedNesterov:
    """Plain steps of a Nth, and a momentum that is refreshed by every N-th merge.

    ::

        B ← B + Δ
        Θ ← Θ − η Δ/N                                       ordinarily
        v ← μv + B/N;  Θ ← Θ − η(Δ/N + μv);  B ← 0          at every N-th merge

    One by one, contributions would each apply the whole momentum, N times as often as together. N
    equal directions from rest make the step η(1 + μ)Δ, like one Nesterov step. All is computed in
    float32.

    Attributes:
        learning_rate: η, dimensionless.
        momentum: μ in [0, 1).
        delay_merges: N ≥ 1, fixed at the start; at 1 it is SGD with Nesterov momentum.

    Reference:
        Asynchronous Local-SGD (arXiv 2401.09135), algorithm 3; protocol §10.

    Deviation:
        Their c, the share of the momentum that ordinary steps apply, is 0, as in their experiments.
    """

    learning_rate: float
    momentum: float
    delay_merges: int

    @classmethod
    def of(cls, settings: OuterSettings) -> "DelayedNesterov":
        """Make the optimizer that the settings describe.

        Raises:
            InvariantError: The settings lack N; check them first.
        """
        if settings.delay_merges is None:
            raise InvariantError("delayed_nesterov needs delay_merges")
        rate, decay = float(settings.learning_rate), float(settings.momentum)
        return cls(rate, decay, settings.delay_merges)

    def init(self, value: NDArray[np.float32]) -> OuterState:
        """Return a state at rest."""
        return {
            "momentum": np.zeros(value.shape, np.float32),
            "buffer": np.zeros(value.shape, np.float32),
            "merges": np.zeros((), np.int64),
        }

    def update(
        self, direction: NDArray[np.float32], state: OuterState, value: NDArray[np.float32]
    ) -> tuple[Flat, OuterState]:
        """Take one step along a direction; the arguments are not modified.

        Raises:
            InvariantError: The state belongs to another optimizer: journal and settings disagree.
        """
        if {name: array.dtype for name, array in state.items()} != STATE:
            raise InvariantError(f"a state of {sorted(state)} is not one of {sorted(STATE)}")
        before = int(state["merges"])
        step = direction / np.float32(self.delay_merges)
        momentum = np.asarray(state["momentum"], np.float32)
        buffer = np.asarray(state["buffer"], np.float32) + direction
        if (before + 1) % self.delay_merges == 0:
            decay = np.float32(self.momentum)
            momentum = decay * momentum + buffer / np.float32(self.delay_merges)
            step += decay * momentum
            buffer = np.zeros_like(buffer)
        after = {"momentum": momentum, "buffer": buffer, "merges": np.array(before + 1, np.int64)}
        return value - np.float32(self.learning_rate) * step, after
