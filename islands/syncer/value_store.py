"""The syncer's arrays: published values, optimizer state, contributions that wait for their merge.

Nothing is decided here. Values are never written to after they were published: they are sent as
they are, and a learner in the same process reads the same memory. Payloads that arrive are measured
on a worker; each becomes an event once it is measured.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from islands.actors.ports import Worker
from islands.layout.leaves import Layout
from islands.numerics.codecs import QUANTIZERS, decode, size_bytes
from islands.numerics.codecs import Ranges as Elements
from islands.numerics.contributions import rebase, weight
from islands.numerics.increment import quantised
from islands.numerics.merge import OuterState
from islands.numerics.norms import Measured, clip, measure
from islands.numerics.outer import OuterOptimizer, merge_with
from islands.protocol.errors import MalformedError, UserError
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Ticket, Version
from islands.protocol.messages.training import (
    Contribution,
    ContributionDeclined,
    FragmentSeed,
    FragmentUpdate,
)
from islands.protocol.sessions import Received
from islands.protocol.settings.choices import Precision, UpdatePrecision
from islands.protocol.settings.run import INCREMENTS_KEPT, RunSettings
from islands.protocol.syncer.actions import BeginMerge
from islands.protocol.syncer.events import (
    ContributionArrived,
    IncrementFacts,
    MergeFacts,
    SeedArrived,
)
from islands.protocol.syncer.plausibility import Check
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.round_entries import Closed
from messaging.codec.tensors import as_buffer, digest

REMAINDER = "remainder"
"""Name of what is left in a fragment's journal record."""

Floats = NDArray[np.float32]


class IncrementShelf:
    """The newest increments of a fragment; none with updates in float32.

    The elements in `exact` ranges are published exactly. `remainder` is what the published value
    lacks of what the outer steps made; None for zero.
    """

    def __init__(self, precision: UpdatePrecision, exact: Elements) -> None:
        self.remainder: Floats | None = None
        self._codec = Precision(precision) if precision.of_increments else None
        self._ranges = exact
        self._kept: dict[Version, tuple[Version, memoryview]] = {}

    def publish(
        self, before: Version, version: Version, published: Floats, exact: Floats
    ) -> tuple[Floats, IncrementFacts | None]:
        """Return the value to publish after an outer step, and the facts of its increment."""
        if self._codec is None:
            left, self.remainder = self.remainder, None
            return exact if left is None else exact + left, None
        made = quantised(published, exact, self.remainder, self._codec, self._ranges)
        self.remainder = made.remainder
        if made.payload is None or made.remainder is None:
            return made.value, None  # the older ones stay: the loop may be sending them now
        self._kept[version] = before, as_buffer(made.payload)
        for old in sorted(self._kept)[: -(INCREMENTS_KEPT + 1)]:
            del self._kept[old]
        length = float(np.linalg.norm(made.remainder))
        return made.value, IncrementFacts(made.payload.nbytes, made.value.nbytes, length)

    def chain(self, held: Version, version: Version) -> tuple[memoryview, ...]:
        """Return the increments from one version to another, in order; they must be kept."""
        chain: list[memoryview] = []
        while version != held:
            version, payload = self._kept[version]
            chain.append(payload)
        return tuple(reversed(chain))

    def release(self) -> None:
        self._kept.clear()

    def begin(self, remainder: NDArray[np.generic] | None = None) -> None:
        """Begin with a value that no increment leads to."""
        self._kept.clear()
        self.remainder = None if remainder is None else np.asarray(remainder, np.float32)


UNFIT = Check(schema_ok=False, digest_ok=False, finite=False, norm=0.0)


@dataclass(slots=True)
class _FragmentValues:
    """One fragment: the values of its newest versions, and the optimizer's state of the newest."""

    values: dict[Version, NDArray[np.float32]]
    state: OuterState


@dataclass(frozen=True, slots=True)
class _Seed:
    """One fragment of an initial value, and its optimizer's first state."""

    digest: str
    value: NDArray[np.float32]
    state: OuterState


class ValueStore:
    """All arrays of one syncer; lengths and merge units come from its layout, never from a message.

    Contributions that wait for their merge hold `waiting_bytes`.
    """

    def __init__(self, settings: RunSettings, layout: Layout, optimizer: OuterOptimizer) -> None:
        self._settings = settings
        self._layout = layout
        self._optimizer = optimizer
        self._units = [fragment.units(settings.merge) for fragment in layout.fragments]
        averages = self._averages = [fragment.averages for fragment in layout.fragments]
        self._shelves: list[_FragmentValues] = [_FragmentValues({}, {}) for _ in layout.fragments]
        self._increments = [IncrementShelf(settings.update_precision, each) for each in averages]
        self._seeds: dict[tuple[int, LearnerName, Incarnation], _Seed] = {}
        self._waiting: dict[Ticket, dict[int, Measured]] = {}
        self.waiting_bytes = 0

    def restore(
        self, fragment: int, version: Version, arrays: dict[str, NDArray[np.generic]]
    ) -> None:
        """Install a journalled fragment: its `value`, the optimizer's state, and the remainder."""
        state = {name: a for name, a in arrays.items() if name not in ("value", REMAINDER)}
        value = np.asarray(arrays["value"], np.float32)
        self._increments[fragment].begin(arrays.get(REMAINDER))
        self._shelves[fragment] = _FragmentValues({version: value}, state)

    # --- contributions ------------------------------------------------------------------------

    def inspect(
        self, contribution: Contribution, payload: tuple[memoryview, ...]
    ) -> tuple[Check, Measured | None]:
        """Measure a contribution against the syncer's own layout; heavy, for the worker."""
        if not 0 <= contribution.fragment < len(self._shelves) or len(payload) != 1:
            return UNFIT, None
        fragment, precision = self._layout.fragments[contribution.fragment], contribution.precision
        size, exact = fragment.size, self._averages[contribution.fragment]
        top_k = self._settings.top_k_share
        known = precision in QUANTIZERS
        if not known or payload[0].nbytes != size_bytes(size, precision, exact, top_k):
            return UNFIT, None
        if digest(payload[0]) != contribution.digest:
            return replace(UNFIT, schema_ok=True), None
        units = self._units[contribution.fragment]
        try:
            values = decode(payload[0], size, precision, exact, top_k)
        except MalformedError as error:
            return replace(UNFIT, digest_ok=True, flaw=str(error)), None
        measured = measure(values, units)
        check = Check(schema_ok=True, digest_ok=True, finite=measured.finite, norm=measured.norm)
        return check, measured

    def hold(self, ticket: Ticket, connection: int, measured: Measured) -> None:
        """Keep a contribution until its round closes; the first answer over a link stands."""
        by_link = self._waiting.setdefault(ticket, {})
        if connection not in by_link:
            by_link[connection] = measured
            self.waiting_bytes += measured.values.nbytes

    def drop(self, ticket: Ticket, connection: int | None = None) -> None:
        """Free what came for a ticket, or what came over one link only."""
        held = self._waiting.pop(ticket, {})
        left = {link: one for link, one in held.items() if connection not in (None, link)}
        self.waiting_bytes -= sum(held[link].values.nbytes for link in held.keys() - left.keys())
        if left:
            self._waiting[ticket] = left

    # --- version 0 ----------------------------------------------------------------------------

    def keep_seed(self, seed: FragmentSeed, payload: tuple[memoryview, ...]) -> bool:
        """Keep an intact fragment of version 0: the first of its sender's newest incarnation."""
        if not 0 <= seed.fragment < len(self._shelves) or len(payload) != 1:
            return False
        size = self._layout.fragments[seed.fragment].size
        if payload[0].nbytes != 4 * size or digest(payload[0]) != seed.digest:
            return False
        value = np.array(np.frombuffer(payload[0], np.float32))  # the pool reuses the buffer
        if not bool(np.isfinite(value).all()):
            return False
        offered = seed.fragment, seed.name, seed.incarnation
        for key in list(self._seeds):
            if key[:2] == offered[:2] and key < offered:
                self._seeds.pop(key, None)  # another of the worker's threads may have done so
        made = _Seed(seed.digest, value, self._optimizer.init(value))
        kept = self._seeds.setdefault(offered, made).digest == seed.digest
        if self._shelves[seed.fragment].values:  # installed, perhaps just now
            self._seeds.clear()
            return False
        return kept

    def keep_initial(self, values: Sequence[NDArray[np.float32]]) -> tuple[str, ...]:
        """Keep a whole initial value that no learner sent; return its digests by fragment."""
        fragments = self._layout.fragments
        if len(values) != len(fragments):
            raise UserError(
                f"the initial value has {len(values)} fragments, the run has {len(fragments)}"
            )
        digests: list[str] = []
        for fragment, given in zip(fragments, values, strict=True):
            if given.shape != (fragment.size,) or not bool(np.isfinite(given).all()):
                raise UserError(
                    f"the initial value of fragment {fragment.index} is {given.dtype}{given.shape} "
                    f"with finite = {bool(np.isfinite(given).all())}; it must be {fragment.size} "
                    "finite numbers"
                )
            value = np.ascontiguousarray(given, np.float32)
            digests.append(digest(as_buffer(value)))
            made = _Seed(digests[-1], value, self._optimizer.init(value))
            self._seeds[fragment.index, LearnerName(""), Incarnation(0, 0)] = made
        return tuple(digests)

    def install_seed(self, version: Version, digests: tuple[str, ...]) -> None:
        """Install the offered values with these digests; earlier senders' offers count as well."""
        offered = {(key[0], seed.digest): seed for key, seed in self._seeds.items()}
        seeds = [offered[index, computed] for index, computed in enumerate(digests)]
        self._seeds.clear()
        for index, seed in enumerate(seeds):
            self._shelves[index] = _FragmentValues({version: seed.value}, seed.state)
            self._increments[index].begin()

    # --- versions -----------------------------------------------------------------------------

    def merge(self, action: BeginMerge) -> MergeFacts:
        """Merge contributions and take one outer step; heavy, for the worker."""
        shelf = self._shelves[action.fragment]
        current = shelf.values[action.current]
        units = self._units[action.fragment]
        weights = [weight(p.tokens, p.steps, self._settings.weighting) for p in action.parts]
        contributions: list[Measured] = []
        for part in action.parts:
            measured = self._waiting[part.ticket][part.connection]
            if part.scale < 1:
                measured = clip(measured, measured.norm * part.scale)
            if self._settings.rebases and part.base != action.current:
                base = shelf.values[part.base]
                measured = measure(rebase(measured.values, base, current), units)
            contributions.append(measured)
        step = merge_with(self._optimizer, current, shelf.state, contributions, weights, units)
        value, increment = self._increments[action.fragment].publish(
            action.current, action.target, current, step.value
        )
        self._shelve(shelf, action.target, value, step.state)
        return MergeFacts(
            digest=digest(as_buffer(value)),
            weights=tuple(weights),
            norms=tuple(step.norms),
            direction_norm=step.direction_norm,
            cosine_to_previous=step.cosine_to_previous,
            increment=increment,
        )

    def _shelve(
        self, shelf: _FragmentValues, version: Version, value: Floats, state: OuterState
    ) -> None:
        """Add the newest version; keep it and those before it that may be needed."""
        shelf.values[version] = value
        shelf.state = state
        for old in sorted(shelf.values)[: -self._settings.values_kept]:
            del shelf.values[old]

    def release(self, fragment: int, version: Version) -> None:
        """Free what is older than a version; no merge of the fragment may be under way."""
        values = self._shelves[fragment].values
        for old in [one for one in values if one < version]:
            del values[old]
        self._increments[fragment].release()

    def value(self, fragment: int, version: Version) -> NDArray[np.float32]:
        return self._shelves[fragment].values[version]

    def payload(self, update: FragmentUpdate) -> tuple[memoryview, ...]:
        """Return what an update carries: increments since a version, or the published value."""
        if update.since is not None:
            return self._increments[update.fragment].chain(update.since.base, update.version)
        return (as_buffer(self.value(update.fragment, update.version)),)

    def journal_arrays(self, fragment: int, version: Version) -> dict[str, NDArray[np.generic]]:
        shelf, left = self._shelves[fragment], self._increments[fragment].remainder
        remainder = {} if left is None else {REMAINDER: left}
        return {"value": shelf.values[version], **shelf.state, **remainder}

    def published(self, versions: list[Version]) -> list[NDArray[np.float32]]:
        return [self.value(index, version) for index, version in enumerate(versions)]


INSPECTIONS_MAX = 4
"""Contributions of one learner that may wait for the worker: answers to two pulls, each twice."""

FULL = "too many of its answers wait to be measured"


class InspectionQueue:
    """The payloads that wait for the inspecting worker, bounded for each sender."""

    def __init__(
        self,
        store: ValueStore,
        worker: Worker,
        now_s: Callable[[], float],
        post: Callable[[ContributionArrived | SeedArrived | Received], object],
    ) -> None:
        self._store = store
        self._worker = worker
        self._now_s = now_s
        self._post = post
        self._waiting: Counter[str] = Counter()
        self._tickets: dict[int, tuple[FragmentIndex, Ticket]] = {}
        self._taken = 0

    def inspect(
        self, connection: int, message: Contribution, payload: tuple[memoryview, ...]
    ) -> None:
        """Measure a contribution; one too many ends its pull as if its sender had declined it."""
        name = str(message.ticket.name)
        if self._waiting[name] >= INSPECTIONS_MAX:
            declined = ContributionDeclined(message.ticket, message.fragment, FULL)
            self._post(Received(declined, connection))
            return
        self._waiting[name] += 1
        self._taken += 1
        number, arrived_s = self._taken, self._now_s()
        self._tickets[number] = message.fragment, message.ticket

        def arrive(result: tuple[Check, Measured | None]) -> None:
            self._done(name)
            del self._tickets[number]
            check, measured = result
            if measured is not None and check.finite:
                self._store.hold(message.ticket, connection, measured)
            inspected_s = self._now_s() - arrived_s
            self._post(ContributionArrived(message, check, connection, inspected_s))

        self._worker.submit(lambda: self._store.inspect(message, payload), arrive)

    def inspect_seed(
        self, seed: FragmentSeed, payload: tuple[memoryview, ...], at_most: int
    ) -> None:
        """Check a fragment of an initial value; at most `at_most` payloads of a sender may wait."""
        name = str(seed.name)
        if self._waiting[name] >= at_most:
            return
        self._waiting[name] += 1

        def arrive(intact: bool) -> None:  # noqa: FBT001  a callback's only argument
            self._done(name)
            self._post(SeedArrived(seed, intact=intact))

        self._worker.submit(lambda: self._store.keep_seed(seed, payload), arrive)

    def note(self, entry: Entry) -> Entry:
        """Return an entry with the names of those whose contributions a round lacks here."""
        if not isinstance(entry, Closed):
            return entry
        names = {
            str(ticket.name)
            for index, ticket in self._tickets.values()
            if (index, ticket.round) == (entry.fragment, entry.round)
        }
        return structs.replace(entry, uninspected=sorted(names.difference(entry.arrived)))

    def _done(self, name: str) -> None:
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]
