"""Trace a task's functions by shapes alone and check their outputs, naming the faulty line.

Mistakes that XLA or a later step would report in internal terms are reported here in the task's own
terms: a leaf that is no array, a loss that is no scalar, a state that the next step could not use.
The message names the path of the output, and begins with the line of the user's file that made it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var
from jaxtyping import Array, Float, PyTree

from islands.protocol.errors import TaskError
from islands.protocol.messages.control import wrong_metrics
from islands.tasks.source_location import (
    SourceLocation,
    location_in_traceback,
    location_of_return,
    task_error,
    with_location,
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
            everywhere = place_of_output(*_init_of(task), f"params/{path}", task.init)
            raise TaskError(
                with_location(
                    everywhere,
                    f"{path} is {leaf.dtype}: only floating leaves train; freeze it instead "
                    "(trainable), or keep it in the state",
                )
            )


def checked_loss(
    task: Task[PyTree], params: PyTree, state: PyTree, batch: PyTree, key: Array
) -> tuple[Float[Array, ""], PyTree, dict[str, Float[Array, ""]]]:
    """Compute the task's loss, next state and metrics under a trace, and check them.

    Raises:
        TaskError: the loss is no floating scalar, the state has other leaves, shapes or types, or
            a metric is no number.
    """
    arguments = (params, state, batch, key)
    given: object = task.loss(*arguments)
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        raise _refused(
            location_of_return(task.loss),
            f"loss returned {_kind_of(given)}, not a pair of the loss and the next state, which "
            "metrics may follow",
        )
    loss, following, *rest = given
    metrics = checked_metrics(rest[0], task.loss) if rest else {}
    shape, dtype = jnp.shape(loss), jnp.result_type(loss)
    if shape != () or not jnp.issubdtype(dtype, jnp.floating):
        place = place_of_output(task.loss, arguments, "0", task.loss)
        raise _refused(
            place, f"the loss is {dtype}{list(shape)}; it must be one floating number, as a mean is"
        )
    _check_state(task, arguments, following)
    return loss, following, metrics


def checked_metrics(given: object, made_by: Callable[..., object]) -> dict[str, Float[Array, ""]]:
    """Return the metrics that a method of a task gave under a trace, in float32.

    Raises:
        TaskError: they are no dictionary of numbers, or have names that cannot be reported.
    """
    place = location_of_return(made_by)
    if not isinstance(given, Mapping):
        raise _refused(place, f"the metrics are {_kind_of(given)}; they must be a dictionary")
    wrong = wrong_metrics(given)
    if wrong is not None:
        raise _refused(place, wrong)
    for name, value in given.items():
        if not isinstance(value, NUMBER) or jnp.shape(value) != ():
            raise _refused(place, f"the metric {name} is {_kind_of(value)}; it must be one number")
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
        raise _refused(
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
        raise _refused(place, "a batch holds no arrays")
    for keys, leaf in flat:
        path = "/".join(filter(None, ("batch", path_of(keys))))
        kind = getattr(leaf, "dtype", None)
        if kind is None and not isinstance(leaf, bool | int | float | complex):
            raise _refused(place, f"{path} is a {type(leaf).__name__}; it must be a NumPy array")
        if kind is not None and np.dtype(kind).kind in "OUSMm":
            what = f"{path} is an array of {_kind(np.dtype(kind))}"
            raise _refused(place, f"{what}; it must hold numbers, such as indices of words")


def place_of_output(
    function: Callable[..., PyTree],
    arguments: tuple[PyTree, ...],
    path: str,
    named: Callable[..., object],
) -> SourceLocation | None:
    """Find the line that made the output at a path, or else the line on which `named` returns.

    Args:
        function: the function to trace.
        arguments: its arguments, as arrays or as their shapes.
        path: path of the output in the function's result.
        named: the task's own method, whose return is the place if no line made the output.
    """
    shapes = jax.tree.map(_shape, arguments)
    try:
        closed, outputs = jax.make_jaxpr(function, return_shape=True)(*shapes)
    except Exception:  # noqa: BLE001  only the line is missing; the sentence is more important
        return location_of_return(named)
    flat = jax.tree_util.tree_leaves_with_path(outputs)
    for (keys, _), variable in zip(flat, closed.jaxpr.outvars, strict=True):
        if path_of(keys) == path:
            return maker_of(closed, variable) or location_of_return(named)
    return location_of_return(named)


def maker_of(closed: ClosedJaxpr, variable: Var | Literal) -> SourceLocation | None:
    """Find the user's line that made a variable."""
    for equation in reversed(closed.jaxpr.eqns):
        if any(made is variable for made in equation.outvars):
            return place_of_equation(equation)
    return None


def place_of_equation(equation: JaxprEqn) -> SourceLocation | None:
    """Find the user's line that an equation comes from."""
    found: object = equation.source_info.traceback
    as_python = getattr(found, "as_python_traceback", None)
    return None if as_python is None else location_in_traceback(as_python())


# --- init and state ---------------------------------------------------------------------------


def _started(task: Task[PyTree], key: Array) -> tuple[PyTree, PyTree]:
    start: object = task.init(key)
    if not isinstance(start, TaskState):
        raise _refused(
            location_of_return(task.init),
            f"init returned a {type(start).__name__}, not a TaskState",
        )
    for name, tree in (("params", start.params), ("state", start.state)):
        for keys, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if not isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int | complex):
                path = "/".join(filter(None, (name, path_of(keys))))
                raise _refused(
                    location_of_return(task.init),
                    f"{path} is a {type(leaf).__name__}, not an array: keep it out of the tree "
                    "(in the task, or as a static field), and put it back in the loss",
                )
    return start.params, start.state


def _init_of(task: Task[PyTree]) -> tuple[Callable[..., PyTree], tuple[PyTree, ...]]:
    def init(key: Array) -> PyTree:
        start = task.init(key)
        return {"params": start.params, "state": start.state}

    return init, (jax.random.key(FIXED_KEY),)


def _check_state(task: Task[PyTree], arguments: tuple[PyTree, ...], following: PyTree) -> None:
    """Check that the next step can take the state that this one returns."""
    before = _described(arguments[1])
    after = _described(following)
    for path in sorted(before.keys() | after.keys()):
        was, became = before.get(path, "not there"), after.get(path, "not there")
        if was != became:
            inner = "/".join(filter(None, ("1", path)))
            place = place_of_output(task.loss, arguments, inner, task.loss)
            shown = "/".join(filter(None, ("state", path)))
            raise _refused(
                place,
                f"{shown} is {became} after the loss and {was} before it; the next state must "
                "have the same leaves, shapes and types",
            )
    same: bool = jax.tree.structure(arguments[1]) == jax.tree.structure(following)  # type: ignore[operator]  # untyped in JAX
    if not same:
        raise _refused(
            location_of_return(task.loss),
            f"the next state is a {type(following).__name__} of another structure than the state",
        )


def _described(tree: PyTree) -> dict[str, str]:
    return {
        path_of(keys): f"{_dtype(leaf)}{list(jnp.shape(leaf))}"
        for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _shape(leaf: object) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jnp.shape(leaf), _dtype(leaf))  # type: ignore[no-untyped-call, arg-type]  # untyped in JAX


def _dtype(leaf: object) -> object:
    return leaf.dtype if hasattr(leaf, "dtype") else jnp.result_type(leaf)


def _kind(dtype: np.dtype[np.generic]) -> str:
    return {"O": "objects", "U": "texts", "S": "bytes"}.get(dtype.kind, "times")


def _refused(place: SourceLocation | None, sentence: str) -> TaskError:
    return TaskError(with_location(place, sentence))
