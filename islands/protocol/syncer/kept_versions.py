"""The newest versions of a fragment, from which contributions are admitted."""

from collections import OrderedDict
from collections.abc import Collection, Iterator

from islands.protocol.identities import LearnerName, Version


class KeptVersions(Collection[Version]):
    """So many versions, oldest first; whether one is among them is known in constant time.

    Where learners are merged one by one, as many are kept as there are learners, and each of these
    is looked up at every merge.

    Args:
        most: how many are kept.

    Attributes:
        older_held: Whether values older than the newest version's are held (`old_values.py`).
    """

    def __init__(self, most: int) -> None:
        """Start without versions."""
        self.older_held = False
        self._most = most
        self._versions: OrderedDict[Version, None] = OrderedDict()
        self._left_with: dict[LearnerName, Version] = {}

    def append(self, version: Version) -> None:
        """Keep a newer version, and drop the oldest one if it is one too many."""
        self.older_held = bool(self._versions)
        self._versions[version] = None
        if len(self._versions) > self._most:
            self._versions.popitem(last=False)
        for name in [one for one, held in self._left_with.items() if held not in self._versions]:
            del self._left_with[name]

    def drop_older(self) -> None:
        """Keep the newest version alone."""
        while len(self._versions) > 1:
            self._versions.popitem(last=False)

    @property
    def newest(self) -> Version | None:
        """The newest version; None before the first."""
        return next(reversed(self._versions), None)

    def left(self, name: LearnerName, held: Version | None) -> None:
        """Note that an incarnation ended while it held a version: its successor may have that."""
        if held is not None and held in self._versions:
            self._left_with[name] = held

    def returned(self, name: LearnerName) -> None:
        """Note that a learner is back, and tells itself what it holds."""
        self._left_with.pop(name, None)

    @property
    def awaited(self) -> bool:
        """Whether a learner that left may come back with a version older than the newest."""
        return any(held != self.newest for held in self._left_with.values())

    def __contains__(self, version: object) -> bool:
        """Return whether a version is kept."""
        return version in self._versions

    def __iter__(self) -> Iterator[Version]:
        """Yield the versions, oldest first."""
        return iter(self._versions)

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._versions)
