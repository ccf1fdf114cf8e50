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
    """Return the shapes of the initial parameters and of the state."""

    def started(key: Array) -> tuple[PyTree, PyTree]:
        start: object = task.init(key)
        if not isinstance(start, TaskState):
            what = f"init returned a {type(start).__name__}, not a TaskState"
            raise refused(location_of_return(task.init), what)
        return start.params, start.state

    try:
        shapes: tuple[PyTree, PyTree] = jax.eval_shape(started, jax.random.key(FIXED_KEY))
    except Exception as error:
        what = "the task's init cannot be traced for its shapes"
        raise task_error(error, what, location_of_return(task.init)) from error
    return shapes


def refuse_integers(task: Task[PyTree], leaves: Sequence[tuple[str, jax.ShapeDtypeStruct]]) -> None:
    """Refuse trainable leaves that have no gradient because they are not floating."""
    for path, leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating) and task.trainable(path):
            raise refused(
                location_of_return(task.init),
                f"{path} is {leaf.dtype}: only floating leaves train; freeze it instead "
                "(trainable), or keep it in the state",
            )


def checked_loss(
    task: Task[PyTree], params: PyTree, state: PyTree, batch: PyTree, key: Array
) -> tuple[Float[Array, ""], PyTree, dict[str, Float[Array, ""]]]:
    """Compute the task's loss, next state and metrics under a trace, and check them."""
    given: object = task.loss(params, state, batch, key)
    line = location_of_return(task.loss)
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        raise refused(
            line,
            f"loss returned {_kind_of(given)}, not a pair of the loss and the next state, which "
            "metrics may follow",
        )
    loss, following, *rest = given
    metrics = checked_metrics(rest[0], task.loss) if rest else {}
    shape, dtype = jnp.shape(loss), jnp.result_type(loss)
    if shape != () or not jnp.issubdtype(dtype, jnp.floating):
        raise refused(
            line, f"the loss is {dtype}{list(shape)}; it must be one floating number, as a mean is"
        )
    _check_state(line, state, following)
    return loss, following, metrics


def checked_metrics(given: object, made_by: Callable[..., object]) -> dict[str, Float[Array, ""]]:
    """Return the metrics that a method of a task gave under a trace, in float32."""
    line = location_of_return(made_by)
    if not isinstance(given, Mapping):
        raise refused(line, f"the metrics are {_kind_of(given)}; they must be a dictionary")
    wrong = wrong_metrics(given)
    if wrong is not None:
        raise refused(line, wrong)
    for name, value in given.items():
        if not isinstance(value, NUMBER) or jnp.shape(value) != ():
            raise refused(line, f"the metric {name} is {_kind_of(value)}; it must be one number")
    return {name: jnp.asarray(value).astype(jnp.float32) for name, value in given.items()}


def _kind_of(given: object) -> str:
    return "an array" if isinstance(given, jax.Array) else f"a {type(given).__name__}"


def checked_optimizer(
    task: Task[PyTree], learning_rate: Float[Array, ""] | float
) -> optax.GradientTransformationExtraArgs:
    try:
        given: object = task.optimizer(learning_rate)
    except Exception as error:
        raise task_error(error, "the task's optimizer cannot be made") from error
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


def _check_state(line: SourceLocation | None, state: PyTree, following: PyTree) -> None:
    """Check that the next step can take the state that this one returns."""
    before, after = (
        {
            path_of(keys): f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}"
            for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)
        }
        for tree in (state, following)
    )
    for path in sorted(before.keys() | after.keys()):
        was, became = before.get(path, "not there"), after.get(path, "not there")
        if was != became:
            shown = "/".join(filter(None, ("state", path)))
            raise refused(
                line,
                f"{shown} is {became} after the loss and {was} before it; the next state must "
                "have the same leaves, shapes and types",
            )
    same: bool = jax.tree.structure(state) == jax.tree.structure(following)  # type: ignore[operator]  # untyped in JAX
    if not same:
        what = f"a {type(following).__name__} of another structure than the state"
        raise refused(line, f"the next state is {what}")
