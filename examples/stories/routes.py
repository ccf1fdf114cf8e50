"""Travel times over eight warehouses, each of which learns from its own trips and its neighbours.

    python routes.py runs/routes               # a hub and eight warehouses, a process each
    python routes.py runs/routes --predict 5   # by that warehouse's own values, at any time

A warehouse's trips never leave it. Every `KEPT_EVERY` steps its process writes the values that it
has then into a file of its own, so it predicts whether anybody can be reached or not.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands import Task, TaskState, load
from islands.tasks.data.shards import ShardKey

WAREHOUSES, ALL = 8, -1
KEPT_EVERY, NOISE = 100, 0.1
HELD_BACK = 1_000_000
"""A seed of trips that no run trains on."""

HERE = Path(__file__).parent
Trips = tuple[NDArray[np.float32], NDArray[np.float32]]  # what is known before each; minutes


def trips_of(warehouse: int, number: int, *seed: int, noise: float = NOISE) -> Trips:
    """Draw trips; warehouses differ in place, reach, hours, weather and load."""
    rng = np.random.default_rng((warehouse, *seed))
    angle = 2 * np.pi * warehouse / WAREHOUSES
    home = np.tile([20 * np.cos(angle), 20 * np.sin(angle)], (number, 1))  # km from the city
    customer = home + rng.normal(0, 7 + 2 * (warehouse % 3), home.shape)
    km = 1.3 * np.linalg.norm(customer - home, axis=1)
    hour = rng.normal(6 + 2 * warehouse, 2.5, number) % 24
    weekend = rng.random(number) < 2 / 7
    rain = rng.exponential(0.4 + 0.1 * warehouse, number)  # mm in an hour
    load_t = rng.gamma(2, 0.06 + 0.02 * (warehouse % 4), number)
    x, y = (home + customer).T / 2  # the middle of the way
    city = np.exp(-(x**2 + y**2) / 15**2)
    km_per_h = 65 + 15 * np.sin(x / 9) * np.cos(y / 9) - 35 * city
    rush = np.exp(-(((hour - 8) / 1.5) ** 2)) + np.exp(-(((hour - 17) / 2) ** 2))
    slower = (1 + 1.5 * rush * city * ~weekend) * (1 + 0.1 * rain)
    minutes = (6 + 25 * load_t + 60 * km / km_per_h * slower) * np.exp(rng.normal(0, noise, number))
    day = [wave(times * np.pi / 12 * hour) for times in (1, 2) for wave in (np.sin, np.cos)]
    ways = [*home.T / 20, *customer.T / 20, km / 10, np.log1p(km), np.hypot(x, y) / 20]
    known = [*ways, *day, weekend, rain, 5 * load_t]
    return np.stack(known, axis=1).astype(np.float32), minutes.astype(np.float32)


def log_minutes(values: Mapping[str, PyTree], known: PyTree) -> PyTree:
    """Return the logarithm of each trip's minutes, in arrays of JAX or of NumPy."""
    for layer in "01":
        known = known @ values[f"kernel{layer}"] + values[f"bias{layer}"]
        known = (known + abs(known)) / 2  # what is below 0 becomes 0
    return (known @ values["kernel2"] + values["bias2"])[:, 0]


TESTED = [trips_of(each, 500, HELD_BACK) for each in range(WAREHOUSES)]


def errors(values: Mapping[str, PyTree]) -> list[float]:
    """Return the mean absolute percentage error on trips held back, of each warehouse's."""
    off = [abs(np.exp(log_minutes(values, known)) / took - 1).mean() for known, took in TESTED]
    return [100 * float(each) for each in off]


def error(values: Mapping[str, PyTree]) -> float:
    return float(np.mean(errors(values)))


@dataclass(frozen=True)
class Routes(Task[Trips]):
    """Minutes of trips; a token is a trip.

    Attributes:
        warehouse: Whose trips are read; -1: those of all, in equal parts.
        rows: Trips in a batch.
        arrive_s: Seconds until a batch of trips has been driven, in which nothing is computed.
        seed: Of the trips.
        folder: Where the warehouse keeps its own values; empty: nowhere.
    """

    warehouse: int = ALL
    rows: int = 32
    arrive_s: float = 0.0
    seed: int = 0
    folder: str = ""
    steps: Iterator[int] = field(default_factory=count, init=False, repr=False, compare=False)

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Start from random kernels, and from 20 minutes for every trip."""
        values = {"bias0": jnp.zeros(128), "bias1": jnp.zeros(128), "bias2": jnp.full(1, 3.0)}
        for layer, shape in enumerate([(14, 128), (128, 128), (128, 1)]):
            kernel = jax.random.normal(jax.random.fold_in(key, layer), shape)
            values[f"kernel{layer}"] = kernel * (2 / shape[0]) ** 0.5
        return TaskState(values)

    def loss(
        self, params: PyTree, state: PyTree, batch: Trips, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Mean square error of the logarithm, so that short trips count as much as long ones."""
        known, minutes = batch
        return jnp.mean(jnp.square(log_minutes(params, known) - jnp.log(minutes))), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.adam(learning_rate, b2=0.99)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Trips, int]]:
        """Trips drawn from the place in the data, without an end."""
        readers = range(WAREHOUSES) if self.warehouse == ALL else [self.warehouse]
        for place in count(position):
            time.sleep(self.arrive_s)  # noqa: TID251  (until the trips have been driven)
            seed = (self.seed, shard.pass_index, shard.shard, place)
            parts = [trips_of(each, self.rows // len(readers), *seed) for each in readers]
            known, minutes = (np.concatenate(part) for part in zip(*parts, strict=True))
            yield (known, minutes), place + 1

    def tokens(self, batch: Trips) -> int:
        return len(batch[1])

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        return {"error": error(jax.device_get(params))}

    def metrics(self, params: PyTree, gradients: PyTree, updates: PyTree) -> dict[str, Array]:
        """Hand this process its own values at every step; the run is told nothing of them."""
        if self.folder:
            jax.debug.callback(self.keep, params)
        return {}

    def keep(self, params: Mapping[str, PyTree]) -> None:
        """Write the values, and their errors on the warehouse's own trips and on those of all."""
        steps = next(self.steps)
        if steps % KEPT_EVERY == 0:
            values = {name: np.asarray(value) for name, value in params.items()}
            path = Path(self.folder) / f"warehouse-{self.warehouse}"
            np.savez(f"{path}.part.npz", allow_pickle=False, **values)
            Path(f"{path}.part.npz").replace(f"{path}.npz")  # whoever reads it finds it whole
            off = errors(values)
            line = [steps * self.rows, off[self.warehouse], float(np.mean(off))]
            with Path(f"{path}.jsonl").open("a") as lines:
                print(json.dumps(line), file=lines)


def predict(folder: Path, warehouse: int) -> None:
    """Print what a warehouse predicts of some trips, by the values that its process wrote last."""
    path = folder / f"warehouse-{warehouse}.npz"
    if not path.exists():
        raise SystemExit(f"there is no {path} yet: a warehouse writes it at its first step")
    values = dict(np.load(path))
    known, minutes = trips_of(warehouse, 3, HELD_BACK)
    for said, took in zip(np.exp(log_minutes(values, known)), minutes, strict=True):
        print(f"warehouse-{warehouse} predicted {said:.0f} min for a trip that took {took:.0f}")


def start(
    folder: Path, port: int, options: Iterable[str] = (), relay: int | None = None
) -> dict[str, subprocess.Popen[bytes]]:
    """Start the hub at a port, the warehouses at those after it; all dial a relay's, if given."""
    folder.mkdir(parents=True)
    learner = ["islands.learner", "--supervisor", f"127.0.0.1:{relay or port}", "--tasks", "routes"]
    learner += ["--threads", "1", "--task_settings.folder", str(folder)]
    commands = {"hub": ["islands.syncer", "routes.yaml", *options]}
    for number in range(WAREHOUSES):
        name = f"warehouse-{number}"
        commands[name] = [*learner, "--name", name, "--task_settings.warehouse", str(number)]
    started = {}
    for own, (name, words) in enumerate(commands.items(), port):
        links = ["--listen", f"127.0.0.1:{own}", "--advertise", f"127.0.0.1:{relay or own}"]
        command = [sys.executable, "-m", *words, "--folder", str(folder), *links]
        with (folder / f"{name}.log").open("wb") as log:
            started[name] = subprocess.Popen(command, cwd=HERE, stdout=log, stderr=log)
    return started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of the run, such as runs/routes")
    parser.add_argument("--predict", type=int, metavar="N", help="warehouse, 0 to 7")
    parser.add_argument("--port", type=int, default=7070, help="of the hub; warehouses follow")
    chosen, options = parser.parse_known_args()
    if chosen.predict is not None:
        predict(chosen.folder, chosen.predict)
    else:
        for process in start(chosen.folder.absolute(), chosen.port, options).values():
            process.wait()
        print(f"error over all trips: {error(load(chosen.folder)):.2f} %")
