"""The inner optimizer's state of one learner as a file on its host, so that a stop loses none.

A learner that is stopped, or whose run has ended, writes it last; one that steps writes it every
few minutes as well, a piece at a boundary, so that no step waits for the disk. Whoever is started
again under the same name takes it up if no peer can give a newer one (`islands.learner.asking`).

The file: one line of JSON (`Header`), then each piece behind its length and digest. It is replaced
only by a whole one, and what is damaged is as if it were not there.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import msgspec

from islands.files.replacing import replacing
from islands.identities import Version
from islands.learner.moments import KeptMoments
from islands.training.trainer import MomentsCopy, Trainer
from messaging.clock import Clock
from messaging.codec.tensors import digest

KEEP_INTERVAL_S = 300.0
"""Between the end of one write and the beginning of the next, while it steps."""

SHARE_OF_TIME = 10
"""Writing takes at most this part of the time: a large state is written less often."""

PIECES_PER_BOUNDARY = 2
"""Pieces that one boundary copies: a large state takes many boundaries."""

UNDER_WAY_MAX = 4
"""Pieces that wait for the disk at once."""

FILE = "moments"
_FRAME = struct.Struct(">Q32s")
_LINE_MAX = 1 << 20


class Header(msgspec.Struct, frozen=True):
    """The first line: whose moments these are, and what they belong to."""

    run: str
    kept: KeptMoments


class MomentFile:
    """Where one learner of one run keeps its moments.

    Args:
        folder: of that learner.
        run: its name, and what tells it from another of that name; moments of another run are none.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._path = folder / FILE
        self._run = run

    def find(self) -> KeptMoments | None:
        """What is kept; None if nothing is, or nothing of this run."""
        try:
            with self._path.open("rb") as file:
                header = msgspec.json.decode(file.readline(_LINE_MAX), type=Header)
        except (OSError, msgspec.MsgspecError):
            return None
        return header.kept if header.run == self._run else None

    def read(self) -> tuple[memoryview, ...] | None:
        """All pieces; None if one of them is damaged."""
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

    def write(self, kept: KeptMoments, pieces: Iterable[memoryview]) -> None:
        """Replace what is kept.

        Raises:
            OSError: the disk is full or broken; what was kept before stays.
        """
        with replacing(self._path) as file:
            file.write(msgspec.json.encode(Header(self._run, kept)) + b"\n")
            for piece in pieces:
                file.write(_FRAME.pack(piece.nbytes, digest(piece).encode()))
                file.write(piece)


class MomentKeeper:
    """Writes one learner's moments, now and then while it steps, and at its end.

    Args:
        file: where to.
        clock: by which it is time again.
        told: called, on any thread, with what came of a write: an error, or nothing.
        interval_s: least time between two writes.
    """

    def __init__(
        self,
        file: MomentFile,
        clock: Clock,
        told: Callable[[str], object],
        *,
        interval_s: float = KEEP_INTERVAL_S,
    ) -> None:
        """Nothing is written at once: what is there may yet be taken up."""
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
        """Take a few pieces, if a write is under way or is due; never waits for the disk.

        Pieces from before and after a reset do not belong together: a write is given up by it.
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
        """Write what there is now, unless it is kept already, or is not finite."""
        if self._writing is not None:
            self._writing.give_up()
            self._pool.submit(self._conclude, self._writing).result()  # behind what it writes
        news = steps != self._steps_kept
        if versions and trainer.moment_pieces and news and trainer.finite():
            pieces = (trainer.read_moments(n).buffer() for n in range(trainer.moment_pieces))
            self._pool.submit(self._attempt, self._kept(trainer, versions), pieces).result()
        self._pool.shutdown(wait=True)

    def abandon(self) -> None:
        """The learner ends: no thread waits for pieces that nobody will take."""
        if self._writing is not None:
            self._writing.give_up()
        self._pool.shutdown(wait=False)

    def _conclude(self, writing: "_Writing") -> None:
        self._writing = None
        if writing.whole:
            self._steps_kept = writing.steps

    @staticmethod
    def _kept(trainer: Trainer, versions: tuple[Version, ...]) -> KeptMoments:
        return KeptMoments(trainer.moments_schema, trainer.moment_pieces, versions)

    def _write(self, writing: "_Writing") -> None:
        writing.whole = self._attempt(writing.kept, writing.buffers())
        writing.done = True

    def _attempt(self, kept: KeptMoments, pieces: Iterable[memoryview]) -> bool:
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
    """What was written so far is not to be kept."""


class _Writing:
    """One write while the learner steps: pieces come from its thread, and leave on another."""

    def __init__(self, kept: KeptMoments, steps: int, resets: int) -> None:
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
        """Whether a further piece has room."""
        left = self.taken < self.kept.pieces and not self._given_up
        return left and not self.done and self._queue.qsize() < UNDER_WAY_MAX

    def take(self, snapshot: MomentsCopy) -> None:
        """The next piece is on its way to the host."""
        self.taken += 1
        self._queue.put(snapshot)

    def give_up(self) -> None:
        """No more will come."""
        if not self._given_up:
            self._given_up = True
            self._queue.put(None)

    def buffers(self) -> Iterator[memoryview]:
        """The pieces, in order, as they come.

        Raises:
            _GivenUpError: no more will come, or one is not finite: a learner that diverged.
        """
        for _ in range(self.kept.pieces):
            snapshot = self._queue.get()
            if snapshot is None or not snapshot.finite():
                raise _GivenUpError
            yield snapshot.buffer()
