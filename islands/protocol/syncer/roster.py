"""What the syncer knows of one learner."""

from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation, LearnerName, Phase, Role, Status, Version
from islands.protocol.messages.training import FragmentProgress, Kept, Progress
from islands.protocol.syncer.plausibility import Answers, ReportedTotals, SeenSteps, granted_step_s
from islands.protocol.syncer.timeouts import Exchange, doubled_s

STRIKES_MAX = 3
STRIKE_WINDOW_S = 600.0
LINKS_FREE = 4
"""New links over which one version is sent again at once; after that the wait doubles."""


@dataclass(slots=True)
class Sent:
    """The version of a fragment that was sent last; `times` counts how often over the newest link.

    `first_s` is when it was sent first over that link, `at_s` when it was sent last, and `links`
    counts the links that were opened since it was first sent.
    """

    version: Version
    at_s: float
    first_s: float
    times: int = 1
    links: int = 0

    def due_s(self, interval_s: float) -> float:
        """Return when to send it again: over a narrow link it may be under way for long.

        Over a new link it is sent at once, as it may be lost with the one before, but not each time
        to whoever opens one link after another.
        """
        again = max(0, self.links - LINKS_FREE)
        if not self.times and not again:
            return self.at_s
        return self.at_s + doubled_s(interval_s, max(0, self.times - 1) + again)


@dataclass(slots=True)
class Standing:
    """Since when an account shows no work: its tokens, and what its learner reports to hold."""

    tokens: int
    told: tuple[FragmentProgress, ...] | None
    since_s: float


@dataclass(slots=True)
class LearnerRecord:
    """The record of one incarnation. `connection` is its link's number; None while that is down.

    `stepped_s` is when it last reported steps, or opened its link; `step_s` is how long a step
    takes, as far as that can be believed, 0 while it is unknown, and `seen` what this syncer's own
    clock shows of it. `paced_steps` is the step of it
    that was last taken in as one of the pace-setting learner. `turn_steps` is the H that it is
    told, where learners open rounds, and `asking` has the fragments for which its newest report
    asks for one, less those for which one was opened since. `still` says that it has stood still
    for long (`standing.py`), and `donor` is the one whose moments it may ask for
    (`state_donors.py`). `kept` are the values that it still has from before this incarnation, by
    fragment; empty unless it has one of each.
    """

    name: LearnerName
    role: Role
    incarnation: Incarnation
    progress: Progress
    connection: int | None
    status: Status = Status.LIVE
    unanswered: dict[int, float] = field(default_factory=dict)
    answers: Answers = field(default_factory=Answers)
    marks: ReportedTotals = field(default_factory=ReportedTotals)
    sent: dict[int, Sent] = field(default_factory=dict)
    strikes: list[float] = field(default_factory=list)
    quarantined: bool = False
    seeds_refused: int = 0
    whole: bool = False
    stepped_s: float = 0.0
    step_s: float = 0.0
    seen: SeenSteps = field(default_factory=SeenSteps)
    paced_steps: int = 0
    turn_steps: int = 0
    asking: set[int] = field(default_factory=set)
    still: bool = False
    donor: LearnerName | None = None
    exchange: Exchange = field(default_factory=Exchange)
    kept: tuple[Kept, ...] = ()

    def __post_init__(self) -> None:
        """Take in the first report."""
        self.report(self.progress)

    def report(self, progress: Progress) -> None:
        """Take in a report; `whole` tells whether it holds a version of every fragment.

        An incarnation never goes back to lacking one.
        """
        self.progress = progress
        self.asking = {one for one in progress.due if 0 <= one < len(progress.fragments)}
        self.marks.add(progress.steps, progress.tokens)
        self.whole = self.whole or all(told.version is not None for told in progress.fragments)

    @property
    def phase(self) -> Phase:
        """The phase that it reported last."""
        return self.progress.phase

    @property
    def granted_step_s(self) -> float:
        """How long a step takes at least, as far as tokens are granted for it; 0 if unknown."""
        return granted_step_s(self.progress.step_time_s, self.seen.step_s)

    @property
    def reads(self) -> bool:
        """Whether it is given data and tokens: its batch is known, and its work may be applied."""
        return self.progress.batch_tokens > 0 and not self.quarantined

    @property
    def shares(self) -> bool:
        """Whether a part of the budget is left for it: it has not ended, and reads, or will."""
        return self.role is Role.LEARNER and not self.quarantined and not self.status.ended

    @property
    def reachable(self) -> bool:
        """Whether its link to this syncer is up and the supervisor has not ended it."""
        return self.connection is not None and not self.status.ended

    @property
    def adopting(self) -> bool:
        """Whether to send it updates: while it compiles, they would only pile up."""
        return self.reachable and self.phase not in (Phase.JOINING, Phase.COMPILING)

    def holds(self, fragment: int) -> Version | None:
        """Return the version of a fragment that it reported as its base."""
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

    def may_be_sent(
        self, fragment: int, version: Version, *, now_s: float, interval_s: float
    ) -> bool:
        """Return whether a version may be sent now: it is a newer one, or that is due again."""
        before = self.sent.get(fragment)
        other = before is None or before.version != version
        return other or (before is not None and now_s >= before.due_s(interval_s))

    def opened(self) -> None:
        """Note that it opened another link: what was sent over the one before may be lost."""
        for sent in self.sent.values():
            sent.times, sent.links = 0, sent.links + 1

    def strike(self, now_s: float) -> bool:
        """Count a strike; True if this one quarantines the learner."""
        recent = [at_s for at_s in self.strikes if now_s - at_s < STRIKE_WINDOW_S]
        self.strikes = [*recent, now_s]
        newly = len(self.strikes) >= STRIKES_MAX and not self.quarantined
        self.quarantined = self.quarantined or newly
        return newly
