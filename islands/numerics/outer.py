"""Outer optimizers: what the syncer does with a merged direction.

An optimizer is a pair of pure functions, `init` and `update`, over one flat fragment. Its state is
a mapping of names to arrays and nothing else, so the journal writes it as it is and a restart reads
it back. `Sgd` has a fused path, `DelayedNesterov` is for contributions that are merged one by one,
and `optax_chain.py` makes one of any optax chain. JAX is imported only for that one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics.merge import OuterState, OuterStep, combine, merge_and_step
from islands.numerics.norms import Measured, measure
from islands.numerics.types import Flat
from islands.protocol.errors import InvariantError
from islands.protocol.settings.outer import DELAYED_NESTEROV, SGD, OuterSettings

# Shapes are checked under test (jaxtyping).


@runtime_checkable
class OuterOptimizer(Protocol):
    """A pure outer optimizer of one fragment; `value` and `direction` are flat float32."""

    def init(self, value: NDArray[np.float32]) -> OuterState:
        """Return the state before the first merge."""

    def update(
        self, direction: NDArray[np.float32], state: OuterState, value: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], OuterState]:
        """Return the next published value and state; the arguments are not modified.

        Raises:
            InvariantError: The state belongs to another optimizer: journal and settings disagree.
        """


def merge_with(
    optimizer: OuterOptimizer,
    value: Flat,
    state: OuterState,
    contributions: Sequence[Flat | Measured],
    weights: Sequence[float],
    units: Sequence[Unit],
    *,
    out: tuple[Flat, Flat] | None = None,
) -> OuterStep:
    """Merge contributions and step with any optimizer; `Sgd` takes the fused path.

    The arguments are those of `islands.numerics.merge.merge_and_step`. `Sgd` writes value and
    momentum into `out`; others make new arrays.
    """
    measured = [one if isinstance(one, Measured) else measure(one, units) for one in contributions]
    if isinstance(optimizer, Sgd):
        momentum = optimizer.momentum_of(state)
        result = merge_and_step(
            value,
            momentum,
            measured,
            weights,
            units,
            learning_rate=optimizer.learning_rate,
            momentum_decay=optimizer.momentum,
            nesterov=optimizer.nesterov,
            out=out,
        )
        if optimizer != Sgd() and any(not unit.stepped for unit in units):
            moved = optimizer.momentum_of(result.state)
            direction = moved - np.float32(optimizer.momentum) * momentum
            _publish_merged(result.value, value, direction, units)
        return result
    direction = combine(measured, weights, units)
    stepped, state = optimizer.update(direction, state, value)
    if any(not unit.stepped for unit in units):
        stepped = np.array(stepped)
        _publish_merged(stepped, value, direction, units)
    norms = tuple(one.norm for one in measured)
    return OuterStep(stepped, state, norms, float(np.linalg.norm(direction)), 0.0)


def _publish_merged(
    stepped: NDArray[np.float32],
    value: NDArray[np.float32],
    direction: NDArray[np.float32],
    units: Sequence[Unit],
) -> None:
    """Replace the outer step by the merged value in units that are not stepped.

    Such units hold running averages, which have no momentum.
    """
    for unit in units:
        if not unit.stepped:
            here = slice(unit.offset, unit.offset + unit.size)
            stepped[here] = value[here] - direction[here]


@dataclass(frozen=True, slots=True)
class Sgd:
    """SGD with (Nesterov) momentum: v ← μv + Δ; Θ ← Θ − η(Δ + μv), or Θ − ηv without Nesterov.

    η and μ in [0, 1) are dimensionless. The momentum is kept also at μ = 0, where it is the last
    direction.

    Reference:
        DiLoCo (arXiv 2311.08105), OuterOpt; its lineage uses η = 0.7, μ = 0.9.

    Deviation:
        The defaults take the direction as it is; see `islands.protocol.syncer.stability`.
    """

    learning_rate: float = 1.0
    momentum: float = 0.0
    nesterov: bool = True

    def init(self, value: NDArray[np.float32]) -> OuterState:
        """Return a state whose momentum is zero; it takes no memory before it is written to."""
        return {"momentum": np.zeros(value.shape, np.float32)}

    def update(
        self, direction: NDArray[np.float32], state: OuterState, value: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], OuterState]:
        """Take one step along a direction, with the same bits as the fused path."""
        rate, decay = np.float32(self.learning_rate), np.float32(self.momentum)
        moved = decay * self.momentum_of(state) + direction
        step = direction + decay * moved if self.nesterov else moved
        return value - rate * step, {"momentum": moved}

    @staticmethod
    def momentum_of(state: OuterState) -> NDArray[np.float32]:
        held = state.get("momentum")
        if held is None or held.dtype != np.float32 or len(state) != 1:
            raise InvariantError(f"an SGD state has one float32 momentum, not {sorted(state)}")
        return np.asarray(held, np.float32)


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

    η and μ in [0, 1) are dimensionless. N ≥ 1, `delay_merges`, is fixed at the start; at 1 it is
    SGD with Nesterov momentum.

    Reference:
        Asynchronous Local-SGD (arXiv 2401.09135), algorithm 3; protocol §10.

    Deviation:
        Their c, the fraction of the momentum that ordinary steps apply, is 0, as in their
        experiments.
    """

    learning_rate: float
    momentum: float
    delay_merges: int

    def init(self, value: NDArray[np.float32]) -> OuterState:
        return {
            "momentum": np.zeros(value.shape, np.float32),
            "buffer": np.zeros(value.shape, np.float32),
            "merges": np.zeros((), np.int64),
        }

    def update(
        self, direction: NDArray[np.float32], state: OuterState, value: NDArray[np.float32]
    ) -> tuple[Flat, OuterState]:
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


PROBE = 64
"""Elements of a fragment by which a state is measured."""


def outer_optimizer(settings: OuterSettings) -> OuterOptimizer:
    """Make the outer optimizer of a run.

    Raises:
        SettingsError: optax has no such optimizer, or it does not take the arguments; mend what
            the sentence names.
    """
    rate, decay = float(settings.learning_rate), float(settings.momentum)
    if settings.kind == SGD:
        return Sgd(rate, decay, settings.nesterov)
    if settings.kind == DELAYED_NESTEROV:
        assert settings.delay_merges is not None, "the settings have checked it"
        return DelayedNesterov(rate, decay, settings.delay_merges)
    from islands.numerics.optax_chain import named_chain

    return named_chain(settings)


@cache
def state_values(settings: OuterSettings) -> int:
    """Return how many values per parameter the optimizer keeps, such as 1 for a momentum."""
    value = np.zeros(PROBE, np.float32)
    state = outer_optimizer(settings).init(value)
    return round(sum(array.nbytes for array in state.values()) / value.nbytes)
