"""Messages for whoever operates a run: commands, and what a hub is told to show and to keep."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from islands.identities import Incarnation, Phase, Role, Status

COUNT_MAX = 2**48
"""Of anything that is counted of one name, in one process or in all of them: an admitted peer that
lies adds no more than this to a total, however many processes it makes up.
"""

TOTAL_MAX = 2**62
"""Of anything that is counted of a run; files and TensorBoard take whole numbers of 63 bits."""

GAP_BIN_MAX = 2000
"""Bins are hundredths of a decade of seconds."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Supervisor → learner: answer what is asked, return the leases, leave, end."""

    reason: str


class Verb(StrEnum):
    """What an operator may ask for while a run goes on."""

    STATUS = "status"
    DRAIN = "drain"
    ADD = "add"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Command:
    """An operator's wish; `proof` shows that the operator holds the run's key.

    `target` names a learner (drain), `count` says how many (add).
    """

    verb: Verb
    proof: str
    target: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What became of a command: one sentence; `members` is the view of all roles after it.

    A view that does not fit one frame comes in several answers, of which all but the last one say
    that `more` follow.
    """

    done: bool
    told: str
    members: tuple["MemberFigures", ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class MemberFigures:
    """One line of an operator's table; `silent_s` is the time since the last heartbeat.

    Of a member that is gone, phase and step are the last that it told.
    """

    name: str
    role: Role
    incarnation: Incarnation
    status: Status
    phase: Phase
    step: int
    silent_s: float


@dataclass(frozen=True, slots=True)
class Note:
    """An entry of a member's tape that the run's folder keeps too; `fields` is a JSON object."""

    kind: str
    fields: str


@dataclass(frozen=True, slots=True)
class StepFigures:
    """What a learner's process did, cumulative over that process; sent with each heartbeat.

    `process` tells one process of a name from the next. `gap_bins` are (bin, count) pairs of a
    `telemetry.GapHistogram`. `loss` is the mean of the steps since it was told last.
    """

    process: str
    steps: int
    tokens: int
    stepping_s: float
    step_time_s: float
    loss: float
    gap_s: float
    data_wait_s: float
    gap_bins: tuple[tuple[int, int], ...]
    gap_largest_s: float
    bytes_up: int
    bytes_down: int

    @property
    def believable(self) -> bool:
        """Whether it can be added up; a loss may be any number, since training may diverge."""
        counts = (self.steps, self.tokens, self.bytes_up, self.bytes_down)
        counted = all(0 <= count <= COUNT_MAX for count in counts)
        timed = all(0 <= time_s < inf for time_s in (self.stepping_s, self.gap_largest_s))
        binned = all(abs(index) <= GAP_BIN_MAX and count >= 0 for index, count in self.gap_bins)
        gaps = sum(count for _, count in self.gap_bins)
        return counted and timed and binned and gaps <= COUNT_MAX


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Syncer → supervisor: the final cut is durable; payload: its share of the summary, JSON."""

    reason: str
