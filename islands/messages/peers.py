"""Messages between learners, relayed by the hub: the inner optimizer's state, piece by piece."""

from dataclasses import dataclass

from islands.identities import (
    Incarnation,
)


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Ask a peer for one piece of its inner optimizer's state.

    `schema` is the digest of names, dtypes and shapes of the whole state: unlike states are not
    offered.
    """

    incarnation: Incarnation
    piece: int
    schema: str


@dataclass(frozen=True, slots=True)
class StateOffer:
    """Answer to a StateRequest; payload: the piece's bytes. `pieces` is 0 if there is none."""

    piece: int
    pieces: int
    schema: str
    digest: str


PEER_TYPES: tuple[type, ...] = (StateRequest, StateOffer)
"""What a hub passes on to the learner that the envelope names, and does not read."""
