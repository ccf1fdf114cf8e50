"""What tasks on small tables share: their files, which rows are held out, and padded batches."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from islands.protocol.errors import DataError
from islands.tasks.data.shards import ShardKey, ShardPlan

Records = tuple[NDArray[np.float32], NDArray[np.int32]]
"""The figures of each record, and its class."""

Weights = NDArray[np.float32]


def table_of_scikit_learn(
    file: str, *, header_lines: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read a table that scikit-learn brings with it; the package is not imported.

    The import takes longer than most of what a restarted learner does until its first step.

    Args:
        file: its name in scikit-learn's folder of data.
        header_lines: lines before the first record.

    Returns:
        float64[records, columns], and the last column, float64[records], which tells the class.

    Raises:
        DataError: scikit-learn is not installed, or has no such file.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError(
            f"{file} comes with scikit-learn, which is not installed; install it with: "
            "pip install 'islands[tasks]'"
        )
    place = Path(package.origin).parent / "datasets" / "data" / file
    try:
        table = np.loadtxt(place, delimiter=",", skiprows=header_lines)
    except OSError as error:
        raise DataError(f"this version of scikit-learn does not bring {file}: {error}") from error
    return table[:, :-1], table[:, -1]


def held_out(count: int, one_in: int) -> NDArray[np.bool_]:
    """Return which of so many records are for validation: the first of every few."""
    first: NDArray[np.bool_] = np.arange(count) % one_in == 0
    return first


def padded_batches(
    records: Records, plan: ShardPlan, shard: ShardKey, position: int, rows: int
) -> Iterator[tuple[Records, Weights, int]]:
    """Yield batches of so many rows, the weight of each row, and the position after it.

    The last batch of a shard is filled with rows of weight 0.
    """
    figures, classes = records
    for members, after in plan.groups(shard, position, rows):
        fill = np.zeros(rows, np.int64)
        fill[: len(members)] = members
        weight = (np.arange(rows) < len(members)).astype(np.float32)
        yield (figures[fill], classes[fill]), weight, after
