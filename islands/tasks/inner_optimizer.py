"""The inner optimizers of the tasks that come with the package: AdamW, or Muon for matrices."""

import math
from collections.abc import Callable
from typing import Literal, get_args

import jax
import optax
from jaxtyping import PyTree
from optax.contrib import MuonDimensionNumbers, muon

from islands.protocol.errors import SettingsError
from islands.tasks.task import path_of

Inner = Literal["adamw", "muon"]

CLIP_NORM = 1.0
B1, B2, WEIGHT_DECAY = 0.9, 0.99, 0.1
RMS_OF_ADAMW = 0.2
"""Root mean square of AdamW's steps, in units of its learning rate, as measured in training."""


def check_inner(name: str) -> None:
    if name not in get_args(Inner):
        raise SettingsError(f"inner is {name!r}; it must be {' or '.join(get_args(Inner))}")


def inner_optimizer(
    name: Inner,
    learning_rate: jax.typing.ArrayLike,
    *,
    stack: Callable[[str], int],
    hidden: Callable[[str], bool],
) -> optax.GradientTransformation:
    """Return the inner optimizer after a clip by global norm.

    Muon replaces the momentum M of a hidden matrix by its nearest semi-orthogonal matrix O, found
    by five Newton–Schulz steps:

        θ ← θ − η · (0.2 · √max(rows, columns) · O + λ θ)

    O has a root mean square of 1/√max(rows, columns), so the step has one of 0.2·η, which is about
    that of AdamW. One learning rate therefore serves both, and one that was tuned for AdamW is a
    fair start for Muon. All other parameters are trained by AdamW with Nesterov's momentum.

    `stack` says how many tensors are stacked in the parameter at a path, each of which is
    orthogonalised by itself; `hidden` whether a matrix is one of a hidden layer, and no embedding.

    Reference: MuLoCo (2505.23725) for Muon inside DiLoCo; Liu et al. (2502.16982) §2.2 for the
        factor 0.2 · √max(rows, columns).
    """
    clip = optax.clip_by_global_norm(CLIP_NORM)
    if name == "adamw":
        return optax.chain(
            clip, optax.adamw(learning_rate, b1=B1, b2=B2, weight_decay=WEIGHT_DECAY)
        )

    def dimensions(params: PyTree) -> PyTree:
        def of_leaf(keys: tuple[object, ...], leaf: jax.Array) -> MuonDimensionNumbers | None:
            path = path_of(keys)
            matrix = _is_matrix(leaf.shape, stack(path)) and hidden(path)
            return MuonDimensionNumbers(-2, -1) if matrix else None

        return jax.tree_util.tree_map_with_path(of_leaf, params)

    chosen = muon(
        learning_rate,
        weight_decay=WEIGHT_DECAY,
        adam_b1=B1,
        adam_b2=B2,
        adam_weight_decay=WEIGHT_DECAY,
        muon_weight_dimension_numbers=dimensions,
        consistent_rms=RMS_OF_ADAMW,
    )
    return optax.chain(clip, chosen)


def _is_matrix(shape: tuple[int, ...], stack: int) -> bool:
    """Whether a parameter is a matrix or a stack of matrices; stacked vectors are none."""
    return len(shape) > 1 and math.prod(shape[:-2]) == stack and min(shape[-2:]) > 1
