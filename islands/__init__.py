"""Islands: Decoupled DiLoCo training across islands of compute that fail.

What a user's own code needs is here: `Task` and `TaskState` to train something of one's own,
`RunSettings` and `LocalSystem` to run it in this process, `load` and `described` for what a run has
written. All else is by rooms, each of which says in its docstring what is in it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # at run time they are imported when they are used: help has no time
    from pathlib import Path

    from jaxtyping import PyTree

    from islands.cluster.single_process import LocalSystem
    from islands.settings.run import RunSettings
    from islands.training.task import Task, TaskState

__all__ = ["LocalSystem", "RunSettings", "Task", "TaskState", "described", "load"]

PLACES = {
    "LocalSystem": "islands.cluster.single_process",
    "RunSettings": "islands.settings.run",
    "Task": "islands.training.task",
    "TaskState": "islands.training.task",
}


def __getattr__(name: str) -> object:
    """Import what is used of this package when it is used first."""
    if name not in PLACES:
        raise AttributeError(f"module 'islands' has no attribute {name!r}")
    return getattr(import_module(PLACES[name]), name)


def load(path: "Path | str", like: "PyTree" = None) -> "PyTree":
    """The parameters that a run has written.

    Args:
        path: of the file, or of the folder of a run.
        like: a tree of parameters as the task's `init` gives it; None: a dictionary by path.

    Returns:
        A tree of arrays as `like` is, or float32 arrays by path.

    Raises:
        UserError: there is no such file, or it is of another model; names the first difference.
    """
    from islands.training.export import load_model

    return load_model(path, like)


def described(path: "Path | str") -> dict[str, object]:
    """What a file of parameters says of itself: run, task, settings, tokens, versions.

    Raises:
        UserError: there is no such file, or it cannot be read.
    """
    from islands.training.export import described as described_by

    return described_by(path)
