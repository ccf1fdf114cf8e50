"""Low-rank adapters on a frozen decoder: only they are trained, merged, sent and exported.

`islands run examples/lora.yaml --task_settings.base runs/stdlib` adapts what another run exported.
Each matrix W inside a layer gets two thin ones, A and B of some rank, and is used as

    W + alpha/rank · A B

where B starts at zero, so that training starts from the base. The method `trainable` tells Islands
which parameters are adapters; all others stay on the learners as `init` made them.

Reference: LoRA (2106.09685) §4.1.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

import islands
from islands import TaskState
from islands.tasks.data.windows import TokenBatch
from islands.tasks.stdlib_bytes import StdlibBytes
from islands.tasks.task import path_of

MATRICES = ("query", "key", "value", "out", "gate", "up", "down")


@dataclass(frozen=True)
class Lora(StdlibBytes):
    """The default task with adapters in the place of its parameters.

    Attributes:
        base: Folder or file of the run whose decoder is adapted; every host needs it. Empty: a
            decoder that was never trained, which shows how it works and little else.
        rank: Of the adapters.
        alpha: Their weight is alpha/rank.
    """

    base: str = ""
    rank: int = 4
    alpha: float = 8.0

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Load the base, and draw A for each of its matrices; B is zero."""
        base = super().init(jax.random.key(0)).params
        if self.base:
            base = islands.load(self.base, like=base)
        adapters = {}
        for keys, leaf in jax.tree_util.tree_leaves_with_path(base):
            path = path_of(keys)
            if path.rpartition("/")[2] in MATRICES:
                *stack, rows, columns = leaf.shape
                key, own = jax.random.split(key)
                a = jax.random.normal(own, (*stack, rows, self.rank)) * rows**-0.5
                adapters[path] = {"a": a, "b": jnp.zeros((*stack, self.rank, columns))}
        return TaskState({"base": base, "adapters": adapters})

    def trainable(self, path: str) -> bool:
        """Adapters are; the base is frozen."""
        return path.startswith("adapters/")

    def stack(self, path: str) -> int:
        """As many as the matrix that is adapted."""
        return super().stack(path.removeprefix("adapters/"))

    def loss(
        self, params: PyTree, state: PyTree, batch: TokenBatch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        """The default task's, of the adapted decoder."""
        return super().loss(self.adapted(params), state, batch, key)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """The default task's, of the adapted decoder."""
        return super().evaluate(self.adapted(params), state)

    def sample(
        self,
        params: PyTree,
        prompt: bytes,
        count: int,
        *,
        temperature: float = 0.8,
        seed: int = 0,
    ) -> Iterator[bytes]:
        """The default task's, of the adapted decoder."""
        adapted = self.adapted(params)
        return super().sample(adapted, prompt, count, temperature=temperature, seed=seed)

    def labels(self) -> Mapping[str, str]:
        """Hosts must also have the same base."""
        return {**super().labels(), "base": self._digest()}

    def adapted(self, params: PyTree) -> PyTree:
        """The decoder's parameters, adapters added to the matrices that they belong to."""
        adapters = params["adapters"]

        def add(keys: tuple[object, ...], matrix: Array) -> Array:
            pair = adapters.get(path_of(keys))
            if pair is None:
                return matrix
            added = (self.alpha / self.rank) * (pair["a"] @ pair["b"])
            return matrix + added.astype(matrix.dtype)

        return jax.tree_util.tree_map_with_path(add, params["base"])

    def _digest(self) -> str:
        if not self.base:
            return "untrained"
        place = Path(self.base)
        with (place / "final.safetensors" if place.is_dir() else place).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
