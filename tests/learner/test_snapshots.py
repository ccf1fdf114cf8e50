"""A contribution counts what is in its snapshot: no step, no token after it."""

from islands.protocol.identities import FragmentIndex, Version
from islands.protocol.learner.events import SnapshotTaken
from tests.learner.bench import BATCH, NO_BYTES, Bench, stepping


def taken_at(bench: Bench, steps: int, fragment: int = 0) -> None:
    """A snapshot of an earlier boundary has reached the host."""
    index = FragmentIndex(fragment)
    bench.do(SnapshotTaken(index, Version(1, 0), steps, steps * BATCH, NO_BYTES))


def test_a_contribution_counts_up_to_its_snapshot() -> None:
    """The copy took a step's time: the step since is not in the values, nor in the counts."""
    bench = stepping()
    bench.step()
    taken_at(bench, 2)
    bench.pull(0, 5)
    (said,) = bench.contributed()
    assert (said.steps, said.tokens, said.processed_tokens) == (2, 2 * BATCH, 2 * BATCH)


def test_a_contribution_counts_from_the_adoption_of_its_base() -> None:
    bench = stepping()
    bench.adopt(0, 1)
    bench.step()
    bench.step()
    bench.do(SnapshotTaken(FragmentIndex(0), Version(1, 1), 3, 3 * BATCH, NO_BYTES))
    bench.pull(0, 5)
    (said,) = bench.contributed()
    assert (said.base, said.steps, said.tokens) == (Version(1, 1), 1, BATCH)
    assert said.processed_tokens == 3 * BATCH


def test_tokens_after_the_snapshot_are_overwritten() -> None:
    """When its own contribution comes back merged, what it did since has not been merged."""
    bench = stepping()
    bench.step()
    taken_at(bench, 2)
    bench.pull(0, 0)
    assert len(bench.contributed()) == 1
    bench.adopt(0, 1)
    held = bench.state.accounts[0]
    assert held.overwritten_tokens == 3 * BATCH  # nothing of it was merged
