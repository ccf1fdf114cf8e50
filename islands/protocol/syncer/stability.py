"""The longest outer step that does not make a run swing about its optimum for ever.

Where a direction saturates (learners reach its optimum within H steps, wherever they began), a
contribution is the distance x to that optimum. The merge makes s·x of it, and the outer step is

    v ← μv + s·x;    x ← x − η(s·x + μv)    with look-ahead, x ← x − ηv without.

Both eigenvalues of this map lie inside the unit circle only for

    η·s < (2 + 2μ) / (1 + 2μ)    with look-ahead,    η·s < 2 + 2μ    without.

An average has the gain s = 1. RDA keeps the mean length of its contributions in the direction of
their average, so s grows with their disagreement, up to √M for M of equal weight (the cap of
`islands.numerics.merge`). All this is about SGD whose momentum is never taken away.
"""

from math import floor, log10, sqrt

from islands.protocol.settings.choices import MergeRule
from islands.protocol.settings.outer import SGD, OuterSettings

MARGIN = 0.9
"""Fraction of the limit that is advised, so that a swing dies away."""


def gain_max(merge: MergeRule, contributions: int) -> float:
    """Return the largest s: the merged direction's length as a multiple of the average's."""
    return sqrt(max(1, contributions)) if merge.keeps_length else 1.0


def step_limit(outer: OuterSettings) -> float:
    """Return the limit that η·s must stay below for the outer step to be stable."""
    limit = 2 + 2 * outer.momentum
    return limit / (1 + 2 * outer.momentum) if outer.nesterov else limit


def learning_rate_max(outer: OuterSettings, merge: MergeRule, contributions: int) -> float:
    """Return the η up to which no merge of so many contributions exceeds the limit, at this μ."""
    return step_limit(outer) / gain_max(merge, contributions)


def overlong_because(outer: OuterSettings, merge: MergeRule, contributions: int) -> str | None:
    """Say why an SGD step may be too long, and what to set; None if none can be."""
    if outer.kind != SGD:
        return None
    if outer.learning_rate < learning_rate_max(outer, merge, contributions):
        return None
    gain = gain_max(merge, contributions)
    longer = f", and a merge of {contributions} can be {gain:.3g} times as long as an average"
    return (
        f"outer.learning_rate is {outer.learning_rate:g} with momentum {outer.momentum:g}"
        f"{longer if gain > 1 else ''}: directions that settle within interval_steps may swing "
        f"for ever; {shorter_step(outer, merge, contributions)}"
    )


def shorter_step(outer: OuterSettings, merge: MergeRule, contributions: int) -> str:
    """Say what to set so that a swing of so many contributions halves in about three merges."""
    plain = OuterSettings(learning_rate=1.0, momentum=0.0)
    most = min(1.0, MARGIN * learning_rate_max(plain, merge, contributions))
    within = not outer.momentum and outer.learning_rate <= most
    shorter = outer.learning_rate / 2 if within else most
    momentum = "outer.momentum to 0 and " * (outer.momentum > 0)
    other = ", or merge to average" * merge.keeps_length
    return f"set {momentum}outer.learning_rate to {_rounded_down(shorter):.2g} or less{other}"


def _rounded_down(value: float) -> float:
    """Round a number down to two significant digits."""
    unit: float = 10.0 ** (floor(log10(value)) - 1)
    return floor(value / unit * (1 + 1e-9)) * unit  # 0.9 is 0.9, and not just below
