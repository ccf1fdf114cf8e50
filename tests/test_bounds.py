"""The table of bounds: every message has its row, and hostile input of every kind stays below."""

import random
from pathlib import Path

import pytest

from islands.protocol.messages.registry import MESSAGE_TYPES, MULTIHOST_TYPES
from tests.benchmarks.drawn_messages import drawn
from tests.benchmarks.hostile import Most, play
from tests.bounds import BOUNDS, HUB, MESSAGES, PEERS, RESOURCES, rendered

ROOT = Path(__file__).parents[1]
EVERY = {kind.__name__: kind for kind in (*MESSAGE_TYPES, *MULTIHOST_TYPES)}


def test_every_message_has_its_row() -> None:
    assert sorted(MESSAGES) == sorted(EVERY)
    for name, row in MESSAGES.items():
        assert row.senders, name
        assert set(row.senders) <= {*PEERS, HUB} - {"stranger"}, name
        assert row.spends, name
        assert set(row.spends) <= set(RESOURCES), name
        assert row.rule, name


def test_every_cell_has_a_bound_that_is_enforced_in_one_place() -> None:
    assert sorted(BOUNDS) == sorted((resource, peer) for resource in RESOURCES for peer in PEERS)
    for cell, bound in BOUNDS.items():
        assert bound.name in (ROOT / bound.file).read_text(), cell


def test_the_tables_stand_in_the_security_policy() -> None:
    """They are written by `python -m tests.bounds`."""
    assert rendered() in (ROOT / "SECURITY.md").read_text()


@pytest.mark.parametrize("kind", EVERY.values(), ids=str)
def test_every_message_is_drawn(kind: type) -> None:
    chance = random.Random(0)
    assert all(type(drawn(kind, chance, {})) is kind for _ in range(5))


@pytest.fixture(scope="module")
def _warm() -> None:
    """Import and compile first what a run imports and compiles, which no input makes it do."""
    play("token", 0, 10)


@pytest.mark.simulation
@pytest.mark.usefixtures("_warm")
@pytest.mark.parametrize(
    ("kind", "number"), [*((kind, 0) for kind in PEERS), ("island", 1)], ids=str
)
def test_hostile_input_stays_within_its_bounds(kind: str, number: int) -> None:
    most = Most()
    most.add(play(kind, number, 300, traced=True))
    assert most.problems == []
    assert most.above(kind, timed=False) == []
