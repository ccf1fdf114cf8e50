"""The state of a process's own inner moments, and of their transfer from a peer or from disk."""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from islands.protocol.identities import Incarnation, LearnerName, Version


class Stage(StrEnum):
    """How far the recovery of moments has got (`moments_recovery.py`)."""

    OPEN = "open"
    ASKING = "asking"
    KEPT = "kept"
    LOADING = "loading"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class CheckpointedMoments:
    """Moments that an earlier process of this name left on its host's disk.

    `versions` are those of the fragments that it held when it wrote them.
    """

    schema: str
    pieces: int
    versions: tuple[Version, ...]


@dataclass(slots=True)
class Moments:
    """The moments of one process.

    `schema` and `pieces` are those of its own trainer; None and 0 until there is one. `asked`
    counts the requests for each piece in flight, `arrived` holds the received pieces until all are
    there, and `loaded_bytes` is their total size. `kept` is a checkpoint on disk, not tried yet.
    `given` counts how often each piece was given to those who asked last (`donating.py`).
    """

    stage: Stage = Stage.OPEN
    donor: LearnerName | None = None
    kept: CheckpointedMoments | None = None
    schema: str | None = None
    pieces: int = 0
    asked: dict[int, int] = field(default_factory=dict)
    arrived: dict[int, memoryview] = field(default_factory=dict)
    loaded_bytes: int = 0
    began_s: float = 0.0
    ready_s: float | None = None
    heard_s: float = 0.0
    reminder_s: float | None = None
    given: dict[tuple[str, Incarnation], dict[int, int]] = field(default_factory=dict)

    @property
    def waiting(self) -> bool:
        """Whether the first step has to wait for the moments."""
        return self.stage in (Stage.ASKING, Stage.LOADING)

    def deadline_s(self, limit_s: float) -> float:
        """The time at which the first step waits no longer; infinite until compute is ready."""
        return inf if self.ready_s is None else max(self.began_s, self.ready_s) + limit_s

    def waited_s(self, now_s: float) -> float:
        """Seconds for which the moments alone may have delayed this process's first step."""
        if self.ready_s is None:
            return 0.0
        return now_s - max(self.began_s, self.ready_s)
