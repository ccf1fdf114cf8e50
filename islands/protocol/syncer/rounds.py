"""Rounds, each the attempt to move one fragment to its next version; the pace at which they open.

    collecting ──close──▶ merging ──merged──▶ journalling ──journalled──▶ (committed, forgotten)
        └──timeout──▶ (abandoned, forgotten; the fragment keeps its version)

While collecting, every asked learner is `waiting`, has `arrived`, or is `excused` (it declined, or
it was refused, or it cannot be reached). The quorum is complete when K contributions have arrived;
with K = all or `auto`, when one has and nobody is awaited any more. The round closes when nobody is
waiting, or when the grace after that is over.

Learners pay for rounds with credits in steps (protocol §3.1). Their upper bound keeps a learner
that ran ahead while nobody could open a round from paying for a burst afterwards; the lower bound
keeps a slow learner from falling ever further behind. With a bound of max(1, H/P), and one report
per H/P steps, the effective H comes out up to 14 % too long [M: event model, H=24, P=1]. Eight
reports per interval, and a bound that is higher by one report, keep it within 3 %.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from islands.protocol.identities import LearnerName, Ticket, Version
from islands.protocol.messages.training import Contribution
from islands.protocol.settings.choices import PaceBy
from islands.protocol.settings.run import REPORTS_PER_ROUND
from islands.protocol.syncer.plausibility import NormGauge
from islands.protocol.syncer.timeouts import Durations, Patience

ABANDONED_KEPT = 64
"""Abandoned rounds that are kept, to measure by how much a late answer missed its round."""


class Stage(StrEnum):
    """The stages of a round, in order."""

    COLLECTING = "collecting"
    MERGING = "merging"
    JOURNALLING = "journalling"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A contribution that passed its checks; `NormGauge` judges its norm/(√steps·rate)."""

    contribution: Contribution
    connection: int
    rate: float


@dataclass(slots=True)
class Round:
    """The state of one open round. `quorum` is K; None stands for everyone who is awaited.

    Where K is `auto`, `patience` says who is `unawaited` from the first, and after it everyone is.
    `arrived`, `excused` and `unawaited` are disjoint subsets of `asked`; `adopting` are awaited and
    not asked yet, as they have yet to adopt what holds their last contribution. `searched` says
    that every learner was examined since the last one was asked: only those that changed can be
    asked then.
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
    patience: Patience | None = None
    unawaited: dict[LearnerName, None] = field(default_factory=dict)
    adopting: dict[LearnerName, None] = field(default_factory=dict)
    searched: bool = False
    changes: int = 1

    @property
    def awaited(self) -> bool:
        """Whether anybody whom this round waits for has neither arrived nor is excused."""
        ended = len(self.arrived) + len(self.excused) + len(self.unawaited)
        return len(self.asked) > ended or bool(self.adopting)

    @property
    def patient_until_s(self) -> float:
        """When a round with K = `auto` awaits nobody any more; infinite for others."""
        return inf if self.patience is None else self.opened_s + self.patience.within_s

    @property
    def waiting(self) -> list[LearnerName]:
        """The learners that were asked and have neither arrived nor been excused."""
        return [n for n in self.asked if n not in self.arrived and n not in self.excused]

    @property
    def contributions(self) -> list[Contribution]:
        return [self.arrived[name].contribution for name in sorted(self.arrived)]

    @property
    def quorum_complete(self) -> bool:
        """Whether K contributions have arrived; without a number, whoever is awaited."""
        if self.quorum is None:
            return bool(self.arrived) and not self.awaited
        return len(self.arrived) >= self.quorum

    def may_close(self, now_s: float, grace_s: float) -> bool:
        """Return whether to close now: the quorum is complete and nobody is worth waiting for."""
        if self.stage is not Stage.COLLECTING or self.quorum_s is None:
            return False
        answered = len(self.asked) == len(self.arrived) + len(self.excused)
        return answered or now_s >= self.quorum_s + grace_s

    def ask(
        self, name: LearnerName, ticket: Ticket, now_s: float, until_s: float, usual_s: float | None
    ) -> None:
        """Note that a learner with this usual time is asked; wait until then for its answer."""
        self.timeout_s = max(self.timeout_s, until_s - self.opened_s)
        self.excused.pop(name, None)
        self.adopting.pop(name, None)
        self.asked[name] = ticket
        self.asked_s[name] = now_s
        if self.patience is not None and not self.patience.awaits(usual_s):
            self.unawaited[name] = None
        self.searched = False
        self.changes += 1

    def search(self) -> bool:
        """Return whether all learners are to be examined, and not only those that changed."""
        first, self.searched = not self.searched, True
        return first

    def search_again(self) -> None:
        self.searched = False

    def await_adoption_of(self, name: LearnerName) -> None:
        """Await a learner that may be asked once it has adopted its last contribution."""
        self.adopting[name] = None

    def excuse(self, name: LearnerName, reason: str) -> None:
        """Stop waiting for a learner; what has arrived from it stays."""
        if self.adopting.pop(name, False) is None:
            self.changes += 1
        if name in self.asked and name not in self.arrived:
            self.excused[name] = reason
            self.unawaited.pop(name, None)
            self.changes += 1

    def admit(self, name: LearnerName, admitted: Admitted) -> None:
        self.excused.pop(name, None)
        self.unawaited.pop(name, None)
        self.arrived[name] = admitted
        self.changes += 1

    def complete(self, now_s: float) -> bool:
        """Return whether the quorum has just become complete: by answer, excuse, or patience."""
        if self.stage is not Stage.COLLECTING:
            return False
        if now_s >= self.patient_until_s and self.awaited:
            self.unawaited, self.adopting = dict.fromkeys(self.waiting), {}
            self.changes += 1
        if self.quorum_s is not None or not self.quorum_complete:
            return False
        self.quorum_s = now_s
        self.changes += 1
        return True

    def withdraw(self, name: LearnerName) -> Admitted | None:
        """Take a learner out, so that its successor may be asked; return what it contributed."""
        for known in (self.asked, self.asked_s, self.excused, self.unawaited, self.adopting):
            known.pop(name, None)
        admitted = self.arrived.pop(name, None)
        if not self.quorum_complete:
            self.quorum_s = None
        self.changes += 1
        return admitted

    def await_all(self) -> None:
        self.changes += self.quorum is not None or self.patience is not None
        self.quorum, self.patience, self.unawaited, self.adopting = None, None, {}, {}
        if not self.quorum_complete:
            self.quorum_s = None

    def settle(self) -> None:
        self.quorum = len(self.arrived)
        self.changes += 1

    def merge(self, now_s: float) -> None:
        self.stage, self.closed_s = Stage.MERGING, now_s
        self.changes += 1

    def journal(self) -> None:
        self.stage = Stage.JOURNALLING
        self.changes += 1

    def timed_out(self, now_s: float) -> bool:
        """Return whether it collects and its time is up; `_give_up` says what follows."""
        collecting = self.stage is Stage.COLLECTING
        return collecting and now_s >= self.opened_s + self.timeout_s


@dataclass(slots=True)
class Adoption:
    """A wait for the K-th report that a version was adopted, by which ξ_sync is measured."""

    version: Version
    closed_s: float
    quorum: int
    reports: int = 0


CREDIT_FLOOR_STEPS = -1.0

ROUNDING_STEPS = 1e-6
"""By how much sums of H/P may be off, which a round need not wait for."""

Rank = tuple[bool, float, LearnerName]
"""Ranks sort who trains first, then the largest credit, and equal credits by name."""


@dataclass(slots=True)
class Pace:
    """Credits in steps, and the ready learners' ranks, by name in `ranked`, sorted in `ranking`.

    Learners that wait for merges never run further ahead than `ahead_steps`.
    """

    by: PaceBy
    round_interval_steps: float
    ahead_steps: float = 0.0
    credits: dict[LearnerName, float] = field(default_factory=dict)
    ranked: dict[LearnerName, Rank] = field(default_factory=dict)
    ranking: list[Rank] = field(default_factory=list)

    @property
    def cap_steps(self) -> float:
        """Largest credit a learner can hold: a round, and one report on top of it."""
        interval = self.round_interval_steps
        one_round = interval * (1 + 1 / REPORTS_PER_ROUND) if interval > 1 else 1.0
        return one_round + self.ahead_steps

    def progressed(self, name: LearnerName, steps: int) -> None:
        self.credits[name] = min(self.cap_steps, self.credits.get(name, 0.0) + steps)
        self._rerank(name)

    def forget(self, name: LearnerName) -> None:
        self.credits.pop(name, None)
        self._rerank(name)

    def enter(self, name: LearnerName, *, trains: bool = True) -> None:
        """Rank a ready learner, behind all others if it does not train."""
        rank = self._rank(name, trains=trains)
        if self.ranked.get(name) != rank:
            self.leave(name)
            self.ranked[name] = rank
            insort(self.ranking, rank)

    def leave(self, name: LearnerName) -> None:
        rank = self.ranked.pop(name, None)
        if rank is not None:
            del self.ranking[bisect_left(self.ranking, rank)]

    def set_interval(self, interval_steps: float) -> None:
        self.round_interval_steps = interval_steps

    def setter(self) -> LearnerName | None:
        """Return the learner that sets the pace; None if none is ready."""
        if not self.ranking:
            return None
        count = bisect_left(self.ranking, (True,)) or len(self.ranking)  # who trains, or all
        match self.by:
            case PaceBy.FASTEST:
                index = 0
            case PaceBy.SLOWEST:
                index = count - 1
            case PaceBy.MEDIAN:
                index = (count - 1) // 2
        return self.ranking[index][2]

    def ready(self) -> bool:
        setter = self.setter()
        if setter is None:
            return False
        return self.credits.get(setter, 0.0) >= self.round_interval_steps - ROUNDING_STEPS

    def opened(self, next_interval_steps: float) -> None:
        """Take the price of an opened round from every learner's credit, and set the next one's."""
        for name in self.credits:
            paid = self.credits[name] - self.round_interval_steps
            self.credits[name] = max(CREDIT_FLOOR_STEPS, paid)
        self.round_interval_steps = next_interval_steps
        self.ranked = {
            name: self._rank(name, trains=not resting)
            for name, (resting, _, _) in self.ranked.items()
        }
        self.ranking = sorted(self.ranked.values())

    def _rank(self, name: LearnerName, *, trains: bool) -> Rank:
        return not trains, -self.credits.get(name, 0.0), name

    def _rerank(self, name: LearnerName) -> None:
        if name in self.ranked:
            self.enter(name, trains=not self.ranked[name][0])


@dataclass(slots=True)
class Rounds:
    """The open rounds by fragment, what paces them, and what was measured of them.

    `barren` is the number of the next round if nobody was eligible for it. `abandoned_s` says when
    each of the newest rounds without a merge was abandoned. `ended` counts the changes of rounds
    that are over.
    """

    pace: Pace
    gauges: list[NormGauge]
    open: dict[int, Round] = field(default_factory=dict)
    barren: int | None = None
    abandoned_s: dict[int, float] = field(default_factory=dict)
    durations: Durations = field(default_factory=Durations.unknown)
    adoptions: dict[int, Adoption] = field(default_factory=dict)
    ended: int = 0

    @property
    def changes(self) -> int:
        """The changes of all rounds so far: a sum that only grows."""
        return self.ended + sum(one.changes for one in self.open.values())

    def add(self, round_: Round) -> None:
        self.open[round_.fragment] = round_

    def remove(self, fragment: int) -> Round:
        round_ = self.open.pop(fragment)
        self.ended += round_.changes + 1
        return round_

    def abandon(self, round_: Round, now_s: float) -> None:
        self.remove(round_.fragment)
        self.abandoned_s[round_.number] = now_s
        if len(self.abandoned_s) > ABANDONED_KEPT:
            del self.abandoned_s[min(self.abandoned_s)]

    def find_barren(self, number: int | None) -> None:
        """Note that nobody is eligible for the next round, or (None) that somebody may be."""
        self.barren = number

    def await_adoption(self, fragment: int, version: Version, round_: Round) -> None:
        assert round_.closed_s is not None, "a round is closed before it is merged"
        quorum = round_.quorum or len(round_.arrived)
        self.adoptions[fragment] = Adoption(version, round_.closed_s, quorum)

    def count_adoption(
        self, fragment: int, before: Version | None, held: Version | None, now_s: float
    ) -> None:
        """Count an adoption of a fragment; the K-th one measures ξ_sync."""
        adoption = self.adoptions.get(fragment)
        if adoption is None or held is None or held < adoption.version:
            return
        if before is None or before < adoption.version:
            adoption.reports += 1
            if adoption.reports >= adoption.quorum:
                self.durations.sync_s.add(now_s - adoption.closed_s)
                del self.adoptions[fragment]

    def forget_adoptions(self) -> None:
        """Measure none: a wait for adoptions says nothing of the network if it spans a pause."""
        self.adoptions.clear()
