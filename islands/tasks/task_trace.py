"""Trace a task's functions by shapes alone and check their outputs, naming the faulty line.

Mistakes that XLA or a later step would report in internal terms are reported here in the task's own
terms: a leaf that is no array, a loss that is no scalar, a state that the next step could not use.
The message names the path of the output, and begins with the line on which the method returns.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from islands.protocol.messages.control import wrong_metrics
from islands.tasks.source_location import (
    SourceLocation,
    location_of_return,
    refused,
    task_error,
)
from islands.tasks.task import Task, TaskState, path_of

FIXED_KEY = 0
NUMBER = (jax.Array, np.ndarray, np.generic, float, int)


def start_of(task: Task[PyTree]) -> tuple[PyTree, PyTree]:
    """Return the shapes of the initial parameters and of the state.

    Raises:
        TaskError: `init` fails, or returns anything but trees of arrays in a `TaskState`.
    """
    try:
        shapes: tuple[PyTree, PyTree] = jax.eval_shape(
            lambda key: _started(task, key), jax.random.key(FIXED_KEY)
        )
    except Exception as error:
        raise task_error(error, "the task's init cannot be traced for its shapes") from error
    return shapes


def refuse_integers(
    task: Task[PyTree], paths: Sequence[str], leaves: Sequence[jax.ShapeDtypeStruct]
) -> None:
    """Refuse trainable leaves that have no gradient because they are not floating.

    Raises:
        TaskError: names the first such leaf, with its line.
    """
    for path, leaf in zip(paths, leaves, strict=True):
        if not jnp.issubdtype(leaf.dtype, jnp.floating) and task.trainable(path):
            raise refused(
                location_of_return(task.init),
                f"{path} is {leaf.dtype}: only floating leaves train; freeze it instead "
                "(trainable), or keep it in the state",
            )


def checked_loss(
    task: Task[PyTree], params: PyTree, state: PyTree, batch: PyTree, key: Array
) -> tuple[Float[Array, ""], PyTree, dict[str, Float[Array, ""]]]:
    """Compute the task's loss, next state and metrics under a trace, and check them.

    Raises:
        TaskError: the loss is no floating scalar, the state has other leaves, shapes or types, or
            a metric is no number.
    """
    given: object = task.loss(params, state, batch, key)
    place = location_of_return(task.loss)
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        raise refused(
            place,
            f"loss returned {_kind_of(given)}, not a pair of the loss and the next state, which "
            "metrics may follow",
        )
    loss, following, *rest = given
    metrics = checked_metrics(rest[0], task.loss) if rest else {}
    shape, dtype = jnp.shape(loss), jnp.result_type(loss)
    if shape != () or not jnp.issubdtype(dtype, jnp.floating):
        raise refused(
            place, f"the loss is {dtype}{list(shape)}; it must be one floating number, as a mean is"
        )
    _check_state(place, state, following)
    return loss, following, metrics


def checked_metrics(given: object, made_by: Callable[..., object]) -> dict[str, Float[Array, ""]]:
    """Return the metrics that a method of a task gave under a trace, in float32.

    Raises:
        TaskError: they are no dictionary of numbers, or have names that cannot be reported.
    """
    place = location_of_return(made_by)
    if not isinstance(given, Mapping):
        raise refused(place, f"the metrics are {_kind_of(given)}; they must be a dictionary")
    wrong = wrong_metrics(given)
    if wrong is not None:
        raise refused(place, wrong)
    for name, value in given.items():
        if not isinstance(value, NUMBER) or jnp.shape(value) != ():
            raise refused(place, f"the metric {name} is {_kind_of(value)}; it must be one number")
    return {name: jnp.asarray(value).astype(jnp.float32) for name, value in given.items()}


def _kind_of(given: object) -> str:
    return "an array" if isinstance(given, jax.Array) else f"a {type(given).__name__}"


def checked_optimizer(
    task: Task[PyTree], learning_rate: Float[Array, ""] | float
) -> optax.GradientTransformationExtraArgs:
    """Return the task's inner optimizer.

    Raises:
        TaskError: it is not an optimizer of optax.
    """
    given: object = task.optimizer(learning_rate)
    if not isinstance(given, optax.GradientTransformation):
        raise refused(
            location_of_return(task.optimizer),
            f"optimizer returned {_kind_of(given)}; it must be an optimizer of optax, such as "
            "optax.adamw(learning_rate)",
        )
    return optax.with_extra_args_support(given)


def optax_promotion() -> AbstractContextManager[object]:
    """Use JAX's standard promotion, which Optax relies on, even where a host set a strict one."""
    promotion: AbstractContextManager[object] = jax.numpy_dtype_promotion("standard")
    return promotion


def check_batch(batch: PyTree, place: SourceLocation | None) -> None:
    """Refuse a batch that holds anything but numbers.

    Args:
        batch: a batch that the task yielded.
        place: the line that yielded it.

    Raises:
        TaskError: names the path of the first leaf that holds no numbers, with its line.
    """
    flat = jax.tree_util.tree_leaves_with_path(batch)
    if not flat:
        raise refused(place, "a batch holds no arrays")
    for keys, leaf in flat:
        path = "/".join(filter(None, ("batch", path_of(keys))))
        kind = getattr(leaf, "dtype", None)
        if kind is None and not isinstance(leaf, bool | int | float | complex):
            raise refused(place, f"{path} is a {type(leaf).__name__}; it must be a NumPy array")
        if kind is not None and np.dtype(kind).kind in "OUSMm":
            what = f"{path} is an array of {_kind(np.dtype(kind))}"
            raise refused(place, f"{what}; it must hold numbers, such as indices of words")


# --- init and state ---------------------------------------------------------------------------


def _started(task: Task[PyTree], key: Array) -> tuple[PyTree, PyTree]:
    start: object = task.init(key)
    if not isinstance(start, TaskState):
        raise refused(
            location_of_return(task.init),
            f"init returned a {type(start).__name__}, not a TaskState",
        )
    for name, tree in (("params", start.params), ("state", start.state)):
        for keys, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if not isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int | complex):
                path = "/".join(filter(None, (name, path_of(keys))))
                raise refused(
                    location_of_return(task.init),
                    f"{path} is a {type(leaf).__name__}, not an array: keep it out of the tree "
                    "(in the task, or as a static field), and put it back in the loss",
                )
    return start.params, start.state


def _check_state(place: SourceLocation | None, state: PyTree, following: PyTree) -> None:
    """Check that the next step can take the state that this one returns."""
    before, after = _described(state), _described(following)
    for path in sorted(before.keys() | after.keys()):
        was, became = before.get(path, "not there"), after.get(path, "not there")
        if was != became:
            shown = "/".join(filter(None, ("state", path)))
            raise refused(
                place,
                f"{shown} is {became} after the loss and {was} before it; the next state must "
                "have the same leaves, shapes and types",
            )
    same: bool = jax.tree.structure(state) == jax.tree.structure(following)  # type: ignore[operator]  # untyped in JAX
    if not same:
        what = f"a {type(following).__name__} of another structure than the state"
        raise refused(place, f"the next state is {what}")


def _described(tree: PyTree) -> dict[str, str]:
    return {
        path_of(keys): f"{_dtype(leaf)}{list(jnp.shape(leaf))}"
        for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _dtype(leaf: object) -> object:
    return leaf.dtype if hasattr(leaf, "dtype") else jnp.result_type(leaf)


def _kind(dtype: np.dtype[np.generic]) -> str:
    return {"O": "objects", "U": "texts", "S": "bytes"}.get(dtype.kind, "times")
