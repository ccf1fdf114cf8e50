"""Transfer of moment pieces: digests and reads from disk are done off the event loop.

The state holds the pieces that a donor sent, and decides what becomes of each.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar, assert_never

from islands.protocol.learner.actions import LoadCheckpoint, LoadMoments, OfferMoments, ToPeer
from islands.protocol.learner.events import MomentsLoaded, PieceArrived
from islands.protocol.messages.peers import StateOffer
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.learner_entries import MomentsGiven
from messaging.codec.tensors import digest
from messaging.envelope import Envelope

T = TypeVar("T")

PeerAction = ToPeer | OfferMoments | LoadCheckpoint


class Submit(Protocol):
    """Does work off the event loop."""

    def __call__(self, work: Callable[[], T], done: Callable[[T], object]) -> object:
        """Do `work`, then call `done` with its result on the loop."""


class SendToPeer(Protocol):
    """Sends a message through the syncer."""

    def __call__(
        self, message: object, payload: tuple[memoryview, ...] = (), *, recipient: str
    ) -> bool:
        """Send a message; returns whether the link took it."""


class Pieces:
    """Sends, receives and loads the bytes of moment pieces.

    Args:
        send: sends a message to a peer, through the syncer.
        load: commands compute to load moments.
        submit: does work off the loop, then calls the second argument with its result.
        record: writes an entry to the tape.
        post: posts an event to the actor's own mailbox.
        read_kept: reads the checkpoint that an earlier process left; None if it is damaged.
    """

    def __init__(
        self,
        *,
        send: SendToPeer,
        load: Callable[[LoadMoments], object],
        submit: Submit,
        record: Callable[[Entry], object],
        post: Callable[[PieceArrived | MomentsLoaded], object],
        read_kept: Callable[[], tuple[memoryview, ...] | None],
    ) -> None:
        """Keep the ports; no piece is held here."""
        self._send = send
        self._load = load
        self._submit = submit
        self._record = record
        self._post = post
        self._read_kept = read_kept

    def receive(self, envelope: Envelope, offer: StateOffer) -> None:
        """Compute the digest of a peer's piece off the loop; an offer without payload declines."""
        sender = envelope.sender
        if len(envelope.payload) != 1:
            none = replace(offer, pieces=0)
            self._post(PieceArrived(sender, none, memoryview(b""), intact=False))
            return
        payload = envelope.payload[0]

        def arrive(computed: str) -> None:
            self._post(PieceArrived(sender, offer, payload, intact=computed == offer.digest))

        self._submit(lambda: digest(payload), arrive)

    def perform(self, action: PeerAction) -> None:
        """Perform an action that the state decided."""
        match action:
            case ToPeer(peer, message):
                self._send(message, recipient=peer)
            case OfferMoments():
                self._offer(action)
            case LoadCheckpoint():
                self._load_kept()
            case _:
                assert_never(action)

    def _load_kept(self) -> None:
        """Read the checkpoint on disk; one damaged piece makes all of it unusable."""

        def arrive(pieces: tuple[memoryview, ...] | None) -> None:
            if pieces is None:
                self._post(MomentsLoaded(taken=False))
            else:
                self._load(LoadMoments(pieces))

        self._submit(self._read_kept, arrive)

    def _offer(self, action: OfferMoments) -> None:
        """Send the piece that was read for a peer, once its digest was computed."""
        asker, offer, payload = action.asker, action.message, action.payload

        def send(computed: str) -> None:
            if self._send(replace(offer, digest=computed), (payload,), recipient=asker):
                self._record(MomentsGiven(asker, offer.piece))

        self._submit(lambda: digest(payload), send)
