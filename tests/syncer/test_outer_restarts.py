"""Whatever the outer optimizer is, a syncer that restarts from its journal goes on bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.lab.toys.toy import NumpyTrainer
from islands.layout.leaves import Layout
from islands.numerics.norms import measure
from islands.numerics.outer import outer_optimizer
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Ticket, Version
from islands.protocol.settings.choices import MergeRule, UpdatePrecision
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge, MergePart
from islands.syncer.value_store import ValueStore

LAYOUT: Layout = NumpyTrainer(2).layout
NAMES = tuple(LearnerName(name) for name in ("ana", "ben", "eve"))
OUTER = {
    "plain": OuterSettings(),
    "momentum": OuterSettings(0.7, 0.9),
    "delayed": OuterSettings(0.7, 0.9, optimizer="delayed_nesterov", delay_merges=3),
    "adam": OuterSettings(0.1, optimizer="adam", arguments={"b1": 0.5}),
    "lion": OuterSettings(0.1, optimizer="lion"),
}


def settings_of(
    outer: OuterSettings, merge: MergeRule, updates: UpdatePrecision = UpdatePrecision.FLOAT32
) -> RunSettings:
    return RunSettings(fragments=2, merge=merge, outer=outer, update_precision=updates)


def store_of(settings: RunSettings) -> ValueStore:
    return ValueStore(settings, LAYOUT, outer_optimizer(settings.outer))


def seeded(settings: RunSettings) -> ValueStore:
    store = store_of(settings)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(one.size).astype(np.float32) for one in LAYOUT.fragments]
    store.install_seed(Version(1, 0), store.keep_initial(values))
    return store


def merge(store: ValueStore, fragment: int, number: int) -> None:
    """Merge the same three contributions as every other store at this number."""
    rng = np.random.default_rng((fragment, number))
    layout = LAYOUT.fragments[fragment]
    parts = []
    for name in NAMES:
        ticket = Ticket(1, number, name, Incarnation(1, 1))
        delta = rng.standard_normal(layout.size).astype(np.float32)
        store.hold(ticket, 0, measure(delta, layout.units(MergeRule.AVERAGE)))
        parts.append(MergePart(ticket, 0, Version(1, number - 1), 8, 2, 1.0))
    current, target = Version(1, number - 1), Version(1, number)
    store.merge(BeginMerge(FragmentIndex(fragment), number, current, target, tuple(parts)))
    for part in parts:
        store.drop(part.ticket)


def restarted(settings: RunSettings, store: ValueStore, number: int) -> ValueStore:
    """A store with what the journal holds of another one (`test_journal.py`)."""
    revived, version = store_of(settings), Version(1, number)
    for index in range(len(LAYOUT.fragments)):
        revived.restore(index, version, store.journal_arrays(index, version))
    return revived


def bits(store: ValueStore, number: int) -> dict[str, tuple[str, bytes]]:
    found: dict[str, NDArray[np.generic]] = {}
    for index in range(len(LAYOUT.fragments)):
        arrays = store.journal_arrays(index, Version(1, number))
        found |= {f"{index} {name}": array for name, array in arrays.items()}
    return {name: (array.dtype.str, array.tobytes()) for name, array in found.items()}


@pytest.mark.parametrize("name", OUTER)
def test_a_restart_changes_no_bit(name: str) -> None:
    goes_on_bit_for_bit(settings_of(OUTER[name], MergeRule.RADIAL_DIRECTIONAL))


@pytest.mark.parametrize("updates", [UpdatePrecision.INT8, UpdatePrecision.FP4])
def test_a_restart_loses_nothing_of_what_increments_left(updates: UpdatePrecision) -> None:
    goes_on_bit_for_bit(settings_of(OUTER["momentum"], MergeRule.AVERAGE, updates))


def test_what_increments_left_is_published_if_whole_values_are_sent_from_now_on() -> None:
    settings = settings_of(OUTER["plain"], MergeRule.AVERAGE, UpdatePrecision.FP4)
    whole = replace(settings, update_precision=UpdatePrecision.FLOAT32)
    store, exact = seeded(settings), seeded(whole)
    for number in range(1, 5):
        merge(store, 0, number)
        merge(store, 1, number)
        merge(exact, 0, number)
    assert np.abs(store.value(0, Version(1, 4)) - exact.value(0, Version(1, 4))).max() > 1e-3
    revived = restarted(whole, store, 4)
    merge(revived, 0, 5)
    merge(exact, 0, 5)
    np.testing.assert_allclose(
        revived.value(0, Version(1, 5)), exact.value(0, Version(1, 5)), atol=1e-5
    )
    assert "remainder" not in revived.journal_arrays(0, Version(1, 5))


def goes_on_bit_for_bit(settings: RunSettings) -> None:
    """Restart a syncer in the middle, and compare it with one that is not restarted."""
    store = seeded(settings)
    for number in range(1, 5):
        for fragment in range(2):
            merge(store, fragment, number)
    revived = restarted(settings, store, 4)
    assert bits(revived, 4) == bits(store, 4)
    for number in range(5, 10):
        for fragment in range(2):
            merge(store, fragment, number)
            merge(revived, fragment, number)
        assert bits(revived, number) == bits(store, number)
    assert bits(store, 9) != bits(store, 8)
