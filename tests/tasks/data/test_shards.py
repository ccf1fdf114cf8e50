"""Virtual shards: every record once per pass, in an order that any position can resume."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.tasks.data.shards import ShardKey, ShardPlan


@given(st.integers(0, 200), st.integers(1, 20), st.integers(0, 3), st.integers(0, 5))
def test_the_shards_of_a_pass_hold_every_record_once(
    records: int, shards: int, seed: int, pass_index: int
) -> None:
    plan = ShardPlan(records, shards, seed)
    members = [plan.members(ShardKey(pass_index, shard)) for shard in range(shards)]
    assert sorted(np.concatenate(members).tolist()) == list(range(records))
    sizes = [plan.size(shard) for shard in range(shards)]
    assert sizes == [len(m) for m in members]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 60), st.integers(1, 7), st.integers(0, 60))
def test_groups_resume_at_any_position(records: int, size: int, position: int) -> None:
    plan = ShardPlan(records, 1)
    position = min(position, records)
    key = ShardKey(0, 0)
    rest = [group for group, _ in plan.groups(key, position, size)]
    expected = plan.members(key)[position:]
    np.testing.assert_array_equal(np.concatenate([*rest, expected[:0]]), expected)


def test_positions_count_records() -> None:
    positions = [after for _, after in ShardPlan(7, 1).groups(ShardKey(0, 0), 0, 3)]
    assert positions == [3, 6, 7]


def test_the_order_depends_on_seed_and_pass_alone() -> None:
    key = ShardKey(0, 1)
    members = ShardPlan(100, 4, seed=1).members(key).tolist()
    assert members == ShardPlan(100, 4, seed=1).members(key).tolist()
    assert members != ShardPlan(100, 4, seed=2).members(key).tolist()
    assert members != ShardPlan(100, 4, seed=1).members(ShardKey(1, 1)).tolist()


@given(st.integers(1, 300), st.integers(1, 20))
def test_an_unlike_shard_is_a_stretch_of_the_corpus_in_an_order_of_its_own(
    records: int, shards: int
) -> None:
    plan = ShardPlan(records, shards, unlike=True)
    ranges = [sorted(plan.members(ShardKey(1, shard)).tolist()) for shard in range(shards)]
    assert [record for members in ranges for record in members] == list(range(records))
    orders = [plan.members(ShardKey(at, 0)).tolist() for at in (0, 1)]
    assert orders[0] != orders[1] or plan.size(0) < 10


@pytest.mark.parametrize(
    ("key", "position"), [(ShardKey(0, 4), 0), (ShardKey(-1, 0), 0), (ShardKey(0, 0), -1)]
)
def test_what_does_not_exist_is_refused(key: ShardKey, position: int) -> None:
    with pytest.raises(IndexError):
        next(ShardPlan(100, 4).groups(key, position, 1))


def test_shard_keys_order_by_pass_first() -> None:
    keys = [ShardKey(1, 0), ShardKey(0, 2), ShardKey(0, 1)]
    assert [str(key) for key in sorted(keys)] == ["0/1", "0/2", "1/0"]


@pytest.mark.parametrize("position", [25, 26, 10**12])
def test_nothing_is_left_at_the_end_of_a_shard_or_beyond(position: int) -> None:
    assert list(ShardPlan(100, 4).groups(ShardKey(0, 0), position, 1)) == []


@pytest.mark.parametrize("unlike", [False, True])
def test_a_thousand_million_records_are_read_at_any_place_at_once(*, unlike: bool) -> None:
    """No order is kept: of each shard, some records at its start, its middle and its end.

    None comes twice; of as many drawn by chance, about eighteen would.
    """
    records, shards = 10**9, 64
    plan = ShardPlan(records, shards, seed=11, unlike=unlike)
    tracemalloc.start()
    found: list[int] = []
    for shard in range(shards):
        size = plan.size(shard)
        for start in (0, size // 2, size - 1000):
            found += plan.members(ShardKey(2, shard), start, start + 1000).tolist()
    group, after = next(plan.groups(ShardKey(2, 9), 12_345_678, 4))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(found)) == len(found) == 192_000
    assert 0 <= min(found) < records // 100
    assert records - records // 100 < max(found) < records
    assert (len(group), after) == (4, 12_345_682)
    assert peak_bytes < 64 << 20


def test_a_shard_is_a_sample_of_the_whole_corpus() -> None:
    """Of 10,000 records, each tenth of the corpus has its share, within five sigma."""
    plan = ShardPlan(10**9, 10**5, seed=3)
    for shard in range(20):
        tenths = np.bincount(plan.members(ShardKey(0, shard)) // 10**8, minlength=10)
        assert abs(tenths - 1000).max() < 5 * 30


def test_each_order_of_a_few_records_comes_about_as_often() -> None:
    """Of four records, all 24 orders come in 2,400 passes, the rarest half as often as expected."""
    plan = ShardPlan(4, 1)
    orders = Counter(tuple(plan.members(ShardKey(at, 0)).tolist()) for at in range(2400))
    assert len(orders) == 24
    assert min(orders.values()) > 50
