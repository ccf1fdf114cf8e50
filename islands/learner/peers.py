"""Pieces of moments in a learner's hands: those that a donor sent, and those that a peer asked for.

The state decides about each of them by its number; here are the bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, assert_never

from islands.learner.actions import (
    ForgetPieces,
    KeepPiece,
    LoadKept,
    LoadMoments,
    OfferMoments,
    ReadMoments,
    ToPeer,
)
from islands.learner.engine import Command, Load, ReadPiece
from islands.learner.events import MomentsLoaded, MomentsRead, PieceArrived
from islands.messages.peers import StateOffer
from islands.tape.entry import Entry
from islands.tape.learner_entries import MomentsGiven
from messaging.codec.tensors import digest
from messaging.envelope import Envelope

T = TypeVar("T")

PeerAction = ToPeer | OfferMoments | ReadMoments | KeepPiece | ForgetPieces | LoadMoments | LoadKept


@dataclass(frozen=True, slots=True)
class PieceMeasured:
    """A donor's piece has been measured; it is kept only if the state wants it."""

    event: PieceArrived
    buffer: memoryview


class Submit(Protocol):
    """Does work elsewhere."""

    def __call__(self, work: Callable[[], T], done: Callable[[T], object]) -> object:
        """Do it, then call `done` with its result on the loop."""


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
        submit: does work off the loop, then calls the second argument with its result.
        record: on the tape.
        post: to the actor's own state.
        read_kept: reads what an earlier process left on disk; None if it is damaged.
    """

    def __init__(
        self,
        *,
        send: SendToPeer,
        command: Callable[[Command], object],
        submit: Submit,
        record: Callable[[Entry], object],
        post: Callable[[PieceArrived | PieceMeasured | MomentsLoaded], object],
        read_kept: Callable[[], tuple[memoryview, ...] | None],
    ) -> None:
        """Hold nothing."""
        self._send = send
        self._command = command
        self._submit = submit
        self._record = record
        self._post = post
        self._read_kept = read_kept
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

    def receive(self, envelope: Envelope, offer: StateOffer) -> None:
        """Measure a peer's piece off the loop; an offer without one says that there is none."""
        sender = envelope.sender
        if len(envelope.payload) != 1:
            self._post(PieceArrived(sender, replace(offer, pieces=0), 0, intact=False))
            return
        buffer = envelope.payload[0]

        def arrive(computed: str) -> None:
            event = PieceArrived(sender, offer, buffer.nbytes, intact=computed == offer.digest)
            self._post(PieceMeasured(event, buffer))

        self._submit(lambda: digest(buffer), arrive)

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
            case LoadKept():
                self._load_kept()
            case _:
                assert_never(action)

    def _load_kept(self) -> None:
        """Read what lies on disk; a piece that is damaged spoils all."""

        def arrive(pieces: tuple[memoryview, ...] | None) -> None:
            if pieces is None:
                self._post(MomentsLoaded(taken=False))
            else:
                self._command(Load(pieces))

        self._submit(self._read_kept, arrive)

    def _offer(self, asker: str, offer: StateOffer) -> None:
        """Send the piece that was read for a peer, with its digest."""
        buffer = self._at_hand
        assert buffer is not None, "a piece is offered when it was read"

        def send(computed: str) -> None:
            if self._send(replace(offer, digest=computed), (buffer,), recipient=asker):
                self._record(MomentsGiven(asker, offer.piece))

        self._submit(lambda: digest(buffer), send)
