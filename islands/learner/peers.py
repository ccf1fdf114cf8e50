"""Pieces of moments in a learner's hands: those that a donor sent, and those that a peer asked for.

The state decides about each of them by its number; here are the bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from islands.learner.actions import (
    ForgetPieces,
    KeepPiece,
    LoadMoments,
    OfferMoments,
    ReadMoments,
    ToPeer,
)
from islands.learner.engine import Command, Load, ReadPiece
from islands.learner.events import MomentsRead, PieceArrived
from islands.messages import StateOffer
from messaging.envelope import Envelope
from messaging.tensors import digest

PeerAction = ToPeer | OfferMoments | ReadMoments | KeepPiece | ForgetPieces | LoadMoments


@dataclass(frozen=True, slots=True)
class PieceMeasured:
    """A donor's piece has been measured; it is kept only if the state wants it."""

    event: PieceArrived
    buffer: memoryview


class SendToPeer(Protocol):
    """Sends a message through the syncer."""

    def __call__(
        self, message: object, payload: tuple[memoryview, ...] = (), *, recipient: str
    ) -> bool:
        """Returns whether the link took it."""


class Pieces:
    """The bytes, and what is done with them.

    Args:
        send: through the syncer.
        command: to compute.
        measure: does work off the loop, then calls the second argument with its result.
        record: on the tape.
    """

    def __init__(
        self,
        *,
        send: SendToPeer,
        command: Callable[[Command], object],
        measure: Callable[[Callable[[], str], Callable[[str], object]], object],
        record: Callable[[str, dict[str, object]], object],
    ) -> None:
        """Hold nothing."""
        self._send = send
        self._command = command
        self._measure = measure
        self._record = record
        self._kept: dict[int, memoryview] = {}
        self._at_hand: memoryview | None = None

    def decide(
        self,
        event: MomentsRead | PieceArrived,
        buffer: memoryview,
        handle: Callable[[MomentsRead | PieceArrived], object],
    ) -> None:
        """Let the state say at once what becomes of a piece; if nothing, it is forgotten."""
        self._at_hand = buffer
        handle(event)
        self._at_hand = None

    def receive(
        self,
        envelope: Envelope,
        offer: StateOffer,
        post: Callable[[PieceArrived | PieceMeasured], object],
    ) -> None:
        """Measure a peer's piece off the loop; an offer without one says that there is none."""
        sender = envelope.sender
        if len(envelope.payload) != 1:
            post(PieceArrived(sender, replace(offer, pieces=0), 0, intact=False))
            return
        buffer = envelope.payload[0]

        def arrive(computed: str) -> None:
            event = PieceArrived(sender, offer, buffer.nbytes, intact=computed == offer.digest)
            post(PieceMeasured(event, buffer))

        self._measure(lambda: digest(buffer), arrive)

    def perform(self, action: PeerAction) -> None:
        """Do what the state decided."""
        match action:
            case ToPeer(peer, message):
                self._send(message, recipient=peer)
            case ReadMoments(piece, asker):
                self._command(ReadPiece(piece, asker))
            case OfferMoments(asker, offer):
                self._offer(asker, offer)
            case KeepPiece(piece):
                assert self._at_hand is not None, "a piece is kept when it arrives"
                self._kept[piece] = self._at_hand
            case ForgetPieces():
                self._kept.clear()
            case LoadMoments():
                pieces = tuple(self._kept[piece] for piece in sorted(self._kept))
                self._kept.clear()
                self._command(Load(pieces))
            case _:
                assert_never(action)

    def _offer(self, asker: str, offer: StateOffer) -> None:
        """Send the piece that was read for a peer, with its digest."""
        buffer = self._at_hand
        assert buffer is not None, "a piece is offered when it was read"

        def send(computed: str) -> None:
            if self._send(replace(offer, digest=computed), (buffer,), recipient=asker):
                self._record("moments_given", {"to": asker, "piece": offer.piece})

        self._measure(lambda: digest(buffer), send)
