"""An oracle over whole runs whose updates are increments: what is published, and what is left.

The outer step is recomputed in float64 from what crossed the network (`rules.py`), and what it and
the increments before have left is encoded by hand. In the middle of the run the syncer is killed.
"""

from collections import defaultdict
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.protocol.settings.choices import Precision, UpdatePrecision
from tests.numerics.test_block_codecs import by_hand
from tests.oracle.rules import Replay, Rules
from tests.oracle.run import SETTINGS, Case, play

pytestmark = pytest.mark.parametrize("precision", [UpdatePrecision.INT8, UpdatePrecision.FP4])


@cache
def replay(precision: UpdatePrecision) -> Replay:
    """The run by increments, played once."""
    return Replay(play(Case(precision, replace(SETTINGS, update_precision=precision))))


def equal(precision: UpdatePrecision, *, leaves: bool = True) -> list[float]:
    """Of each version, the fraction of elements that are what the rule says."""
    run = replay(precision)
    left: dict[int, NDArray[np.float64]] = defaultdict(lambda: np.zeros(()))
    found = []
    for merge, exact in run.stepped(Rules.of(run.run.settings)):
        values = run.values[merge.fragment]
        before, published = values[merge.before], values[merge.number]
        change = exact - before + (left[merge.fragment] if leaves else 0.0)
        made = before + by_hand(change.astype(np.float32), Precision(precision))
        found.append(float(np.mean(np.isclose(made, published, rtol=1e-6, atol=1e-7))))
        left[merge.fragment] = left[merge.fragment] + exact - published
    return found


def test_every_increment_is_of_the_step_and_of_what_was_left(precision: UpdatePrecision) -> None:
    """Without what was left, most increments would be others."""
    found = equal(precision)
    assert len(found) >= 30
    assert min(found) > 0.97
    assert np.mean(equal(precision, leaves=False)) < 0.9


def test_what_is_left_does_not_grow(precision: UpdatePrecision) -> None:
    run = replay(precision)
    steps = [
        float(np.linalg.norm(exact - run.values[merge.fragment][merge.before]))
        for merge, exact in run.stepped(Rules.of(run.run.settings))
    ]
    lines = run.run.lines("merged")
    norms = [line["remainder_norm"] for line in lines]
    assert all(isinstance(norm, float) and 0 < norm < 0.5 * max(steps) for norm in norms)
    assert all(isinstance(line["increment_bytes"], int) for line in lines)
