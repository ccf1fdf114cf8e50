"""A task on a table: a small residual network tells two kinds of tumour apart by thirty figures.

The rows are those of scikit-learn's breast cancer data (569 of them), each column with the mean and
the deviation of its training rows taken off. Nothing in the network depends on the batch:

    x ← x W + b;  x ← x + relu(norm(x) U_l) D_l  for each layer;  scores = norm(x) S

where norm(x) = x / rms(x), and D_l starts at zero.
"""

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from islands.tasks.rows import Records, Rows, held_out, table_of_scikit_learn
from islands.tasks.task import TaskState

_COLUMNS = 30
_CLASSES = 2
_VALIDATION_SHARE = 5  # one row in this many is for validation


@dataclass(frozen=True)
class Table(Rows):
    """Classification of rows of thirty standardised numbers.

    Attributes:
        width: Width of the residual stream.
        layers: Number of residual layers.
    """

    width: int = 64
    layers: int = 2

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Return the initial parameters."""
        first, last, *keys = jax.random.split(key, 2 + self.layers)
        hidden = 2 * self.width
        layers = [
            {"up": _normal(k, self.width, hidden), "down": jnp.zeros((hidden, self.width))}
            for k in keys
        ]
        entry = {"weight": _normal(first, _COLUMNS, self.width), "bias": jnp.zeros(self.width)}
        scores = _normal(last, self.width, _CLASSES)
        return TaskState({"entry": entry, "layers": layers, "scores": scores})

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Return AdamW."""
        return optax.adamw(learning_rate, weight_decay=0.1)

    @staticmethod
    def scores(params: PyTree, figures: Float[Array, "b 30"]) -> Float[Array, "b 2"]:
        """Compute the score of each class for each row."""
        x = figures @ params["entry"]["weight"] + params["entry"]["bias"]
        for layer in params["layers"]:
            x = x + jax.nn.relu(_norm(x) @ layer["up"]) @ layer["down"]
        scores: Array = _norm(x) @ params["scores"]
        return scores

    @staticmethod
    @cache
    def records() -> tuple[Records, Records]:
        """Load the rows and their classes.

        Raises:
            DataError: scikit-learn is not installed.
        """
        columns, kinds = table_of_scikit_learn("breast_cancer.csv", header_lines=1)
        unseen = held_out(len(columns), _VALIDATION_SHARE)
        seen = columns[~unseen]
        columns = ((columns - seen.mean(0)) / seen.std(0)).astype(np.float32)
        classes = kinds.astype(np.int32)
        return (columns[~unseen], classes[~unseen]), (columns[unseen], classes[unseen])


def _normal(key: PRNGKeyArray, inputs: int, outputs: int) -> Float[Array, "i o"]:
    drawn: Array = jax.random.normal(key, (inputs, outputs)) * inputs**-0.5
    return drawn


def _norm(x: Float[Array, "b d"]) -> Float[Array, "b d"]:
    scale: Array = jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6)
    return x * scale
