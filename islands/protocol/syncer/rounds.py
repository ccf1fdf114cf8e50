"""One round: the attempt to move one fragment to its next version.

    collecting ──close──▶ merging ──merged──▶ journalling ──journalled──▶ (committed, forgotten)
        └──timeout──▶ (abandoned, forgotten; the fragment keeps its version)

While collecting, every asked learner is `waiting`, has `arrived`, or is `excused` (it declined, or
it was refused, or it cannot be reached). The quorum is complete when K contributions have arrived.
The round closes when nobody is waited for, or when the grace after the K-th arrival is over.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from islands.protocol.identities import LearnerName, Ticket, Version
from islands.protocol.messages.training import Contribution


class Stage(StrEnum):
    """The stages of a round, in order."""

    COLLECTING = "collecting"
    MERGING = "merging"
    JOURNALLING = "journalling"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A contribution that passed its checks, and the `connection` over which it came.

    `rate` is its norm/(√steps·learning rate), which `NormGauge` judges.
    """

    contribution: Contribution
    connection: int
    rate: float


@dataclass(slots=True)
class Round:
    """The state of one open round. `quorum` is K; None stands for everyone who was asked.

    Where K is `auto`, so many answers are expected by `expected_s`; after that, one answer is
    enough. `arrived` and `excused` are disjoint subsets of `asked`. `searched` tells that nobody is
    awaited and every learner was examined since: only those that changed can be asked then.
    """

    number: int
    fragment: int
    version: Version
    quorum: int | None
    opened_s: float
    timeout_s: float
    stage: Stage = Stage.COLLECTING
    asked: dict[LearnerName, Ticket] = field(default_factory=dict)
    asked_s: dict[LearnerName, float] = field(default_factory=dict)
    arrived: dict[LearnerName, Admitted] = field(default_factory=dict)
    excused: dict[LearnerName, str] = field(default_factory=dict)
    quorum_s: float | None = None
    closed_s: float | None = None
    expected_s: float = inf
    searched: bool = False

    @property
    def awaited(self) -> bool:
        """Whether anybody who was asked has neither arrived nor is excused."""
        return len(self.asked) > len(self.arrived) + len(self.excused)

    @property
    def waiting(self) -> list[LearnerName]:
        """The learners that were asked and have neither arrived nor been excused."""
        return [n for n in self.asked if n not in self.arrived and n not in self.excused]

    @property
    def contributions(self) -> list[Contribution]:
        """The contributions that have arrived, by name."""
        return [self.arrived[name].contribution for name in sorted(self.arrived)]

    @property
    def quorum_complete(self) -> bool:
        """Whether K contributions have arrived; with K = all, everyone who is not excused."""
        if self.quorum is None:
            return bool(self.arrived) and not self.awaited
        return len(self.arrived) >= self.quorum

    def may_close(self, now_s: float, grace_s: float) -> bool:
        """Return whether to close now: the quorum is complete and nobody is worth waiting for."""
        if self.stage is not Stage.COLLECTING or not self.quorum_complete:
            return False
        if not self.awaited or self.quorum_s is None:
            return True
        return now_s >= self.quorum_s + grace_s

    def relax(self, now_s: float) -> None:
        """Lower the quorum to one answer if the expected answers did not all arrive in time.

        If some of those asked have declined, and all others have answered, it is done at once.
        """
        declined = self.expected_s < inf and bool(self.arrived) and not self.awaited
        if (now_s >= self.expected_s or declined) and self.quorum is not None:
            self.quorum, self.expected_s = 1, inf

    def wait_until(self, until_s: float) -> None:
        """Extend the timeout: a learner was asked whose answer may take until then."""
        self.timeout_s = max(self.timeout_s, until_s - self.opened_s)

    def timed_out(self, now_s: float) -> bool:
        """Return whether to abandon the round: it was below its quorum for too long."""
        collecting = self.stage is Stage.COLLECTING
        return collecting and now_s >= self.opened_s + self.timeout_s


def excuse(round_: Round, name: LearnerName, reason: str) -> None:
    """Stop waiting for a learner; what has arrived from it stays."""
    if name in round_.asked and name not in round_.arrived:
        round_.excused[name] = reason
