"""A second copy of a simulated journal, on a disk of another host, where a syncer can go on.

It is what a standby or a mirror has when learners are told of nothing that the copy lacks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from islands.actors.epochs import newest_epoch
from islands.files.slots import Slots
from islands.lab.world.disk import SimulatedDisk, SimulatedFile
from islands.protocol.errors import DiskError, FencedError, IslandsError
from islands.syncer.journal import Follower, Journal


@dataclass(slots=True)
class SecondCopy(Follower):
    """Copies each durable record of a syncer's `disk` to the other host, while that is in reach."""

    disk: SimulatedDisk
    other: SimulatedDisk
    in_reach: Callable[[], bool]
    _whole: bool = False

    def follow(self, journal: Journal) -> None:
        if not self.in_reach():
            self._whole = False
            raise DiskError("the host of the copy is out of reach")
        gone_on = newest_epoch(Slots(self.other))
        if gone_on:
            raise FencedError(f"a syncer has gone on from the copy, as epoch {gone_on}")
        self.disk.settle()  # no record is copied that a crash here could still take back
        all_new = journal.files if not self._whole or journal.last is None else (journal.last,)
        for file in all_new:
            opened = self.disk.open(file)
            assert isinstance(opened, SimulatedFile), "it was written just now"
            self.other.write(file, [opened.read()])
        self._whole = True


def can_go_on(copy: SimulatedDisk, fragments: int) -> bool:
    """Return whether a copy holds all that a syncer needs."""
    try:
        return Journal(copy, fragments).recover() is not None
    except IslandsError:
        return False
