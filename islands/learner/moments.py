"""Moments of the inner optimizer outside of the device: on this host's disk, and to and from peers.

A learner writes a checkpoint at its end, when it is stopped or its run is over. While it steps it
also writes one every few minutes, a few pieces per boundary, so that no step waits for the disk. A
process started again under the same name loads it if no peer can give a newer state
(`islands.protocol.learner.moments_recovery`, which decides what becomes of each piece).

The file is one line of JSON (`Header`), then the pieces, each after its length and digest. Only a
complete file replaces it, and a damaged file counts as absent. Digests and reads from disk are done
off the event loop.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, TypeVar, assert_never

import msgspec

from islands.files.whole_files import atomic_write
from islands.model.interfaces import MomentsCopy, Trainer
from islands.protocol.identities import Version
from islands.protocol.learner.actions import LoadCheckpoint, LoadMoments, ToPeer
from islands.protocol.learner.core import CheckpointedMoments
from islands.protocol.learner.events import MomentsLoaded, PieceArrived
from islands.protocol.messages.peers import StateOffer
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.learner_entries import MomentsGiven
from messaging.clock import Clock
from messaging.codec.tensors import digest
from messaging.envelope import Envelope

KEEP_INTERVAL_S = 300.0
"""Least time between the end of one write and the beginning of the next, while it steps."""

SHARE_OF_TIME = 10
"""Writing takes at most one part in this many of the time: a large state is written less often."""

PIECES_PER_BOUNDARY = 2
"""Pieces that one boundary copies, so that a large state is spread over many boundaries."""

UNDER_WAY_MAX = 4
"""Pieces that may wait for the disk at once, which bounds the memory."""

FILE = "moments"
_FRAME = struct.Struct(">Q32s")
_LINE_MAX = 1 << 20


class Header(msgspec.Struct, frozen=True):
    """The file's first line: the run that the moments belong to, their schema and versions."""

    run: str
    kept: CheckpointedMoments


class CheckpointFile:
    """The checkpoint file of one learner in one run.

    Args:
        folder: the learner's folder, in which the file lies.
        run: the run's name and what distinguishes it from others of that name; moments of another
            run are ignored.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._path = folder / FILE
        self._run = run

    def find(self) -> CheckpointedMoments | None:
        """Read the header; None if there is no readable file, or one of another run."""
        try:
            with self._path.open("rb") as file:
                header = msgspec.json.decode(file.readline(_LINE_MAX), type=Header)
        except (OSError, msgspec.MsgspecError):
            return None
        return header.kept if header.run == self._run else None

    def read(self) -> tuple[memoryview, ...] | None:
        """Read all pieces; None if the file cannot be read or a piece is damaged."""
        try:
            with self._path.open("rb") as file:
                header = msgspec.json.decode(file.readline(_LINE_MAX), type=Header)
                pieces = []
                for _ in range(header.kept.pieces):
                    size, known = _FRAME.unpack(file.read(_FRAME.size))
                    piece = memoryview(file.read(size))
                    if digest(piece).encode() != known:
                        return None
                    pieces.append(piece)
        except (OSError, msgspec.MsgspecError, struct.error):
            return None
        return tuple(pieces)

    def write(self, kept: CheckpointedMoments, pieces: Iterable[memoryview]) -> None:
        """Replace the checkpoint."""
        with atomic_write(self._path) as file:
            file.write(msgspec.json.encode(Header(self._run, kept)) + b"\n")
            for piece in pieces:
                file.write(_FRAME.pack(piece.nbytes, digest(piece).encode()))
                file.write(piece)


class CheckpointWriter:
    """Writes one learner's moments to disk at intervals while it steps, and at its end.

    Args:
        file: the file to write.
        clock: measures the intervals.
        told: called, on any thread, with the outcome of a write: an error, or "" for success.
        interval_s: least time between two writes.
    """

    def __init__(
        self,
        file: CheckpointFile,
        clock: Clock,
        told: Callable[[str], object],
        *,
        interval_s: float = KEEP_INTERVAL_S,
    ) -> None:
        """Delay the first write by an interval, since the old checkpoint may yet be loaded."""
        self._file = file
        self._clock = clock
        self._told = told
        self._interval_s = interval_s
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="moments")
        self._due_s = clock.now_s() + interval_s
        self._began_s = 0.0
        self._steps_kept = 0
        self._writing: _Writing | None = None

    def at_boundary(
        self, trainer: Trainer, versions: tuple[Version, ...], steps: int, resets: int = 0
    ) -> None:
        """Copy a few pieces if a write is in progress or due; never waits for the disk.

        A reset of the moments aborts a write, since pieces from before and after it do not match.
        """
        writing = self._writing
        if writing is not None and writing.done:
            self._conclude(writing)
            writing = None
            now_s = self._clock.now_s()
            spent_s = now_s - self._began_s
            self._due_s = now_s + max(self._interval_s, SHARE_OF_TIME * spent_s)
        if writing is None:
            nothing = steps == self._steps_kept or not versions or not trainer.moment_pieces
            if nothing or self._clock.now_s() < self._due_s:
                return
            self._began_s = self._clock.now_s()
            writing = self._writing = _Writing(self._kept(trainer, versions), steps, resets)
            self._pool.submit(self._write, writing)
        if writing.resets != resets:
            writing.give_up()
        for _ in range(PIECES_PER_BOUNDARY):
            if not writing.wants:
                return
            writing.take(trainer.read_moments(writing.taken))

    def at_the_end(self, trainer: Trainer, versions: tuple[Version, ...], steps: int) -> None:
        """Write the present moments, unless they are on disk already or are not finite."""
        if self._writing is not None:
            self._writing.give_up()
            self._pool.submit(self._conclude, self._writing).result()  # queued after the write
        news = steps != self._steps_kept
        if versions and trainer.moment_pieces and news and trainer.finite():
            pieces = (trainer.read_moments(n).buffer() for n in range(trainer.moment_pieces))
            self._pool.submit(self._attempt, self._kept(trainer, versions), pieces).result()
        self._pool.shutdown(wait=True)

    def abandon(self) -> None:
        """Abort a write when the learner ends, so that its thread waits for no further piece."""
        if self._writing is not None:
            self._writing.give_up()
        self._pool.shutdown(wait=False)

    def _conclude(self, writing: "_Writing") -> None:
        self._writing = None
        if writing.whole:
            self._steps_kept = writing.steps

    @staticmethod
    def _kept(trainer: Trainer, versions: tuple[Version, ...]) -> CheckpointedMoments:
        return CheckpointedMoments(trainer.moments_schema, trainer.moment_pieces, versions)

    def _write(self, writing: "_Writing") -> None:
        writing.whole = self._attempt(writing.kept, writing.buffers())
        writing.done = True

    def _attempt(self, kept: CheckpointedMoments, pieces: Iterable[memoryview]) -> bool:
        try:
            self._file.write(kept, pieces)
        except _GivenUpError:
            return False
        except OSError as error:
            self._told(f"moments are not kept on disk: {error.strerror or error}")
            return False
        self._told("")
        return True


class _GivenUpError(Exception):
    """The write was aborted, and what was written so far is to be discarded."""


class _Writing:
    """One write while the learner steps: compute queues the pieces, another thread writes them."""

    def __init__(self, kept: CheckpointedMoments, steps: int, resets: int) -> None:
        self.kept = kept
        self.steps = steps
        self.resets = resets
        self.taken = 0
        self.done = False
        self.whole = False
        self._given_up = False
        self._queue: SimpleQueue[MomentsCopy | None] = SimpleQueue()

    @property
    def wants(self) -> bool:
        """Whether the write needs a further piece and has room for it."""
        left = self.taken < self.kept.pieces and not self._given_up
        return left and not self.done and self._queue.qsize() < UNDER_WAY_MAX

    def take(self, snapshot: MomentsCopy) -> None:
        """Queue the next piece, whose copy to the host has begun."""
        self.taken += 1
        self._queue.put(snapshot)

    def give_up(self) -> None:
        """Abort the write: no more pieces will come."""
        if not self._given_up:
            self._given_up = True
            self._queue.put(None)

    def buffers(self) -> Iterator[memoryview]:
        """Yield the pieces in order, as they arrive."""
        for _ in range(self.kept.pieces):
            snapshot = self._queue.get()
            if snapshot is None or not snapshot.finite():
                raise _GivenUpError
            yield snapshot.buffer()


# --- to and from peers ----------------------------------------------------------------------------

T = TypeVar("T")


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

    def perform(self, action: ToPeer | LoadCheckpoint) -> None:
        match action:
            case ToPeer(peer, StateOffer() as offer, memoryview() as payload):
                self._offer(peer, offer, payload)
            case ToPeer(peer, message):
                self._send(message, recipient=peer)
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

    def _offer(self, asker: str, offer: StateOffer, payload: memoryview) -> None:
        """Send the piece that was read for a peer, once its digest was computed."""

        def send(computed: str) -> None:
            if self._send(replace(offer, digest=computed), (payload,), recipient=asker):
                self._record(MomentsGiven(asker, offer.piece))

        self._submit(lambda: digest(payload), send)
