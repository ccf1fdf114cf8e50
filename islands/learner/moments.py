"""What a process knows of its inner optimizer's moments, and of those that it asks a peer for."""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from islands.identities import LearnerName, Version


class Stage(StrEnum):
    """How far the search for moments is (`asking.py`)."""

    OPEN = "open"
    ASKING = "asking"
    KEPT = "kept"
    LOADING = "loading"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class KeptMoments:
    """Moments that an earlier process of this name left on its host's disk.

    `versions` are those of the fragments that it held when it left them.
    """

    schema: str
    pieces: int
    versions: tuple[Version, ...]


@dataclass(slots=True)
class Moments:
    """The moments of one process.

    `schema` and `pieces` are those of its own trainer; None until there is one. `asked` counts
    how often the pieces under way were asked for, `arrived` holds those that are here until all
    are, and `loaded_bytes` is their size then. `kept` is what lies on disk, not tried yet.
    """

    stage: Stage = Stage.OPEN
    donor: LearnerName | None = None
    kept: KeptMoments | None = None
    schema: str | None = None
    pieces: int = 0
    asked: dict[int, int] = field(default_factory=dict)
    arrived: dict[int, memoryview] = field(default_factory=dict)
    loaded_bytes: int = 0
    began_s: float = 0.0
    ready_s: float | None = None
    heard_s: float = 0.0
    reminder_s: float | None = None

    @property
    def waiting(self) -> bool:
        """Whether the first step has to wait for them."""
        return self.stage in (Stage.ASKING, Stage.LOADING)

    def deadline_s(self, limit_s: float) -> float:
        """When the first step waits no longer; it does not wait before compute is ready."""
        return inf if self.ready_s is None else max(self.began_s, self.ready_s) + limit_s

    def waited_s(self, now_s: float) -> float:
        """For how long they alone may have kept this process from its first step."""
        if self.ready_s is None:
            return 0.0
        return now_s - max(self.began_s, self.ready_s)
