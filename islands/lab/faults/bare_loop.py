"""A loop that only sleeps, in a process of its own: `python -m islands.lab.faults.bare_loop FILE`.

Whenever it wakes late from a short sleep, the machine has stalled, and it writes down from when to
when, on the monotonic clock, which all processes of a Linux host share. It ends when its parent
does.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from messaging.clock import Clock, MonotonicClock

STEP_S = 0.005
LEAST_S = 0.001  # shorter stalls are not written down
STALLS_FILE = "stalls.jsonl"


class Stall(msgspec.Struct, frozen=True):
    """A time in which the machine let a process wait that could have run."""

    from_s: float
    to_s: float

    @property
    def length_s(self) -> float:
        return self.to_s - self.from_s

    def overlaps(self, span: tuple[float, float]) -> bool:
        """Return whether it has a moment in common with a span of time."""
        return self.from_s < span[1] and span[0] < self.to_s


def watch(
    note: Callable[[Stall], object],
    goes_on: Callable[[], bool],
    clock: Clock,
    sleep: Callable[[float], object],
) -> None:
    """Sleep again and again, and note each time the stall that the sleep's end fell into.

    What noting takes is no stall.
    """
    due_s = clock.now_s() + STEP_S
    while goes_on():
        while (left_s := due_s - clock.now_s()) > 0:  # a sleep may end early
            sleep(left_s)
        woke_s = clock.now_s()
        if woke_s - due_s >= LEAST_S:
            note(Stall(due_s, woke_s))
        due_s = clock.now_s() + STEP_S


class BareLoop:
    """The process of such a loop beside the run of a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / STALLS_FILE
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        module = (sys.executable, "-m", "islands.lab.faults.bare_loop")
        self._process = subprocess.Popen([*module, str(self._path)])
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stalls(self) -> list[Stall]:
        """Return the stalls so far, in order; a half line is left out."""
        try:
            whole, _, _ = self._path.read_bytes().rpartition(b"\n")
        except FileNotFoundError:
            return []
        return [msgspec.json.decode(line, type=Stall) for line in whole.splitlines()]


def main(path: Path) -> None:
    parent = os.getppid()
    with path.open("ab", buffering=0) as file:
        watch(
            lambda stall: file.write(msgspec.json.encode(stall) + b"\n"),
            lambda: os.getppid() == parent,
            MonotonicClock(),
            time.sleep,  # noqa: TID251  a step that sleeps
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
