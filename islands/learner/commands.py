"""The commands that wait for a boundary, and how the thread that steps waits for them.

A boundary of a learner on one host carries out all commands that have come (`LocalCommands`).
Several hosts first agree on the commands of each boundary (`islands.island`).
"""

import threading
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from typing import Protocol

from islands.protocol.learner.actions import AdoptValue, EngineAction

STEPPING = "taking a step"
"""The usual activity of the thread that steps."""

TO_STEP, TO_WAIT, TO_LEAVE = "to take a step", "to take no step", "to leave"
"""The reasons to come to a boundary."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A boundary that a host's thread came to, alike on all hosts of an island.

    `boundary` is its number from 0 on, `steps` were counted before it, and `to` is the reason.
    """

    boundary: int
    steps: int
    to: str


@dataclass(frozen=True, slots=True)
class BookCopy:
    """Every host has copied its slice of a fragment's oldest snapshot that is in transit.

    Several hosts book that at one boundary, since it decides which snapshots are taken next.
    """

    fragment: int


def enqueue(commands: MutableSequence[EngineAction], command: EngineAction) -> None:
    """Queue a command for the next boundary, with one value to adopt per fragment at most."""
    if isinstance(command, AdoptValue):
        for waiting in commands:
            if isinstance(waiting, AdoptValue) and waiting.fragment == command.fragment:
                commands.remove(waiting)
                break
    commands.append(command)


class Commands(Protocol):
    """The commands that wait for a boundary.

    Attributes:
        agreed: Whether several hosts agree on them. Then the timing of one host must not decide
            what its thread dispatches.
        doing: The activity of the thread that steps, for people.
    """

    agreed: bool
    doing: str

    @property
    def ended(self) -> bool:
        """Whether no boundary is to follow; it changes in `take` or `sleep` alone, or earlier."""

    def put(self, command: EngineAction) -> None:
        """Queue a command; called on the actor's loop, and never waits for the device."""

    def take(self, steps: int = 0, to: str = TO_STEP) -> Sequence[EngineAction | BookCopy]:
        """Return the commands of this boundary, in order; called once at each."""

    def rest(self, steps: int = 0) -> Sequence[EngineAction | BookCopy]:
        """Let no further boundary follow, and return the commands that none carries out."""

    def sleep(self, limit_s: float | None = None) -> None:
        """Wait until there may be something to do at a boundary, or for so long at most."""

    def wake(self) -> None:
        """End a `sleep`, as a batch or room has come that a boundary waits for."""

    def stop(self) -> None:
        """Let no further boundary follow."""


class LocalCommands:
    """The commands of a learner on one host: a boundary takes whatever has come."""

    agreed = False

    def __init__(self) -> None:
        self.ended = False
        self.doing = STEPPING
        self._changed = threading.Condition()
        self._inbox: list[EngineAction] = []
        self._news = False

    def put(self, command: EngineAction) -> None:
        with self._changed:
            enqueue(self._inbox, command)
            self._changed.notify()

    def take(self, steps: int = 0, to: str = TO_STEP) -> list[EngineAction]:
        del steps, to
        with self._changed:
            inbox, self._inbox = self._inbox, []
        return inbox

    def rest(self, steps: int = 0) -> list[EngineAction]:
        self.ended = True
        return self.take(steps, TO_LEAVE)

    def sleep(self, limit_s: float | None = None) -> None:
        with self._changed:
            while not (self._inbox or self.ended or self._news):
                if not self._changed.wait(limit_s):
                    break
            self._news = False

    def wake(self) -> None:
        with self._changed:
            self._news = True
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify()
