"""Payloads that arrived and are measured on a worker; each becomes an event once it is measured.

A contribution that comes in shares is measured once all of it is here (`shares.py`).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace as with_fields

from msgspec.structs import replace

from islands.actors.ports import Worker
from islands.numerics.codecs import size_bytes
from islands.numerics.norms import Measured
from islands.protocol.errors import MalformedError
from islands.protocol.handlers import Received
from islands.protocol.identities import FragmentIndex, LearnerName, Ticket
from islands.protocol.messages.shares import ContributionShare
from islands.protocol.messages.training import (
    Contribution,
    ContributionDeclined,
    FragmentSeed,
)
from islands.protocol.ranges import size_of
from islands.protocol.settings.choices import Precision
from islands.protocol.syncer.eligibility import BUSY
from islands.protocol.syncer.events import ContributionArrived, SeedArrived
from islands.protocol.syncer.health import LoadWatch
from islands.protocol.syncer.plausibility import Check
from islands.protocol.syncer.shares import Answer, Assemblies, Assembly
from islands.protocol.tape.entry import Entry
from islands.protocol.tape.round_entries import Closed, Merged, Opened
from islands.syncer.value_store import UNFIT, ValueStore

INSPECTIONS_MAX = 4
"""Contributions of one learner that may wait for the worker: answers to two pulls, each twice."""

FULL = "too many of its answers wait to be measured"

IN_SHARES = tuple(precision for precision in Precision if not precision.on_host)
"""The precisions of which a share is a slice of the payload; all else is encoded as one."""


class InspectionQueue:
    """The payloads that wait for the inspecting worker, bounded for each sender.

    Attributes:
        load: counts the contributions that rounds lack because they wait here.
        whole: told the connection and the ticket of a contribution whose last share has arrived.

    Args:
        store: measures payloads, and keeps contributions that are finite.
        worker: runs the measurements.
        post: given the event for each payload that was measured.
    """

    def __init__(
        self,
        store: ValueStore,
        worker: Worker,
        post: Callable[[ContributionArrived | SeedArrived | Received], object],
    ) -> None:
        """Start with nothing waiting."""
        self._store = store
        self._worker = worker
        self._post = post
        self.whole: Callable[[int, Ticket], object] = lambda _, __: None
        self._assemblies = Assemblies()
        self._waiting: Counter[str] = Counter()
        self._tickets: dict[int, tuple[FragmentIndex, Ticket]] = {}
        self._taken = 0
        self.load = LoadWatch()

    def inspect(
        self, connection: int, message: Contribution, payload: tuple[memoryview, ...]
    ) -> None:
        """Measure a contribution; one too many ends its pull as if its sender had declined it.

        One that has the first share alone is measured once the others have come.
        """
        if message.ranges:
            self._take_head(connection, message, payload)
            return
        name = str(message.ticket.name)
        if self._waiting[name] >= INSPECTIONS_MAX:
            declined = ContributionDeclined(message.ticket, message.fragment, FULL)
            self._post(Received(declined, connection))
            return
        self._waiting[name] += 1
        self._taken += 1
        number = self._taken
        self._tickets[number] = message.fragment, message.ticket

        def arrive(result: tuple[Check, Measured | None]) -> None:
            self._done(name)
            del self._tickets[number]
            check, measured = result
            if measured is not None and check.finite:
                self._store.hold(message.ticket, connection, measured)
            self._post(ContributionArrived(message, check, connection))

        self._worker.submit(lambda: self._store.inspect(message, payload), arrive)

    def _take_head(
        self, connection: int, head: Contribution, payload: tuple[memoryview, ...]
    ) -> None:
        """Copy the head's own share, whose digest is checked with that of the whole value."""
        try:
            claimed = self._claim(head, payload)
        except MalformedError as error:
            check = with_fields(UNFIT, flaw=f"share: {error}")
            self._post(ContributionArrived(head, check, connection))
            return
        self._assemblies.add_head(connection, head)
        if claimed is not None:
            self._copy(head, claimed, payload[0], None, lambda _: None)

    def copy_share(
        self,
        share: ContributionShare,
        payload: tuple[memoryview, ...],
        refused: Callable[[str], object],
    ) -> None:
        """Copy a share of a contribution to its place, unless it came before.

        `refused` is called with a sentence if it cannot be a share of that contribution.
        """
        try:
            claimed = self._claim(share, payload)
        except MalformedError as error:
            refused(str(error))
            return
        if claimed is not None:
            self._copy(share, claimed, payload[0], share.digest, refused)

    @property
    def sizes(self) -> list[int]:
        """The number of elements of each fragment."""
        return self._store.sizes

    def forget_shares(self, name: LearnerName) -> None:
        """Forget a learner's contributions that are not whole, since its link is gone."""
        self._assemblies.forget(name)

    def _claim(
        self, message: Contribution | ContributionShare, payload: tuple[memoryview, ...]
    ) -> Assembly | None:
        """Claim the elements of a share, whose bytes must be as many as these take.

        Raises:
            MalformedError: it does not fit; the text says why.
        """
        size, precision = self._store.size(message.fragment), message.precision
        if size is None:
            raise MalformedError(f"there is no fragment {message.fragment}")
        if precision not in IN_SHARES:
            raise MalformedError(f"the precision {precision!r} is not sent in shares")
        expected = size_bytes(1, precision) * size_of(message.ranges)
        if len(payload) != 1 or payload[0].nbytes != expected:
            had = [each.nbytes for each in payload]
            raise MalformedError(
                f"it came with buffers of {had} bytes, and its ranges take {expected}"
            )
        return self._assemblies.claim(Answer.of(message), size, message.ranges)

    def _copy(
        self,
        message: Contribution | ContributionShare,
        assembly: Assembly,
        payload: memoryview,
        computed: str | None,
        refused: Callable[[str], object],
    ) -> None:
        """Copy a share on the worker; the last one makes its contribution whole."""
        ranges = message.ranges
        if assembly.buffer is None:
            assembly.buffer = self._store.room(size_bytes(assembly.size, message.precision))
        whole, place = assembly.buffer, self._store.place

        def arrive(intact: bool) -> None:  # noqa: FBT001  a callback's only argument
            if intact:
                assembly.placed += size_of(ranges)
                self._look_whether_whole(Answer.of(message))
            else:
                assembly.give_back(ranges)
                refused("its digest is not that of its bytes")

        self._worker.submit(lambda: place(whole, ranges, payload, computed), arrive)

    def _look_whether_whole(self, answer: Answer) -> None:
        assembly = self._assemblies.pop_whole(answer)
        if assembly is None or assembly.head is None or assembly.buffer is None:
            return
        connection, head = assembly.head
        self.whole(connection, answer.ticket)
        payload = (assembly.buffer.toreadonly(),)
        self.inspect(connection, with_fields(head, ranges=()), payload)

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
        """Count what a round lacks because it waits here; return the entry with the names added."""
        if isinstance(entry, Opened):
            left_out = entry.left_out
            held_up = [name for name in left_out if left_out[name] == BUSY and self._waiting[name]]
            self.load.opened(entry.round, len(held_up))
        elif isinstance(entry, Closed):
            uninspected = self._uninspected(entry.fragment, entry.round, entry.arrived)
            self.load.lacks(entry.round, len(uninspected))
            return replace(entry, uninspected=uninspected)
        elif isinstance(entry, Merged):
            self.load.merged()
        return entry

    def _uninspected(self, fragment: int, number: int, arrived: list[LearnerName]) -> list[str]:
        """Return whose contributions to a round have arrived and are not measured yet, by name."""
        names = [
            str(ticket.name)
            for index, ticket in self._tickets.values()
            if (index, ticket.round) == (fragment, number) and ticket.name not in arrived
        ]
        return sorted(dict.fromkeys(names))

    def _done(self, name: str) -> None:
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]
