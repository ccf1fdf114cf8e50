"""The memory that a run needs at least, by shapes alone; and errors where a host has too little.

Code, compiled functions, and what allocators keep are not counted but by the factor `ROOM`. The
temporary memory of a step is what XLA reports of the compiled step, where it was compiled.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from islands.layout.leaves import VALUE_BYTES, Layout
from islands.numerics.codecs import size_bytes
from islands.numerics.outer import state_values
from islands.protocol.errors import IslandsError, TaskError, TaskFailedError
from islands.protocol.settings.run import RunSettings
from islands.settings.quantities import size
from islands.tasks.source_location import located, said, task_failure

ADAM_MOMENTS = 2
"""Moments per parameter, assumed where the inner optimizer is not known."""

SLOW_DISK_BYTES_PER_S = 50e6

ROOM = 1.5
"""A host needs so many times what the processes on it hold."""

STEPS_TO_ADOPT = 2
"""Steps from the commit of a version to the reports of its adoption: to a boundary, and one."""


def slow_write_s(layout: Layout) -> float:
    """Estimate how long a process takes to write all values of a model to a slow disk."""
    return VALUE_BYTES * layout.size / SLOW_DISK_BYTES_PER_S


@dataclass(frozen=True, slots=True)
class TrainerBytes:
    """Bytes that a trainer holds, by shapes alone.

    The base is the published value adopted last, float32, and what rounding it took away. Moments
    are the inner optimizer's state, and leaves of the task's state that are not merged. Temporaries
    of a step, such as gradients and activations, may not be known.
    """

    parameters: int
    base: int
    moments: int
    gradients: int
    temporaries: int | None = None

    @property
    def of_a_step(self) -> int:
        return max(self.gradients, self.temporaries or 0)

    @property
    def total(self) -> int:
        return self.parameters + self.base + self.moments + self.of_a_step


@dataclass(frozen=True, slots=True)
class SyncerBytes:
    """Bytes on the syncer.

    Of values it has the newest version of every fragment, and older ones until all have adopted it;
    of rounds the largest total of contributions that wait for their merge; and the newest
    increments with what they left, where updates are increments.
    """

    values: int
    outer: int
    rounds: int
    increments: int = 0

    @property
    def total(self) -> int:
        return self.values + self.outer + self.rounds + self.increments


def syncer_memory(layout: Layout, settings: RunSettings, learners: int) -> SyncerBytes:
    """Return the memory of a syncer of so many learners, while none is behind the others."""
    sizes = sorted(VALUE_BYTES * fragment.size for fragment in layout.fragments)
    whole, fragments = sum(sizes), len(sizes)
    rounds_open = settings.open_rounds_max(fragments)
    adopting = ceil(STEPS_TO_ADOPT * fragments / settings.interval_steps)
    older = min(fragments, rounds_open + adopting)
    precision, increments = settings.update_precision, 0
    if precision.of_increments:
        encoded = (size_bytes(fragment.size, precision) for fragment in layout.fragments)
        increments = whole + sum(encoded)
    return SyncerBytes(
        values=whole + sum(sizes[-older:]),
        outer=whole * state_values(settings.outer),
        rounds=learners * sum(sizes[-rounds_open:]),
        increments=increments,
    )


NO_ROOM = ("RESOURCE_EXHAUSTED", "out of memory")
"""What XLA and PyTorch say, as a `RuntimeError`, where a device's memory is exhausted."""


def lacks_memory(error: BaseException) -> bool:
    full = isinstance(error, RuntimeError) and any(each in str(error) for each in NO_ROOM)
    return isinstance(error, MemoryError) or full


def compute_failure(error: BaseException, layout: Layout | None) -> Exception:
    """Return the error that says why a learner's compute has ended."""
    if isinstance(error, IslandsError) or not lacks_memory(error):
        return task_failure(error, "the task failed while it trained")
    return _explained(TaskFailedError, error, layout)


@contextmanager
def memory_told(layout: Layout) -> Iterator[None]:
    """Raise a sentence where the model of a user's own loop does not fit."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise _explained(TaskError, error, layout) from error


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


def _explained(
    kind: type[IslandsError], error: BaseException, layout: Layout | None
) -> IslandsError:
    model = "this model" if layout is None else layout.summary
    beside = "" if layout is None else f", {size(VALUE_BYTES * layout.size)} over all devices"
    return located(
        kind,
        error,
        f"{said(error).rstrip('.')}; there is no memory for {model} on the devices of this "
        "learner, or on its host: beside the parameters, moments and activations of its steps it "
        f"holds the published values once more in float32{beside}; use more devices or hosts, "
        "smaller batches, or parameters and moments in bfloat16; --dry-run tells what each process "
        "holds",
    )


MACHINE = Path("/proc/meminfo")
OWN_GROUPS = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def host_memory_bytes(
    machine: Path = MACHINE, own: Path = OWN_GROUPS, groups: Path = GROUPS
) -> int | None:
    """Return the bytes that this host's processes may take together; None if that is not known.

    Linux reports the memory of the machine, the control groups of this process, and their limits.
    """
    limits = [_text(path).strip() for path in _limits_of(own, groups)]
    found = [of_status(machine, "MemTotal"), *(int(each) for each in limits if each.isdecimal())]
    return min((each for each in found if each is not None), default=None)


def _limits_of(own: Path, groups: Path) -> Iterator[Path]:
    """Yield the files with the limits of this process's groups, and of all around them."""
    lines = [*_text(own).splitlines(), "0::/", "0:memory:/"]  # a container may not know its own
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            folder, name = groups / "memory", "memory.limit_in_bytes"
        elif not controllers:
            folder, name = groups, "memory.max"
        else:
            continue
        inside = Path(path.lstrip("/"))
        yield from (folder / each / name for each in (inside, *inside.parents))


def of_status(path: Path, name: str) -> int | None:
    """Return a size in bytes from a file as `/proc/PID/status` is; None if it is not there."""
    lines = _text(path).splitlines()
    sizes = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(sizes[0]) * 1024 if sizes else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
