"""Run an evaluation by the user's own code: return its figures, or the error if it fails.

A failed evaluation does not end a run, because an evaluation does not change what is trained.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from islands.protocol.errors import IslandsError
from islands.protocol.identities import Version
from islands.tasks.source_location import location_of_return, refused, task_error

Figures = dict[str, float]
EvaluateValues = Callable[[Sequence[NDArray[np.float32]]], Figures]


@dataclass(frozen=True, slots=True)
class Judged:
    """The learning-rate clock of the values that an evaluation judged, in steps, and their tokens.

    The values account for these tokens: merged into them, or discarded on the way. `versions` are
    those of the fragments, in order.
    """

    clock: float
    tokens: int
    took_s: float = 0.0
    versions: tuple[Version, ...] = ()


def attempt(
    evaluate: EvaluateValues,
    values: Sequence[NDArray[np.float32]],
    failed: str = "the task's evaluation failed, training goes on",
) -> Figures | IslandsError:
    """Evaluate one flat value per fragment; return figures, or an error whose sentence ends so."""
    try:
        return evaluate(values)
    except Exception as error:  # noqa: BLE001  the user's own code may raise anything
        return task_error(error, failed)


def evaluated(evaluate: Callable[..., object], params: object, state: object) -> Figures:
    """Call a task's own evaluation, which may take no state, and return plain numbers."""
    alone = len(inspect.signature(evaluate).parameters) == 1
    found = evaluate(params) if alone else evaluate(params, state)
    line = location_of_return(evaluate)
    if not isinstance(found, Mapping):
        what = f"evaluate returned a {type(found).__name__}, not a dictionary of figures"
        raise refused(line, what)
    figures = {}
    for name, value in found.items():
        try:
            figures[str(name)] = float(value)
        except (TypeError, ValueError) as error:
            what = f"evaluate returned {name} as a {type(value).__name__}; it must be one number"
            raise refused(line, what) from error
    return figures
