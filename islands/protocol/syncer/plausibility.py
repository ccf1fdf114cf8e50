"""Checks of the numbers that a learner claims, of repeated answers, and of norms.

A peer's number enters a weight, a pace, a timeout or a grant only within bounds that the syncer
knows itself:

======================  ========================================================================
number                  bound
======================  ========================================================================
tokens                  of an incarnation: what it was granted; of a contribution: what was
                        processed, and not yet applied or discarded (`ledger.py`)
steps of a report       at least one token each, and at least one where there are tokens
steps since a base      at least 0, and at least one token each
steps of a contribution what its sender reported around that boundary, less what it reported when
                        it adopted the base (`wrong_steps`)
step time               twice what this syncer's clock has seen for a step, and a heartbeat
                        (`believed_step_s`)
tokens of a batch       `BATCHES_DIFFER` times the learner's own mean (`believed_batch`); before its
                        first step it gets no more of the remaining budget than others (`leases.py`)
credits of the pace     one round and one report (`rounds.py`)
repeated answers        `COPIES_MAX` over one link (`Answers`)
======================  ========================================================================

Two things stay a matter of trust: numbers that are all invented so that they agree with each other,
and that a step does not take longer than is claimed.

Norms are clipped and never refused (protocol §6). They are divided by √steps × learning rate, not
by steps × learning rate: local progress grows between √steps (noise) and steps (drift), so the
latter makes the rate of a learner with one step up to √H times that of the others, and would clip
an honest learner for H > 100.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from statistics import median

from islands.protocol.messages.training import Contribution, Progress

BATCHES_DIFFER = 4
"""The mean batch of a contribution differs from its learner's mean by less than this factor."""

MARKS_KEPT = 32
"""Reports that are kept per learner, to check the steps of its contributions."""

COPIES_MAX = 2
"""An answer is sent once over each link, and a link may deliver it twice."""

ANSWERS_KEPT = 64
"""Tickets that are kept per learner, to recognize repeated answers."""

STEP_TIME_SLACK = 2.0
"""A step may be this many times longer than the mean step between two reports."""


@dataclass(frozen=True, slots=True)
class Check:
    """Measurements of a payload by a worker, without any judgement.

    `flaw` says what is wrong where the length is right and the payload cannot be decoded. `norm` is
    the Euclidean norm of the contribution in float32 units; it is not finite if any value is not.
    """

    schema_ok: bool
    digest_ok: bool
    finite: bool
    norm: float
    flaw: str = ""


@dataclass(slots=True)
class ReportedTotals:
    """Totals (steps, tokens) of one incarnation at its newest reports; it began with none."""

    kept: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=MARKS_KEPT))

    def add(self, steps: int, tokens: int) -> None:
        if not self.kept or self.kept[-1] != (steps, tokens):
            self.kept.append((steps, tokens))

    def steps_at(self, tokens: int) -> tuple[int, int]:
        """Return the fewest and the most steps in so many tokens: each step has at least one."""
        before = max((mark for mark in self.kept if mark[1] <= tokens), default=(0, 0))
        after = min((mark for mark in self.kept if mark[1] >= tokens), default=None)
        least = before[0] + (before[1] < tokens)
        most = before[0] + tokens - before[1]
        if after is not None:
            most = min(most, after[0] - (after[1] > tokens))
        return least, most


@dataclass(slots=True)
class Answers:
    """The newest tickets that a learner answered, each with its last link and copies over that.

    Another answer to the same ticket is a duplicate, over whatever link it comes. Only several
    copies over one link can be a fault of their sender.
    """

    given: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def count(self, epoch: int, round_: int, connection: int) -> int:
        """Count an answer; return how many copies of it have come over this link."""
        key = epoch, round_
        before, copies = self.given.get(key, (connection, 0))
        copies = copies + 1 if before == connection else 1
        self.given[key] = connection, copies
        if len(self.given) > ANSWERS_KEPT:
            del self.given[min(self.given)]
        return copies

    def has(self, epoch: int, round_: int) -> bool:
        return (epoch, round_) in self.given


def news_of(before: Progress | None, report: Progress) -> list[int]:
    """Return the fragments for which a report differs from the last one of its incarnation."""
    if before is None:
        return list(range(len(report.fragments)))
    pairs = zip(before.fragments, report.fragments, strict=True)
    return [index for index, (held, now) in enumerate(pairs) if held is not now and held != now]


def wrong_report(before: Progress | None, report: Progress, news: Iterable[int]) -> str | None:
    """Return why the counts of a report cannot be true; None if they can."""
    if min(report.steps, report.tokens, report.batch_tokens) < 0:
        return "a count below 0"
    steps, tokens = report.steps, report.tokens
    if before is not None:
        steps, tokens = steps - before.steps, tokens - before.tokens
    if steps > tokens or (tokens > 0 and steps < 1):
        return f"{steps} steps of {tokens} tokens"
    for index in news:
        one = report.fragments[index]
        if min(one.base_steps, one.settled_tokens, one.overwritten_tokens) < 0:
            return f"fragment {index} has a count below 0"
        steps, tokens = report.steps - one.base_steps, report.tokens - one.settled_tokens
        if not 0 <= steps <= tokens:
            return f"fragment {index} has {steps} steps of {tokens} tokens since its base"
    return None


def age_steps(contribution: Contribution, report: Progress) -> float:
    later = report.tokens - contribution.processed_tokens
    return max(0.0, report.steps * later / report.tokens) if report.tokens > 0 else 0.0


def wrong_steps(contribution: Contribution, report: Progress, marks: ReportedTotals) -> str | None:
    """Return why the steps of a contribution cannot be true, by its sender's newest reports."""
    steps, tokens = contribution.steps, contribution.tokens
    if not 1 <= steps <= tokens:
        return f"{steps} steps of {tokens} tokens"
    mean_steps, mean_tokens = (
        (report.steps, report.tokens) if report.steps else (1, report.batch_tokens)
    )
    spread = BATCHES_DIFFER
    few = steps * spread * mean_tokens < tokens * mean_steps
    many = (steps - 1) * mean_tokens > spread * tokens * mean_steps
    if mean_tokens > 0 and (few or many):
        return f"{steps} steps of {tokens} tokens, its others have {mean_tokens / mean_steps:.0f}"
    held = report.fragments[contribution.fragment]
    if held.version != contribution.base:
        return None
    least, most = marks.steps_at(contribution.processed_tokens)
    least, most = least - held.base_steps, most - held.base_steps
    if not least <= steps <= most:
        return f"{steps} steps since its base, not {least} to {most}"
    return None


def believed_step_s(claimed_s: float, *, steps: int, elapsed_s: float, slack_s: float) -> float:
    """Return a claimed step time, limited by what this syncer's clock saw between reports."""
    return min(claimed_s, STEP_TIME_SLACK * elapsed_s / max(1, steps) + slack_s)


def believed_batch(report: Progress) -> int:
    """Return a learner's claimed tokens per batch, limited by what its own steps bear out."""
    if report.steps < 1:
        return report.batch_tokens
    return min(report.batch_tokens, max(1, BATCHES_DIFFER * report.tokens // report.steps))


NORM_SAMPLES_MIN = 8
"""Norms that must have been merged before any is clipped."""

NORMS_KEPT = 8

NORM_LEARNERS_KEPT = 64
"""Newest norms per learner, and number of learners (the last contributors), that are kept."""

LATELY = 16
"""Newest contributions to a fragment, which show whether the regime has changed."""


class NormGauge:
    """The usual norm/(√steps·learning rate) of one fragment, estimated from what was merged.

    Each learner has one voice in it, however often it answers: so one liar of three or more moves
    it little, and one alone in its rounds never. `limit` is the largest allowed multiple of it.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._rates: dict[str, tuple[float, ...]] = {}  # newest ones; the last contributor at last
        self._medians: dict[str, float] = {}
        self._lately: list[tuple[str, bool]] = []  # who contributed, and whether it was too long

    @property
    def usual(self) -> float:
        """The median over learners of each one's own; 0 until enough is known."""
        known = sum(len(rates) for rates in self._rates.values())
        return median(self._medians.values()) if known >= NORM_SAMPLES_MIN else 0.0

    @property
    def known(self) -> tuple[int, int]:
        """The number of learners and the number of contributions that are remembered."""
        return len(self._rates), len(self._lately)

    def scales(self, rates: Mapping[str, float]) -> dict[str, float]:
        """Return the factor that clips each contribution of a round, by its rate; 1 leaves it."""
        allowed = self._limit * self.usual or inf
        self._lately += [(name, rate > allowed) for name, rate in rates.items()]
        del self._lately[: -max(LATELY, len(rates))]
        return {name: 1.0 if rate <= allowed else allowed / rate for name, rate in rates.items()}

    def merged(self, name: str, rate: float, scale: float = 1.0) -> None:
        exceeds = dict(self._lately).values()
        if scale < 1 and 2 * sum(exceeds) <= len(exceeds):
            return
        rate *= scale
        rates = (*self._rates.pop(name, ()), rate)[-NORMS_KEPT:]
        self._rates[name], self._medians[name] = rates, median(rates)
        if len(self._rates) > NORM_LEARNERS_KEPT:
            first = next(iter(self._rates))
            del self._rates[first], self._medians[first]
