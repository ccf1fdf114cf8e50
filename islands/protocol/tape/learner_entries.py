"""Entries of learners: reports, adoptions, contributions, and the origin of inner moments."""

from islands.protocol.identities import Phase
from islands.protocol.tape.entry import Entry, Logged, Notable
from islands.protocol.tape.round_entries import Leases


class Reported(Entry, frozen=True, tag="progress"):
    """A learner reported its incarnation's tokens, and the position reached in each lease."""

    incarnation: str
    phase: Phase
    tokens: int
    quota: int
    leases: Leases


class Adopted(Entry, frozen=True, tag="adopted"):
    """A learner adopted a version at a step boundary, where its incarnation had done `tokens`."""

    incarnation: str
    fragment: int
    version: str
    digest: str
    tokens: int


class Contributed(Entry, frozen=True, tag="contribute"):
    """A learner answered a pull with the last `tokens` of its incarnation's `processed` tokens."""

    ticket: str
    fragment: int
    base: str
    steps: int
    tokens: int
    processed: int


DISK = "disk"
"""In place of a donor: the learner's own disk."""


class MomentsTaken(
    Logged, frozen=True, kw_only=True, rename={"donor": "from"}, tag="moments_taken"
):
    """A learner's process began with inner moments `from` a state donor, or its own from "disk"."""

    donor: str
    pieces: int
    bytes: int | None = None
    seconds: float
    waited_s: float


NO_DONOR = "no donor"
KEEPS_NONE = "this optimizer keeps none"
STEPS_NO_MORE = "it will not step any more"
"""Reasons for fresh moments that are as they should be."""


class MomentsFresh(Logged, frozen=True, tag="moments_fresh"):
    """A learner's process began with fresh inner moments; `reason` says why."""

    reason: str
    waited_s: float


class MomentsGiven(Entry, frozen=True, tag="moments_given"):
    """A state donor sent a piece of its inner moments to another learner."""

    to: str
    piece: int


class MomentsKept(Notable, frozen=True, tag="moments_kept"):
    """A learner saved its inner moments to disk; a non-empty `error` says why it could not."""

    error: str


class MomentsReset(Logged, frozen=True, tag="moments_reset"):
    """A learner discarded its inner moments."""
