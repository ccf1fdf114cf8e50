"""Whether a contribution that arrived is admitted to its round, and if not, why.

The checks of SPEC §6, in this order; the first that fails decides:

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

The norm is judged last, in `excessive`, when the round closes: if half of a round exceeds the
limit, the regime has changed; then contributions are scaled down to the limit, not refused.

Deviation: SPEC §6 divides the norm by steps × learning rate. Local progress grows between √steps
(noise) and steps (drift), so that rate of a learner with one step (slow, or just back) is up to
√H times the others' and an honest learner is refused for H > 100. Dividing by √steps instead never
makes few steps look large, and a contribution with 1000 times its norm is as visible.
"""

from collections import deque
from dataclasses import dataclass
from statistics import median

from islands.identities import Fate

NORM_SAMPLES_MIN = 8
NORM_SAMPLES_KEPT = 64


@dataclass(frozen=True, slots=True)
class Check:
    """What the actor measured on the payload: facts, no judgement.

    `norm` is the Euclidean norm of the contribution in float32 units; it is not finite if any
    value is not.
    """

    schema_ok: bool
    digest_ok: bool
    finite: bool
    norm: float


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
    """The first failing check of the table above, less the norm; None admits.

    Args:
        check: what was measured on the payload.
        untrue: why its steps or tokens cannot be true (`claims.py`), if they cannot.
        fenced: why nothing of its sender is taken, if so.
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
        return Refusal(Fate.REJECTED, "schema", strike=True)
    if not check.digest_ok:
        return Refusal(Fate.REJECTED, "digest", strike=True)
    if not check.finite:
        return Refusal(Fate.REJECTED, "not finite", strike=True)
    return None


class NormGauge:
    """Running median of norm/(√steps·learning rate) of one fragment; every finite norm enters."""

    def __init__(self, limit: float) -> None:
        """Judge by `limit` times the median."""
        self._limit = limit
        self._samples: deque[float] = deque(maxlen=NORM_SAMPLES_KEPT)

    def excess(self, rate: float) -> float:
        """How many times over the limit a rate is; at most 1 is fine. Then take it in."""
        allowed = self._limit * median(self._samples) if self._samples else 0.0
        known = len(self._samples) >= NORM_SAMPLES_MIN
        self._samples.append(rate)
        return rate / allowed if known and allowed > 0 else 0.0


def excessive(excesses: dict[str, float]) -> tuple[list[str], dict[str, float]]:
    """Judge the norms of a closing round.

    Args:
        excesses: per contributor, how many times over the limit its norm is (at most 1 is fine).

    Returns:
        The contributors to refuse, and the factor by which to scale each other one.
    """
    over = [name for name, excess in excesses.items() if excess > 1]
    if 2 * len(over) >= len(excesses):
        return [], {name: 1 / max(1.0, excess) for name, excess in excesses.items()}
    return over, {name: 1.0 for name in excesses if name not in over}
