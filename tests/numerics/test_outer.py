"""Outer optimizers: the built-in ones, optax chains by name, and their states for the journal."""

import subprocess
import sys

import numpy as np
import optax
import pytest

from islands.layout.leaves import Unit
from islands.numerics.merge import OuterState
from islands.numerics.norms import measure
from islands.numerics.optax_chain import OptaxChain
from islands.numerics.outer import (
    DelayedNesterov,
    OuterOptimizer,
    Sgd,
    merge_with,
    outer_optimizer,
    state_values,
)
from islands.protocol.errors import InvariantError, SettingsError
from islands.protocol.settings.outer import OuterSettings
from tests.numerics import oracle

UNITS = (Unit(0, 200, oracle.AVERAGE), Unit(200, 5000, oracle.RDA))
SIZE = 5200
RNG = np.random.default_rng(0)
VALUE = RNG.standard_normal(SIZE).astype(np.float32)
DELTAS = list(RNG.standard_normal((6, 3, SIZE)).astype(np.float32))
WEIGHTS = [1.0, 2.0, 4.0]
DELAYED = OuterSettings(0.7, 0.9, optimizer="delayed_nesterov", delay_merges=3)


def test_settings_describe_the_built_in_ones() -> None:
    assert outer_optimizer(OuterSettings()) == Sgd(1.0, 0.0, nesterov=True)
    assert outer_optimizer(OuterSettings(0.3, 0.2, nesterov=False)) == Sgd(0.3, 0.2, nesterov=False)
    assert outer_optimizer(DELAYED) == DelayedNesterov(0.7, 0.9, 3)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_fused_path_gives_the_bits_of_the_plain_one(momentum: float, *, nesterov: bool) -> None:
    """One contribution, so that the direction is exact: update and kernel may not differ."""
    optimizer = Sgd(0.7, momentum, nesterov)
    value, state = VALUE, optimizer.init(VALUE)
    plain_value, plain_state = VALUE, optimizer.init(VALUE)
    for deltas in DELTAS:
        step = merge_with(optimizer, value, state, [deltas[0]], [3.0], UNITS)
        plain_value, plain_state = optimizer.update(deltas[0], plain_state, plain_value)
        value, state = step.value, step.state
        np.testing.assert_array_equal(value, plain_value)
        np.testing.assert_array_equal(state["momentum"], plain_state["momentum"])


@pytest.mark.parametrize("nesterov", [True, False])
def test_optax_sgd_follows_the_built_in_optimizer(*, nesterov: bool) -> None:
    ours: OuterOptimizer = Sgd(0.7, 0.9, nesterov)
    theirs: OuterOptimizer = OptaxChain(optax.sgd(0.7, momentum=0.9, nesterov=nesterov))
    values, states = [VALUE, VALUE], [ours.init(VALUE), theirs.init(VALUE)]
    for deltas in DELTAS:
        steps = [
            merge_with(optimizer, value, state, list(deltas), WEIGHTS, UNITS)
            for optimizer, value, state in zip((ours, theirs), values, states, strict=True)
        ]
        values, states = [step.value for step in steps], [step.state for step in steps]
        np.testing.assert_allclose(values[0], values[1], rtol=1e-5, atol=1e-5)
        assert steps[0].norms == steps[1].norms
        assert steps[0].direction_norm == pytest.approx(steps[1].direction_norm, rel=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        OuterSettings(0.1, optimizer="adam", arguments={"b1": 0.5}),
        *(
            OuterSettings(0.7, 0.9, optimizer="delayed_nesterov", delay_merges=delay)
            for delay in (1, 2, 4, 100)
        ),
    ],
    ids=["adam", "1", "2", "4", "100"],
)
def test_steps_agree_with_the_oracle(settings: OuterSettings) -> None:
    optimizer = outer_optimizer(settings)
    value, state = VALUE, optimizer.init(VALUE)
    judge, memory = VALUE.astype(float), oracle.Memory()
    for deltas in (*DELTAS, *DELTAS):
        direction = oracle.merge(list(deltas), WEIGHTS, UNITS)
        judge, memory = oracle.outer_step(settings, judge, memory, direction)
        step = merge_with(optimizer, value, state, list(deltas), WEIGHTS, UNITS)
        value, state = step.value, step.state
    np.testing.assert_allclose(value, judge, rtol=1e-3, atol=1e-4)


def test_two_delayed_merges_by_hand() -> None:
    """N = 2, η = 1, μ = 0.5: Δ = 4 steps by 2; Δ = 8 has v = 12/2 and steps by 4 + 3.

    After it the buffer is empty: Δ = 4 steps by 2 again, and Δ = 0 has v = 3 + 2, and steps by 2.5.
    """
    optimizer = DelayedNesterov(1.0, 0.5, 2)
    value, steps = np.zeros(1, np.float32), []
    state = optimizer.init(value)
    for delta in (4.0, 8.0, 4.0, 0.0):
        stepped, state = optimizer.update(np.array([delta], np.float32), state, value)
        steps.append(float(value[0] - stepped[0]))
        value = stepped
    assert steps == [2.0, 7.0, 2.0, 2.5]


NAMES = ["adam", "lion", "nadam", "adamw", "rmsprop", "yogi", "adafactor", "sgd"]


@pytest.mark.parametrize(
    "settings",
    [OuterSettings(), DELAYED, *(OuterSettings(0.1, optimizer=name) for name in NAMES)],
    ids=["default", "delayed", *NAMES],
)
def test_a_state_goes_through_the_journal_unchanged(settings: OuterSettings) -> None:
    """Optimizers of optax are known by name."""
    optimizer, again = outer_optimizer(settings), outer_optimizer(settings)
    value, state = VALUE, optimizer.init(VALUE)
    for deltas in DELTAS[:3]:
        value, state = optimizer.update(deltas[0], state, value)
    restored: OuterState = {
        name: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
        for name, array in state.items()
    }
    live = merge_with(optimizer, value, state, list(DELTAS[3]), WEIGHTS, UNITS)
    revived = merge_with(again, value, restored, list(DELTAS[3]), WEIGHTS, UNITS)
    np.testing.assert_array_equal(live.value, revived.value)
    assert live.state.keys() == revived.state.keys()


def test_a_state_of_another_optimizer_is_refused() -> None:
    sgd, adam, delayed = Sgd(), OptaxChain(optax.adam(0.1)), outer_optimizer(DELAYED)
    for optimizer, other in ((sgd, adam), (adam, sgd), (delayed, sgd)):
        with pytest.raises(InvariantError, match="momentum"):
            optimizer.update(VALUE, other.init(VALUE), VALUE)
    with pytest.raises(InvariantError, match="outer state"):
        adam.update(VALUE, adam.init(VALUE[:5]), VALUE)


@pytest.mark.parametrize(
    "optimizer",
    [Sgd(), outer_optimizer(DELAYED), OptaxChain(optax.adam(0.1))],
    ids=["sgd", "delayed", "adam"],
)
def test_merging_leaves_value_state_and_contributions_alone(optimizer: OuterOptimizer) -> None:
    _, state = optimizer.update(DELTAS[1][0], optimizer.init(VALUE), VALUE)
    arrays = [VALUE, *state.values(), *DELTAS[0]]
    copies = [array.copy() for array in arrays]
    measured = [measure(delta, UNITS) for delta in DELTAS[0]]
    step = merge_with(optimizer, VALUE, state, measured, WEIGHTS, UNITS)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert step.value.flags.writeable
    assert step.norms == tuple(one.norm for one in measured)


def test_the_cosine_compares_with_the_momentum_before() -> None:
    optimizer = Sgd()
    delta = DELTAS[0][0]
    first = merge_with(optimizer, VALUE, optimizer.init(VALUE), [delta], [1.0], UNITS)
    assert first.cosine_to_previous == 0
    for sign in (1.0, -1.0):
        again = merge_with(
            optimizer, first.value, first.state, [np.float32(sign) * delta], [1.0], UNITS
        )
        assert again.cosine_to_previous == pytest.approx(sign, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("adm", {}, "'adm'; it must be sgd, .* did you mean adam?"),
        ("no such", {}, "'no such'; it must be .* such as adam, lion"),
        ("chain", {}, "'chain'; it must be sgd"),
        ("scale_by_rprop", {}, "'scale_by_rprop'; it must be sgd"),
        ("adam", {"beta": 1}, "arguments has 'beta', which adam .* takes b1, b2, eps"),
        ("adam", {"learning_rate": 1}, "'learning_rate', which adam does not take"),
        ("adam", {"b1": "much"}, "adam with arguments {'b1': 'much'}, which cannot take an outer"),
        ("lbfgs", {}, "lbfgs .* cannot take an outer step"),
        ("adam", {"mu_dtype": "bfloat16"}, "is bfloat16, which the journal cannot hold"),
    ],
)
def test_what_optax_does_not_know_is_refused_in_a_sentence(
    name: str, arguments: dict[str, object], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        outer_optimizer(OuterSettings(optimizer=name, arguments=arguments))


def test_how_much_an_optimizer_keeps() -> None:
    assert state_values(OuterSettings()) == state_values(OuterSettings(0.7, 0.9)) == 1
    assert state_values(DELAYED) == 2
    assert state_values(OuterSettings(optimizer="adam")) == 2
    assert state_values(OuterSettings(optimizer="lion")) == 1


LIGHT = """
import sys
def show(): print(sorted({"jax", "numba", "optax"} & sys.modules.keys()))
from islands.numerics.outer import outer_optimizer
from islands.protocol.settings.outer import OuterSettings
outer_optimizer(OuterSettings())
outer_optimizer(OuterSettings(0.7, 0.9, optimizer="delayed_nesterov", delay_merges=3))
import islands.syncer.actor, islands.numerics.contributions
show()
from islands.numerics.merge import warm_up
warm_up()
show()
outer_optimizer(OuterSettings(optimizer="adam"))
show()
"""


def test_the_syncer_imports_jax_for_optax_alone_and_compiled_loops_for_a_merge() -> None:
    """`--help` pays for no compiler, and the first merge of a run not either."""
    run = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, check=True, text=True)
    assert run.stdout == "[]\n['numba']\n['jax', 'numba', 'optax']\n"
