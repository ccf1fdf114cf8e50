"""Windows over a byte string, in batches of one shape."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from islands.tasks.data.shards import ShardKey
from islands.tasks.data.windows import TokenWindows

DATA = np.arange(251, dtype=np.uint8)


@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 5))
def test_a_pass_predicts_every_byte_of_every_window_once(
    length: int, rows: int, shards: int
) -> None:
    windows = TokenWindows(DATA, length=length, rows=rows, shards=shards)
    targets: list[int] = []
    for shard in range(shards):
        for batch, _ in windows.batches(ShardKey(0, shard), 0):
            assert batch.tokens.shape == (rows, length + 1)
            targets.extend(batch.tokens[batch.weight > 0, 1:].ravel().tolist())
            assert batch.predicted == int((batch.weight > 0).sum()) * length
    whole = (len(DATA) - 1) // length * length
    assert sorted(targets) == list(range(1, whole + 1))


def test_a_short_last_batch_is_filled_with_rows_of_no_weight() -> None:
    windows = TokenWindows(DATA, length=100, rows=3)
    (batch, after), *rest = windows.batches(ShardKey(0, 0), 0)
    assert not rest
    assert after == 2
    assert batch.weight.tolist() == [1, 1, 0]
    assert not batch.tokens[2].any()


def test_evaluation_reads_windows_spread_over_the_whole() -> None:
    windows = TokenWindows(DATA, length=10, rows=2)
    starts = [int(row[0]) for batch in windows.spread(5) for row in batch.tokens[batch.weight > 0]]
    assert starts == [0, 50, 100, 150, 200]
    assert sum(batch.predicted for batch in windows.spread(10_000)) == 250
