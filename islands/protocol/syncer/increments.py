"""Which increments are kept of a fragment, and whom they are worth sending to.

An increment leads from one version to the next. Whoever is some versions behind is sent a *chain*:
all increments since the version that it has reported as its base, in order. The whole value is sent
instead to whoever has reported none (a joiner, a process that was restarted), or one from which no
kept increment leads on (a syncer that was restarted keeps none); where the chain would be no
shorter; and whenever an update is sent again, since it may be the receiver's copy that is wrong.

The chain begins at the version that was reported, not at the one that was sent last: that one may
be lost or damaged on its way, or replaced in the link's queue. A receiver skips what it has.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from islands.protocol.identities import Version
from islands.protocol.messages.training import IncrementsSince
from islands.protocol.settings.run import INCREMENTS_KEPT, RunSettings
from islands.protocol.syncer.events import IncrementFacts


@dataclass(frozen=True, slots=True)
class Kept:
    """An increment from one version to the next, by the length of its encoding."""

    before: Version
    version: Version
    size_bytes: int


@dataclass(slots=True)
class Increments:
    """The increments of one fragment that are kept, oldest first.

    One more than `INCREMENTS_KEPT` is held, since the newest may not be committed yet.
    """

    kept: deque[Kept] = field(default_factory=lambda: deque(maxlen=INCREMENTS_KEPT + 1))
    value_bytes: int = 0

    def made(self, before: Version, version: Version, facts: IncrementFacts | None) -> None:
        """Keep an increment; None if a version was made without one, which ends all chains."""
        if facts is None:
            self.kept.clear()
            return
        self.value_bytes = facts.value_bytes
        self.kept.append(Kept(before, version, facts.size_bytes))

    def lead(self, held: Version, version: Version) -> bool:
        """Whether a chain leads from one version to another, and is shorter than the value."""
        sizes, at = [], version
        for increment in reversed(self.kept):
            if increment.version == at != held:
                sizes.append(increment.size_bytes)
                at = increment.before
        few = 0 < len(sizes) <= INCREMENTS_KEPT
        return few and at == held and sum(sizes) < self.value_bytes


def increments_since(
    kept: Sequence[Increments],
    fragment: int,
    held: Version | None,
    version: Version,
    settings: RunSettings,
) -> IncrementsSince | None:
    """Return from where a receiver is sent increments; None if it is sent the whole value.

    Args:
        kept: the increments of every fragment; empty if the run sends whole values.
        fragment: index of the fragment.
        held: the version that the receiver reported as its base.
        version: the version to be sent.
        settings: those of the run, which name the precision of updates.
    """
    if not kept or held is None or not kept[fragment].lead(held, version):
        return None
    return IncrementsSince(held, settings.update_precision)
