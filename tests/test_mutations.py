"""The list of deliberate bugs (`tests/benchmarks/mutations.py`) is up to date with the tree."""

import pytest

from tests.benchmarks.mutations import MUTATIONS, TWELVE, Mutation, times_found
from tests.environment import ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_its_text_stands_once_and_its_tests_are_there(mutation: Mutation) -> None:
    """A text that has changed, or a test that was moved, would leave a rule unwatched."""
    assert times_found(ROOT, mutation) == 1, f"mend it in mutations.txt: {mutation}"
    assert mutation.old != mutation.new
    assert all((ROOT / test.partition("::")[0]).exists() for test in mutation.tests)


def test_the_twelve_are_among_them_and_documented() -> None:
    """Names are given once, and `docs/testing.md` tells what found each of the twelve."""
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names)
    told = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    assert len(TWELVE) == 12
    assert [name for _, name in TWELVE if name not in names or name not in told] == []
