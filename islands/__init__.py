"""Islands: Decoupled DiLoCo training across islands of compute that fail.

This module exports what a user's own code needs: `join` to take part in a run from a training loop
of one's own (`torch` for one of PyTorch), `follow` and `latest` to receive what it publishes,
`Task` and `TaskState` to leave the loop to Islands, `run_settings` and `LocalSystem` to run it in
this process, `load` and `described` to read what a run has written. Everything else is in rooms,
each of which imports those below it and none above; each file says first what it holds:

- `cli`: the commands; `page`: a run in a browser
- `lab`: simulations, faults, studies, the checker of histories
- `loops`: training loops of the users' own; `island`: several hosts as one learner
- `run`: a hub put together, its hosts, processes and records
- `learner`, `syncer`, `supervisor`, `observer`: the actors, which act and decide nothing
- `model`: trainers, boundary functions, memory; `actors`: what actors share
- `tasks`: tasks, data, models; `numerics`: merges, codecs, optimizers
- `settings`: options of a host; `layout`: leaves and fragments; `files`: what survives crashes
- `protocol`: messages, tape, and every rule by which actors decide: pure
"""

from importlib import import_module
from typing import TYPE_CHECKING

from islands.protocol.errors import missing_package, not_installed

if TYPE_CHECKING:  # at run time they are imported on first use, so that --help answers at once
    from pathlib import Path

    from jaxtyping import PyTree

    from islands.loops.follow import FollowedRun, Newest, follow
    from islands.loops.join import join
    from islands.loops.joined_run import JoinedRun
    from islands.loops.latest import latest
    from islands.protocol.settings.presets import run_settings
    from islands.run.single_process import LocalSystem
    from islands.tasks.task import Task, TaskState

__all__ = [
    "FollowedRun",
    "JoinedRun",
    "LocalSystem",
    "Newest",
    "Task",
    "TaskState",
    "described",
    "follow",
    "join",
    "latest",
    "load",
    "run_settings",
]

PLACES = {
    "FollowedRun": "islands.loops.follow",
    "JoinedRun": "islands.loops.joined_run",
    "LocalSystem": "islands.run.single_process",
    "Newest": "islands.loops.follow",
    "Task": "islands.tasks.task",
    "TaskState": "islands.tasks.task",
    "follow": "islands.loops.follow",
    "join": "islands.loops.join",
    "latest": "islands.loops.latest",
    "run_settings": "islands.protocol.settings.presets",
}


def __getattr__(name: str) -> object:
    """Import an exported name when it is first used."""
    if name not in PLACES:
        raise AttributeError(f"module 'islands' has no attribute {name!r}")
    try:
        return getattr(import_module(PLACES[name]), name)
    except ModuleNotFoundError as error:
        package = missing_package(error)
        if package is None:
            raise
        raise ModuleNotFoundError(
            not_installed(f"islands.{name}", package), name=error.name
        ) from error


def load(path: "Path | str", like: "PyTree" = None) -> "PyTree":
    """Load the parameters that a run has written.

    Args:
        path: path of the file, or of a run's folder.
        like: a tree of parameters as the task's `init` returns it; None for a dictionary by path.

    Returns:
        A tree of arrays with the structure of `like`, or float32 arrays by path.

    Raises:
        UserError: there is no such file, or it is of another model; names the first difference.
    """
    from islands.run.records.model_files import load_model

    return load_model(path, like)


def described(path: "Path | str") -> dict[str, object]:
    """Read the metadata of a file of parameters: run, task, settings, tokens, versions.

    Raises:
        UserError: there is no such file, or it cannot be read.
    """
    from islands.run.records.model_files import described as described_by

    return described_by(path)
