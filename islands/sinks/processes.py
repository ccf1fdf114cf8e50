"""The processes of sinks, which a hub starts: each reads the run's folder, and can slow nobody.

A sink that has not taken all at the end of the run is waited for `END_S`, and then sends the rest
by itself.
"""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from islands.files.folder_lock import make_private
from islands.sinks.sink import sink_folder

END_S = 10.0
LEFT_BEHIND: list[subprocess.Popen[bytes]] = []
"""Processes that go on without their hub; what Python forgets of them it would complain of."""


@asynccontextmanager
async def sink_processes(
    sinks: Sequence[str], folder: Path, say: Callable[[str], object], *, end_s: float = END_S
) -> AsyncIterator[None]:
    """Send a run's records to sinks while the block lasts, and what is left after it."""
    started = {name: _started(name, folder, say) for name in dict.fromkeys(sinks)}
    running = {name: process for name, process in started.items() if process is not None}
    relays = [
        threading.Thread(target=_relay, args=(process, say), name=f"sink-{name}", daemon=True)
        for name, process in running.items()
    ]
    for relay in relays:
        relay.start()
    try:
        yield
    finally:
        for process in running.values():
            assert process.stdin is not None, "it is a pipe"
            process.stdin.close()
        if running:
            await asyncio.to_thread(_wait, running, relays, say, end_s)


def _wait(
    running: Mapping[str, subprocess.Popen[bytes]],
    relays: Sequence[threading.Thread],
    say: Callable[[str], object],
    end_s: float,
) -> None:
    """Wait for processes that are to end, the first for so long at most, and the others no more."""
    for (name, process), relay in zip(running.items(), relays, strict=True):
        try:
            process.wait(end_s)
        except subprocess.TimeoutExpired:
            end_s = 0.0
            LEFT_BEHIND.append(process)
            say(f"{name} is still sending: process {process.pid} goes on by itself")
        else:
            relay.join()


def _started(
    name: str, folder: Path, say: Callable[[str], object]
) -> subprocess.Popen[bytes] | None:
    try:
        make_private(sink_folder(folder))
        with (sink_folder(folder) / f"{name}.log").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "islands.sinks", name, str(folder), "--follow"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl-C ends the run, and the run's end ends this
            )
    except OSError as error:
        say(f"{name} gets no records: {error.strerror or error}")
        return None


def _relay(process: subprocess.Popen[bytes], say: Callable[[str], object]) -> None:
    assert process.stdout is not None, "it is a pipe"
    with process.stdout as lines:
        for line in lines:
            say(line.decode(errors="replace").rstrip())
