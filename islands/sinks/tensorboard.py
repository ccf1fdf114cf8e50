"""The curves of a run in TensorBoard, over the tokens that the run had processed.

TensorBoard overlays curves of the same name from different folders, which it calls runs. So each
learner has a folder, and the run has one for curves over all learners; `loss` is in each of them,
and in `run` it is the mean.

=============  =====================================================================================
folder         curves
=============  =====================================================================================
`run`          loss, tokens_per_s, yield, learning_rate, `evaluation/…`, `merge/…`; the settings
each learner   loss, tokens_per_s, step_time_s, gap_s, data_wait_s, bytes_up, bytes_down,
               participation, staleness, `metrics/…`
=============  =====================================================================================

Only the first `LEARNERS_MOST` learners have a folder. The records go through the run's spool,
because TensorBoard's `EventFileWriter` has a thread that ends at the first disk error, and writes
one file without limit. TensorBoard reads all files of a folder in the order of their names; here a
full file is closed, the next one begun, and the oldest removed.
"""

import contextlib
import re
import socket
from collections.abc import Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import IO

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from islands.files.growing_files import LIMIT_BYTES, Spool, write_whole
from islands.protocol.settings.run import RunSettings
from islands.sinks.sink import RUN, Row, flat, points_in
from messaging.clock import WallClock

LEARNERS_MOST = 32
LEARNERS_SHARE = 8
"""A learner's files are rotated at the run's limit divided by this."""
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
STEP_MAX = 2**63 - 1
"""The largest step that an event can hold."""
FILE_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class TensorBoard:
    """Writes the curves of a run.

    A file of the run is rotated at `limit_bytes`.
    """

    def __init__(
        self, folder: Path, spool: Spool, settings: RunSettings, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        self._folder = folder
        self._spool = spool
        self._limit_bytes = limit_bytes
        self._run = EventFiles(folder / RUN, spool, limit_bytes)
        self._learners: dict[str, EventFiles] = {}
        self._settings: RunSettings | None = settings

    def record(self, rows: Sequence[Row]) -> None:
        for points in points_in(rows):
            files = self._files(points.whose)
            if files is not None:
                for tag, value in points.values.items():
                    files.add(tag, value, points.tokens)

    def end(self, summary: Row | None) -> None: ...

    def _files(self, whose: str | None) -> "EventFiles | None":
        if whose is None:
            if self._settings is not None:
                self._run.add_summary(_text("settings/text_summary", table_of(self._settings)), 0)
                self._settings = None
            return self._run
        if whose not in self._learners:
            usable = FOLDER_NAME.fullmatch(whose) and whose != RUN
            if not usable or len(self._learners) >= LEARNERS_MOST:
                return None
            limit_bytes = max(1, self._limit_bytes // LEARNERS_SHARE)
            files = EventFiles(self._folder / whose, self._spool, limit_bytes)
            self._learners[whose] = files
        return self._learners[whose]


class EventFiles:
    """Writes the curves of one folder.

    A file is rotated at `limit_bytes`, which is the most that earlier files may take, too.
    """

    def __init__(self, folder: Path, spool: Spool, limit_bytes: int = LIMIT_BYTES) -> None:
        self._inlet = spool.inlet(_EventFile(folder, limit_bytes))
        self._wall = WallClock()

    def add(self, tag: str, value: float, step: int) -> None:
        self.add_summary(Summary(value=[Summary.Value(tag=tag, simple_value=value)]), step)

    def add_summary(self, summary: Summary, step: int) -> None:
        """Add whatever TensorBoard shows of a step."""
        event = Event(wall_time=self._wall.now_s(), step=min(step, STEP_MAX), summary=summary)
        self._inlet.add(_record(event))


class _EventFile:
    """The file that grows now; a start makes its first file with its first points."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._size = 0
        self._file: IO[bytes] | None = None

    @property
    def room_bytes(self) -> int:
        return self._limit_bytes - self._size

    def write(self, data: bytes) -> None:
        if self._file is None or self._size >= self._limit_bytes:
            self._begin()
        assert self._file is not None, "just opened"
        write_whole(self._file, data, self._size)
        self._size += len(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _begin(self) -> None:
        """Begin a new file, whose name sorts after all others, whatever the wall clock says."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found = self._drop_oldest()
        numbers = [int(match[1]) for path in found if (match := FILE_NAME.match(path.name))]
        number = max(int(WallClock().now_s()), *(1 + number for number in numbers), 0)
        path = self._folder / f"events.out.tfevents.{number:010}.{socket.gethostname()}"
        file = path.open("wb", buffering=0)
        version = _record(Event(wall_time=number, file_version="brain.Event:2"))
        try:
            write_whole(file, version, 0)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self.close()
        self._file, self._size = file, len(version)

    def _drop_oldest(self) -> list[Path]:
        kept = sorted(self._folder.glob("*tfevents*"), key=lambda path: path.name)
        sizes = [path.stat().st_size for path in kept]
        while kept and sum(sizes) > self._limit_bytes:
            kept.pop(0).unlink(missing_ok=True)
            sizes.pop(0)
        return kept


def _record(event: Event) -> bytes:
    buffer = BytesIO()
    RecordWriter(buffer).write(event.SerializeToString())
    return buffer.getvalue()


def _text(tag: str, text: str) -> Summary:
    tensor = TensorProto(
        dtype=DT_STRING,
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        string_val=[text.encode()],
    )
    metadata = create_summary_metadata("", "")
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def table_of(settings: RunSettings) -> str:
    """Return all settings as a table in Markdown, which TensorBoard renders."""
    rows = [f"| {name} | {value} |" for name, value in flat(asdict(settings))]
    return "\n".join(["| setting | value |", "|---|---|", *rows])
