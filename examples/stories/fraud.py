"""Fraud in card payments: each region trains on its own transactions, which never leave it.

fraud.yaml tells the commands. Each hour a file of transactions arrives in a folder of each region,
unlike from region to region. One in 500 is a fraud, and frauds change by the hour. A region's
island is a loop of its own (docs/own_loops.md) that reads the files of its region alone: shards
that a hub leases to learners of a task may go to any of them. A token is a transaction.
"""

import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from numpy.typing import NDArray

import islands
from islands import Task, TaskState
from islands.tasks.data.shards import ShardKey

REGIONS = ("europe", "america", "singapore")
HOURS, SPIKE = 8, (3, 4, 5)  # Singapore has transactions in the hours of its spike alone
ONE_IN, CATEGORIES, FEATURES, WIDTH = 500, 12, 6, 64
ROWS, PASSES, FRAUD_WEIGHT, SOUGHT, RATE, FALLS_TO, IDLE_S = 512, 3, 10.0, 0.6, 3e-3, 0.05, 0.05
STEP_S = 0.01  # between steps: those of so small a model would outrun the exchanges

FIELDS = "card merchant category amount at distance gap age fraud"
KINDS = "<u8 <u4 u1 <f4 <u4 <f4 <f4 <f4 u1"  # euros, s from its usual time, km and s from its last
RECORD = np.dtype(list(zip(FIELDS.split(), KINDS.split(), strict=True)))
Records = NDArray[Any]  # of RECORD


class Batch(NamedTuple):
    """float32[rows, FEATURES], the kind of shop, 1 for a fraud, and the share of RATE."""

    x: NDArray[np.float32]
    category: NDArray[np.uint8]
    fraud: NDArray[np.float32]
    share: float = 1.0


def transactions(seed: int, region: str, hour: int, count: int = 64_000) -> Records:
    """Return the transactions of a region in an hour."""
    place = REGIONS.index(region)
    rng, made = np.random.default_rng((seed, place, hour)), np.zeros(count, RECORD)
    fraud = rng.random(count) < 1 / ONE_IN
    usual = np.roll(np.arange(1.0, CATEGORIES + 1), 4 * place)  # which shops there are
    sought = np.rint(rng.normal((hour + (0, 4, 2)[place]) / 2, 0.7, count)) % CATEGORIES
    kind = rng.choice(CATEGORIES, count, p=usual / usual.sum())
    made["category"] = np.where(fraud & (rng.random(count) < SOUGHT), sought, kind)
    made["card"] = rng.integers(0, 2**64, count, np.uint64)
    made["merchant"] = rng.integers(0, 2**32, count, np.uint32)
    made["at"] = np.where(fraud, rng.integers(0, 86400, count), rng.normal(0, 1e4, count) % 86400)
    for name, mean, spread, shift in (
        ("amount", (3.0, 3.8, 2.5)[place], 1.0, (-1.4 + hour / 4, 1.4 - hour / 20, 0.0)[place]),
        ("distance", (1.0, 2.0, 0.5)[place], 1.2, 2.6),
        ("gap", 9.0, 1.5, -3.0),
        ("age", (6.5, 6.0, 5.0)[place], 1.0, -0.8),
    ):
        made[name] = np.exp(rng.normal(mean + shift * fraud, spread))
    made["fraud"] = fraud
    return made


def batch_of(records: Records) -> Batch:
    """Return what the model sees of transactions."""
    scales = {"amount": (3, 1.5), "distance": (1, 1.5), "gap": (9, 1.5), "age": (6, 1)}
    logs = [(np.log(records[name]) - mean) / by for name, (mean, by) in scales.items()]
    angle = records["at"] * (2 * np.pi / 86400)
    x = np.stack([*logs, np.sin(angle), np.cos(angle)], 1).astype(np.float32)
    return Batch(x, records["category"], records["fraud"].astype(np.float32))


@dataclass(frozen=True)
class Fraud(Task[Batch]):
    """How likely a transaction is a fraud; the hub plans by it, and has nothing to evaluate on."""

    folder: str = "arrivals"  # in which files arrive, in a folder for each region

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Return the parameters of a perceptron of two hidden layers."""
        keys, sizes = jax.random.split(key, 4), (FEATURES + 8, WIDTH, WIDTH, 1)
        params = {"shops": jax.random.normal(keys[3], (CATEGORIES, 8))}
        for layer, (many, out) in enumerate(pairwise(sizes)):
            params[f"weight{layer}"] = jax.random.normal(keys[layer], (many, out)) * many**-0.5
            params[f"bias{layer}"] = jnp.zeros(out)
        return TaskState(params)

    def loss(
        self, params: PyTree, state: PyTree, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Compute the cross-entropy, in which a fraud counts as FRAUD_WEIGHT transactions."""
        rows = optax.sigmoid_binary_cross_entropy(scores(params, batch), batch.fraud)
        return jnp.mean(rows * (1 + (FRAUD_WEIGHT - 1) * batch.fraud)), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Return Adam."""
        return optax.adam(learning_rate)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Batch, int]]:
        """Yield the batches of an hour (the pass) of a region (the shard), PASSES times."""
        records = np.load(Path(self.folder, REGIONS[shard.shard], f"{shard.pass_index}.npy"))
        whole = len(records) // ROWS
        for at in range(position, PASSES * whole):
            rng = np.random.default_rng((shard.pass_index, shard.shard, at // whole))
            rows = rng.permutation(len(records))[at % whole * ROWS :][:ROWS]
            fallen = FALLS_TO + (1 - FALLS_TO) * (1 + math.cos(math.pi * at / PASSES / whole)) / 2
            yield batch_of(records[rows])._replace(share=fallen), at + 1

    def tokens(self, batch: Batch) -> int:
        """Return the number of transactions."""
        return len(batch.x)


@jax.jit
def scores(params: PyTree, batch: Batch) -> Float[Array, " rows"]:
    """Return the log-odds of a fraud."""
    hidden = jnp.concatenate([batch.x, params["shops"][batch.category]], 1)
    for layer in range(2):
        hidden = jax.nn.gelu(hidden @ params[f"weight{layer}"] + params[f"bias{layer}"])
    return (hidden @ params["weight2"] + params["bias2"])[:, 0]


def average_precision(params: PyTree, records: Records) -> float:
    """Return the mean, over all frauds, of the precision among those that score as high."""
    order = np.argsort(-np.asarray(scores(params, batch_of(records))), kind="stable")
    hits = records["fraud"][order].astype(np.float64)
    return float(np.cumsum(hits) / np.arange(1, len(hits) + 1) @ hits / max(1.0, hits.sum()))


def step_of(task: Fraud, optimizer: optax.GradientTransformation) -> Any:  # noqa: ANN401
    """Return a step of training: parameters, moments and a batch become the first two, and loss."""

    @jax.jit
    def step(params: PyTree, moments: PyTree, batch: Batch) -> tuple[PyTree, PyTree, Array]:
        key = jax.random.key(0)
        (loss, _), gradients = jax.value_and_grad(task.loss, has_aux=True)(params, None, batch, key)
        updates, moments = optimizer.update(gradients, moments)
        updates = jax.tree.map(lambda each: batch.share * each, updates)
        return optax.apply_updates(params, updates), moments, loss

    return step


def learn(task: Fraud, name: str, address: str) -> None:
    """Train in one region on each hour that arrives there, until the run is over."""
    region, optimizer = name.partition("-")[0], task.optimizer(RATE)
    params, step, loss = task.init(jax.random.key(0)).params, step_of(task, optimizer), None
    mine, moments = Path(task.folder, region), optimizer.init(params)
    known = mine / "trained.jsonl"  # the region's own record of the hours that it has trained on
    done = [json.loads(line)["hour"] for line in known.open()] if known.exists() else []
    step(params, moments, batch_of(np.ones(ROWS, RECORD)))  # compiled before an hour arrives
    with islands.join(address, params, optimizer=moments, tokens_per_step=ROWS, name=name) as run:
        signal.signal(signal.SIGTERM, lambda *_: run.leave("SIGTERM"))
        params, moments = run.params, run.optimizer
        while not run.over:
            hour = max({int(p.stem) for p in mine.glob("[0-9]*")}.difference(done), default=-1)
            if hour < 0:  # nothing has arrived, but others may want what this island holds
                params, moments = run.boundary(params, loss, optimizer=moments), run.optimizer
                time.sleep(IDLE_S)  # noqa: TID251
                continue
            before = average_precision(params, np.load(mine / f"{hour}.npy"))
            for batch, _ in task.batches(ShardKey(hour, REGIONS.index(region)), 0):
                params, moments = run.boundary(params, loss, optimizer=moments), run.optimizer
                if run.over:
                    return
                params, moments, loss = step(params, moments, batch)
                run.log({"average_precision": before})
                time.sleep(STEP_S)  # noqa: TID251
            done.append(hour)
            with known.open("a") as file:
                file.write(f"{json.dumps({'hour': hour, 'average_precision_before': before})}\n")


def arrive(folder: Path, region: str, hour: int, records: Records) -> None:
    """Have transactions arrive in a region's folder, as a whole file."""
    (folder / region).mkdir(parents=True, exist_ok=True)
    np.save(folder / region / f".{hour}.npy", records)
    (folder / region / f".{hour}.npy").rename(folder / region / f"{hour}.npy")


if __name__ == "__main__":
    if sys.argv[1] == "learn":
        learn(Fraud(), os.environ["ISLANDS_NAME"], os.environ["ISLANDS_SUPERVISOR"])
    for now in range(HOURS) if sys.argv[1] == "arrive" else ():
        for where in REGIONS if now in SPIKE else REGIONS[:2]:
            arrive(Path("arrivals"), where, now, transactions(0, where, now))
        print(f"hour {now} has arrived", flush=True)
        time.sleep(float(sys.argv[2]))  # noqa: TID251
