"""How a pollutant spreads in a river, a lake and an estuary, learned by one operator network.

The concentration u(x, t) on a ring of circumference 2π is carried at a speed c and diffuses with a
diffusivity ν:

    ∂u/∂t = −c ∂u/∂x + ν ∂²u/∂x²,   so   û_k(t) = û_k(0) exp(−(i c k + ν k²) t)

for each wave k. That is exact, so the data are made on the spot, from a seed. The network is given
u(x, 0), c and ν, and learns u(x, 1). Each island has water of one kind, its regime, and trains on
that alone; the network is judged on all of them. A token is one field before and after.

It is a Fourier neural operator (Li et al., arXiv 2010.08895) of 22,513 parameters, whose layers
scale their channels by what c and ν say, before they mix the channels of each wave.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from statistics import mean
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands import Task, TaskState
from islands.protocol.errors import SettingsError
from islands.tasks.data.shards import ShardKey

POINTS, WAVES = 64, 12
LAYERS, CHANNELS, HINTS = 3, 16, 32
HELD_OUT = 128  # fields of each regime that are evaluated, of a seed that no learner draws from
Floats = NDArray[np.float32]


class Regime(NamedTuple):
    """Ranges of speed and diffusivity, and the power of k by which the waves of u(x, 0) fall."""

    speed: tuple[float, float]
    diffusivity: tuple[float, float]
    roughness: float


REGIMES = {
    "river": Regime((0.5, 1.0), (0.01, 0.05), 2.0),
    "lake": Regime((-0.25, 0.25), (0.1, 0.3), 1.0),
    "estuary": Regime((-1.0, -0.5), (0.03, 0.1), 1.5),
}


class Fields(NamedTuple):
    """Concentrations at 64 points before and after, and of each field its c and 5 ν."""

    before: Floats
    after: Floats
    medium: Floats


@dataclass(frozen=True)
class Nature(Task[Fields]):
    """Learns u(x, 1) from u(x, 0), c and ν.

    Attributes:
        regime: What this host's data are of: `river`, `lake`, `estuary`, or `all` in equal parts.
        rows: Fields per batch.
        seed: Seed of the data.
    """

    regime: str = "all"
    rows: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        if self.regime not in ("all", *REGIMES):
            known = ", ".join(REGIMES)
            raise SettingsError(f"regime is {self.regime!r}; it must be all, or one of {known}")

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Return random layers."""
        keys = iter(jax.random.split(key, 3 + 4 * LAYERS))
        size = (WAVES + 1, CHANNELS, CHANNELS)
        layers = [
            {
                "scale": _dense(next(keys), HINTS, CHANNELS),
                "mix": _dense(next(keys), CHANNELS, CHANNELS),
                "real": jax.random.normal(next(keys), size) / CHANNELS,
                "imaginary": jax.random.normal(next(keys), size) / CHANNELS,
            }
            for _ in range(LAYERS)
        ]
        first, last = _dense(next(keys), 1, CHANNELS), _dense(next(keys), CHANNELS, 1)
        hints = _dense(next(keys), 2, HINTS)
        return TaskState({"first": first, "hints": hints, "layers": layers, "last": last})

    def loss(
        self, params: PyTree, state: PyTree, batch: Fields, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Mean of squared relative errors."""
        return jnp.mean(jnp.square(_errors(params, batch))), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Adam."""
        return optax.adam(learning_rate, b2=0.99)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Fields, int]]:
        """Fields of this host's regime, without an end, drawn from the place in the data."""
        names = list(REGIMES) if self.regime == "all" else [self.regime]
        for place in count(position):
            where = (self.seed, shard.pass_index, shard.shard, place)
            parts = [fields(name, self.rows // len(names), where) for name in names]
            yield Fields(*map(np.concatenate, zip(*parts, strict=True))), place + 1

    def tokens(self, batch: Fields) -> int:
        """Fields."""
        return len(batch.before)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return the mean relative error over all regimes, and that of each."""
        found = {
            f"error_{name}": float(jnp.mean(_judged(params, fields(name, HELD_OUT, (2**31,)))))
            for name in REGIMES
        }
        return {"error": mean(found.values()), **found}


def fields(name: str, rows: int, where: tuple[int, ...]) -> Fields:
    """Draw fields of a regime; each has a root mean square of 1 at the beginning."""
    speed, diffusivity, roughness = REGIMES[name]
    rng = np.random.default_rng((*where, list(REGIMES).index(name)))
    c, nu = rng.uniform(*speed, (rows, 1)), rng.uniform(*diffusivity, (rows, 1))
    k = np.arange(WAVES + 1)
    drawn = rng.standard_normal((rows, WAVES + 1)) + 1j * rng.standard_normal((rows, WAVES + 1))
    waves = drawn * np.where(k > 0, np.maximum(k, 1.0) ** -roughness, 0)
    waves /= np.sqrt(2 * np.sum(np.abs(waves) ** 2, axis=1, keepdims=True)) / POINTS
    before, after = (
        np.fft.irfft(each, POINTS).astype(np.float32)
        for each in (waves, waves * np.exp(-1j * c * k - nu * k**2))
    )
    return Fields(before, after, np.concatenate([c, 5 * nu], axis=1).astype(np.float32))


def _errors(params: PyTree, batch: Fields) -> Float[Array, "rows"]:
    """Relative error of each field: the norm of what is wrong by that of the field."""
    wrong = _after(params, jnp.asarray(batch.before), jnp.asarray(batch.medium)) - batch.after
    return jnp.linalg.norm(wrong, axis=1) / jnp.linalg.norm(batch.after, axis=1)


_judged = jax.jit(_errors)


def _after(
    params: PyTree, before: Float[Array, "rows x"], medium: Float[Array, "rows 2"]
) -> Float[Array, "rows x"]:
    hints = jax.nn.gelu(_applied(params["hints"], medium))
    x = _applied(params["first"], before[..., None])
    for number, layer in enumerate(params["layers"]):
        scaled = x * (1 + _applied(layer["scale"], hints))[:, None]
        waves = jnp.fft.rfft(scaled, axis=1)[:, : WAVES + 1]
        waves = jnp.einsum(
            "rki,kio->rko", waves, jax.lax.complex(layer["real"], layer["imaginary"])
        )
        mixed = jnp.fft.irfft(waves, POINTS, axis=1) + _applied(layer["mix"], scaled)
        x = x + (mixed if number == LAYERS - 1 else jax.nn.gelu(mixed))
    result: Array = _applied(params["last"], x)[..., 0]
    return result


def _applied(dense: PyTree, x: Float[Array, "*rows i"]) -> Float[Array, "*rows o"]:
    result: Array = x @ dense["weight"] + dense["bias"]
    return result


def _dense(key: PRNGKeyArray, inputs: int, outputs: int) -> dict[str, Array]:
    weight = jax.random.normal(key, (inputs, outputs)) * inputs**-0.5
    return {"weight": weight, "bias": jnp.zeros(outputs)}
