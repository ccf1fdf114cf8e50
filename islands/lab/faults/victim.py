"""A process of a run that can be told to hang: `python -m islands.lab.faults.victim MODULE …`.

It runs a module as `python -m MODULE` does. After `HANG`, the next step of its device, which has to
sleep only, takes for ever. Only `islands lab chaos` starts such processes. Their tapes are written
through, entry by entry, so that a process which is killed has recorded all it did.
"""

import contextlib
import runpy
import signal
import sys
from types import FrameType

from islands.files.growing_files import Spool, SpooledFile

HANG = signal.SIGUSR2
FOREVER_S = 86400.0


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


def hang(_: int, __: FrameType | None) -> None:
    """Let every further step of a sleeping device take for ever."""
    from islands.lab.toys.toy_workload import Accelerator
    from islands.model.interfaces import PendingStep

    step = Accelerator.step

    def hanging(device: Accelerator, batch: object, learning_rate: float) -> PendingStep:
        device.first_step_s = FOREVER_S
        return step(device, batch, learning_rate)

    Accelerator.step = hanging  # type: ignore[method-assign,assignment]


def main(module: str, *arguments: str) -> None:
    write_through()
    signal.signal(HANG, hang)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
