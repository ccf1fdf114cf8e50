"""Send a run's records to a sink: `python -m islands.sinks NAME RUN`.

    python -m islands.sinks wandb runs/mine

It sends what the folder holds and was not sent before. With `--follow`, as a hub starts it, it goes
on until its standard input is closed, and reads to the end after that. Its standard output has
sentences for people, and what the sink's library prints goes to standard error.
"""

import argparse
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import msgspec

from islands.files.folder_lock import lock_folder
from islands.files.run_files import METRICS_FILE, SUMMARY_FILE
from islands.files.tailing import Tail
from islands.files.whole_files import read_plain
from islands.protocol.errors import DONE, FAILED, IslandsError, missing_package, not_installed
from islands.sinks import SINKS
from islands.sinks.sink import RunFacts, Sink, rows_in, sink_folder

PAUSE_S = 1.0
SLOW_S = 60.0
"""A sink that takes longer over some records is told of, once."""
LAST_S = 600.0
"""A process whose hub has ended ends after this time, whatever its sink does."""


def main(arguments: list[str]) -> int:
    """Send a run's records to one sink; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sink", choices=SINKS)
    parser.add_argument("run", type=Path)
    parser.add_argument("--follow", action="store_true")
    chosen = parser.parse_args(arguments)
    with os.fdopen(os.dup(1), "w", buffering=1) as told:
        os.dup2(2, 1)  # libraries print progress of their own

        def say(sentence: str) -> None:
            with suppress(OSError):  # the hub has ended
                print(sentence, file=told)

        try:
            send(chosen.sink, chosen.run, say, follow=chosen.follow)
        except Exception as error:  # noqa: BLE001  whatever a library raises is told, and ends this alone
            say(f"{chosen.sink} gets no more records: {_told(chosen.sink, error)}")
            return FAILED
        return DONE


def _told(sink: str, error: Exception) -> str:
    package = missing_package(error)
    if package is not None:
        return not_installed("it", package)
    told = " ".join(str(error).split()) or type(error).__name__
    return told if isinstance(error, IslandsError) else f"{told} (python -m islands.sinks {sink})"


def send(name: str, folder: Path, say: Callable[[str], object], *, follow: bool) -> None:
    """Send records until there are no more, or the standard input is closed; then end the sink."""
    place = sink_folder(folder)
    with lock_folder(place, f"{name}.lock", "process that sends to this sink"):
        patience = _Patience(name, say)
        with patience.over():
            sink: Sink = import_module(f"islands.sinks.{name}_sink").start(RunFacts.of(folder))
        tail = Tail(folder / METRICS_FILE, place / f"{name}.json")
        ended = False
        while not ended:
            ended = not follow or _closed(PAUSE_S)
            while lines := tail.read():
                with patience.over():
                    sink.record(rows_in(lines))
                tail.keep()  # a sink that dies before is given these again
        summary = folder / SUMMARY_FILE
        with patience.over():
            sink.end(msgspec.json.decode(read_plain(summary)) if summary.exists() else None)


def _closed(timeout_s: float) -> bool:
    """Wait for a moment; return whether the hub has closed the standard input, or has ended."""
    ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
    if not ready or os.read(sys.stdin.fileno(), 1):
        return False
    ender = threading.Timer(LAST_S, os._exit, (FAILED,))
    ender.daemon = True
    ender.start()
    return True


class _Patience:
    """Tells once that a sink takes long."""

    def __init__(self, name: str, say: Callable[[str], object]) -> None:
        self._name = name
        self._say = say
        self._told = False

    @contextmanager
    def over(self) -> Iterator[None]:
        """Watch one call of the sink."""
        timer = threading.Timer(SLOW_S, self._tell)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._say(f"{self._name} has not answered for {SLOW_S:.0f} s; the run goes on without")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
