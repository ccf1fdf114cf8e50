"""A host's memory, and the sentence that tells that it, or a device, has too little."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from islands.layout.leaves import VALUE_BYTES, Layout
from islands.model.memory import ROOM, syncer_memory
from islands.protocol.errors import IslandsError, TaskError, TaskFailedError
from islands.protocol.settings.run import RunSettings
from islands.settings.quantities import size
from islands.tasks.source_location import (
    location_of,
    said,
    task_failure,
    user_frames,
    with_location,
)

NO_ROOM = ("RESOURCE_EXHAUSTED", "out of memory")
"""What XLA and PyTorch say, as a `RuntimeError`, where a device's memory is exhausted."""


def lacks_memory(error: BaseException) -> bool:
    """Whether an error tells that a host or a device has no memory left."""
    told = isinstance(error, RuntimeError) and any(each in str(error) for each in NO_ROOM)
    return isinstance(error, MemoryError) or told


def compute_failure(error: BaseException, layout: Layout | None) -> Exception:
    """Return the error that tells a learner's user why its compute has ended."""
    if isinstance(error, IslandsError) or not lacks_memory(error):
        return task_failure(error, "the task failed while it trained")
    return _told(TaskFailedError, error, layout)


@contextmanager
def memory_told(layout: Layout) -> Iterator[None]:
    """Tell a user's own loop in a sentence where its model does not fit."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise _told(TaskError, error, layout) from error


def hub_lacks(layout: Layout, settings: RunSettings, room_bytes: int | None) -> str:
    """Return the sentence for a host on which a syncer of this model does not fit, or ""."""
    needed = round(ROOM * syncer_memory(layout, settings, 1).total)
    if room_bytes is None or needed <= room_bytes:
        return ""
    return (
        f"the syncer of {layout.summary} takes at least {size(needed)} with one learner, and more "
        f"with each further one (its values alone are {size(VALUE_BYTES * layout.size)} in "
        f"float32), but this host has {size(room_bytes)}: start it on a host with more memory; "
        "--dry-run tells what each process holds"
    )


def _told(kind: type[IslandsError], error: BaseException, layout: Layout | None) -> IslandsError:
    told = with_location(location_of(error), f"{said(error).rstrip('.')}; {_what_helps(layout)}")
    made = kind(told)
    made.detail = user_frames(error)
    made.__cause__ = error
    return made


def _what_helps(layout: Layout | None) -> str:
    model = "this model" if layout is None else layout.summary
    beside = "" if layout is None else f", {size(VALUE_BYTES * layout.size)} over all devices"
    return (
        f"there is no memory for {model} on the devices of this learner, or on its host: beside "
        "the parameters, moments and activations of its steps it holds the published values once "
        f"more in float32{beside}; use more devices or hosts, smaller batches, or parameters and "
        "moments in bfloat16; --dry-run tells what each process holds"
    )


MACHINE = Path("/proc/meminfo")
OWN_GROUPS = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def host_memory_bytes(
    machine: Path = MACHINE, own: Path = OWN_GROUPS, groups: Path = GROUPS
) -> int | None:
    """Return the bytes that this host's processes may take together; None if that is not known.

    Args:
        machine: file in which Linux reports the memory of the machine.
        own: file in which it reports the control groups of this process.
        groups: folder of all control groups, each of which may have a limit.
    """
    limits = [_limit(path) for path in _limits_of(own, groups)]
    told = [of_status(machine, "MemTotal"), *limits]
    return min((each for each in told if each is not None), default=None)


def _limits_of(own: Path, groups: Path) -> Iterator[Path]:
    """Yield the files with the limits of this process's groups, and of all around them."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    lines += ["0::/", "0:memory:/"]  # of a container that is not told where it is
    for line in lines:
        _, _, told = line.partition(":")
        controllers, _, path = told.partition(":")
        if "memory" in controllers.split(","):
            place, name = groups / "memory", "memory.limit_in_bytes"
        elif not controllers:
            place, name = groups, "memory.max"
        else:
            continue
        inside = Path(path.lstrip("/"))
        yield from (place / each / name for each in (inside, *inside.parents))


def _limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def of_status(path: Path, name: str) -> int | None:
    """Return a size of a file as `/proc/PID/status` is, in bytes; None if it is not told."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(sizes[0]) * 1024 if sizes else None
