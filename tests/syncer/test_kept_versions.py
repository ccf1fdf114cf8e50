"""The versions from which contributions are admitted."""

import pytest

from islands.protocol.identities import Version
from islands.protocol.syncer.versions import KeptVersions


@pytest.mark.parametrize("most", [1, 2, 5000])
def test_the_newest_are_kept(most: int) -> None:
    """Also across epochs; what was never kept is not among them."""
    kept = KeptVersions(most)
    for number in range(10_000):
        kept.append(Version(1 + number // 7000, number))
    assert len(kept) == most
    assert list(kept)[-1] == Version(2, 9999)
    assert Version(2, 9999) in kept
    assert Version(1, 9999) not in kept
    assert (Version(2, 9998) in kept) is (most > 1)
    assert Version(1, 9999 - most) not in kept
