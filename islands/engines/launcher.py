"""The launcher of islands that engines place: carries out what `placing` decides.

    launcher = EngineLauncher(engines, placements, island, folder / RECORDS_FILE, host)

The engine of every entry has a thread of its own, on which it is asked for one thing at a time: to
end jobs first, then for its list, then to place islands. The loop waits for none of them. What is
placed is written to `engines.json` in the run's folder. An island whose job was not written down,
as the hub died in that instant, is found in the engine's own list before it is placed again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from islands.actors.ports import ProcessEnd, Worker
from islands.engines.engine import Engine, EngineAway, Island, Job, Unplaceable
from islands.engines.needs import Needs
from islands.engines.placing import (
    RETRY_MAX_S,
    Action,
    Ended,
    EndJob,
    Look,
    Place,
    Placement,
    Placements,
    Say,
    job_to_keep,
)
from islands.files.whole_files import read_sealed, replace_sealed
from islands.protocol.errors import IslandsError
from messaging.clock import WallClock

RECORDS_FILE = "engines.json"
SAVE_S = 1.0
"""Changes within so long are written at once; the engine's list has what a killed hub did not."""
HURRY_S = 1.0
"""Interval of lists while an island is to end, if the engine's own is longer."""


@dataclass(frozen=True, slots=True)
class Host:
    """What a launcher needs of the process that it runs in.

    Args:
        ended: told how an island ended.
        say: shows a sentence to the person who started the run.
        worker: makes the worker of an entry's engine, given the entry's name.
        wall_s: returns the wall time in seconds.
    """

    ended: Callable[[str, ProcessEnd], None]
    say: Callable[[str], object]
    worker: Callable[[str], Worker]
    wall_s: Callable[[], float] = WallClock().now_s


@dataclass(frozen=True, slots=True)
class Records:
    """What `engines.json` holds: the islands, and what those of each entry were placed with.

    Of needs it has what hours are priced by; variables, which may be secrets, it has not.
    """

    islands: dict[str, Placement]
    needs: dict[str, Needs] = field(default_factory=dict)


class _CutOff(EngineAway):
    """An engine fell silent while it placed an island, which it may have done."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A call of an engine, what is told its result, and the island that it places, if it does."""

    call: Callable[[], object]
    done: Callable[..., object]
    name: str = ""


END, LIST, PLACE = range(3)
"""The turns of an engine's calls; what ends a job goes before all that waits."""


class _Line:
    """The calls of one engine that wait for its thread, which makes one at a time."""

    def __init__(self, worker: Worker) -> None:
        self.busy = False
        self._worker = worker
        self._waiting: tuple[deque[_Request], ...] = (deque(), deque(), deque())

    def ask(self, request: _Request, turn: int) -> None:
        self._waiting[turn].append(request)
        self._next()

    def drop(self, name: str) -> bool:
        """Drop the call that places an island, unless it is being made; return whether it was."""
        found = next((each for each in self._waiting[PLACE] if each.name == name), None)
        if found is not None:
            self._waiting[PLACE].remove(found)
        return found is not None

    def close(self) -> None:
        for waiting in self._waiting:
            waiting.clear()
        self._worker.close()

    def _next(self) -> None:
        waiting = next((each for each in self._waiting if each), None)
        if self.busy or waiting is None:
            return
        self.busy = True
        request = waiting.popleft()
        self._worker.submit(request.call, partial(self._done, request))

    def _done(self, request: _Request, result: object) -> None:
        self.busy = False
        request.done(result)
        self._next()


class EngineLauncher:
    """The islands of one run that engines place, by name.

    Args:
        engines: the engine of each entry, by the entry's name.
        placements: what was placed; of an earlier start too.
        island: returns what is placed under a name.
        records: the file in which placements are kept; None to keep none.
        host: its callbacks.
        needs: what islands of each entry need, which is kept with them.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine],
        placements: Placements,
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
        self._lines = {name: _Line(host.worker(name)) for name in engines}
        self._places: dict[str, asyncio.TimerHandle | None] = {}
        self._polls: dict[str, asyncio.TimerHandle | None] = {}
        self._polls_s: dict[str, float] = {}
        self._poll_s = {name: engine.poll_s for name, engine in engines.items()}
        self._closed = False
        self._jobs: dict[str, list[Job]] = {}
        self._saved = b""
        self._saves: asyncio.TimerHandle | None = None
        self._needs = {} if records is None else dict(records_in(records).needs)
        self._needs |= {name: _priced(each) for name, each in (needs or {}).items()}

    # --- the port -----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Place an island, unless it is placed already."""
        self._perform(self.placements.start(name))

    def kill(self, name: str) -> None:
        """End an island at once."""
        self._stop(name, at_once=True)

    def stop(self, name: str, grace_s: float) -> None:
        """Ask an island to end; its engine kills it after a grace time of its own."""
        self._stop(name, at_once=False)

    def names(self) -> list[str]:
        return self.placements.names()

    def adopt(self) -> list[str]:
        """Watch the islands that an earlier start placed; return their names."""
        self._perform(self.placements.resume())
        for entry in self._engines:
            self._poll(entry, 0.0)
        return [name for name in self.names() if self.placements.islands[name].job]

    def close(self) -> None:
        """Stop watching; islands go on, and the next start finds them."""
        self._closed = True
        for timer in (*self._places.values(), *self._polls.values()):
            if timer is not None:
                timer.cancel()
        if self._saves is not None:
            self._saves.cancel()
            self._save()
        for name, line in self._lines.items():
            if not line.busy:  # else it goes with this process
                self._engines[name].close()
            line.close()

    def _stop(self, name: str, *, at_once: bool) -> None:
        timer = self._places.get(name)
        if timer is not None:
            timer.cancel()
        entry = self.placements.entry_of(name)
        if timer is not None or (entry is not None and self._lines[entry].drop(name)):
            del self._places[name]
        placing = name in self._places
        self._perform(self.placements.stop(name, at_once=at_once, placing=placing))

    # --- effects ------------------------------------------------------------------------------

    def _perform(self, actions: list[Action]) -> None:
        if self._closed:
            return
        if self._saves is None and self._records is not None:
            self._saves = asyncio.get_running_loop().call_later(SAVE_S, self._save)
        for action in actions:
            match action:
                case Place(name, delay_s):
                    self._place_later(name, delay_s)
                case EndJob(entry, job, at_once, delay_s):
                    self._later(delay_s, partial(self._end, entry, job, at_once=at_once))
                case Look(entry):
                    self._poll(entry, 0.0)
                case Ended(name, end):
                    asyncio.get_running_loop().call_soon(self._host.ended, name, end)
                case Say(sentence):
                    self._host.say(sentence)

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        def due() -> None:
            if not self._closed:
                call()

        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, due)
        else:
            call()

    def _place_later(self, name: str, delay_s: float) -> None:
        """Place an island after a delay, which replaces the one before; not while it is placed."""
        if name in self._places:
            timer = self._places[name]
            if timer is None:
                return
            timer.cancel()
        self._places[name] = asyncio.get_running_loop().call_later(delay_s, self._place, name)

    def _place(self, name: str) -> None:
        self._places[name] = None
        placed = self.placements.islands[name]
        engine = self._engines[placed.entry]

        def place() -> str:
            if placed.entry not in self._jobs:
                self._list_now(placed.entry)
            jobs = self._jobs[placed.entry]
            found = job_to_keep(jobs, name)
            if found is not None:
                return found.job
            before = max(placed.starts, sum(job.name == name for job in jobs))
            try:
                return engine.place(replace(self._island(name), attempt=before + 1))
            except Unplaceable:
                raise
            except Exception as error:  # it may have placed the island all the same
                self._jobs.pop(placed.entry, None)
                raise _CutOff(str(error)) from error

        def done(job: str | IslandsError) -> None:
            self._places.pop(name, None)
            if isinstance(job, str):
                self._perform(self.placements.on_placed(name, job, self._host.wall_s()))
                self._poll(placed.entry)
                return
            final, cut_off = isinstance(job, Unplaceable), isinstance(job, _CutOff)
            told = str(job)
            self._perform(self.placements.on_not_placed(name, told, final=final, unsure=cut_off))

        self._ask(placed.entry, place, done, PLACE, name)

    def _end(self, entry: str, job: str, *, at_once: bool) -> None:
        def done(error: IslandsError | None) -> None:
            if error is not None:
                told = str(error)
                self._perform(self.placements.on_not_ended(entry, job, told, at_once=at_once))
            self._poll(entry, HURRY_S)

        self._ask(entry, partial(self._engines[entry].end, job, at_once=at_once), done, END)

    def _poll(self, entry: str, delay_s: float | None = None) -> None:
        """Ask an engine for its jobs after a delay, unless it is to be asked before that."""
        loop, timer = asyncio.get_running_loop(), self._polls.get(entry)
        at_s = loop.time() + (self._engines[entry].poll_s if delay_s is None else delay_s)
        if self._closed or (timer is not None and self._polls_s[entry] <= at_s):
            return
        if timer is not None:
            timer.cancel()
        self._polls[entry], self._polls_s[entry] = loop.call_at(at_s, self._list, entry), at_s

    def _list(self, entry: str) -> None:
        self._polls[entry] = None

        def done(jobs: "list[Job] | IslandsError") -> None:
            if isinstance(jobs, IslandsError):
                self._poll_s[entry] = min(2 * self._poll_s[entry], RETRY_MAX_S / 5)
                self._perform(self.placements.on_away(entry, str(jobs)))
                self._poll(entry, self._poll_s[entry])
                return
            self._poll_s[entry] = self._engines[entry].poll_s
            self._perform(self.placements.on_listed(entry, jobs, self._host.wall_s()))
            here = [each for each in self.placements.islands.values() if each.entry == entry]
            if any(each.ended is None for each in here):
                hurry = any(each.ending for each in here)
                self._poll(entry, min(HURRY_S, self._poll_s[entry]) if hurry else None)

        self._ask(entry, partial(self._list_now, entry), done, LIST)

    def _list_now(self, entry: str) -> list[Job]:
        """Return the jobs of an entry's engine, which are those to place by; on its thread."""
        self._jobs[entry] = list(self._engines[entry].list())
        return self._jobs[entry]

    def _ask(
        self,
        entry: str,
        call: Callable[[], object],
        done: Callable[..., object],
        turn: int,
        name: str = "",
    ) -> None:
        """Call an engine on its thread in its turn, then call `done` with the result or error."""

        def asked() -> object:
            try:
                return call()
            except (EngineAway, Unplaceable) as error:
                return error
            except Exception as error:  # noqa: BLE001  whatever it is, the run goes on
                return EngineAway(f"the engine of {entry} failed: {error!r}")

        self._lines[entry].ask(_Request(asked, done, name), turn)

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
