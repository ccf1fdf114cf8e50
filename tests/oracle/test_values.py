"""An oracle over whole runs: every value that was published is what the paper's rules say.

`rules.py` recomputes each published value of a run (`run.py`) in float64. Float32 leaves an error
of about 1e-6 of a step. Each rule is also left out on purpose, and then the same run is missed by
far, so it does contain what the rule is about.
"""

from collections import defaultdict
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.protocol.settings.choices import Precision, UpdatePrecision
from islands.protocol.settings.outer import OuterSettings
from tests.numerics.test_block_codecs import by_hand
from tests.oracle.cases import CASES, replay
from tests.oracle.rules import Replay, Rules
from tests.oracle.run import SETTINGS, Case, play

EXACT = 1e-5
MISSED = 1e-3

LEFT_OUT: dict[str, dict[str, object]] = {
    "plain-average": {"merge": "average"},
    "weights-by-tokens": {"weighting": "tokens"},
    "equal-weights": {"weighting": "uniform"},
    "weights-of-others": {"weights_reversed": True},
    "no-look-ahead": {"outer": replace(SETTINGS.outer, nesterov=False)},
    "not-rebased": {"rebases": False},
    "momentum-forgotten": {"forget_momentum": "always"},
    "momentum-forgotten-at-the-restart": {"forget_momentum": "at a restart"},
}
OTHERWISE: list[tuple[str, dict[str, object]]] = [
    ("average", {"merge": "rda"}),
    ("weights-are-tokens", {"weighting": "tokens_squared_per_step"}),
    ("weights-are-equal", {"weighting": "tokens_squared_per_step"}),
    ("no-momentum", {"outer": OuterSettings(learning_rate=1.0, momentum=0.9)}),
    ("no-look-ahead", {"outer": OuterSettings(learning_rate=0.7, momentum=0.6)}),
    ("delayed-nesterov", {"outer": OuterSettings()}),
    ("delayed-nesterov", {"forget_momentum": "at a restart"}),
    ("adam", {"forget_momentum": "at a restart"}),
    ("clipped", {"clip": False}),
]


def missed(name: str, **changes: object) -> float:
    """The largest relative error of a step, by the run's own rules or by changed ones."""
    run = replay(name)
    return max(run.errors(Rules.of(CASES[name].settings).but(**changes)))


@pytest.mark.parametrize("name", CASES)
def test_every_published_value_is_recomputed(name: str) -> None:
    run = replay(name)
    errors = run.errors(Rules.of(CASES[name].settings))
    assert len(errors) >= 30
    assert len(errors) == sum(len(values) - 1 for values in run.values.values())
    assert max(errors) < EXACT


@pytest.mark.parametrize("name", ["quorum-1", "quorum-2"])
@pytest.mark.parametrize("rule", LEFT_OUT)
def test_a_rule_that_is_left_out_is_missed(name: str, rule: str) -> None:
    assert missed(name, **LEFT_OUT[rule]) > MISSED


@pytest.mark.parametrize(
    ("name", "changes"),
    OTHERWISE,
    ids=[f"{name} without {next(iter(rule))}" for name, rule in OTHERWISE],
)
def test_a_setting_makes_a_difference(name: str, changes: dict[str, object]) -> None:
    """What is set otherwise than by default is really done: the default is far off."""
    assert missed(name, **changes) > MISSED


@pytest.mark.parametrize("name", ["quorum-1", "quorum-2"])
def test_the_run_has_what_it_is_to_have(name: str) -> None:
    run = replay(name)
    merges = run.merges(np.inf)
    counts = {len(merge.parts) for merge in merges}
    assert counts == ({1, 2, 3} if name == "quorum-1" else {2, 3})
    older = [merge for merge in merges if any(p.base != merge.before for p in merge.parts)]
    assert len(older) >= 5
    assert len({part.tokens / part.steps for merge in merges for part in merge.parts}) == 2
    assert len(run.run.lines("duplicate")) == 2
    late = [line for line in run.run.lines("fate") if line["fate"] == "late"]
    assert len(late) >= 2
    for fragment in run.values:
        epochs = [merge.number[0] for merge in merges if merge.fragment == fragment]
        assert min(epochs.count(1), epochs.count(2)) >= 10
    cosines = [
        float(a.delta @ b.delta / np.linalg.norm(a.delta) / np.linalg.norm(b.delta))
        for a, b in (merge.parts[:2] for merge in merges if len(merge.parts) > 1)
    ]
    assert min(cosines) < 0.5


@pytest.mark.parametrize("name", ["quorum-1", "quorum-2"])
def test_an_update_names_what_it_contains_of_its_receiver(name: str) -> None:
    run = replay(name)
    merges = run.merges(np.inf)
    told = 0
    for update, crossing in run.run.tap.updates():
        number = (update.version.epoch, update.version.number)
        own = [
            (part.tokens, part.steps)
            for merge in merges
            for part in merge.parts
            if merge.fragment == update.fragment and merge.number <= number
            if part.crossing.source == crossing.target
        ]
        merged = update.merged
        assert (merged and (merged.tokens, merged.steps)) == (own[-1] if own else None)
        told += merged is not None
    assert told >= 50


INCREMENTS = [UpdatePrecision.INT8, UpdatePrecision.FP4]


@cache
def by_increments(precision: UpdatePrecision) -> Replay:
    """The run by increments, played once."""
    return Replay(play(Case(precision, replace(SETTINGS, update_precision=precision))))


def equal(precision: UpdatePrecision, *, leaves: bool = True) -> list[float]:
    """Of each version, the fraction of elements that are what the rule says."""
    run = by_increments(precision)
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


@pytest.mark.parametrize("precision", INCREMENTS)
def test_every_increment_is_of_the_step_and_of_what_was_left(precision: UpdatePrecision) -> None:
    """Without what was left, most increments would be others."""
    found = equal(precision)
    assert len(found) >= 30
    assert min(found) > 0.97
    assert np.mean(equal(precision, leaves=False)) < 0.9


@pytest.mark.parametrize("precision", INCREMENTS)
def test_what_is_left_does_not_grow(precision: UpdatePrecision) -> None:
    run = by_increments(precision)
    steps = [
        float(np.linalg.norm(exact - run.values[merge.fragment][merge.before]))
        for merge, exact in run.stepped(Rules.of(run.run.settings))
    ]
    lines = run.run.lines("merged")
    norms = [line["remainder_norm"] for line in lines]
    assert all(isinstance(norm, float) and 0 < norm < 0.5 * max(steps) for norm in norms)
    assert all(isinstance(line["increment_bytes"], int) for line in lines)
