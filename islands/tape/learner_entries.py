"""What a learner records: what it holds, what it answered, and whose inner moments it has."""

from islands.identities import Phase
from islands.tape.entry import Entry, Logged
from islands.tape.round_entries import Leases


class Reported(Entry, frozen=True, tag="progress"):
    """A learner's report: tokens of its incarnation, and the positions it has reached."""

    incarnation: str
    phase: Phase
    tokens: int
    quota: int
    leases: Leases


class Adopted(Entry, frozen=True):
    """A learner holds a version from a boundary at which its incarnation had done `tokens`."""

    incarnation: str
    fragment: int
    version: str
    digest: str
    tokens: int


class Contributed(Entry, frozen=True, tag="contribute"):
    """A learner answered a pull with the last `tokens` of the `processed` ones."""

    ticket: str
    fragment: int
    base: str
    steps: int
    tokens: int
    processed: int


class MomentsTaken(Logged, frozen=True, kw_only=True, rename={"donor": "from"}):
    """A learner's process begins with a peer's inner moments, or ("disk") with its own."""

    donor: str
    pieces: int
    bytes: int | None = None
    seconds: float
    waited_s: float


class MomentsFresh(Logged, frozen=True):
    """A learner's process begins with fresh inner moments."""

    reason: str
    waited_s: float


class MomentsGiven(Entry, frozen=True):
    """A learner sent a piece of its inner moments to a peer."""

    to: str
    piece: int


class MomentsKept(Entry, frozen=True):
    """A learner left its inner moments on disk, or could not."""

    error: str


class MomentsReset(Logged, frozen=True):
    """A learner threw its inner moments away."""
