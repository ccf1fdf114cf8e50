"""A centre with cloud machines beside it: a forecast of electric load, trained on unlike machines.

`islands run hybrid.yaml` trains it, in this folder. The data are hourly loads of forty feeders over
three years, made from a seed: homes and offices, cold days, and what nobody foresees. From the week
before and the next day's temperatures, a perceptron forecasts each hour of that day. A token is a
forecast hour. A step also sleeps for `step_s`, as it would wait for its accelerator.

The engines are those of `here.py`: islands are processes of this host, and the cloud takes its own
away.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands import Task, TaskState
from islands.tasks.data.shards import ShardKey, ShardPlan

FEEDERS, DAYS, HELD_OUT_DAYS, WEEK = 40, 1096, 88, 7
INPUTS, HOURS = 24 * WEEK + 24 + 7, 24  # loads of a week, temperatures of a day, the day of a week
Numbers = NDArray[np.float32]


class Windows(NamedTuple):
    """A batch: float32[rows, INPUTS] of what is known, float32[rows, HOURS] of what comes."""

    known: Numbers
    load: Numbers


@cache
def year(seed: int) -> tuple[Numbers, Numbers]:
    """Return loads[feeder, day, hour], whose mean is about 1, and temperatures[day, hour] in °C."""
    rng = np.random.default_rng(seed)
    day, hour = np.arange(DAYS)[:, None], np.arange(24)[None, :]
    season = 10 - 9 * np.cos(2 * np.pi * (day - 20) / 365.25)
    weather = drifting(rng, DAYS, 1, 0.8, 3.0)
    warm = season + weather + 4 * np.sin(2 * np.pi * (hour - 9) / 24)
    working = np.isin(day % 7, (5, 6), invert=True).astype(float)
    home = 0.5 + np.exp(-((hour - 7.5) ** 2) / 4) * working + 1.3 * np.exp(-((hour - 19) ** 2) / 8)
    office = 0.4 + 1.4 * working / (1 + np.exp(-(hour - 8))) / (1 + np.exp(hour - 17.0))
    offices, heated = rng.beta(1, 1, (FEEDERS, 1, 1)), rng.uniform(0.01, 0.05, (FEEDERS, 1, 1))
    load = (1 - offices) * home + offices * office + heated * np.maximum(0, 16 - warm)
    noise = drifting(rng, DAYS * 24, FEEDERS, 0.9, 0.02).T.reshape(FEEDERS, DAYS, 24)
    load = load * np.exp(noise)
    return (load / load.mean((1, 2), keepdims=True)).astype(np.float32), warm.astype(np.float32)


def drifting(rng: np.random.Generator, steps: int, series: int, keep: float, by: float) -> Numbers:
    """Return noise[step, series] in which each value keeps a share of the one before."""
    noise = rng.standard_normal((steps, series)) * by
    for step in range(1, steps):
        noise[step] += keep * noise[step - 1]
    return noise.astype(np.float32)


@dataclass(frozen=True)
class Forecast(Task[Windows]):
    """The load of a feeder's next day, from its last week and the next day's temperatures.

    Attributes:
        hidden: Width of the hidden layer.
        rows: Days per batch, of as many feeders.
        step_s: Seconds that a step waits for the accelerator; each host has its own.
        seed: Seed of the data and of their order.
    """

    hidden: int = 128
    rows: int = 16
    step_s: float = 0.0
    seed: int = 0

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Return the parameters of a perceptron of one hidden layer."""
        one, other = jax.random.split(key)
        wide = jax.random.normal(one, (INPUTS, self.hidden)) / INPUTS**0.5
        out = jax.random.normal(other, (self.hidden, HOURS)) / self.hidden**0.5
        zeros = jnp.zeros(self.hidden), jnp.zeros(HOURS)
        return TaskState({"hidden": (wide, zeros[0]), "output": (out, zeros[1])})

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Return AdamW."""
        return optax.adamw(learning_rate)

    def loss(
        self, params: PyTree, state: PyTree, batch: Windows, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Compute the mean square of the error, in squares of a feeder's mean load."""
        known = jnp.asarray(batch.known)
        if self.step_s:
            zero = jax.ShapeDtypeStruct((), known.dtype)
            known += jax.pure_callback(self._wait, zero)
        return jnp.mean(jnp.square(forecast(params, known) - batch.load)), state

    def _wait(self) -> np.float32:
        time.sleep(self.step_s)  # noqa: TID251  (the accelerator's time)
        return np.float32(0)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Windows, int]]:
        """Yield days of feeders in the order of a pass; a position counts them."""
        days = DAYS - WEEK - HELD_OUT_DAYS
        plan = ShardPlan(FEEDERS * days, self.shards, self.seed)
        for records, after in plan.groups(shard, position, self.rows):
            if len(records) == self.rows:
                yield windows(self.seed, records % FEEDERS, WEEK + records // FEEDERS), after

    def tokens(self, batch: Windows) -> int:
        """Count the hours that are forecast."""
        return batch.load.size

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return the mean error of the held-out days, in % of the mean load."""
        days = np.arange(DAYS - HELD_OUT_DAYS, DAYS).repeat(FEEDERS)
        told = windows(self.seed, np.tile(np.arange(FEEDERS), HELD_OUT_DAYS), days)
        return {"error": float(100 * jnp.abs(forecast(params, told.known) - told.load).mean())}


def windows(seed: int, feeders: NDArray[np.int64], days: NDArray[np.int64]) -> Windows:
    """Return what is known before these days of these feeders, and their loads."""
    loads, warm = year(seed)
    week = loads[feeders[:, None], days[:, None] - np.arange(WEEK, 0, -1)].reshape(len(days), -1)
    weekday = np.eye(7, dtype=np.float32)[days % 7]
    known = np.concatenate([week - 1, warm[days] / 10 - 1, weekday], axis=1)
    return Windows(known.astype(np.float32), loads[feeders, days])


def forecast(params: PyTree, known: jax.typing.ArrayLike) -> Array:
    """Return the forecast load of each hour."""
    (wide, wide_bias), (out, out_bias) = params["hidden"], params["output"]
    return jax.nn.gelu(jnp.asarray(known) @ wide + wide_bias) @ out + out_bias + 1
