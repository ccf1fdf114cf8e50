"""An evaluation by the user's own code: its figures, or the sentence that says why there are none.

A run does not end because an evaluation fails: what is trained is not touched by it.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from islands.errors import IslandsError, TaskError
from islands.training.code_place import mistake, place_of_return, told_as

Figures = dict[str, float]
EvaluateValues = Callable[[Sequence[NDArray[np.float32]]], Figures]


def attempt(
    evaluate: EvaluateValues, values: Sequence[NDArray[np.float32]]
) -> Figures | IslandsError:
    """Evaluate a model.

    Args:
        evaluate: the task's own.
        values: one flat value per fragment.

    Returns:
        The figures, or what the user has to mend.
    """
    try:
        return evaluate(values)
    except Exception as error:  # noqa: BLE001  the user's own code may raise anything
        return mistake(error, "the task's evaluation failed, training goes on")


def evaluated(evaluate: Callable[..., object], params: object, state: object) -> Figures:
    """The figures of a task's own evaluation, as plain numbers.

    Args:
        evaluate: the task's own; it may leave `state` out.
        params: that are evaluated.
        state: that goes with them.

    Raises:
        TaskError: it is no dictionary, or one of its values is no number; names the value.
    """
    alone = len(inspect.signature(evaluate).parameters) == 1
    found = evaluate(params) if alone else evaluate(params, state)
    place = place_of_return(evaluate)
    if not isinstance(found, Mapping):
        what = f"evaluate returned a {type(found).__name__}, not a dictionary of figures"
        raise TaskError(told_as(place, what))
    figures = {}
    for name, value in found.items():
        try:
            figures[str(name)] = float(value)
        except (TypeError, ValueError) as error:
            what = f"evaluate returned {name} as a {type(value).__name__}; it must be one number"
            raise TaskError(told_as(place, what)) from error
    return figures
