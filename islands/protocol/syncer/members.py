"""Members: what the syncer knows of each learner, when one may be asked, totals over all of them.

No rule may look at all learners after every event: a run has thousands of each. So `LearnerIndex`
has totals, `rounds.py` the ranks of the ready ones, and `Witness` the learner for which a condition
held last. A rule that changes a learner calls `SyncerMemory.touch`, and the index is updated before
it is next read. `tests/syncer/bench.py` compares all of it with a count from scratch.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from islands.protocol.identities import (
    TRAINING,
    Incarnation,
    LearnerName,
    Phase,
    Role,
    Status,
    Version,
)
from islands.protocol.membership import SupervisorView
from islands.protocol.messages.training import Kept, Progress
from islands.protocol.running_statistics import LostLinks
from islands.protocol.syncer.plausibility import Answers, ReportedTotals
from islands.protocol.syncer.pulls import AdaptivePrecision, Level, Pulls
from islands.protocol.syncer.timeouts import Exchange, doubled_s

WRONG_WINDOW_S = 600.0

WRONGS_MAX = 3
"""What no honest learner does, so many times within `WRONG_WINDOW_S`: it is refused."""

DONATIONS_MAX = 8
"""A process that ends again and again after it was given moments begins with fresh ones then."""

OBSERVERS_KEPT = 256
"""Observers without a link of which it is known what they were sent."""

LINKS_FREE = 4
"""New links over which one version is sent again at once; after that the wait doubles."""

UNANSWERED_MAX = 2
NOT_ADOPTED = "its last contribution is merged and not yet adopted"
BUSY = "two pulls unanswered"
SILENT = "nothing was heard from it since it was pulled"


@dataclass(slots=True)
class Sent:
    """The version of a fragment that was sent last, `times` over its newest link.

    `links` counts those that were opened since.
    """

    version: Version
    at_s: float
    first_s: float
    times: int = 1
    links: int = 0

    def due_s(self, interval_s: float) -> float:
        """Return when to send it again: over the first few new links at once, as it may be lost."""
        again = max(0, self.links - LINKS_FREE)
        if not self.times and not again:
            return self.at_s
        return self.at_s + doubled_s(interval_s, max(0, self.times - 1) + again)


@dataclass(slots=True)
class LearnerRecord:
    """The record of one incarnation. `connection` is its link's number; None while that is down.

    `stepped_s` is when it last reported steps, or opened its link; `step_s` is its believed step
    time, 0 while it is unknown. `paced_steps` is its step that was last measured as one of the
    pace-setting learner. `asking` has the fragments for which its newest report asks for a round,
    less those for which one was opened since. `still` says that it has stood still for long
    (`sweep.py`); `donor` is the one whose moments it may ask for. `silent` is explained in
    `pulls.py`. `unasked_rounds` counts the rounds in a row for which it was ineligible although it
    steps, since `unasked_s`, and `left_out` is why, once that is on the tape. `kept` are the values
    that it still has from before this incarnation: of all fragments, or none.
    """

    name: LearnerName
    role: Role
    incarnation: Incarnation
    progress: Progress
    connection: int | None
    precision: AdaptivePrecision
    status: Status = Status.LIVE
    pulls: Pulls = field(default_factory=Pulls)
    heard_s: float = 0.0
    silent: bool = False
    unasked_rounds: int = 0
    unasked_s: float = 0.0
    left_out: str = ""
    answers: Answers = field(default_factory=Answers)
    marks: ReportedTotals = field(default_factory=ReportedTotals)
    sent: dict[int, Sent] = field(default_factory=dict)
    seeds_refused: int = 0
    whole: bool = False
    stepped_s: float = 0.0
    step_s: float = 0.0
    paced_steps: int = 0
    asking: set[int] = field(default_factory=set)
    still: bool = False
    donor: LearnerName | None = None
    exchange: Exchange = field(default_factory=Exchange)
    kept: tuple[Kept, ...] = ()
    losses: LostLinks = field(default_factory=LostLinks)

    def __post_init__(self) -> None:
        self.report(self.progress)

    def report(self, progress: Progress) -> None:
        """Update what follows from reports; `whole`: one held a version of every fragment."""
        self.progress = progress
        self.asking = {one for one in progress.due if 0 <= one < len(progress.fragments)}
        self.marks.add(progress.steps, progress.tokens)
        self.whole = self.whole or all(one.version is not None for one in progress.fragments)

    @property
    def phase(self) -> Phase:
        return self.progress.phase

    @property
    def reads(self) -> bool:
        """Whether it is given data and tokens: its batch is known."""
        return self.progress.batch_tokens > 0

    @property
    def claims(self) -> bool:
        """Whether a part of the budget is left for it: it has not ended, and reads, or will."""
        return self.role is Role.LEARNER and not self.status.ended

    @property
    def reachable(self) -> bool:
        return self.connection is not None and not self.status.ended

    @property
    def adopting(self) -> bool:
        """Whether to send it updates: while it compiles, they would only pile up."""
        return self.reachable and self.phase not in (Phase.JOINING, Phase.COMPILING)

    def holds(self, fragment: int) -> Version | None:
        return self.progress.fragments[fragment].version

    def sending(self, fragment: int, version: Version, now_s: float) -> bool:
        """Note that a version is sent to it; returns whether it is sent again over this link."""
        before = self.sent.get(fragment)
        if before is None or before.version != version:
            self.sent[fragment] = Sent(version, now_s, now_s)
            return False
        first_s = before.first_s if before.times else now_s
        self.sent[fragment] = Sent(version, now_s, first_s, before.times + 1, before.links)
        return before.times > 0

    def hears(self, now_s: float) -> bool:
        """Note that something came over its link; returns whether it was silent before."""
        silent, self.silent, self.heard_s = self.silent, False, now_s
        return silent

    def falls_silent(self, now_s: float, timeout_s: float) -> bool:
        """Return whether it is newly silent: since an overdue pull was sent, nothing was heard."""
        oldest_s = self.pulls.oldest_s
        overdue = oldest_s is not None and now_s - oldest_s >= timeout_s
        newly = overdue and not self.silent and oldest_s is not None and self.heard_s <= oldest_s
        self.silent = self.silent or newly
        return newly

    def waits_unasked(self, reason: str, now_s: float) -> None:
        """Note that a round opened without asking it, unless it is not one to be asked."""
        able = self.status is Status.LIVE and self.connection is not None and self.whole
        able = able and self.phase is Phase.STEPPING and bool(reason)
        self.unasked_rounds = self.unasked_rounds + 1 if able else 0
        if self.unasked_rounds == 1:
            self.unasked_s = now_s

    def opened(self, connection: int, now_s: float) -> None:
        """Note that it opened another link: what was sent over the one before may be lost."""
        self.lost()
        self.connection, self.stepped_s, self.heard_s = connection, now_s, now_s
        for sent in self.sent.values():
            sent.times, sent.links = 0, sent.links + 1

    def lost(self) -> None:
        """Note that its link is gone, and with it what was asked over it."""
        self.connection, self.silent = None, False
        self.pulls.void()
        self.precision.link_changed()


# --- eligibility: who may be asked (protocol §3.2) ----------------------------------------------


def unready_because(learner: LearnerRecord) -> str | None:
    """Return the first reason against asking a learner at all; None if it is ready."""
    if learner.role is not Role.LEARNER:
        return "does not contribute"
    if learner.status is not Status.LIVE:
        return learner.status.value
    if learner.connection is None:
        return "link down"
    if learner.phase in (Phase.JOINING, Phase.COMPILING, Phase.HEALING):
        return learner.phase.value
    if not learner.whole:
        return "has not adopted every fragment"
    if learner.silent and len(learner.pulls):
        return SILENT
    if len(learner.pulls) >= UNANSWERED_MAX:
        return BUSY
    return None


def ineligible_because(
    learner: LearnerRecord, fragment: int, *, kept: Collection[Version], merged: Version | None
) -> str | None:
    """Return the first reason against asking a learner for a fragment, or None.

    `kept` are the fragment's newest versions, `merged` contains the learner's last contribution.
    """
    reason = unready_because(learner)
    if reason is not None:
        return reason
    report = learner.progress.fragments[fragment]
    if learner.progress.steps <= report.base_steps:
        return "no step since it adopted its base"
    return stale_because(report.version, kept=kept, merged=merged)


def stale_because(
    base: Version | None, *, kept: Collection[Version], merged: Version | None
) -> str | None:
    """Return why a base is too old to contribute from; None if it is fresh."""
    if base is None:
        return "has no base"
    if merged is not None and base < merged:
        return NOT_ADOPTED
    if base not in kept:
        return f"base {base} is not among the {len(kept)} newest versions"
    return None


# --- totals over all learners -------------------------------------------------------------------


@dataclass(slots=True)
class LearnerIndex:
    """Known peers: `names` sorted, `learners` without observers, `readers` with a batch.

    `claimants` are those among whom the rest of the budget is divided, also those that only join,
    or the first one to begin would be given half of it.

    `leaving` holds those that have stopped for good, and `asking` those that ask for a round;
    `asking_news` are those of them that have changed since the rounds that they ask for were looked
    for, and `asked_for` the fragments for which one of them was eligible then (`scheduling.py`).
    """

    names: list[LearnerName] = field(default_factory=list)
    learners: set[LearnerName] = field(default_factory=set)
    readers: set[LearnerName] = field(default_factory=set)
    claimants: set[LearnerName] = field(default_factory=set)
    leaving: set[LearnerName] = field(default_factory=set)
    asking: set[LearnerName] = field(default_factory=set)
    asking_news: set[LearnerName] = field(default_factory=set)
    asked_for: set[int] = field(default_factory=set)
    known: set[LearnerName] = field(default_factory=set)

    def update(self, name: LearnerName, learner: LearnerRecord | None) -> None:
        """Update the totals with a learner; None if it is not known any more."""
        if (learner is not None) != (name in self.known):
            if learner is not None:
                self.known.add(name)
                insort(self.names, name)
            else:
                self.known.discard(name)
                del self.names[bisect_left(self.names, name)]
        _keep(self.learners, name, learner is not None and learner.role is Role.LEARNER)
        _keep(self.readers, name, learner is not None and learner.reads)
        _keep(self.claimants, name, learner is not None and learner.claims)
        _keep(self.leaving, name, learner is not None and learner.phase is Phase.FINISHED)
        asks = learner is not None and bool(learner.asking)
        _keep(self.asking, name, asks)
        _keep(self.asking_news, name, asks)

    def look_for_turns(
        self,
        learners: Mapping[LearnerName, LearnerRecord],
        may_be_asked: Callable[[LearnerName, int], bool],
    ) -> None:
        """Note the fragments for which one of those that ask, and have changed, is eligible."""
        for name in sorted(self.asking_news):
            self.asked_for |= {each for each in learners[name].asking if may_be_asked(name, each)}
        self.asking_news.clear()


def may_donate(learner: LearnerRecord) -> bool:
    """Return whether a learner is connected, live and stepping from its base."""
    present = learner.connection is not None and learner.status is Status.LIVE
    trains = learner.role is Role.LEARNER and learner.phase in TRAINING and learner.whole
    return present and trains and learner.progress.steps > 0


def _keep(names: set[LearnerName], name: LearnerName, belongs: bool) -> None:  # noqa: FBT001  private, and the last of three
    if belongs:
        names.add(name)
    else:
        names.discard(name)


@dataclass(slots=True)
class Witness:
    """The last learner for which a condition was true."""

    name: LearnerName | None = None

    def match(self, names: Sequence[LearnerName], true_of: Callable[[LearnerName], bool]) -> bool:
        """Return whether a condition is true of any of these names, which are sorted.

        It must be false for an unknown name. It is first asked of the learner for which it held
        last, and then from that one onwards: so a condition that ends for one learner after the
        other costs one visit each.
        """
        if self.name is not None and true_of(self.name):
            return True
        begin = 0 if self.name is None else bisect_left(names, self.name)
        for index in range(len(names)):
            name = names[(begin + index) % len(names)]
            if true_of(name):
                self.name = name
                return True
        self.name = None
        return False


@dataclass(slots=True)
class Members:
    """All peers that are known.

    `changed` holds the learners that the index and the pace have yet to take in, `touched` those of
    the event being handled, and `witnesses` those of `any`. `absent` says since when an
    incarnation with an open account is neither linked nor in the supervisor's `view`. `wrongs`
    holds, by name, the times of what no honest learner does, `donations` those at which it was
    given a donor (`sessions.py`), and `departed` what observers without a link were sent. `levels`
    are the precisions that pulls may name.
    """

    levels: Sequence[Level]
    learners: dict[LearnerName, LearnerRecord] = field(default_factory=dict)
    index: LearnerIndex = field(default_factory=LearnerIndex)
    witnesses: dict[str, Witness] = field(default_factory=dict)
    changed: dict[LearnerName, None] = field(default_factory=dict)
    touched: dict[LearnerName, None] = field(default_factory=dict)
    view: SupervisorView = field(default_factory=SupervisorView)
    absent: dict[LearnerName, float] = field(default_factory=dict)
    wrongs: dict[LearnerName, list[float]] = field(default_factory=dict)
    donations: dict[LearnerName, list[float]] = field(default_factory=dict)
    departed: dict[LearnerName, tuple[Incarnation, dict[int, Sent]]] = field(default_factory=dict)
    changes: int = 0

    def add(self, learner: LearnerRecord) -> None:
        self.learners[learner.name] = learner
        incarnation, sent = self.departed.pop(learner.name, (None, learner.sent))
        if incarnation == learner.incarnation:
            learner.sent = sent

    def remove(self, name: LearnerName) -> LearnerRecord:
        """Forget a learner; of the last observers it stays known what they were sent."""
        learner = self.learners.pop(name)
        self.touch(name)
        if learner.role is not Role.LEARNER:
            self.departed.pop(name, None)
            self.departed[name] = learner.incarnation, learner.sent
            if len(self.departed) > OBSERVERS_KEPT:
                del self.departed[next(iter(self.departed))]
        return learner

    def begin_event(self) -> None:
        self.touched.clear()

    def touch(self, name: LearnerName) -> None:
        self.changed[name] = None
        self.touched[name] = None
        self.changes += 1

    def asked(self, name: LearnerName) -> None:
        """Mark a learner that was asked: it may be busy now."""
        self.changed[name] = None

    def update_next(self) -> tuple[LearnerName, LearnerRecord | None]:
        name, _ = self.changed.popitem()
        learner = self.learners.get(name)
        self.index.update(name, learner)
        return name, learner

    def any(self, what: str, true_of: Callable[[LearnerRecord], bool]) -> bool:
        """Return whether a condition is true of any peer; `what` is its unique name."""

        def known(name: LearnerName) -> bool:
            learner = self.learners.get(name)
            return learner is not None and true_of(learner)

        return self.witnesses.setdefault(what, Witness()).match(self.index.names, known)

    def away_s(self, name: LearnerName, now_s: float) -> float:
        """Return for how long an incarnation has been absent, beginning with this call."""
        return now_s - self.absent.setdefault(name, now_s)

    def present(self, name: LearnerName) -> None:
        self.absent.pop(name, None)

    def wrong_again(self, name: LearnerName, now_s: float) -> bool:
        """Count what no honest learner does; True if its sender is to be refused for good."""
        recent = _recent(self.wrongs, now_s)
        times_s = [*recent.pop(name, ()), now_s]
        self.wrongs = {**recent, name: times_s} if len(times_s) < WRONGS_MAX else recent
        return len(times_s) >= WRONGS_MAX

    def may_have_donor(self, name: LearnerName, now_s: float) -> bool:
        self.donations = _recent(self.donations, now_s)
        times_s = self.donations.setdefault(name, [])
        if len(times_s) >= DONATIONS_MAX:
            return False
        times_s.append(now_s)
        return True


def _recent(
    times_s: dict[LearnerName, list[float]], now_s: float
) -> dict[LearnerName, list[float]]:
    """Return the times within `WRONG_WINDOW_S`, without the names that have none."""
    return {
        name: recent
        for name, each in times_s.items()
        if (recent := [at_s for at_s in each if now_s - at_s < WRONG_WINDOW_S])
    }
