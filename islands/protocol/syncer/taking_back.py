"""Values that are taken back from members, where a syncer has the run's token and no journal.

Members outlive the folder of their hub: each has the value of every fragment that it adopted last.
Nothing of the journal is left by which such a claim could be verified, so it is trusted as far as
whoever holds the token is: members are compared with one another, and with what they then send. A
syncer with a version of its own takes nothing back, whatever a member claims.

================================================  ================================================
members have kept                                 version 0 is
================================================  ================================================
nothing                                           a file's or a learner's, as of any new run
values of one version with unlike digests         that of most of them
values of several versions                        the newest, of the member that has most of them
values, and one sends others than it told         that of the next member
================================================  ================================================

Lost are the ledger, the outer optimizer's momentum, the data positions and the clock of the
learning rate: the run begins anew, from these values.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from islands.protocol.identities import LearnerName
from islands.protocol.messages.training import Kept
from islands.protocol.settings.run import REDIAL_LONGEST_S, Timing

REDIALS = 2
"""Time to reach the supervisor again, and then the syncer."""


def waits_s(timing: Timing) -> float:
    """Return for how long a run without a journal waits for members that have newer values."""
    return timing.scaled(REDIALS * REDIAL_LONGEST_S)


def newest_of(offers: Mapping[LearnerName, tuple[Kept, ...]]) -> LearnerName:
    """Return the member that has the newest values of most fragments; of several the first by name.

    A value that differs from what most holders of its version have does not count.

    Args:
        offers: values by fragment of each member; not empty.
    """
    columns = [_agreed(column) for column in zip(*offers.values(), strict=True)]

    def good(name: LearnerName) -> int:
        return sum(one == agreed for one, agreed in zip(offers[name], columns, strict=True))

    return min(offers, key=lambda name: (-good(name), name))


def _agreed(column: Iterable[Kept]) -> Kept:
    """Return the newest version of one fragment, as most that hold it have it."""
    held = Counter(column)
    newest = max(one.version for one in held)
    return min(
        (one for one in held if one.version == newest), key=lambda one: (-held[one], one.digest)
    )
