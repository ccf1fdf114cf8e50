"""Messages between a standby and the syncer whose journal it copies."""

from islands.protocol.identities import Incarnation
from messaging.envelope import message


@message
class Follow:
    """Standby → syncer: send what I lack of the journal, then each record as it becomes durable.

    `held` are the digests of the records that the standby has, by their files: two syncers that
    went on from one record give the same numbers. `address` is where it would listen as a hub. The
    credential is that of its admission.
    """

    name: str
    incarnation: Incarnation
    credential: str
    held: dict[str, str]
    address: str


@message
class RecordPiece:
    """Syncer → standby: a piece of a file of the journal; payload: its bytes from `at` on.

    Pieces of one link are numbered from 1. The file has `size_bytes` and holds record `sequence`,
    after which so many more are `left` to be sent.
    """

    number: int
    file: str
    sequence: int
    at: int
    size_bytes: int
    left: int = 0


@message
class PieceHeld:
    """Standby → syncer: it has the pieces up to this number, and their whole files are durable."""

    number: int
