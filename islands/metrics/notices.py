"""Notices of alerts to a command or a URL (`--on_event`), beside the run and never in its way.

The alerts are judged every `LOOK_S`; what fires is kept in a file for the next start. Each that
fires or clears is told in one JSON object: a command reads it from its standard input, a URL is
sent it by POST. One notice is on its way at a time, for `TELL_S` at most, and is tried `TRIES`
times; of those that wait, the oldest are dropped.
"""

import asyncio
import contextlib
import shlex
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec

from islands.files.whole_files import replace_file
from islands.metrics.alerts import AlertChanged, Alerts, Key
from islands.metrics.rules import RULES, Thresholds
from islands.metrics.samples import finite
from islands.metrics.site import Source
from islands.metrics.sources import Reading
from messaging.actors.scope import Scope
from messaging.clock import LoopClock, WallClock

LOOK_S = 5.0
TELL_S = 30.0
LAST_S = 5.0
"""How long the end of a run waits for the notices that are left."""
TRIES = 3
WAITING_MOST = 64
URLS = ("http://", "https://")
REDIRECTED = 300
"""From this status on a notice did not arrive: a redirect is not followed."""


def notice_of(change: AlertChanged, run: str, wall_s: float) -> bytes:
    """Return the JSON object of one notice."""
    return msgspec.json.encode(
        {
            "event": "fired" if change.firing else "cleared",
            "alert": change.rule.name,
            "severity": change.rule.severity,
            "run": run,
            "labels": change.named,
            "value": finite(change.value),
            "summary": change.summary,
            "action": change.rule.action,
            "timestamp": datetime.fromtimestamp(wall_s, UTC).isoformat().replace("+00:00", "Z"),
        }
    )


class Notices:
    """Tells somebody of alerts.

    Args:
        target: a command, split as a shell would, or a URL.
        say: told why a notice could not be given.
        pause_s: time between two tries.
    """

    def __init__(self, target: str, say: Callable[[str], object], pause_s: float) -> None:
        self._target = target
        self._say = say
        self._pause_s = pause_s
        self._waiting: deque[bytes] = deque(maxlen=WAITING_MOST)
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._failure = ""

    def add(self, notice: bytes) -> None:
        """Queue a notice; of too many the oldest is dropped."""
        self._waiting.append(notice)
        self._idle.clear()
        self._news.set()

    async def run(self) -> None:
        """Give the notices one by one; runs until cancelled."""
        while True:  # until cancelled
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                notice = self._waiting.popleft()
                for _ in range(TRIES):
                    if await self._given(notice):
                        break
                    await asyncio.sleep(self._pause_s)
            self._idle.set()

    async def wait_given(self) -> None:
        """Wait until all notices were given, or the time for it is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), LAST_S)

    async def _given(self, notice: bytes) -> bool:
        """Give a notice; return whether that succeeded."""
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
        """Run the command with the notice as its input; return what is wrong, or nothing."""
        nothing = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *shlex.split(self._target),
            stdin=asyncio.subprocess.PIPE,
            stdout=nothing,
            stderr=nothing,
        )
        try:
            await process.communicate(notice)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        return f"it ended with code {process.returncode}" if process.returncode else ""


@asynccontextmanager
async def telling(
    target: str,
    source: Source,
    run: str,
    say: Callable[[str], object],
    *,
    kept: Path,
    limits: Thresholds | None = None,
    look_s: float = LOOK_S,
) -> AsyncIterator[Alerts]:
    """Judge a process's alerts while the block lasts, and tell of them.

    Args:
        target: a command or a URL.
        source: what is judged.
        run: the run's name.
        say: told why a notice could not be given.
        kept: file of the alerts that fire.
        limits: the numbers of the rules.
        look_s: time between two judgements.
    """
    alerts, notices = Alerts(limits, _read(kept)), Notices(target, say, look_s)
    keeping = Reading(lambda: replace_file(kept, msgspec.json.encode(alerts.firing)))

    def failed(part: str, error: BaseException) -> None:
        say(f"{part} failed, so no alert is told: {error!r}")

    scope = Scope("notices", failed)
    clock, wall = LoopClock(), WallClock()

    async def judge() -> None:
        while True:  # until cancelled
            await asyncio.sleep(look_s)
            await source.refresh()
            changes = alerts.take(source.samples(), clock.now_s())
            for change in changes:
                notices.add(notice_of(change, run, wall.now_s()))
            if changes:
                await keeping.run()

    scope.spawn(judge(), "the judgement of alerts")
    scope.spawn(notices.run(), "the notice of alerts")
    try:
        yield alerts
    finally:
        await notices.wait_given()
        await scope.close()


def _read(kept: Path) -> list[Key]:
    """Return the alerts that fired when the process ended; none where the file is not whole."""
    try:
        found = msgspec.json.decode(kept.read_bytes(), type=list[Key])
    except (OSError, msgspec.MsgspecError):
        return []
    labels = {rule.name: len(rule.labels) for rule in RULES}
    return [key for key in found if labels.get(key[0]) == len(key[1])]
