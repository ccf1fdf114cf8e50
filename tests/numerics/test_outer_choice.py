"""The outer optimizer that settings name, and the sentences that refuse what none takes."""

import subprocess
import sys

import numpy as np
import pytest

from islands.numerics.optax_chain import OptaxChain
from islands.numerics.outer import DelayedNesterov, Sgd, outer_optimizer, state_values
from islands.protocol.errors import SettingsError
from islands.protocol.settings.outer import OuterSettings
from tests.numerics import oracle

VALUE = np.random.default_rng(0).standard_normal(40).astype(np.float32)
DELTAS = np.random.default_rng(1).standard_normal((6, 40)).astype(np.float32)
DELAYED = OuterSettings(0.7, 0.9, optimizer="delayed_nesterov", delay_merges=3)


def test_the_built_in_ones_are_made_of_their_settings() -> None:
    assert outer_optimizer(OuterSettings()) == Sgd(1.0, 0.0, nesterov=True)
    assert outer_optimizer(DELAYED) == DelayedNesterov(0.7, 0.9, 3)


@pytest.mark.parametrize("name", ["adam", "lion", "nadam", "adamw", "rmsprop", "yogi", "adafactor"])
def test_optimizers_of_optax_are_found_by_name(name: str) -> None:
    optimizer = outer_optimizer(OuterSettings(0.1, optimizer=name))
    assert isinstance(optimizer, OptaxChain)
    value, state = VALUE, optimizer.init(VALUE)
    for delta in DELTAS[:3]:
        value, state = optimizer.update(delta, state, value)
    revived = {
        key: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
        for key, array in state.items()
    }
    again = outer_optimizer(OuterSettings(0.1, optimizer=name))
    np.testing.assert_array_equal(
        optimizer.update(DELTAS[3], state, value)[0], again.update(DELTAS[3], revived, value)[0]
    )


def test_adam_with_arguments_agrees_with_the_oracle() -> None:
    settings = OuterSettings(0.1, optimizer="adam", arguments={"b1": 0.5})
    optimizer = outer_optimizer(settings)
    value, state = VALUE, optimizer.init(VALUE)
    judge, memory = VALUE.astype(float), oracle.Memory()
    for delta in DELTAS:
        judge, memory = oracle.outer_step(settings, judge, memory, delta.astype(float))
        value, state = optimizer.update(delta, state, value)
        np.testing.assert_allclose(value, judge, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (OuterSettings(optimizer="adm"), "'adm'; it must be sgd, .* did you mean adam?"),
        (OuterSettings(optimizer="no such"), "'no such'; it must be .* such as adam, lion"),
        (OuterSettings(optimizer="chain"), "'chain'; it must be sgd"),
        (OuterSettings(optimizer="scale_by_rprop"), "'scale_by_rprop'; it must be sgd"),
        (
            OuterSettings(optimizer="adam", arguments={"beta": 1}),
            "arguments has 'beta', which adam does not take; it takes b1, b2, eps",
        ),
        (
            OuterSettings(optimizer="adam", arguments={"learning_rate": 1}),
            "'learning_rate', which adam does not take",
        ),
        (
            OuterSettings(optimizer="adam", arguments={"b1": "much"}),
            "adam with arguments {'b1': 'much'}, which cannot take an outer step",
        ),
        (OuterSettings(optimizer="lbfgs"), "lbfgs .* cannot take an outer step"),
        (
            OuterSettings(optimizer="adam", arguments={"mu_dtype": "bfloat16"}),
            "is bfloat16, which the journal cannot hold",
        ),
    ],
)
def test_what_optax_does_not_know_is_refused_in_a_sentence(
    settings: OuterSettings, told: str
) -> None:
    with pytest.raises(SettingsError, match=told):
        outer_optimizer(settings)


def test_how_much_an_optimizer_keeps() -> None:
    assert state_values(OuterSettings()) == 1
    assert state_values(OuterSettings(0.7, 0.9)) == 1
    assert state_values(DELAYED) == 2
    assert state_values(OuterSettings(optimizer="adam")) == 2
    assert state_values(OuterSettings(optimizer="lion")) == 1


LIGHT = """
import sys
from islands.numerics.outer import outer_optimizer
from islands.protocol.settings.outer import OuterSettings
outer_optimizer(OuterSettings())
outer_optimizer(OuterSettings(0.7, 0.9, optimizer="delayed_nesterov", delay_merges=3))
import islands.syncer.actor
print(sorted({"jax", "optax"} & sys.modules.keys()))
outer_optimizer(OuterSettings(optimizer="adam"))
print(sorted({"jax", "optax"} & sys.modules.keys()))
"""


def test_the_syncer_imports_jax_for_optax_alone() -> None:
    run = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, check=True, text=True)
    assert run.stdout == "[]\n['jax', 'optax']\n"
