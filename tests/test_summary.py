"""The figures by which one judges a run."""

import pytest

from islands.summary import Share, summarise
from islands.telemetry import RunFigures


@pytest.mark.parametrize(("supervisor", "syncer"), [(1, 0), (0, 1)])
def test_an_eviction_counts_whoever_saw_it(supervisor: int, syncer: int) -> None:
    """A successor that comes at once hides it from the syncer, a restart from the supervisor."""
    share: Share = {"evictions": syncer, "ledger": {}}
    summary = summarise(RunFigures(), share, evictions=supervisor, wall_s=1.0, figures={})
    assert summary["evictions"] == 1
