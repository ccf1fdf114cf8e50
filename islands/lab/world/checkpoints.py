"""Checkpoints of a simulated run, which the production code takes, in a store in memory.

A piece of storing is done at once and lasts for a while: what it did is in the store when that is
over, and a crash before leaves the first operations of it, as many as the seed decides.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from io import BytesIO
from math import inf
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from islands.keeping.catalogue import held
from islands.keeping.manifest import (
    MANIFEST,
    UNFINISHED,
    Manifest,
    Retention,
    Schedule,
    age_of,
    digest_of,
)
from islands.keeping.saving import Checkpointer
from islands.lab.world.disk import SimulatedDisk
from islands.protocol.errors import DamagedError, DiskError, IslandsError
from islands.protocol.syncer.journalling import Durable
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.simulation_entries import Kept
from islands.settings.run_spec import RunPlan, RunSpec
from islands.syncer.journal import Journal
from messaging.clock import LoopClock
from messaging.codec.tensors import as_buffer, digest

Files = dict[str, dict[str, bytes]]
"""The files of each checkpoint by their names."""

JOURNAL_FOLDER = Path("/of the simulated journal")
"""Where no host has a folder."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """When a run takes checkpoints, how many stay, and least and most seconds to store one."""

    every_merges: int
    keep: int
    store_s: tuple[float, float]


@dataclass(slots=True)
class SimulatedStore:
    """What one start of a syncer sees of the checkpoints that all share in `place`."""

    place: Files
    disk: SimulatedDisk
    _undone: deque[tuple[str, str, bytes | None]] = field(default_factory=deque)

    def _do(self, name: str, file: str, content: bytes | None) -> None:
        self._check_device()
        self._undone.append((name, file, content))

    def settle(self, operations: int | None = None) -> None:
        """Make the first operations durable, or all of them, and forget the others."""
        for name, file, content in list(self._undone)[:operations]:
            _apply(self.place, name, file, content)
        self._undone.clear()

    def crash(self, rng: random.Random) -> bool:
        """Lose some of the operations under way; return whether there were any."""
        under_way = len(self._undone)
        self.settle(rng.randint(0, under_way) if under_way else 0)
        return under_way > 0

    def _seen(self) -> Files:
        seen = {name: dict(files) for name, files in self.place.items()}
        for name, file, content in self._undone:
            _apply(seen, name, file, content)
        return seen

    def _check_device(self) -> None:
        if self.disk.failing:
            raise DiskError("checkpoints: input/output error of the simulated device")

    def names(self) -> list[str]:
        self._check_device()
        return sorted(self._seen(), key=age_of)

    def open(self, name: str, file: str) -> IO[bytes] | None:
        self._check_device()
        content = self._seen().get(name, {}).get(file)
        return None if content is None else BytesIO(content)

    def free_bytes(self) -> float:
        return 0.0 if self.disk.full else inf

    def put(self, name: str, file: str, source: Path) -> None:
        found = self.disk.open(f"{source.parent.name}/{source.name}")
        assert found is not None, "only what was cut is stored"
        content = bytearray(found.size)
        found.read_into(memoryview(content))
        self._do(name, file, bytes(content))

    def finish(self, name: str, manifest: bytes) -> None:
        self._do(name, MANIFEST, manifest)
        self._do(name, UNFINISHED, None)

    def remove(self, name: str) -> bool:
        files = self._seen().get(name, {})
        if MANIFEST in files:
            self._do(name, UNFINISHED, b"")
            self._do(name, MANIFEST, None)
        for file in sorted({*files} - {MANIFEST, UNFINISHED}):
            self._do(name, file, None)
        self._do(name, UNFINISHED, None)
        return True

    def set_aside(self, name: str) -> None:
        self.remove(name)

    def reading(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def told(self, name: str) -> str:
        return f"checkpoints/{name}"


def _apply(files: Files, name: str, file: str, content: bytes | None) -> None:
    own = files.setdefault(name, {})
    if content is None:
        own.pop(file, None)
    else:
        own[file] = content
    if not own:
        del files[name]


class _Storing:
    """A piece of storing, which lasts for some seconds of the loop."""

    def __init__(self, work: Callable[[], None], store: SimulatedStore, duration_s: float) -> None:
        work()
        self._store, self._lasts = store, True
        asyncio.get_running_loop().call_later(duration_s, self.join)

    def is_alive(self) -> bool:
        return self._lasts

    def join(self, timeout: float = 0.0) -> None:
        if self._lasts:
            self._lasts = False
            self._store.settle()


class SimulatedCheckpointer(Checkpointer):
    """Reports a checkpoint when it is stored."""

    def news(self) -> Iterator[Entry]:
        return iter(()) if self._busy else super().news()


class Keeping:
    """The checkpoints of a world, and the syncers that take them."""

    checkpointer: type[Checkpointer] = SimulatedCheckpointer
    store: type[SimulatedStore] = SimulatedStore

    def __init__(self, wanted: Checkpoints, seed: int) -> None:
        self.place: Files = {}
        self._wanted = wanted
        self._rng = random.Random(f"checkpoints of {seed}")
        self._stores: dict[str, SimulatedStore] = {}

    def follower(
        self, name: str, disk: SimulatedDisk, spec: RunSpec, plan: RunPlan
    ) -> Checkpointer:
        """Return what takes the checkpoints of a new start of a syncer."""
        store = self._stores[name] = self.store(self.place, disk)
        low, high = self._wanted.store_s
        return self.checkpointer(
            JOURNAL_FOLDER,
            store,
            Schedule(self._wanted.every_merges),
            Retention(self._wanted.keep),
            spec,
            plan,
            clock=LoopClock(),
            wall_s=LoopClock().now_s,
            start=lambda work: _Storing(work, store, self._rng.uniform(low, high)),
            disk=disk,
        )

    def crash(self, name: str) -> bool:
        """Crash the host of a syncer; return whether it was storing something."""
        store = self._stores.pop(name, None)
        return store is not None and store.crash(self._rng)

    def kept(self) -> Iterator[Kept]:
        """Yield what each checkpoint with a manifest holds."""
        store = SimulatedStore(self.place, SimulatedDisk(self._rng))
        for name, manifest in held(store).items():
            files = self.place[name]
            if MANIFEST in files:
                yield _kept(name, manifest, files)


def _kept(name: str, manifest: Manifest | str, files: dict[str, bytes]) -> Kept:
    try:
        durable, values = _read(manifest, files)
    except IslandsError as error:
        return Kept(name, str(error), 0, 0, [], [], [])
    return Kept(
        name,
        "",
        durable.epoch,
        durable.sequence,
        versions=[str(each.version) for each in durable.published if each is not None],
        digests=[digest(as_buffer(value)) for value in values],
        ledger=[durable.ledger.row(index) for index in range(len(values))],
    )


def _read(
    manifest: Manifest | str, files: dict[str, bytes]
) -> tuple[Durable, list[NDArray[np.float32]]]:
    """Return books and values of a checkpoint whose files are those of its manifest."""
    if isinstance(manifest, str):
        raise DamagedError(manifest)
    for file, stated in manifest.files.items():
        if digest_of([files.get(file, b"")]) != stated:
            raise DamagedError(f"{file} is not what the manifest tells of")
    disk = SimulatedDisk(random.Random(0))
    disk.restore({file: files[file] for file in manifest.files})
    fragments = sum(file.startswith("fragment-") for file in manifest.files)
    recovered = Journal(disk, fragments).recover()
    if recovered is None:
        raise DamagedError("some fragment has no version")
    values = [np.ascontiguousarray(each["value"], np.float32) for each in recovered.fragments]
    return recovered.durable, values
