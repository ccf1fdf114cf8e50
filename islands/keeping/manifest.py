"""What a checkpoint holds: one moment of a run's journal, and what is needed to go on from it.

    CHECKPOINTS/2-400/fragment-00000.a.safetensors   a fragment's newest version
                      metadata.b.safetensors         the newest record, if it is of no fragment
                      run.json, plan.json            the run's settings and plan
                      unfinished.json                whose it is, until it is whole
                      manifest.json                  names files and digests; written last

A checkpoint is named by the syncer's epoch and the merges that the run had made, so that a run that
went back writes over none. One without a manifest is not whole: it is being written, or the process
that wrote it has ended. The files are those of a journal, so they are read as one, and any tool
that reads .safetensors files reads them, too.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

import msgspec
from blake3 import blake3

from islands.files.whole_files import sealed, unsealed
from islands.protocol.errors import DamagedError

MANIFEST = "manifest.json"
FORMAT = 1
UNFINISHED = "unfinished.json"
NAME = re.compile(r"([1-9][0-9]{0,8})-(0|[1-9][0-9]{0,17})")
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)+")
DIGEST = re.compile(r"[0-9a-f]{64}")
KEPT_LEAST = 2
"""The newest checkpoints that no setting removes: one of them may be what a restart reads."""


class StoredFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a checkpoint: its size, and BLAKE3 of its content in hexadecimal digits."""

    size_bytes: int
    blake3: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One whole checkpoint.

    `merges` and `tokens` are those of the run at that moment, `saved_at_s` is seconds since 1970 by
    the syncer's clock, and `reason` says who wanted the checkpoint. `epoch` is the syncer's.
    `origin` tells the run from another of its name (`RunPlan.origin`), and `fingerprint` is that of
    its layout.
    """

    format: int
    run: str
    origin: str
    fingerprint: str
    epoch: int
    merges: int
    tokens: int
    saved_at_s: float
    reason: str
    files: dict[str, StoredFile]

    @property
    def name(self) -> str:
        return f"{self.epoch}-{self.merges}"

    @property
    def age(self) -> tuple[int, int]:
        return self.epoch, self.merges

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())

    def encode(self) -> bytes:
        return sealed(msgspec.json.encode(self))


def age_of(name: str) -> tuple[int, int]:
    """Return epoch and merges of a checkpoint's name, which order the checkpoints of a run."""
    epoch, _, merges = name.partition("-")
    return int(epoch), int(merges)


def decode(data: bytes, where: str) -> Manifest:
    """Decode the manifest at `where`; it may name files of its own folder alone."""
    content = unsealed(data)
    if content is None:
        raise DamagedError(f"{where} is damaged: it is not what was written")
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise DamagedError(f"{where} is no manifest of a checkpoint: {error}") from error
    if manifest.format != FORMAT:
        raise DamagedError(
            f"{where} has format {manifest.format}, and this version of islands reads {FORMAT}; "
            "use the version that wrote it"
        )
    for name, file in manifest.files.items():
        if FILE_NAME.fullmatch(name) is None or name in (MANIFEST, UNFINISHED):
            raise DamagedError(f"{where} names {name!r}, which is no file of a checkpoint")
        if file.size_bytes < 0 or DIGEST.fullmatch(file.blake3) is None:
            raise DamagedError(f"{where}: {name} has no possible size and digest")
    return manifest


def digest_of(parts: Iterable[bytes | memoryview]) -> StoredFile:
    """Compute what a manifest says of a file whose content comes in parts."""
    found, size_bytes = blake3(), 0
    for part in parts:
        found.update(part)
        size_bytes += len(part)
    return StoredFile(size_bytes, found.hexdigest())


@dataclass(frozen=True, slots=True)
class Retention:
    """Which checkpoints stay: the newest `keep`, and the first of each `keep_every_s` before."""

    keep: int = 3
    keep_every_s: float | None = None

    def outdated(self, held: Iterable[Manifest]) -> Iterator[Manifest]:
        """Yield the checkpoints that may go, oldest first."""
        ordered = sorted(held, key=lambda each: each.age)
        newest = ordered[-max(self.keep, KEPT_LEAST) :]
        kept_at_s: float | None = None
        for each in ordered[: -len(newest) or None]:
            apart_s = None if kept_at_s is None else abs(each.saved_at_s - kept_at_s)
            if self.keep_every_s is not None and (apart_s is None or apart_s >= self.keep_every_s):
                kept_at_s = each.saved_at_s
            else:
                yield each


@dataclass(slots=True)
class Schedule:
    """When the next checkpoint is due: after so many merges, or so many seconds; None: never.

    Where time decides, each start of a syncer takes one with its first merge: so one that is
    restarted again and again has some, too.
    """

    every_merges: int | None = None
    every_s: float | None = None
    asked: str = ""
    merges: int = 0
    saved_s: float = -inf

    def ask(self, reason: str) -> None:
        self.asked = reason

    def due(self, merges: int, now_s: float) -> str | None:
        """Return why a checkpoint is due after so many merges of this start; None if it is not."""
        if self.asked:
            return self.asked
        if merges <= self.merges:
            return None
        if self.every_merges is not None and merges - self.merges >= self.every_merges:
            return f"every {self.every_merges} merges"
        if self.every_s is not None and now_s - self.saved_s >= self.every_s:
            return f"every {self.every_s:g} s"
        return None

    def taken(self, merges: int, now_s: float) -> None:
        self.asked, self.merges, self.saved_s = "", merges, now_s
