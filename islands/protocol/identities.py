"""The identities that messages carry and that fencing compares, and the enumerations of states.

Identities are never reused: an incarnation, a version or a ticket is given once in a run's life.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

import msgspec

FragmentIndex = NewType("FragmentIndex", int)
LearnerName = NewType("LearnerName", str)


class Compact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A table's entry, encoded as a list of its values, so that no entry repeats field names.

    The syncer creates, compares and encodes one for each fragment of each learner on its loop.
    """


class Version(Compact, frozen=True, order=True):
    """One published value of a fragment: the syncer's epoch and the number of merges before it."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Return the version of this text, which `str` made; raise a ValueError for any other."""
        epoch, number = map(int, text.split("."))
        return cls(epoch, number)


class FinalVersions(msgspec.Struct, frozen=True):
    """The versions of all fragments, in their order, that are published at one moment.

    `reason` says why the run ended there, and `tokens` are those processed until then.
    """

    reason: str
    tokens: int
    versions: tuple[Version, ...]


class Incarnation(msgspec.Struct, frozen=True, order=True, gc=False):
    """One admission of a learner: the supervisor's epoch and its counter of admissions.

    It is encoded with its field names, so that a peer of another protocol version can be refused.
    """

    epoch: int
    counter: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.counter}"


@dataclass(frozen=True, slots=True, order=True)
class Ticket:
    """The right to answer one pull once."""

    epoch: int
    round: int
    name: LearnerName
    incarnation: Incarnation

    def __str__(self) -> str:
        return f"{self.name}/{self.incarnation}@{self.epoch}:{self.round}"


class Role(StrEnum):
    """The part that a process plays in the run."""

    LEARNER = "learner"
    SYNCER = "syncer"
    SUPERVISOR = "supervisor"
    OBSERVER = "observer"
    STANDBY = "standby"


class Phase(StrEnum):
    """What a member is doing; a learner may contribute once it has been ``STEPPING``.

    A syncer is ``HEALING`` until every fragment has a version, then ``MERGING``, or ``BLOCKED`` as
    its journal cannot be written. An observer is ``HEALING`` until it holds every fragment.
    """

    JOINING = "joining"
    COMPILING = "compiling"
    HEALING = "healing"
    STEPPING = "stepping"
    STARVED = "starved"
    WAITING = "waiting"
    PAUSED = "paused"
    FINISHED = "finished"
    MERGING = "merging"
    BLOCKED = "blocked"
    OBSERVING = "observing"


class Status(StrEnum):
    """The supervisor's judgement of a member's liveness."""

    LIVE = "live"
    SUSPECT = "suspect"
    STALLED = "stalled"
    EVICTED = "evicted"
    LEFT = "left"

    @property
    def ended(self) -> bool:
        return self in (Status.EVICTED, Status.LEFT)


BLOCKED = "the syncer's journal, or its second copy, cannot be written, so nothing is merged"
"""What a syncer in this phase means, in words."""

TRAINING = (Phase.STEPPING, Phase.WAITING)
"""The phases of a learner that steps, or that waits for a merge before its next step."""

WHOLE = (*TRAINING, Phase.STARVED, Phase.PAUSED)
"""The phases of a learner whose model is whole: it trains, or would with data, or unpaused."""


class Fate(StrEnum):
    """What became of a contribution; each has exactly one fate (protocol §6)."""

    APPLIED = "applied"
    REJECTED = "rejected"
    LATE = "late"
    STALE = "stale"


class Lease(Compact, frozen=True, order=True):
    """A virtual shard of one pass over the corpus, and the record at which reading continues."""

    pass_index: int
    shard: int
    position: int
    done: bool = False


SUPERVISOR, SYNCER, OBSERVER = Role.SUPERVISOR.value, Role.SYNCER.value, Role.OBSERVER.value
"""Names of the processes that a composition starts once; others may have names of their own."""

OPERATOR = "operator"
"""The name that an operator's proof is made for; nobody is ever admitted under it."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_FORM = (
    "must be 1 to 64 letters, digits, points, dashes or underscores, and begin with a letter or "
    "digit"
)
"""The form of a name, which becomes a folder, a row of a table and a word of a log."""

RESERVED = (OPERATOR, *(role.value for role in Role))


def wrong_name(name: str, role: Role) -> str | None:
    """The reason why no process of this role can have a name; None if one can.

    The names of roles are reserved: a learner called `syncer` would keep the syncer out.
    """
    if not NAME.fullmatch(name):
        return f"name is {name[:80]!r}; it {NAME_FORM}"
    if name.lower() in RESERVED and name.lower() != role.value:
        return f"name is {name!r}, which is reserved; choose another"
    return None
