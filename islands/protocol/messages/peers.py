"""Messages between learners, relayed by the hub: the inner optimizer's state, piece by piece."""

from islands.protocol.identities import Incarnation
from messaging.envelope import message


@message
class StateRequest:
    """Ask a state donor for one piece of its inner optimizer's state, if it has this `schema`.

    That is the digest of names, dtypes and shapes of the whole state.
    """

    incarnation: Incarnation
    piece: int
    schema: str


@message
class StateOffer:
    """Answer to a StateRequest; payload: the piece's bytes.

    `pieces` is the number of pieces of the state, 0 if the donor has none to offer.
    """

    piece: int
    pieces: int
    schema: str
    digest: str
