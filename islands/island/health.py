"""Which host of an island is lost or stuck, as its leader judges it, by counted seconds.

The leader ticks once a second. It counts its own ticks rather than time, since a leader that was
suspended itself must not blame others.

A host is *lost* once it was silent for `SILENT_TICKS`. It is *stuck* once it has come to no
boundary for the time that the run's settings give to a step, while it neither compiles nor waits
for the leader. While any host's data has not arrived yet, none is stuck. A step is measured from
one step to the next, without a rest between them; before one was measured, a step has the time of a
compilation. As steps are collective, all other hosts stand still then too: the stuck one is the
one that has come to the fewest boundaries.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from islands.island.forming import named
from islands.learner.compute import STEPPING
from islands.tasks.data.batch_source import ARRIVING, READING

SILENT_TICKS = 10
"""Ticks of a second after which a silent host is lost."""

STEPS_KEPT = 16
STALLED_STEPS = 5
"""A step may take so many times as long as the longest of the last ones (`supervisor/eviction`)."""


@dataclass(slots=True)
class HostRecord:
    """A host as the leader knows it; `still_ticks` count since its last boundary.

    `step_ticks` count since its last step, if it has not rested since; `longest` are those of its
    last steps.
    """

    host: str
    silent_ticks: int = 0
    still_ticks: int = 0
    step_ticks: int | None = None
    boundary: int = 0
    steps: int = 0
    doing: str = "starting"
    idle: bool = False
    compiling: bool = False
    longest: deque[int] = field(default_factory=lambda: deque(maxlen=STEPS_KEPT))

    def on_state(
        self, boundary: int, steps: int, doing: str, *, idle: bool, compiling: bool
    ) -> None:
        self.silent_ticks = 0
        if boundary > self.boundary or idle:
            self.still_ticks = 0
        if steps > self.steps:
            if self.step_ticks is not None:
                self.longest.append(self.step_ticks)
            self.step_ticks = 0
        if idle:
            self.step_ticks = None
        self.boundary, self.steps, self.doing = boundary, steps, doing
        self.idle, self.compiling = idle, compiling

    def tick(self) -> None:
        self.silent_ticks += 1
        self.still_ticks += 1
        if self.step_ticks is not None:
            self.step_ticks += 1


class Health:
    """The health of all hosts of an island, which have names for people by rank.

    A host is stuck after `stalled_s` without a boundary, or `compile_s` while it compiles or before
    one of its steps was measured. `blamed` is the host for which the island must end, if one is.
    """

    def __init__(self, hosts: Mapping[int, str], *, stalled_s: float, compile_s: float) -> None:
        self.hosts = {rank: HostRecord(host) for rank, host in hosts.items()}
        self.blamed: int | None = None
        self._stalled_s = stalled_s
        self._compile_s = compile_s

    def tick(self) -> str | None:
        """Count a second; returns why the island must end, or None. The leader is never silent."""
        for record in self.hosts.values():
            record.tick()
        for rank, record in self.hosts.items():
            if rank != 0 and record.silent_ticks >= SILENT_TICKS:
                self.blamed = rank
                return f"{named(rank, record.host)} has been silent for {record.silent_ticks} s"
        if any(record.doing == ARRIVING for record in self.hosts.values()):
            return None
        stuck = [rank for rank, record in self.hosts.items() if self._is_stuck(record)]
        return self._why_stuck(stuck) if stuck else None

    def _is_stuck(self, record: HostRecord) -> bool:
        if record.idle:
            return False
        limit_s = self._stalled_s
        if record.compiling or not record.longest:
            limit_s = max(limit_s, self._compile_s)
        else:
            limit_s = max(limit_s, STALLED_STEPS * max(record.longest))
        return record.still_ticks >= limit_s

    def _why_stuck(self, stuck: Iterable[int]) -> str:
        """Name the host that the others wait for."""
        least = min(record.boundary for record in self.hosts.values())
        last = [rank for rank, record in self.hosts.items() if record.boundary == least]
        if len(last) == len(self.hosts) and len(last) > 1:
            readers = [rank for rank in last if self.hosts[rank].doing != STEPPING]
            last = readers if len(readers) == 1 else []
        if not last:
            still = max(self.hosts[rank].still_ticks for rank in stuck)
            reading = all(record.doing == READING for record in self.hosts.values())
            what = "readers" if reading else "devices"
            return f"all hosts have waited for their {what} for {still} s, at boundary {least}"
        rank = self.blamed = last[0]
        record = self.hosts[rank]
        return (
            f"{named(rank, record.host)} has come to no boundary for {record.still_ticks} s after "
            f"boundary {record.boundary}: it is {record.doing}"
        )
