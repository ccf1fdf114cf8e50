"""The supervisor's epoch: one small durable number, higher at every start."""

from islands.journal import Journal
from islands.ports import Disk


def take_epoch(disk: Disk) -> int:
    """Take a new epoch; it is durable when this returns."""
    return Journal(disk, 0).begin_epoch(1)
