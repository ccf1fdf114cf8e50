"""The newest versions of a fragment, from which contributions are admitted."""

from collections import OrderedDict
from collections.abc import Collection, Iterator

from islands.identities import Version


class KeptVersions(Collection[Version]):
    """So many versions, oldest first; whether one is among them is known in constant time.

    Where learners are merged one by one, as many are kept as there are learners, and each of these
    is looked up at every merge.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int) -> None:
        """Start without versions."""
        self._most = most
        self._versions: OrderedDict[Version, None] = OrderedDict()

    def append(self, version: Version) -> None:
        """Keep a newer version, and drop the oldest one if it is one too many."""
        self._versions[version] = None
        if len(self._versions) > self._most:
            self._versions.popitem(last=False)

    def __contains__(self, version: object) -> bool:
        """Return whether a version is kept."""
        return version in self._versions

    def __iter__(self) -> Iterator[Version]:
        """Yield the versions, oldest first."""
        return iter(self._versions)

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._versions)
