"""The second default task: a small perceptron learns scikit-learn's handwritten digits."""

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from islands.tasks.rows import Records, Rows, held_out, table_of_scikit_learn
from islands.tasks.task import TaskState

_PIXELS = 64
_CLASSES = 10
_VALIDATION_SHARE = 6  # one image in this many is for validation


@dataclass(frozen=True)
class Digits(Rows):
    """Classification of 8 × 8 images, with values from 0 to 1, into ten digits.

    Attributes:
        hidden: Width of the hidden layer.
    """

    hidden: int = 128

    def init(self, key: PRNGKeyArray) -> TaskState:
        """Return the initial parameters of two dense layers."""
        one, other = jax.random.split(key)
        params = {
            "hidden": _dense(one, _PIXELS, self.hidden),
            "output": _dense(other, self.hidden, _CLASSES),
        }
        return TaskState(params)

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        """Return AdamW."""
        return optax.adamw(learning_rate)

    @staticmethod
    def scores(params: PyTree, figures: Float[Array, "b 64"]) -> Float[Array, "b 10"]:
        """Compute the score of each digit for each image."""
        hidden = jax.nn.relu(figures @ params["hidden"]["weight"] + params["hidden"]["bias"])
        scores: Array = hidden @ params["output"]["weight"] + params["output"]["bias"]
        return scores

    @staticmethod
    @cache
    def records() -> tuple[Records, Records]:
        """Load the images and their labels.

        Raises:
            DataError: scikit-learn is not installed.
        """
        values, digits = table_of_scikit_learn("digits.csv.gz")
        images, labels = (values / 16).astype(np.float32), digits.astype(np.int32)
        unseen = held_out(len(images), _VALIDATION_SHARE)
        return (images[~unseen], labels[~unseen]), (images[unseen], labels[unseen])


def _dense(key: PRNGKeyArray, inputs: int, outputs: int) -> dict[str, Array]:
    weight = jax.random.normal(key, (inputs, outputs)) * inputs**-0.5
    return {"weight": weight, "bias": jnp.zeros(outputs)}
