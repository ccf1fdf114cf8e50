"""The memory that a run needs at least: what its learners and its syncer hold, by shapes alone.

Code, compiled functions, and what allocators keep are not counted but by the factor `ROOM`. The
temporary memory of a step is what XLA reports of the compiled step, where it was compiled.
"""

from dataclasses import dataclass
from math import ceil

from islands.layout.leaves import VALUE_BYTES, Layout
from islands.numerics.codecs import size_bytes
from islands.numerics.outer import state_values
from islands.protocol.settings.run import RunSettings

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
