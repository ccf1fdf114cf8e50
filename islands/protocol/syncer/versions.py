"""Versions of fragments: those that are kept, increments between them, and where version 0 is from.

Whoever is some versions behind is sent a *chain*: all increments since the version that it has
reported as its base (protocol §5), which a receiver skips as far as it has them. The whole value is
sent instead whenever an update is sent again, since it may be the receiver's copy that is wrong.

**Values taken back** from members, where a syncer has the run's token and no journal (protocol §8):

================================================  ================================================
members have kept                                 version 0 is
================================================  ================================================
nothing                                           a file's or a learner's, as of any new run
values of one version with unlike digests         that of most of them
values of several versions                        the newest, of the member that has most of them
values, and one sends others than it promised     that of the next member
================================================  ================================================

Such a claim is trusted as far as whoever holds the token is: members are compared with one another,
and with what they then send. A syncer with a version of its own takes nothing back.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation, LearnerName, Version
from islands.protocol.messages.training import IncrementsSince, Kept
from islands.protocol.settings.run import INCREMENTS_KEPT, REDIAL_LONGEST_S, RunSettings, Timing
from islands.protocol.syncer.events import IncrementFacts


@dataclass(slots=True)
class Published:
    """One fragment's newest version: its digest and the round that made it.

    `tokens` are those of the fragment that had a fate when it was made (`Totals.settled`): the
    initial value has none of them, and what is pending at its making is in a later one.
    """

    version: Version
    digest: str
    round: int
    tokens: int = 0


class KeptVersions(Collection[Version]):
    """At most `most` versions, oldest first; `older_held`: values of older ones are held."""

    def __init__(self, most: int) -> None:
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

    def release(self, *, forget: bool) -> None:
        """Note that older values are freed; `forget` older versions, too, if they are needed."""
        self.older_held = False
        while forget and len(self._versions) > 1:
            self._versions.popitem(last=False)

    @property
    def newest(self) -> Version | None:
        return next(reversed(self._versions), None)

    def left(self, name: LearnerName, held: Version | None) -> None:
        """Note that an incarnation ended while it held a version: its successor may have that."""
        if held is not None and held in self._versions:
            self._left_with[name] = held

    def returned(self, name: LearnerName) -> None:
        self._left_with.pop(name, None)

    @property
    def awaited(self) -> bool:
        """Whether a learner that left may come back with a version older than the newest."""
        return any(held != self.newest for held in self._left_with.values())

    def __contains__(self, version: object) -> bool:
        return version in self._versions

    def __iter__(self) -> Iterator[Version]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)


@dataclass(frozen=True, slots=True)
class KeptIncrement:
    """An increment from one version to the next, by the length of its encoding."""

    before: Version
    version: Version
    size_bytes: int


@dataclass(slots=True)
class Increments:
    """The increments of one fragment, oldest first; the newest may not be committed yet."""

    kept: deque[KeptIncrement] = field(default_factory=lambda: deque(maxlen=INCREMENTS_KEPT + 1))
    value_bytes: int = 0

    def made(self, before: Version, version: Version, facts: IncrementFacts | None) -> None:
        """Keep an increment; None if a version was made without one, which ends all chains."""
        if facts is None:
            self.kept.clear()
            return
        self.value_bytes = facts.value_bytes
        self.kept.append(KeptIncrement(before, version, facts.size_bytes))

    def release(self) -> None:
        self.kept.clear()

    def lead(self, held: Version, version: Version) -> bool:
        """Whether a chain leads from one version to another, and is shorter than the value."""
        sizes, at = [], version
        for increment in reversed(self.kept):
            if increment.version == at != held:
                sizes.append(increment.size_bytes)
                at = increment.before
        few = 0 < len(sizes) <= INCREMENTS_KEPT
        return few and at == held and sum(sizes) < self.value_bytes


def increments_since(
    kept: Sequence[Increments],
    fragment: int,
    held: Version | None,
    version: Version,
    settings: RunSettings,
) -> IncrementsSince | None:
    """Return from where a receiver is sent increments; None if it is sent the whole value."""
    if not kept or held is None or not kept[fragment].lead(held, version):
        return None
    return IncrementsSince(held, settings.update_precision)


SEEDS_AT_ONCE = 4
"""Fragments of version 0 that are on their way at once: each is one more copy at its sender."""


@dataclass(slots=True)
class Seeding:
    """The fetch of version 0 from one learner, with the digests of arrived fragments by index.

    `promised` are the values that the learner said to have kept, if it is asked for those. A
    version 0 that was read from a file has no such learner, and is complete from the start.
    Fragments are asked for in order, and `asked` is the number of those that were. Once complete,
    they are journalled one after the other, since a record names no version whose value neither it
    nor an earlier record holds; `journalled` is the index of the one being written. `times` counts
    the requests repeated since the learner `had` sent so many fragments.
    """

    name: LearnerName
    incarnation: Incarnation
    asked_s: float
    digests: dict[int, str] = field(default_factory=dict)
    refused: bool = False
    promised: tuple[Kept, ...] = ()
    journalled: int | None = None
    times: int = 0
    had: int = 0
    asked: int = 0

    def ask_further(self, fragments: int) -> range:
        first = self.asked
        self.asked = max(first, min(fragments, len(self.digests) + SEEDS_AT_ONCE))
        return range(first, self.asked)


@dataclass(slots=True)
class Versions:
    """The committed versions of every fragment, and the fetch of version 0.

    `published` is what is durable of `Durable.published`, so that it may be sent. `increments` is
    empty if whole values are sent. With `initial`, version 0 is to be that of a file, and `read`
    are the digests of it. Up to `returns_until_s` a run without a journal waits for members that
    have newer values; None: such values are not taken back. `seedings` counts the fetches.
    """

    published: list[Published | None]
    kept: list[KeptVersions]
    increments: list[Increments]
    initial: bool = False
    read: tuple[str, ...] | None = None
    returns_until_s: float | None = None
    seedings: int = 0
    seeding: Seeding | None = None
    changes: int = 0

    @classmethod
    def of(
        cls,
        settings: RunSettings,
        durable: Sequence[Published | None],
        *,
        initial: bool,
        returns_until_s: float | None,
    ) -> "Versions":
        """Return the versions that a start of the syncer begins with.

        Of those before a durable one, whose values are gone, contributions are admitted where only
        their base counts.
        """
        fragments = len(durable)
        complete = all(one is not None for one in durable)
        kept = [KeptVersions(settings.staleness_max + 1) for _ in range(fragments)]
        for index, held in enumerate(durable if complete else ()):
            assert held is not None, "every fragment has a version"
            epoch, newest = held.version.epoch, held.version.number
            oldest = max(0, newest - settings.staleness_max)
            for number in range(newest if settings.rebases else oldest, newest + 1):
                kept[index].append(Version(epoch, number))
        return cls(
            published=list(durable) if complete else [None] * fragments,
            kept=kept,
            increments=[Increments() for _ in range(fragments)]
            if settings.update_precision.of_increments
            else [],
            initial=initial,
            returns_until_s=returns_until_s,
        )

    def commit(self, fragment: int, published: Published) -> None:
        """Publish a version, which is durable, as the newest of those kept."""
        self.published[fragment] = published
        self.kept[fragment].append(published.version)
        self.changes += 1

    def note_gone(self, name: LearnerName, held: Sequence[Version | None]) -> None:
        for kept, version in zip(self.kept, held, strict=True):
            kept.left(name, version)

    def note_back(self, name: LearnerName) -> None:
        for kept in self.kept:
            kept.returned(name)

    def begin_seeding(self, seeding: Seeding, *, asks: bool = True) -> None:
        """Begin to fetch version 0, by which it `asks` a learner."""
        self.seeding = seeding
        self.seedings += asks
        self.changes += 1

    def end_seeding(self) -> None:
        """End the fetch: it is committed, or to be begun anew with another learner."""
        self.seeding = None
        self.changes += 1

    def forget_seeder(self, name: LearnerName) -> None:
        """Stop fetching version 0 from a learner that is gone, unless all of it has arrived."""
        seeding = self.seeding
        if seeding is not None and seeding.name == name and seeding.journalled is None:
            self.end_seeding()

    def keep_initial(self, digests: tuple[str, ...]) -> None:
        if self.initial and self.published[-1] is None:
            self.read = digests


REDIALS = 2
"""Time to reach the supervisor again, and then the syncer."""


def waits_s(timing: Timing) -> float:
    """Return for how long a run without a journal waits for members that have newer values."""
    return timing.scaled(REDIALS * REDIAL_LONGEST_S)


def newest_of(offers: Mapping[LearnerName, tuple[Kept, ...]]) -> LearnerName:
    """Return the member with the newest values of most fragments, as most holders have them."""
    columns = [_agreed(column) for column in zip(*offers.values(), strict=True)]

    def good(name: LearnerName) -> int:
        return sum(one == agreed for one, agreed in zip(offers[name], columns, strict=True))

    return min(offers, key=lambda name: (-good(name), name))


def _agreed(column: Iterable[Kept]) -> Kept:
    """Return the newest version of one fragment, as most that hold it have it."""
    held = Counter(column)
    newest = max(one.version for one in held)
    return min(
        (one for one in held if one.version == newest), key=lambda one: (-held[one], one.digest)
    )
