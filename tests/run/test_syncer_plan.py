"""The formula for a syncer's shards and a region's relays, by hand (`syncer_plan.py`)."""

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.protocol.settings.choices import Precision
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings
from islands.run.planner import Estimate, estimate
from tests.benchmarks.syncer_plan import load_of, relays_for, shards_for

SETTINGS = RunSettings(
    interval_steps=8,
    fragments=4,
    outer=OuterSettings(0.7, 0.9),
    precision=Precision.BFLOAT16,
)
ELEMENTS = 4 * 2**20


def made(learners: int) -> Estimate:
    """Four tensors of a million values, half a second per step."""
    leaves = [Leaf(f"{row}", (2**20,), "float32") for row in range(4)]
    return estimate(plan(leaves, count=4), SETTINGS, learners=learners, step_time_s=0.5)


def test_loads_are_those_of_the_formula() -> None:
    load, per_s = load_of(made(10), SETTINGS), ELEMENTS / 8 / 0.5
    assert load.incoming == 10 * 2 * per_s
    assert load.outgoing == 10 * 4 * per_s
    assert load.journal == (4 + 4) * per_s
    assert load.merge == 12 * 4 * per_s


def test_relays_read_in_place_of_the_learners() -> None:
    assert load_of(made(10), SETTINGS, relays=4).outgoing == 4 * 4 * ELEMENTS / 8 / 0.5
    assert load_of(made(2), SETTINGS, relays=4) == load_of(made(2), SETTINGS)


def test_the_tightest_limit_decides() -> None:
    load = load_of(made(10), SETTINGS)
    limits = shards_for(load, link=load.outgoing / 3, disk=1e12, processor=load.merge / 1.5)
    assert limits == {"in": 2, "out": 3, "journal": 1, "merge": 2}


def test_a_region_needs_as_many_relays_as_its_learners_read() -> None:
    each = made(10).down_per_step / 0.5
    assert relays_for(made(10), 2, link=5 * each) == 1
    assert relays_for(made(10), 2, link=4 * each) == 2
    assert relays_for(made(10), 2, link=each) == 5
