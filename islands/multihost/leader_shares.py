"""Who of an island sends which share of a contribution: rank 0's side.

    divided ──each host sends its part──▶ arrived (the syncer has all of it: forgotten)
        └── a host's session is lost, or it lacks the part ──▶ rank 0 sends that part itself

Rank 0 holds the whole of every snapshot, so it stands in for whichever host cannot send. A host is
asked only while it says that its session is open; the parts of the others go with rank 0's own. So
an island whose hosts have no sessions sends everything by rank 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from islands.actors.ports import Worker
from islands.identities import FragmentIndex, Ticket
from islands.layout.ranges import Ranges
from islands.learner.sharing import SendUp
from islands.messages.multihost import ShareWanted, SyncerTold
from islands.messages.shares import ContributionShare, ShareHello
from islands.messages.training import Contribution, Hello
from islands.multihost.shares import Shared, cut, parts, united
from messaging.codec.tensors import digest

RANGES_MAX = 1024
"""Most ranges of a contribution in shares, as a syncer takes them; one with more goes by rank 0."""


@dataclass(slots=True)
class Divided:
    """A contribution whose shares are on their way; `waiting` has those of other hosts, by rank."""

    ticket: Ticket
    answer: int
    precision: str
    size: int
    payload: memoryview = field(repr=False)
    waiting: dict[int, Ranges]


@dataclass(slots=True)
class HostSession:
    """What a follower says of its session: for which `SyncerTold` it is open, and its bytes."""

    number: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


class LeaderShares:
    """Rank 0's side of the sessions that the other hosts have with the syncer.

    Args:
        hosts: number of hosts of the island.
        tell: sends a message to a follower of this rank.
        shared: returns what is known of the model's values.
        worker: cuts shares out, off the loop.
    """

    def __init__(
        self,
        hosts: int,
        *,
        tell: Callable[[int, object], object],
        shared: Callable[[], Shared],
        worker: Worker,
    ) -> None:
        """Know of no syncer yet."""
        self._sessions = {rank: HostSession() for rank in range(1, hosts)}
        self._tell = tell
        self._shared = shared
        self._worker = worker
        self._number = 0
        self._send: SendUp | None = None
        self._divided: dict[int, Divided] = {}

    @property
    def bytes_sent(self) -> int:
        """What the other hosts have sent over their sessions."""
        return sum(session.bytes_sent for session in self._sessions.values())

    @property
    def bytes_received(self) -> int:
        """What they have received over them."""
        return sum(session.bytes_received for session in self._sessions.values())

    # --- what the learner says ----------------------------------------------------------------

    def linked(self, address: str, hello: Hello, send: SendUp) -> None:
        """Have the hosts open sessions; those that are open already stay."""
        self._number += 1
        self._send = send
        self._divided.clear()
        told = ShareHello(
            protocol=hello.protocol,
            run=hello.run,
            name=hello.name,
            incarnation=hello.incarnation,
            credential=hello.credential,
            fingerprint=hello.fingerprint,
            rank=0,
        )
        for rank in self._sessions:
            self._tell(rank, SyncerTold(self._number, address, told))

    def unlinked(self) -> None:
        """Forget what was on its way: the syncer asks again for what it needs."""
        self._send = None
        self._divided.clear()

    def divide(
        self, message: Contribution, payload: memoryview, snapshot: int
    ) -> tuple[Contribution, Callable[[], memoryview]]:
        """Ask each host whose session is open for its part; see `Sharing`."""
        able = [rank for rank, session in self._sessions.items() if self._is_open(session)]
        shared, fragment = self._shared(), message.fragment
        size, shares = shared.size(fragment), parts(shared.shares(fragment), shared.size(fragment))
        asked = {rank: shares[rank] for rank in able if shares[rank]}
        own = united(share for rank, share in enumerate(shares) if rank not in asked)
        several = sum(map(len, asked.values())) + len(own)
        if self._send is None or not asked or not own or not 1 < several <= RANGES_MAX:
            self._divided.pop(fragment, None)
            return message, lambda: payload
        ticket, precision = message.ticket, message.precision
        for rank, ranges in asked.items():
            self._tell(rank, ShareWanted(ticket, snapshot, fragment, precision, ranges))
        self._divided[fragment] = Divided(ticket, snapshot, precision, size, payload, asked)
        head = replace(message, answer=snapshot, ranges=own)
        return head, lambda: cut(payload, own, size)

    def arrived(self, ticket: Ticket) -> None:
        """Forget a contribution that the syncer has."""
        for fragment, divided in list(self._divided.items()):
            if divided.ticket == ticket:
                del self._divided[fragment]

    # --- what the other hosts say -------------------------------------------------------------

    def heard(self, rank: int, session: HostSession) -> None:
        """Take in a follower's state; send what a session that it has lost may have carried."""
        before = self._is_open(self._sessions[rank])
        self._sessions[rank] = session
        if before and not self._is_open(session):
            for fragment in list(self._divided):
                self._stand_in(fragment, rank)

    def lacking(self, rank: int, ticket: Ticket, fragment: int) -> None:
        """Send a part that a follower cannot send."""
        divided = self._divided.get(fragment)
        if divided is not None and divided.ticket == ticket:
            self._stand_in(fragment, rank)

    def _stand_in(self, fragment: int, rank: int) -> None:
        divided, send = self._divided[fragment], self._send
        ranges = divided.waiting.pop(rank, None)
        if ranges is None or send is None:
            return

        def make() -> tuple[memoryview, str]:
            part = cut(divided.payload, ranges, divided.size)
            return part, digest(part)

        def made(found: tuple[memoryview, str]) -> None:
            share = ContributionShare(
                ticket=divided.ticket,
                answer=divided.answer,
                fragment=FragmentIndex(fragment),
                precision=divided.precision,
                ranges=ranges,
                digest=found[1],
            )
            if self._divided.get(fragment) is divided:
                send(share, found[0], f"share-{fragment}-{rank}")

        self._worker.submit(make, made)

    def _is_open(self, session: HostSession) -> bool:
        return 0 < session.number == self._number
