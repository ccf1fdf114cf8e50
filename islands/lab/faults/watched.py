"""What the hub of a chaos run writes down of what it is told, for whoever injects the faults.

Times are the loop's, which on one Linux host all processes share (CLOCK_MONOTONIC).
"""

from pathlib import Path

import msgspec

from islands.protocol.messages.control import StepFigures

WATCHED_FILE = "watched.jsonl"


class Stepped(msgspec.Struct, frozen=True, tag="stepped"):
    """A learner's process told what it has done so far; `bins` count the gaps between its steps.

    `gap_largest_s` is the longest of these gaps.
    """

    at_s: float
    name: str
    process: str
    steps: int
    bins: tuple[tuple[int, int], ...]
    gap_largest_s: float

    @classmethod
    def of(cls, at_s: float, name: str, told: StepFigures) -> "Stepped":
        """Take from a report what is measured here."""
        return cls(at_s, name, told.process, told.steps, told.gap_bins, told.gap_largest_s)


class MergedBy(msgspec.Struct, frozen=True, tag="merged"):
    """A merge, and the learners whose contributions are in it."""

    at_s: float
    participants: tuple[str, ...]


Watched = Stepped | MergedBy

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Watched] = msgspec.json.Decoder(Watched)


def encode(row: Watched) -> bytes:
    """Encode a row as one line."""
    return _ENCODER.encode(row) + b"\n"


class Reader:
    """Reads the rows of a file as they are appended.

    Args:
        path: of the file, which need not exist yet.

    Attributes:
        rows: What learners told of their steps.
        told_s: When each learner told something last.
        merged_s: The last merge in which each took part.
    """

    def __init__(self, path: Path) -> None:
        self.rows: list[Stepped] = []
        self.told_s: dict[str, float] = {}
        self.merged_s: dict[str, float] = {}
        self._path = path
        self._read_bytes = 0

    def read(self) -> list[Watched]:
        """Return the rows that were added since the last call; a half line is left for the next."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                whole, _, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        if not whole:
            return []
        self._read_bytes += len(whole) + 1
        added = [_DECODER.decode(line) for line in whole.split(b"\n")]
        for row in added:
            if isinstance(row, Stepped):
                self.rows.append(row)
                self.told_s[row.name] = row.at_s
            else:
                self.merged_s.update(dict.fromkeys(row.participants, row.at_s))
        return added
