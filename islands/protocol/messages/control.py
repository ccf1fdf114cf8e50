"""Messages for operating a run: commands, and what members report for the hub's run folder."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import inf

from islands.protocol.identities import Incarnation, Phase, Role, Status
from messaging.envelope import message

COUNT_MAX = 2**48
"""Upper limit of each count of one name, over all its processes, so that a lie adds no more."""

TOTAL_MAX = 2**62
"""Upper limit of each total of a run; files and TensorBoard take integers of 63 bits."""

GAP_BINS = range(-700, 701)
"""Indices of the bins of step gaps, from 0.1 µs to 116 days; each a hundredth of a decade."""

PROCESS_MAX = 64
"""Most characters of the text that tells one process of a name from the next."""

HARDWARE_MAX = 80
"""Most characters of the text on a learner's hardware."""

METRICS_MAX = 16
"""Most metrics of steps that a learner may report, as each is a curve of its own."""

METRIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,47}")


def wrong_metrics(names: Collection[object]) -> str | None:
    """Return why metrics of a step cannot have these names, as a sentence; None if they can."""
    if len(names) > METRICS_MAX:
        return f"there are {len(names)} metrics of a step; {METRICS_MAX} can be reported"
    for name in names:
        if not isinstance(name, str) or METRIC_NAME.fullmatch(name) is None:
            return (
                f"a metric of a step is named {name!r}; a name has 48 characters at most, which "
                "are letters, digits or one of _ . / -, and begins with a letter or a digit"
            )
    return None


@message
class Drain:
    """Supervisor → learner: answer the pulls, return the leases, leave and end."""

    reason: str


class Verb(StrEnum):
    """The commands of an operator."""

    STATUS = "status"
    DRAIN = "drain"
    EVICT = "evict"
    ADD = "add"
    PAUSE = "pause"
    RESUME = "resume"
    REVOKE = "revoke"
    STOP = "stop"
    SAVE = "save"


@message
class Command:
    """Operator → supervisor: a command, signed over all of it, with a `nonce` of the supervisor.

    The first time it has none: the answer then refuses it, and carries one.
    """

    verb: Verb
    target: str = ""
    count: int = 1
    nonce: str = ""
    signature: str = ""


@message
class CommandAnswer:
    """Answer to a command: whether it is done, one sentence, and all roles' members after it.

    The payload of one that is done is the run's status as JSON. A table of members that does not
    fit one frame is sent in several answers, of which all but the last one say that `more` follow.
    A refusal that has a `nonce` asks for the command once more, signed over that.
    """

    done: bool
    told: str
    members: tuple["MemberFigures", ...] = ()
    more: bool = False
    nonce: str = ""


@dataclass(frozen=True, slots=True)
class MemberFigures:
    """One line of an operator's table; `silent_s` is the time since the last heartbeat."""

    name: str
    role: Role
    incarnation: Incarnation
    status: Status
    phase: Phase
    step: int
    silent_s: float


@message
class Save:
    """Supervisor → syncer: take a checkpoint of the run as it is."""

    reason: str


@message
class Note:
    """Member → supervisor: a tape entry for the run's folder too; `fields` is a JSON object."""

    kind: str
    fields: str


@message
class StepFigures:
    """What a learner's process did, cumulative over that process; sent with each heartbeat.

    `process` distinguishes one process of a name from the next. `gap_bins` are (bin, count) pairs
    of a `DurationHistogram`, by ascending bin. `loss` is the mean over the steps since the report
    before; None if the learner's loop does not report it. `waited_s` is the time without a step in
    which no batch had been read yet. `hardware` names the devices; "" if they are not known.
    `metrics` are pairs of a name and its mean over the steps that reported it since the report
    before.
    """

    process: str
    steps: int
    tokens: int
    stepping_s: float
    step_time_s: float
    loss: float | None
    gap_s: float
    data_wait_s: float
    gap_bins: tuple[tuple[int, int], ...]
    gap_largest_s: float
    bytes_up: int
    bytes_down: int
    waited_s: float = 0.0
    hardware: str = ""
    metrics: tuple[tuple[str, float], ...] = ()

    @property
    def believable(self) -> bool:
        """Whether the figures are within limits; a loss or a metric may be any number."""
        counts = (self.steps, self.tokens, self.bytes_up, self.bytes_down)
        counted = all(0 <= count <= COUNT_MAX for count in counts)
        times_s = (self.stepping_s, self.gap_largest_s, self.waited_s)
        timed = all(0 <= time_s < inf for time_s in times_s)
        ascending = all(one < other for (one, _), (other, _) in pairwise(self.gap_bins))
        binned = ascending and all(n in GAP_BINS and count >= 0 for n, count in self.gap_bins)
        gaps = sum(count for _, count in self.gap_bins)
        short = len(self.hardware) <= HARDWARE_MAX and len(self.process) <= PROCESS_MAX
        short = short and wrong_metrics([name for name, _ in self.metrics]) is None
        return counted and timed and binned and short and gaps <= COUNT_MAX


@message
class RunEnded:
    """Syncer → supervisor: the final cut is durable; payload: its part of the summary as JSON."""

    reason: str
