"""When the values of old versions are freed: no later than nobody contributes from them any more.

The syncer holds the values of a fragment's `staleness_max` + 1 newest versions, since a learner may
be so far behind: its contribution is measured against them (`anchor: current`). Mostly everybody
has adopted the newest version long before the next one is made. Then the older ones are freed, and
a syncer holds each value about once, instead of `staleness_max` + 2 times.

No contribution is refused because of it that was admitted otherwise, so older values stay while

1. a round on the fragment is open: what answers it may have an older base, though its sender has
   reported a newer one meanwhile;
2. a learner reports a base that is older, and is kept: it may contribute from it;
3. an incarnation ended with such a base: its process may come back under another one;
4. a learner of the books has not said hello to this start of the syncer.

Bases that are too old to be kept delay nothing. So a learner that was lost costs memory for
`staleness_max` + 1 merges of each fragment. Increments that lead on from old versions are freed
with them, so where updates are increments observers count too; who comes back later gets the value.
"""

from collections.abc import Iterable

from islands.protocol.identities import FragmentIndex, LearnerName, Role
from islands.protocol.settings.run import Anchor
from islands.protocol.syncer.actions import ReleaseValues
from islands.protocol.syncer.core import Core
from islands.protocol.syncer.roster import LearnerRecord


def release_old_values(core: Core, fragments: Iterable[int]) -> None:
    """Free the older values of those of these fragments of which nobody needs any."""
    for fragment in fragments:
        kept = core.kept[fragment]
        if not kept.older_held or fragment in core.rounds or _needed(core, fragment):
            continue
        kept.older_held = False
        if core.settings.anchor is Anchor.CURRENT:
            kept.drop_older()  # else bases are admitted without their values
        if core.increments:
            core.increments[fragment].kept.clear()
        core.actions.append(ReleaseValues(FragmentIndex(fragment), core.version(fragment)))


def note_gone(core: Core, learner: LearnerRecord) -> None:
    """Note what an incarnation that has ended held as its bases."""
    if learner.role is Role.LEARNER:
        for fragment, kept in enumerate(core.kept):
            kept.left(learner.name, learner.holds(fragment))


def note_back(core: Core, name: LearnerName) -> None:
    """Note that a learner said hello, and told what it holds."""
    for kept in core.kept:
        kept.returned(name)


def _needed(core: Core, fragment: int) -> bool:
    kept, counted = core.kept[fragment], bool(core.increments)

    def behind(learner: LearnerRecord) -> bool:
        held = learner.holds(fragment)
        counts = counted or learner.role is Role.LEARNER
        return counts and held != kept.newest and held in kept

    if core.any_learner(f"holds an old value of fragment {fragment}", behind) or kept.awaited:
        return True
    return len(core.durable.ledger.books) > len(core.learner_index.learners)
