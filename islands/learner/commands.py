"""The commands that wait for a boundary, and how the thread that steps waits for them.

A learner on one host takes what has come (`LocalCommands`). On several hosts all must carry out the
same commands at the same boundary, so there the hosts agree on them first (`islands.island`).
"""

import threading
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from typing import Protocol

from islands.protocol.learner.actions import AdoptValue, EngineAction

STEPPING = "taking a step"
"""What the thread that steps does, unless something else is said."""

TO_STEP, TO_WAIT, TO_LEAVE = "to take a step", "to take no step", "to leave"
"""What the thread comes to a boundary for."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A boundary that a host's thread came to, which must be told alike by all hosts of an island.

    Attributes:
        boundary: Its number, from 0 on.
        steps: How many steps were counted before it.
        to: What the thread came to it for.
    """

    boundary: int
    steps: int
    to: str


@dataclass(frozen=True, slots=True)
class BookCopy:
    """Every host has copied its share of a fragment's oldest snapshot that is in transit.

    On one host the thread that copies books it at once; several hosts book it at one boundary,
    since what is in transit decides which snapshots are taken.
    """

    fragment: int


def enqueue(commands: MutableSequence[EngineAction], command: EngineAction) -> None:
    """Queue a command for the next boundary.

    A value to adopt replaces one that waits for the same fragment, so at most one value per
    fragment is kept while a step takes long or hangs.
    """
    if isinstance(command, AdoptValue):
        for waiting in commands:
            if isinstance(waiting, AdoptValue) and waiting.fragment == command.fragment:
                commands.remove(waiting)
                break
    commands.append(command)


class Commands(Protocol):
    """The commands that wait for a boundary.

    Attributes:
        agreed: Whether several hosts agree on what each boundary carries out. Then nothing that
            depends on one host's timing may decide what its thread dispatches.
        doing: What the thread that steps does, for people.
    """

    agreed: bool
    doing: str

    @property
    def ended(self) -> bool:
        """Whether no boundary is to follow; it changes in `take` or `sleep` alone, or earlier."""

    def put(self, command: EngineAction) -> None:
        """Queue a command; called on the actor's loop, and never waits for the device."""

    def take(self, steps: int = 0, to: str = TO_STEP) -> Sequence[EngineAction | BookCopy]:
        """Return what this boundary is to carry out, in order; called once at each boundary.

        Args:
            steps: how many steps were counted before it.
            to: what the thread comes to it for.
        """

    def rest(self, steps: int = 0) -> Sequence[EngineAction | BookCopy]:
        """Let no further boundary follow, and return what none carries out.

        It is called on the thread that steps, and is no boundary itself.
        """

    def sleep(self, limit_s: float | None = None) -> None:
        """Wait until there may be something to do at a boundary, or for so long at most."""

    def wake(self) -> None:
        """End a `sleep`, as something else has come that a boundary waits for."""

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
        """Return the commands that have come, whatever the boundary is for."""
        del steps, to
        with self._changed:
            inbox, self._inbox = self._inbox, []
        return inbox

    def rest(self, steps: int = 0) -> list[EngineAction]:
        """Let no boundary follow, and return the commands that have come."""
        self.ended = True
        return self.take(steps, TO_LEAVE)

    def sleep(self, limit_s: float | None = None) -> None:
        """Wait until a command has come, `wake` or `stop` was called, or the time has passed."""
        with self._changed:
            while not (self._inbox or self.ended or self._news):
                if not self._changed.wait(limit_s):
                    break
            self._news = False

    def wake(self) -> None:
        """End a `sleep`."""
        with self._changed:
            self._news = True
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify()
