"""The memory that updates by increments take beside what a run of whole values needs.

V is the whole published value (float32), F its largest fragment, q the encoding of an increment of
everything:

=========  ============================================================================
syncer     V that increments left, q of the newest, which are freed once all have added them (up to
           9·q while a member is behind), and 2·F while one is made
learner    V as it was published, 2·F while an increment is added, and the codec's program
=========  ============================================================================

The exact ranges of averages are neglected.
"""

from islands.layout.leaves import VALUE_BYTES
from islands.numerics.quantize import size_bytes
from islands.protocol.settings.run import INCREMENTS_KEPT, RunSettings

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
