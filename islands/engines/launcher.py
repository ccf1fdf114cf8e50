"""The launcher of islands that engines place: makes the calls that `placing` decides.

The engine of every entry has a thread of its own, on which it is asked for one thing at a time. The
loop waits for none of them. What is placed is written to `engines.json` in the run's folder.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from islands.actors.ports import ProcessEnd, Worker
from islands.engines import placing
from islands.engines.engine import Engine, EngineAway, Island, Unplaceable
from islands.engines.needs import Needs
from islands.files.whole_files import read_sealed, replace_sealed
from islands.protocol.errors import IslandsError
from messaging.clock import WallClock

RECORDS_FILE = "engines.json"
SAVE_S = 1.0  # changes within it are written at once; the engine has what a killed hub has not
LEAST_S = 0.05  # shortest wait, as a wall clock and the loop's may differ by a little


@dataclass(frozen=True, slots=True)
class Host:
    """What a launcher needs of its process: the worker of an entry's engine, by that name."""

    ended: Callable[[str, ProcessEnd], None]
    say: Callable[[str], object]
    worker: Callable[[str], Worker]
    wall_s: Callable[[], float] = WallClock().now_s


@dataclass(frozen=True, slots=True)
class Records:
    """What `engines.json` holds: the islands, and what those of each entry were placed with.

    Of needs it has what hours are priced by; variables, which may be secrets, it has not.
    """

    islands: dict[str, placing.Placement]
    needs: dict[str, Needs] = field(default_factory=dict)


class EngineLauncher:
    """The islands of one run that engines place, by name; engines and needs by their entry's.

    Without a file of records, placements are not kept.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine],
        placements: placing.Placements,
        island: Callable[[str], Island],
        records: Path | None,
        host: Host,
        needs: Mapping[str, Needs] | None = None,
    ) -> None:
        self.placements = placements
        self._engines = engines
        self._island = island
        self._records = records
        self._host = host
        self._workers = {name: host.worker(name) for name in engines}
        self._busy: set[str] = set()
        self._wakes: dict[str, asyncio.TimerHandle] = {}
        self._closed = False
        self._saved = b""
        self._saves: asyncio.TimerHandle | None = None
        self._needs = {} if records is None else dict(records_in(records).needs)
        self._needs |= {name: _priced(each) for name, each in (needs or {}).items()}
        for name, engine in engines.items():
            placements.listed[name].poll_s = min(engine.poll_s, placing.RETRY_MAX_S)

    # --- the port -----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        self.placements.start(name)
        self._changed(name)

    def kill(self, name: str) -> None:
        self.placements.stop(name, at_once=True)
        self._changed(name)

    def stop(self, name: str, grace_s: float) -> None:
        """Ask an island to end; its engine kills it after a grace time of its own."""
        self.placements.stop(name, at_once=False)
        self._changed(name)

    def names(self) -> list[str]:
        return self.placements.names()

    def adopt(self) -> list[str]:
        """Watch the islands that an earlier start placed; return their names."""
        for entry in self._engines:
            self._step(entry)
        return [name for name in self.names() if self.placements.islands[name].job]

    def close(self) -> None:
        """Stop watching; islands go on, and the next start finds them."""
        self._closed = True
        for timer in self._wakes.values():
            timer.cancel()
        if self._saves is not None:
            self._saves.cancel()
            self._save()
        for worker in self._workers.values():
            worker.close()

    # --- effects ------------------------------------------------------------------------------

    def _changed(self, name: str) -> None:
        entry = self.placements.entry_of(name)
        self._report()
        if entry is not None:
            self._step(entry)

    def _step(self, entry: str) -> None:
        """Ask an engine for what is due, unless it is being asked; or wait until something is."""
        if self._closed or entry in self._busy:
            return
        if entry in self._wakes:
            self._wakes.pop(entry).cancel()
        now_s = self._host.wall_s()
        call = self.placements.next_call(entry, now_s)
        if call is not None:
            self._busy.add(entry)
            work = partial(self._asked, entry, call)
            self._workers[entry].submit(work, partial(self._answered, entry, call))
            return
        wait_s = self.placements.wait_s(entry, now_s)
        if wait_s is not None:
            later = asyncio.get_running_loop().call_later
            self._wakes[entry] = later(max(LEAST_S, wait_s), self._step, entry)

    def _asked(self, entry: str, call: placing.Call) -> object:
        """Return what an engine answers, or its error; on its thread."""
        engine = self._engines[entry]
        try:
            match call:
                case placing.Place(name, attempt):
                    return engine.place(replace(self._island(name), attempt=attempt))
                case placing.EndJob(job, at_once):
                    engine.end(job, at_once=at_once)
                case placing.ListJobs():
                    return list(engine.list())
        except (EngineAway, Unplaceable) as error:
            return error
        except Exception as error:  # noqa: BLE001  whatever it is, the run goes on
            return EngineAway(f"the engine of {entry} failed: {error!r}")
        return None

    def _answered(self, entry: str, call: placing.Call, answer: object) -> None:
        self._busy.discard(entry)
        if self._closed:
            return
        self.placements.on_answer(entry, call, answer, self._host.wall_s())
        self._report()
        self._step(entry)

    def _report(self) -> None:
        """Report what has changed, and have it written down soon."""
        loop = asyncio.get_running_loop()
        if self._saves is None and self._records is not None:
            self._saves = loop.call_later(SAVE_S, self._save)
        for sentence in self.placements.said:
            self._host.say(sentence)
        for name, end in self.placements.ends:
            loop.call_soon(self._host.ended, name, end)
        self.placements.said, self.placements.ends = [], []

    def _save(self) -> None:
        self._saves = None
        if self._records is None:
            return
        records = Records(self.placements.islands, self._needs)
        text = msgspec.json.format(msgspec.json.encode(records))
        if text != self._saved and replace_sealed(self._records, text):
            self._saved = text  # a full disk leaves the old ones; the engine has its list


def records_in(path: Path) -> Records:
    """Return what an earlier start has placed; nothing if the file is missing or damaged."""
    try:
        return msgspec.json.decode(read_sealed(path) or b"", type=Records)
    except (IslandsError, msgspec.MsgspecError):
        return Records({})


def _priced(needs: Needs) -> Needs:
    return Needs(
        needs.engine,
        hosts=needs.hosts,
        accelerators=needs.accelerators,
        region=needs.region,
        preemptible=needs.preemptible,
    )
