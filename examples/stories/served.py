"""A shop's recommendations: a model of clicks that answers visitors while it is trained.

`served.yaml` trains it. `python served.py HUB` serves it meanwhile: it follows the run, and answers
from the newest published values. A token is an event: an item that was shown to a visitor.
"""

import argparse
import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from aiohttp import web
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from numpy.typing import NDArray

import islands
from islands import Task, TaskState
from islands.tasks.data.shards import ShardKey

REGIONS = 4
TASTES = 8
BATCHES_PER_SHARD = 200
SHOWN = 10
UNSEEN = 20_000


class Events(NamedTuple):
    """Who was shown what, and whether it was clicked: int32[rows] twice, float32[rows]."""

    visitors: NDArray[np.int32]
    items: NDArray[np.int32]
    clicked: NDArray[np.float32]


@dataclass(frozen=True)
class Clicks(Task[Events]):
    """Whether a visitor clicks an item, by one vector of each.

    Attributes:
        visitors: Number of visitors; each lives in one of four regions.
        items: Number of items; few of them are shown often, and each region likes some of its own.
        width: Length of a vector.
        rows: Events per batch.
        seed: Of tastes and events.
    """

    visitors: int = 8000
    items: int = 8000
    width: int = 16
    rows: int = 512
    seed: int = 0

    @property
    def shards(self) -> int:
        """Each shard is of one region."""
        return 4 * REGIONS

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Small vectors, and a click in ten."""
        one, other = jax.random.split(key)
        return TaskState(
            {
                "visitors": 0.1 * jax.random.normal(one, (self.visitors, self.width)),
                "items": 0.1 * jax.random.normal(other, (self.items, self.width)),
                "liked": jnp.zeros(self.items),
                "rate": jnp.full((), -2.2),
            }
        )

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Adam."""
        return optax.adam(learning_rate)

    def loss(
        self, params: PyTree, state: PyTree, batch: Events, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """Cross-entropy in nats per event."""
        scores = _scores(params, batch.visitors, batch.items)
        return jnp.mean(optax.sigmoid_binary_cross_entropy(scores, batch.clicked)), state

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Events, int]]:
        """Events of the shard's region, drawn from the place in the data."""
        for place in range(position, BATCHES_PER_SHARD):
            place_seed = (self.seed, 1, shard.pass_index, shard.shard, place)
            yield self.drawn(place_seed, shard.shard % REGIONS, self.rows), place + 1

    def tokens(self, batch: Events) -> int:
        """Events."""
        return len(batch.clicked)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Cross-entropy of events of all regions that nobody trained on."""
        batch = [self.drawn((self.seed, 2, region), region, UNSEEN) for region in range(REGIONS)]
        losses = [float(self.loss(params, state, each, jax.random.key(0))[0]) for each in batch]
        return {"val_loss": float(np.mean(losses))}

    def drawn(self, seed: tuple[int, ...], region: int, rows: int) -> Events:
        """Draw events: a visitor of the region, an item by its popularity, a click by taste."""
        rng = np.random.default_rng(seed)
        tastes, appeal, offset = _world(self)
        visitors = rng.integers(self.visitors // REGIONS, size=rows) * REGIONS + region
        popular = (self.items ** rng.random(rows)).astype(np.int64) - 1  # by Zipf's law
        items = (popular + region * self.items // (2 * REGIONS)) % self.items
        scores = np.einsum("ij,ij->i", tastes[visitors], appeal[items]) + offset[items] - 2.2
        clicked = rng.random(rows) < 1 / (1 + np.exp(-scores))
        return Events(visitors.astype(np.int32), items.astype(np.int32), clicked.astype(np.float32))


def _scores(
    params: PyTree, visitors: NDArray[np.int32], items: NDArray[np.int32]
) -> Float[Array, "rows"]:
    one, other = jnp.take(params["visitors"], visitors, 0), jnp.take(params["items"], items, 0)
    scores: Array = jnp.sum(one * other, -1) + jnp.take(params["liked"], items) + params["rate"]
    return scores


@cache
def _world(task: Clicks) -> tuple[NDArray[np.float64], ...]:
    """What visitors like, what items offer, and how much each item is liked by all."""
    rng = np.random.default_rng((task.seed, 0))
    tastes = rng.standard_normal((task.visitors, TASTES))
    return tastes, rng.standard_normal((task.items, TASTES)) / 2, rng.standard_normal(task.items)


# --- the server -------------------------------------------------------------------------------


class Server:
    """Answers from `model`, which is replaced whenever a merge has arrived."""

    def __init__(self, run: islands.FollowedRun, *, once: bool = False) -> None:
        self.run = run
        self.once = once
        self.model: islands.Newest
        self.merges = 0

    def app(self) -> web.Application:
        """Return what answers, from the first values on."""
        app = web.Application()
        app.router.add_get(r"/visitors/{visitor:\d+}", self.recommend)
        app.router.add_get("/model", self.tell)
        app.cleanup_ctx.append(self.follow)
        return app

    async def follow(self, _: web.Application) -> AsyncIterator[None]:
        """Begin with the first values, follow the run beside the answers, and leave it."""
        async with self.run:
            self.model = await anext(self.run)
            following = asyncio.create_task(self.take())
            yield
            following.cancel()

    async def take(self) -> None:
        """Replace the model by each that is newer: answers see the one or the other."""
        if not self.once:
            async for newest in self.run:
                self.model, self.merges = newest, self.merges + 1

    async def recommend(self, request: web.Request) -> web.Response:
        """GET /visitors/17: the items that visitor 17 is most likely to click."""
        model, visitor = self.model, int(request.match_info["visitor"])
        values = model.values
        if visitor >= len(values["visitors"]):
            raise web.HTTPNotFound(text=f"there is no visitor {visitor}")
        scores = values["items"] @ values["visitors"][visitor] + values["liked"]
        best = np.argpartition(-scores, SHOWN)[:SHOWN]
        found = best[np.argsort(-scores[best])].tolist()
        return web.json_response({"items": found, "versions": model.versions})

    async def tell(self, _: web.Request) -> web.Response:
        """GET /model: which values answer now, and their digest."""
        digest = hashlib.sha256()
        for path in sorted(self.model.values):
            digest.update(self.model.values[path].tobytes())
        told = {"versions": self.model.versions, "tokens": self.model.tokens}
        return web.json_response(told | {"merges": self.merges, "digest": digest.hexdigest()})


def main() -> None:
    """Serve at a port of this host, until Ctrl-C; the end of the run does not end it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hub")
    parser.add_argument("--token_file", type=Path)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--once", action="store_true", help="keep the first values")
    options = parser.parse_args()
    run = islands.follow(options.hub, token_file=options.token_file)
    web.run_app(Server(run, once=options.once).app(), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
