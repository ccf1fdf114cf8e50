"""Payloads that arrived and are measured on a worker; each becomes an event once it is measured."""

from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from islands.actors.ports import Worker
from islands.numerics.norms import Measured
from islands.protocol.handlers import Received
from islands.protocol.identities import FragmentIndex, Ticket
from islands.protocol.messages.training import Contribution, ContributionDeclined, FragmentSeed
from islands.protocol.syncer.events import ContributionArrived, SeedArrived
from islands.protocol.syncer.plausibility import Check
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.round_entries import Closed
from islands.syncer.value_store import ValueStore

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
        return replace(entry, uninspected=sorted(names.difference(entry.arrived)))

    def _done(self, name: str) -> None:
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]
