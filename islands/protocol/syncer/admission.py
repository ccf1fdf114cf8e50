"""Admission: whether a contribution that arrived enters its round, and if not, why.

The fate of its tokens is counted in `ledger.py`.

The checks of protocol §6, in this order; the first that fails decides:

=====================================  =========  ======
what is wrong                          fate       strike
=====================================  =========  ======
its sender is quarantined or fenced    rejected   no
its ticket is not open any more        late       no
its base is unknown or too old         stale      no
its steps or tokens cannot be true     rejected   yes
schema, length or element type         rejected   yes
digest                                 rejected   yes
not finite                             rejected   yes
norm per step, when its round closes   rejected   yes
=====================================  =========  ======

The norm is judged last, by `NormGauge.judge`, when the round closes. It is compared with the median
over learners of each one's own median, so that each has one voice, however often it answers. If
more than half of those that contributed lately exceed the limit, the regime has changed; then
contributions are scaled down to the limit, not refused. Only what was merged enters the medians, as
it was scaled: a refused norm changes nothing.

A contribution that is alone in its round is scaled down to the limit, too, unless it exceeds the
limit by that same factor once more. Where each contribution is an outer step of its own, an honest
learner's norm outruns the medians: its base is several outer steps old, and while the values swing
about their optimum, ever wider, no two norms are alike. Were it refused, it would carry its work
on, offer √k times as much after k turns, and be refused again, until it is quarantined. Scaled, it
moves the values by no more than a contribution just within the limit, which passes anyway.

Deviation: protocol §6 lets every finite norm enter the medians, and clips if half of a round
exceeds. So one contributor of two, or one alone in its round, was never refused however long it
was, and its norms entered until they passed unclipped. If two learners drift apart slowly, nobody
can tell which one is right; among three a liar is alone.

Deviation: protocol §6 divides the norm by steps × learning rate. Local progress grows between
√steps (noise) and steps (drift), so the rate of a learner with one step (slow, or just back) is up
to √H times that of the others, and an honest learner is refused for H > 100. Dividing by √steps
instead never makes few steps look large, and a contribution with 1000 times its norm stands out as
clearly.
"""

from dataclasses import dataclass
from statistics import median

from islands.protocol.identities import Fate

NORM_SAMPLES_MIN = 8
"""Norms that must have been merged before any is refused."""

NORMS_KEPT = 8
NORM_LEARNERS_KEPT = 64
"""Newest norms per learner, and number of learners (the last contributors), that are kept."""

LATELY = 16
"""Newest contributions to a fragment, which show whether the regime has changed."""


@dataclass(frozen=True, slots=True)
class Check:
    """What a worker measured on the payload, without any judgement.

    `flaw` says what is wrong where the length is right and the payload cannot be decoded. `norm` is
    the Euclidean norm of the contribution in float32 units; it is not finite if any value is not.
    """

    schema_ok: bool
    digest_ok: bool
    finite: bool
    norm: float
    flaw: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a contribution is not admitted."""

    fate: Fate
    reason: str
    strike: bool


def refusal(
    check: Check,
    *,
    untrue: str | None,
    fenced: str | None,
    ticket_open: bool,
    stale: str | None,
) -> Refusal | None:
    """Return the first failing check of the table above except the norm; None admits.

    Args:
        check: what was measured on the payload.
        untrue: why its steps or tokens cannot be true (`plausibility.py`), if they cannot.
        fenced: why nothing is accepted from its sender, if that is so.
        ticket_open: whether its round asked for it and still collects.
        stale: why its base is too old, if it is.
    """
    if fenced is not None:
        return Refusal(Fate.REJECTED, fenced, strike=False)
    if not ticket_open:
        return Refusal(Fate.LATE, "the round has closed", strike=False)
    if stale is not None:
        return Refusal(Fate.STALE, stale, strike=False)
    if untrue is not None:
        return Refusal(Fate.REJECTED, untrue, strike=True)
    if not check.schema_ok:
        return Refusal(Fate.REJECTED, check.flaw or "schema", strike=True)
    if not check.digest_ok:
        return Refusal(Fate.REJECTED, "digest", strike=True)
    if not check.finite:
        return Refusal(Fate.REJECTED, "not finite", strike=True)
    return None


@dataclass(frozen=True, slots=True)
class Judgement:
    """By contributor: the multiple of the limit of those to refuse, the scale of the others."""

    refused: dict[str, float]
    scales: dict[str, float]


class NormGauge:
    """The usual norm/(√steps·learning rate) of one fragment, estimated from what was merged.

    Args:
        limit: the largest allowed multiple of the usual rate.
    """

    def __init__(self, limit: float) -> None:
        """Start without samples."""
        self._limit = limit
        self._kept: dict[
            str, tuple[float, ...]
        ] = {}  # newest rates; the last contributor comes last
        self._medians: dict[str, float] = {}
        self._lately: list[tuple[str, bool]] = []  # who contributed, and whether it was too long

    @property
    def usual(self) -> float:
        """The median over learners of each one's own; 0 until enough is known."""
        known = sum(len(rates) for rates in self._kept.values())
        return median(self._medians.values()) if known >= NORM_SAMPLES_MIN else 0.0

    @property
    def known(self) -> tuple[int, int]:
        """The number of learners and the number of contributions that are remembered."""
        return len(self._kept), len(self._lately)

    def judge(self, rates: dict[str, float]) -> Judgement:
        """Judge the contributions of a closing round; one alone in it is refused if far too long.

        Args:
            rates: norm/(√steps·learning rate) of each contribution, by contributor.
        """
        allowed = self._limit * self.usual
        excesses = {name: rate / allowed if allowed > 0 else 0.0 for name, rate in rates.items()}
        over = {name: excess for name, excess in excesses.items() if excess > 1}
        self._lately += [(name, name in over) for name in excesses]
        del self._lately[: -max(LATELY, len(excesses))]
        exceeds = dict(self._lately)
        alone = len(rates) == 1 and all(excess <= self._limit for excess in over.values())
        if alone or 2 * sum(exceeds.values()) > len(exceeds):
            return Judgement({}, {name: 1 / max(1.0, excess) for name, excess in excesses.items()})
        return Judgement(over, {name: 1.0 for name in excesses if name not in over})

    def merged(self, name: str, rate: float) -> None:
        """Take in the rate of a contribution that is merged, as it was scaled."""
        rates = (*self._kept.pop(name, ()), rate)[-NORMS_KEPT:]
        self._kept[name], self._medians[name] = rates, median(rates)
        if len(self._kept) > NORM_LEARNERS_KEPT:
            first = next(iter(self._kept))
            del self._kept[first], self._medians[first]
