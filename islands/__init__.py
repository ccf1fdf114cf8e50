"""Islands: Decoupled DiLoCo training across islands of compute that fail."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # at run time they are imported when they are called: help has no time
    from pathlib import Path

    from jaxtyping import PyTree


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
    from islands.export import load_model

    return load_model(path, like)


def described(path: "Path | str") -> dict[str, object]:
    """What a file of parameters says of itself: run, task, settings, tokens, versions.

    Raises:
        UserError: there is no such file, or it cannot be read.
    """
    from islands.export import described as described_by

    return described_by(path)
