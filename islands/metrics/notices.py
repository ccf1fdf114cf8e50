"""Notices of what happens to a run, to a command or a URL (`--on_event`), never in its way.

Each entry of the run's log that a person may have to act on (`WAKING`) is one JSON object: a
command reads it from its standard input, a URL is sent it by POST, each `TRIES` times.
"""

import asyncio
import contextlib
import shlex
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import msgspec

from islands.protocol.tape import member_entries as members
from islands.protocol.tape import process_entries as processes
from islands.protocol.tape import round_entries as rounds
from islands.protocol.tape.entry import Entry
from islands.run.records.run_folder import RunFolder
from islands.run.records.tape_sentences import sentence
from messaging.actors.scope import Scope
from messaging.clock import WallClock

PAUSE_S = 5.0
"""Time between two tries."""
TELL_S = 30.0
LAST_S = 5.0
"""How long the end of a run waits for the notices that are left."""
TRIES = 3
WAITING_MOST = 64
URLS = ("http://", "https://")
REDIRECTED = 300
"""From this status on a notice did not arrive: a redirect is not followed."""

WAKING: frozenset[type[Entry]] = frozenset(
    {
        members.Diverged,
        members.Evicted,
        members.GaveUp,
        members.LinkUnsteady,
        members.WrongReport,
        processes.Damaged,
        processes.CopyFailed,
        processes.Disk,
        processes.EvaluationFailed,
        processes.Failed,
        processes.Refused,
        processes.RunDiverged,
        rounds.AskedAgain,
        rounds.Closing,
        rounds.DataEnded,
        rounds.LeftOut,
        rounds.NothingMerged,
        rounds.TakenBack,
        rounds.WaitsFor,
    }
)
"""The entries that become a notice."""


def notice_of(run: str, actor: str, entry: Entry, wall_s: float) -> bytes:
    fields = msgspec.to_builtins(entry)
    event = fields.pop("kind")
    at = datetime.fromtimestamp(wall_s, UTC).isoformat().replace("+00:00", "Z")
    summary = sentence(actor, entry) or event
    notice = {"event": event, "run": run, "actor": actor, "summary": summary, "timestamp": at}
    return msgspec.json.encode({**notice, "entry": fields})


class Notices:
    """Sends notices one by one; a command is split as a shell would."""

    def __init__(self, target: str, say: Callable[[str], object], pause_s: float) -> None:
        self._target = target
        self._say = say
        self._pause_s = pause_s
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(WAITING_MOST)
        self._failure = ""

    def add(self, notice: bytes) -> None:
        """Queue a notice; of too many the oldest is dropped."""
        if self._waiting.full():
            self._waiting.get_nowait()
            self._waiting.task_done()
        self._waiting.put_nowait(notice)

    async def run(self) -> None:
        while True:  # until cancelled
            notice = await self._waiting.get()
            for _ in range(TRIES):
                if await self._sent(notice):
                    break
                await asyncio.sleep(self._pause_s)
            self._waiting.task_done()

    async def wait_sent(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._waiting.join(), LAST_S)

    async def _sent(self, notice: bytes) -> bool:
        failure = ""
        try:
            async with asyncio.timeout(TELL_S):
                if self._target.startswith(URLS):
                    await self._post(notice)
                else:
                    failure = await self._execute(notice)
        except TimeoutError:
            failure = f"it took longer than {TELL_S:g} s"
        except aiohttp.InvalidURL:
            failure = "its URL is none"  # whose path may be a secret, as those of web hooks are
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = str(error) or type(error).__name__
        if failure and failure != self._failure:
            self._say(f"on_event could not be told: {failure}")
        self._failure = failure
        return not failure

    async def _post(self, notice: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(self._target, data=notice, allow_redirects=False) as answer,
        ):
            if answer.status >= REDIRECTED:
                raise aiohttp.ClientError(f"it was answered {answer.status} {answer.reason}")

    async def _execute(self, notice: bytes) -> str:
        process = _started(shlex.split(self._target))
        try:
            await asyncio.to_thread(process.communicate, notice)
        finally:
            process.kill()  # nothing, once it has ended
        return f"it ended with code {process.returncode}" if process.returncode else ""


def _started(words: list[str]) -> "subprocess.Popen[bytes]":
    """Start a command; uvloop would fork this process and its threads, of which JAX warns."""
    nothing = subprocess.DEVNULL
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing)


@asynccontextmanager
async def notices_sent(
    target: str, folder: RunFolder, run: str, say: Callable[[str], object], pause_s: float = PAUSE_S
) -> AsyncIterator[None]:
    """Send notices of what is written to a run's log while the block lasts."""
    notices, wall = Notices(target, say, pause_s), WallClock()

    def hear(actor: str, entry: Entry) -> None:
        if type(entry) in WAKING:
            notices.add(notice_of(run, actor, entry, wall.now_s()))

    def failed(part: str, error: BaseException) -> None:
        say(f"{part} failed: {error!r}")

    scope = Scope("notices", failed)
    scope.spawn(notices.run(), "the notice of events")
    folder.hearers.append(hear)
    try:
        yield
    finally:
        folder.hearers.remove(hear)
        await notices.wait_sent()
        await scope.close()
