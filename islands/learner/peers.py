"""Pieces of moments on their way: digests are computed off the loop, and what lies on disk is read.

The state holds those that a donor sent, and decides what becomes of each.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar, assert_never

from islands.learner.actions import LoadKept, LoadMoments, OfferMoments, ToPeer
from islands.learner.events import MomentsLoaded, PieceArrived
from islands.messages.peers import StateOffer
from islands.tape.entry import Entry
from islands.tape.learner_entries import MomentsGiven
from messaging.codec.tensors import digest
from messaging.envelope import Envelope

T = TypeVar("T")

PeerAction = ToPeer | OfferMoments | LoadKept


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
    """What is done with the bytes.

    Args:
        send: through the syncer.
        load: commands compute to take moments over.
        submit: does work off the loop, then calls the second argument with its result.
        record: on the tape.
        post: to the actor's own state.
        read_kept: reads what an earlier process left on disk; None if it is damaged.
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
        """Hold nothing."""
        self._send = send
        self._load = load
        self._submit = submit
        self._record = record
        self._post = post
        self._read_kept = read_kept

    def receive(self, envelope: Envelope, offer: StateOffer) -> None:
        """Measure a peer's piece off the loop; an offer without one says that there is none."""
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
        """Do what the state decided."""
        match action:
            case ToPeer(peer, message):
                self._send(message, recipient=peer)
            case OfferMoments():
                self._offer(action)
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
                self._load(LoadMoments(pieces))

        self._submit(self._read_kept, arrive)

    def _offer(self, action: OfferMoments) -> None:
        """Send the piece that was read for a peer, with its digest."""
        asker, offer, payload = action.asker, action.message, action.payload

        def send(computed: str) -> None:
            if self._send(replace(offer, digest=computed), (payload,), recipient=asker):
                self._record(MomentsGiven(asker, offer.piece))

        self._submit(lambda: digest(payload), send)
