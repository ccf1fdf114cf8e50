"""Moments of the inner optimizer on this host's disk.

A learner writes a checkpoint at its end, and every few minutes while it steps, a few pieces per
boundary, so that no step waits for the disk. A process started again under the same name loads it
if no peer can give a newer state (`islands.protocol.learner.moments_recovery`).

The file is one line of JSON (`Header`), then the pieces, each after its length and digest. Only a
complete file replaces it, and a damaged file counts as absent.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import msgspec

from islands.files.whole_files import atomic_write
from islands.model.interfaces import MomentsCopy, Trainer
from islands.protocol.identities import Version
from islands.protocol.learner.memory import CheckpointedMoments
from messaging.clock import Clock
from messaging.codec.tensors import digest

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
    """The checkpoint file in a learner's folder.

    `run` is the run's name and what distinguishes it from others of that name; moments of another
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
        """Read all pieces; None if they cannot be read or one is damaged."""
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
        with atomic_write(self._path) as file:
            file.write(msgspec.json.encode(Header(self._run, kept)) + b"\n")
            for piece in pieces:
                file.write(_FRAME.pack(piece.nbytes, digest(piece).encode()))
                file.write(piece)


class CheckpointWriter:
    """Writes one learner's moments to disk while it steps, `interval_s` apart, and at its end.

    `outcome` is called, on any thread, with the error of a write, or "" for success.
    """

    def __init__(
        self,
        file: CheckpointFile,
        clock: Clock,
        outcome: Callable[[str], object],
        *,
        interval_s: float = KEEP_INTERVAL_S,
    ) -> None:
        self._file = file
        self._clock = clock
        self._outcome = outcome
        self._interval_s = interval_s
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="moments")
        self._due_s = clock.now_s() + interval_s  # the old checkpoint may yet be loaded
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
            self._outcome(f"moments are not kept on disk: {error.strerror or error}")
            return False
        self._outcome("")
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
        left = self.taken < self.kept.pieces and not self._given_up
        return left and not self.done and self._queue.qsize() < UNDER_WAY_MAX

    def take(self, snapshot: MomentsCopy) -> None:
        self.taken += 1
        self._queue.put(snapshot)

    def give_up(self) -> None:
        if not self._given_up:
            self._given_up = True
            self._queue.put(None)

    def buffers(self) -> Iterator[memoryview]:
        for _ in range(self.kept.pieces):
            snapshot = self._queue.get()
            if snapshot is None or not snapshot.finite():
                raise _GivenUpError
            yield snapshot.buffer()
