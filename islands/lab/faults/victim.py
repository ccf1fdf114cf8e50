"""A process of a run that obeys orders to fail: `python -m islands.lab.faults.victim`.

    python -m islands.lab.faults.victim ORDERS MODULE [ARGUMENTS...]

It runs a module as `python -m MODULE` does, and beside it a thread that reads orders from the named
pipe ORDERS, one a line:

==============  ===================================================================================
`segfault`      it reads from address 0
`exit`          it ends at once, with no cleaning up
`hang`          its next step, if its device only sleeps, takes for ever
`crash`         its main thread exits, as by `sys.exit` somewhere in a library
==============  ===================================================================================

Only `islands lab chaos` starts such processes: those of any other run read no orders. Their tapes
are written through, entry by entry, so that a process which is killed has recorded all it did.
"""

import contextlib
import ctypes
import os
import runpy
import signal
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from islands.files.folder_lock import make_private
from islands.files.growing_files import Spool, SpooledFile
from islands.protocol.errors import UserError, unusable

EXIT_CODE = 7
"""The code of a process that was ordered to end, unlike those of `islands.protocol.errors`."""
FOREVER_S = 86400.0
ORDER_SIGNAL = signal.SIGUSR2


class WrittenThrough(Spool):
    """A spool that writes every entry at once, so that a killed process loses none."""

    def put(self, inlet: SpooledFile, *entries: bytes | memoryview) -> bool:
        """Write entries to their file; those that the disk does not take are queued."""
        if inlet.waiting_bytes == 0:
            with contextlib.suppress(OSError):
                inlet.file.write(b"".join(entries))
                return True
        return super().put(inlet, *entries)


def write_through() -> None:
    """Let the tapes of this process be written through: its spools are replaced by their name."""
    from islands.run.hosting import process_runtime
    from islands.run.records import run_folder

    for module in (process_runtime, run_folder):
        spool = getattr(module, "Spool", None)
        assert spool in (Spool, WrittenThrough), f"{module.__name__} has no Spool to replace"
        module.Spool = WrittenThrough  # type: ignore[attr-defined]


def listen(orders: Path, further: dict[str, Callable[[str], object]] | None = None) -> None:
    """Read orders on a thread, and carry each out; call it on the main thread.

    Args:
        orders: the named pipe; made if it is missing.
        further: more orders, by their first word; each is called with the rest of its line.
    """

    def in_main_thread(_: int, __: FrameType | None) -> None:
        raise SystemExit("ordered to crash")

    def crash(_: str) -> None:
        signal.pthread_kill(main_thread, ORDER_SIGNAL)

    known: dict[str, Callable[[str], object]] = {
        "segfault": lambda _: ctypes.string_at(0),
        "exit": lambda _: os._exit(EXIT_CODE),
        "crash": crash,
        "hang": lambda _: hang(),
        **(further or {}),
    }
    main_thread = threading.main_thread().ident or 0
    signal.signal(ORDER_SIGNAL, in_main_thread)
    pipe = open_orders(orders)
    threading.Thread(target=_obey, args=(pipe, known), name="orders", daemon=True).start()


def open_orders(orders: Path) -> int:
    """Open the named pipe that orders come through; it is made if it is missing.

    Orders end the process, so nobody but its own user may give any: who may write to the run's
    folder could otherwise have made the pipe first.
    """
    make_private(orders.parent)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(orders, 0o600)
    try:
        # For writing as well, so that no end is ever read; a link is not followed.
        pipe = os.open(orders, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise unusable(f"orders cannot be read from {orders}", error) from error
    status, folder = os.fstat(pipe), orders.parent.lstat()
    private = all(
        each.st_uid == os.getuid() and not each.st_mode & 0o077 for each in (status, folder)
    )
    if not stat.S_ISFIFO(status.st_mode) or not private:
        os.close(pipe)
        raise UserError(
            f"{orders} is no pipe in a folder that this user alone may enter; give the run a new "
            "folder"
        )
    os.set_blocking(pipe, True)
    return pipe


def hang() -> None:
    """Let every further step of a sleeping device take for ever."""
    from islands.lab.toys.toy_workload import Accelerator
    from islands.model.interfaces import PendingStep

    step = Accelerator.step

    def hanging(device: Accelerator, batch: object, learning_rate: float) -> PendingStep:
        device.first_step_s = FOREVER_S
        return step(device, batch, learning_rate)

    Accelerator.step = hanging  # type: ignore[method-assign,assignment]


def _obey(pipe: int, known: dict[str, Callable[[str], object]]) -> None:
    with os.fdopen(pipe, "r") as lines:
        for line in lines:
            word, _, rest = line.strip().partition(" ")
            if word in known:
                known[word](rest)


def main(arguments: list[str]) -> None:
    """Run a module, and obey orders beside it."""
    orders, module, *rest = arguments
    write_through()
    listen(Path(orders))
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
