"""The clocks of the program. No other file reads a clock of the system.

Durations and deadlines come from a monotonic clock and are never compared across hosts. Wall time
serves only as a label in files that people read; no decision depends on it.
"""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A source of time in seconds."""

    def now_s(self) -> float:
        """Return the present time in seconds; only differences mean anything."""


class LoopClock:
    """The clock of the running event loop: real seconds, or those of a virtual loop."""

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()


class MonotonicClock:
    """The system's monotonic clock, of which an ordinary loop's is a copy; for other threads."""

    def now_s(self) -> float:
        return time.monotonic()  # noqa: TID251  the clock


class WallClock:
    """Seconds since 1970, for timestamps in files. It may jump; base no decision on it."""

    def now_s(self) -> float:
        return time.time()  # noqa: TID251  the clock
