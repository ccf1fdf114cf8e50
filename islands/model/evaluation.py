"""Run an evaluation by the user's own code: return its figures, or the error if it fails.

A failed evaluation does not end a run, because an evaluation does not change what is trained.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from islands.protocol.errors import IslandsError
from islands.tasks.source_location import location_of_return, refused, task_error

Figures = dict[str, float]
EvaluateValues = Callable[[Sequence[NDArray[np.float32]]], Figures]


@dataclass(frozen=True, slots=True)
class Judged:
    """The published values that an evaluation judged, and how long it took.

    `clock` is the learning-rate clock in steps. `tokens` are those that the values account for:
    merged into them, or discarded on the way.
    """

    clock: float
    tokens: int
    took_s: float = 0.0


def attempt(
    evaluate: EvaluateValues,
    values: Sequence[NDArray[np.float32]],
    failed: str = "the task's evaluation failed, training goes on",
) -> Figures | IslandsError:
    """Evaluate a model, and return an error instead of raising it.

    Args:
        evaluate: evaluates flat values with the task's own code.
        values: one flat value per fragment.
        failed: clause that says what failed, for the end of the error's sentence.

    Returns:
        The figures, or an error that says what the user has to correct.
    """
    try:
        return evaluate(values)
    except Exception as error:  # noqa: BLE001  the user's own code may raise anything
        return task_error(error, failed)


def evaluated(evaluate: Callable[..., object], params: object, state: object) -> Figures:
    """Call a task's own evaluation and return its figures as plain numbers.

    Args:
        evaluate: the task's method; it may have no `state` argument.
        params: the task's tree of parameters, of the published values.
        state: the task's state that belongs to these parameters.
    """
    alone = len(inspect.signature(evaluate).parameters) == 1
    found = evaluate(params) if alone else evaluate(params, state)
    place = location_of_return(evaluate)
    if not isinstance(found, Mapping):
        what = f"evaluate returned a {type(found).__name__}, not a dictionary of figures"
        raise refused(place, what)
    figures = {}
    for name, value in found.items():
        try:
            figures[str(name)] = float(value)
        except (TypeError, ValueError) as error:
            what = f"evaluate returned {name} as a {type(value).__name__}; it must be one number"
            raise refused(place, what) from error
    return figures
