"""Estimate how much of a host's memory each process of a run takes at its peak.

V is the whole published value (float32), F its largest fragment, w a contribution's share of a
value (1, or 1/2 in bfloat16), M learners, R rounds open at once, s the oldest version that may be a
base. The temporary memory of a step on CPU is what XLA reports of the compiled step; the memory of
an evaluation is measured where the dry run makes one:

=========  ============================================================================
syncer     V, and F for each fragment whose newest version not all have adopted, which older ones
           are kept for: those of open rounds, and those of the last `STEPS_TO_ADOPT` steps; outer
           state (o·V if the outer optimizer keeps o values per parameter), at a merge the new
           version and the new state of a fragment (F + o·F), M·R·F contributions that wait or are
           being merged, with the buffers that they came in where they are widened (w·M·R·F); JAX,
           for an optimizer of optax. While a learner is behind, or was lost, up to (s + 2)·V
           values (2·V where contributions are anchored at their own base)
learner    what its trainer holds, a fragment that arrives (F), and contributions (w·F each): one
           of every fragment that is asked for or due next, R + 2 at most, and one on its way to
           the host, which may still need an older base (F/2: between nothing and F were seen);
           with more fragments than one, a buffer for the next to arrive (F, if it is small enough
           to be kept); `SEEDS_AT_ONCE`·F instead of these where it provides version 0 and that is
           more;
           with a codec on the host its program, contributions as sent, 2·F while one is encoded,
           and residuals where they are kept: V, and R·F until their fate is known
hub        V published, which it evaluates, and 2·F: one that arrives, and one that is held until
           the evaluation has seen it; a buffer for the next, as in a learner; at the end V
           and F, V of the file that it is read from, and buffers that are kept still; with JAX
           7·V that evaluations take
=========  ============================================================================

Updates by increments take more (their exact ranges of averages are neglected), with q the encoding
of an increment of everything:

=========  ============================================================================
syncer     V that increments left, q of the newest, which are freed once all have added them (up to
           9·q while a member is behind), and 2·F while one is made
learner    V as it was published, 2·F while an increment is added, and the codec's program
=========  ============================================================================

The program itself, and the memory that the
allocator and XLA retain, are added as they were measured (Linux, CPython 3.11, x86-64; XLA at 27M
and 52M parameters on CPU).
"""

from dataclasses import dataclass
from math import ceil

from islands.layout.leaves import VALUE_BYTES, Layout
from islands.numerics.codecs import size_bytes
from islands.numerics.outer import state_values
from islands.protocol.settings.outer import OPTAX
from islands.protocol.settings.run import INCREMENTS_KEPT, RunSettings
from islands.protocol.syncer.versions import SEEDS_AT_ONCE
from messaging.codec.tensors import POOL_BYTES

ADAM_MOMENTS = 2
"""Moments per parameter, assumed where the inner optimizer is not known."""

SLOW_DISK_BYTES_PER_S = 50e6

HUB_PROGRAM = 80_000_000
SYNCER_PROGRAM = 200_000_000
LEARNER_PROGRAM = 75_000_000
JAX_AT_THE_HUB = 330_000_000
JAX_AT_A_LEARNER = 450_000_000
"""Further memory that JAX takes for its code and for functions that it compiles."""

CODEC_PROGRAM = 100_000_000
"""Further memory that the compiled loops of a codec take at a learner, with their compiler."""

FRAGMENTS_ENCODED = 2
FRAGMENTS_DUE = 2
FRAGMENTS_AT_THE_HUB = 2
WHOLE_VALUES_AT_THE_END = 2
STEPS_TO_ADOPT = 2
"""Steps from the commit of a version to the reports of its adoption: to a boundary, and one."""

WHOLE_VALUES_EVALUATED = 7
"""Evaluations take this multiple of V: assembled, cast, on the device, and freed but retained."""

WHOLE_VALUES_OF_XLA = 4
"""Steps on CPU take this multiple of V: temporaries beside gradients, and freed but retained."""

WHOLE_VALUES_NOT_GIVEN_BACK = 3
"""Steps retain this multiple of V; it applies alone where XLA has reported the temporaries."""

HEAP_BYTES_MAX = 1 << 25
"""Arrays below this size lie in the heap, parts of which stay unused."""

HEAP_SHARE = 1.15


def slow_write_s(layout: Layout) -> float:
    """Estimate how long a process takes to write all values of a model to a slow disk."""
    return VALUE_BYTES * layout.size / SLOW_DISK_BYTES_PER_S


@dataclass(frozen=True, slots=True)
class TrainerMemory:
    """Bytes that a trainer holds, by shapes alone.

    Args:
        parameters: trainable and frozen parameters, in the model's own precision.
        base: the published value adopted last, float32, and what rounding it took away.
        moments: the inner optimizer's state, and leaves of the task's state that are not merged.
        gradients: the gradients of one step.
        on_host: whether all of these are in the host's memory.
        jax: whether the trainer computes with JAX.
        temporaries: temporary arrays of a step, such as gradients and activations; None if they
            are not known.
        evaluation: bytes that an evaluation takes beside the parameters, as far as is known.
    """

    parameters: int
    base: int
    moments: int
    gradients: int
    on_host: bool = True
    jax: bool = False
    temporaries: int | None = None
    evaluation: int = 0

    @property
    def of_a_step(self) -> int:
        """Bytes that a step allocates and frees; only its gradients, if no more is known."""
        return max(self.gradients, self.temporaries or 0)

    @property
    def total(self) -> int:
        """Bytes of everything but an evaluation."""
        return self.parameters + self.base + self.moments + self.of_a_step


@dataclass(frozen=True, slots=True)
class Processes:
    """The peak of a host's memory that each process takes, in bytes.

    Args:
        hub: the process of the supervisor and of the evaluation.
        syncer: the syncer's own process.
        learner: each learner's process.
        learners: number of learners.
    """

    hub: int
    syncer: int
    learner: int
    learners: int

    @property
    def total(self) -> int:
        """Bytes of a run whose processes are all on one machine."""
        return self.hub + self.syncer + self.learners * self.learner


def processes(
    layout: Layout, settings: RunSettings, trainer: TrainerMemory, *, learners: int
) -> Processes:
    """Estimate the memory of each process of a run.

    Args:
        layout: sizes of the model and of its fragments.
        settings: settings of the run, which bound open rounds and kept versions.
        trainer: memory of one learner's trainer.
        learners: number of learners that take part.
    """
    sizes = sorted(VALUE_BYTES * fragment.size for fragment in layout.fragments)
    whole, largest = sum(sizes), sizes[-1]
    return Processes(
        hub=HUB_PROGRAM
        + (JAX_AT_THE_HUB if trainer.jax else 0)
        + (WHOLE_VALUES_EVALUATED * whole + trainer.evaluation if trainer.jax else 0)
        + max(
            whole + FRAGMENTS_AT_THE_HUB * largest + buffer_bytes(sizes),
            WHOLE_VALUES_AT_THE_END * whole + min(whole, POOL_BYTES) + largest,
        ),
        syncer=SYNCER_PROGRAM + syncer_bytes(sizes, settings, learners),
        learner=LEARNER_PROGRAM
        + (JAX_AT_A_LEARNER if trainer.jax else 0)
        + learner_bytes(sizes, settings, trainer),
        learners=learners,
    )


def syncer_bytes(sizes: list[int], settings: RunSettings, learners: int) -> int:
    """Return the bytes that a syncer holds, given the fragments' sizes, smallest first."""
    whole = sum(sizes)
    at_once = sum(sizes[-settings.open_rounds_max(len(sizes)) :])
    kept = values_bytes(sizes, settings)
    outer = state_values(settings.outer)
    held = kept + outer * whole + (1 + outer) * sizes[-1] + learners * at_once
    if settings.precision.of_snapshots == "bfloat16":
        held += learners * at_once // 2
    held += increments_at_the_syncer(sizes, settings)
    held += JAX_AT_THE_HUB if settings.outer.kind == OPTAX else 0
    return round(held * HEAP_SHARE) if sizes[-1] < HEAP_BYTES_MAX else held


def values_bytes(sizes: list[int], settings: RunSettings) -> int:
    """Return the bytes of the values that a syncer keeps while no learner is behind the others."""
    whole, fragments = sum(sizes), len(sizes)
    adopting = ceil(STEPS_TO_ADOPT * fragments / settings.interval_steps)
    older = min(fragments, settings.open_rounds_max(fragments) + adopting)
    return whole + sum(sorted(sizes)[-older:])


def learner_bytes(sizes: list[int], settings: RunSettings, trainer: TrainerMemory) -> int:
    """Return a learner's bytes in host memory, given the fragments' sizes, smallest first."""
    largest, fragments = sizes[-1], len(sizes)
    sent = largest // 2 if settings.precision.of_snapshots == "bfloat16" else largest
    contributions = min(fragments, settings.open_rounds_max(fragments) + FRAGMENTS_DUE) + 1
    held = trainer.total if trainer.on_host else 0
    if trainer.jax and trainer.on_host:
        known = trainer.temporaries is not None
        held += (WHOLE_VALUES_NOT_GIVEN_BACK if known else WHOLE_VALUES_OF_XLA) * sum(sizes)
    arriving = largest + largest // 2 + buffer_bytes(sizes)
    encoding = encoding_bytes(sizes, settings)
    encoding += increments_at_a_learner(sizes, settings, CODEC_PROGRAM)
    return held + encoding + max(arriving + contributions * sent, sum(sizes[-SEEDS_AT_ONCE:]))


def encoding_bytes(sizes: list[int], settings: RunSettings) -> int:
    """Return what a learner needs to encode contributions on the host."""
    if not settings.precision.on_host:
        return 0
    largest, rounds = sizes[-1], settings.open_rounds_max(len(sizes))
    precision, share = settings.precision.finest, settings.top_k_share
    encoded = size_bytes(largest // VALUE_BYTES, precision, share=share)
    kept = sum(sizes) + rounds * largest if settings.keeps_residuals else 0
    return CODEC_PROGRAM + (rounds + 1) * encoded + FRAGMENTS_ENCODED * largest + kept


def buffer_bytes(sizes: list[int]) -> int:
    """Return the bytes kept for the next fragment to arrive, given the sizes, smallest first."""
    return sizes[-1] if len(sizes) > 1 and sizes[-1] <= POOL_BYTES else 0


FRAGMENTS_ADDED = 2


def kept_at_the_syncer(sizes: list[int], settings: RunSettings) -> int:
    """Return what a syncer keeps of increments while no member is behind, by fragments' sizes."""
    if not settings.update_precision.of_increments:
        return 0
    precision = settings.update_precision
    encoded = sum(size_bytes(each // VALUE_BYTES, precision) for each in sizes)
    return sum(sizes) + encoded


def kept_for_laggards(sizes: list[int], settings: RunSettings) -> int:
    """Return what a syncer keeps of further increments at most, while a member is behind."""
    if not settings.update_precision.of_increments:
        return 0
    return INCREMENTS_KEPT * (kept_at_the_syncer(sizes, settings) - sum(sizes))


def increments_at_the_syncer(sizes: list[int], settings: RunSettings) -> int:
    """Return what increments take at a syncer at most."""
    if not settings.update_precision.of_increments:
        return 0
    return kept_at_the_syncer(sizes, settings) + FRAGMENTS_ADDED * max(sizes)


def increments_at_a_learner(sizes: list[int], settings: RunSettings, program: int) -> int:
    """Return what increments take at a learner at most, given what a codec's program takes."""
    if not settings.update_precision.of_increments:
        return 0
    loaded = 0 if settings.precision.on_host else program
    return sum(sizes) + FRAGMENTS_ADDED * max(sizes) + loaded
