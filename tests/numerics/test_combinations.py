"""Every combination of merge, outer step and adoption trains.

Four learners pull a value to optima of their own, with noise. Each goes on while its contribution
travels, and one of them misses every second update, so that adoption and anchor matter.
"""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.layout.leaves import Unit
from islands.numerics.contributions import rebase
from islands.numerics.increment import quantised
from islands.numerics.merge import averaged
from islands.numerics.norms import measure
from islands.numerics.outer import merge_with, outer_optimizer
from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import (
    Adoption,
    MergeRule,
    Precision,
    UpdatePrecision,
)
from islands.protocol.settings.outer import DELAYED_NESTEROV, OPTAX, SGD, OuterSettings
from islands.protocol.settings.run import RunSettings

Flat = NDArray[np.float32]

SIZE, LEARNERS, ROUNDS = 160, 4, 40
UNITS = (Unit(0, 40, "average"), Unit(40, 120, "rda"))
OUTER = {
    SGD: OuterSettings(0.7, 0.5),
    DELAYED_NESTEROV: OuterSettings(0.9, 0.5, optimizer="delayed_nesterov", delay_merges=3),
    OPTAX: OuterSettings(0.05, optimizer="adam"),
}
ALL = list(itertools.product(OUTER, MergeRule, Adoption))


def ended(kind: str, merge: MergeRule, adoption: Adoption, updates: UpdatePrecision) -> float:
    """Distance of Θ from the mean of the optima after the last round, as share of the first."""
    settings = RunSettings(merge=merge, adoption=adoption, outer=OUTER[kind])
    rng = np.random.default_rng(0)
    units = averaged(UNITS) if merge is MergeRule.AVERAGE else UNITS
    optima = (1 + 0.3 * rng.standard_normal((LEARNERS, SIZE))).astype(np.float32)
    optimizer = outer_optimizer(settings.outer)
    value = np.zeros(SIZE, np.float32)
    state = optimizer.init(value)
    local, base = [value] * LEARNERS, [value] * LEARNERS
    left: Flat | None = None
    for round_ in range(ROUNDS):
        sent = [trained(x, optimum, 4, rng) for x, optimum in zip(local, optima, strict=True)]
        found = [rebase(b - x, b, value) for b, x in zip(base, sent, strict=True)]
        local = [trained(x, optimum, 2, rng) for x, optimum in zip(sent, optima, strict=True)]
        measured = [measure(delta, units) for delta in found]
        step = merge_with(optimizer, value, state, measured, [1.0] * LEARNERS, units)
        exact, state = step.value, step.state
        if updates.of_increments:
            made = quantised(value, exact, left, Precision(updates))
            exact, left = made.value, made.remainder
        value = exact
        for place in range(LEARNERS - round_ % 2):
            carried = local[place] + (value - sent[place])
            local[place] = value if adoption is Adoption.OVERWRITE else carried
            base[place] = value
    middle = optima.mean(axis=0)
    return float(np.linalg.norm(value - middle) / np.linalg.norm(middle))


def trained(local: Flat, optimum: Flat, steps: int, rng: np.random.Generator) -> Flat:
    for _ in range(steps):
        noise = 0.3 * rng.standard_normal(SIZE).astype(np.float32)
        local = (local - np.float32(0.1) * (local - optimum + noise)).astype(np.float32)
    return local


@pytest.mark.parametrize("updates", [UpdatePrecision.FLOAT32, UpdatePrecision.FP4])
@pytest.mark.parametrize(("kind", "merge", "adoption"), ALL)
def test_every_combination_trains(
    kind: str, merge: MergeRule, adoption: Adoption, updates: UpdatePrecision
) -> None:
    assert ended(kind, merge, adoption, updates) < 0.2


@pytest.mark.parametrize("adoption", [Adoption.OVERWRITE, Adoption.DELAY_CORRECTED])
def test_a_sparse_contribution_goes_with_what_keeps_the_rest(adoption: Adoption) -> None:
    assert RunSettings(precision=Precision.TOP_K, adoption=adoption).feeds_back


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"error_feedback": False}, "and error_feedback is false, so what is not among"),
        ({"adoption": Adoption.MIX}, "and adoption is mix, .* use overwrite or delay_corrected"),
    ],
)
def test_a_sparse_contribution_is_refused_where_the_rest_is_lost(
    changes: dict[str, object], why: str
) -> None:
    """Else most of the work would never be sent."""
    with pytest.raises(SettingsError, match=f"precision is top_k, {why}"):
        RunSettings(precision=Precision.TOP_K, **changes)  # type: ignore[arg-type]
