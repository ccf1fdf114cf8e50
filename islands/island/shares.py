"""Shares of flat values: cut out, put together, and who of an island sends and is sent which.

A host's share of a value is made of the ranges that lie on its devices. Ranges count elements, are
ascending, and may be several where a mesh interleaves the devices of hosts.

    divided ──each host sends its part──▶ arrived (the syncer has all of it: forgotten)
        └── a host's session is lost, or it lacks the part ──▶ rank 0 sends that part itself

Rank 0 holds the whole of every snapshot, so it stands in for whichever host cannot send. A host is
asked only while it says that its session is open; the parts of the others go with rank 0's own. So
an island whose hosts have no sessions sends everything by rank 0.

Published values come in shares if rank 0 has asked for that. One reaches the learner, as this
host's share, once every host has told that it holds its own, and only if it is newer than what the
learner has; so a command to adopt it finds the share on each host. If one is lost, or late, the
learner reports no adoption, and the syncer sends that value again, or a newer one, whole.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from islands.actors.ports import Worker
from islands.actors.published_values import Payload, Taken
from islands.layout.leaves import VALUE_BYTES
from islands.learner.sharing import SendUp
from islands.model.interfaces import Model
from islands.protocol.errors import InvariantError
from islands.protocol.identities import FragmentIndex, Ticket, Version
from islands.protocol.messages.multihost import ShareWanted, SyncerTold
from islands.protocol.messages.shares import (
    BUFFERS_MAX,
    RANGES_MAX,
    ContributionShare,
    ShareHello,
    UpdatesInShares,
)
from islands.protocol.messages.training import Contribution, FragmentUpdate, Hello
from islands.protocol.ranges import Ranges, held_by, size_of
from islands.protocol.tape.process_entries import UpdateRefused
from islands.settings.wire_limits import can_tell_shares
from messaging.codec.tensors import digest


class Shared(Protocol):
    """Shares and sizes of a model's values, known once it was made."""

    def shares(self, fragment: int) -> Sequence[Ranges]:
        """Return the share of each host, by rank, of a fragment's flat value."""

    def size(self, fragment: int) -> int:
        """Return the number of elements of a fragment."""

    def sizes(self) -> Sequence[int]:
        """Return those of all fragments."""


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
class Pending:
    """A published value of which this host has its share, and others may not have theirs."""

    version: Version
    share: memoryview = field(repr=False)
    arrived: Callable[[Taken], object]


@dataclass(slots=True)
class HostSession:
    """A follower's report on its session: for which `SyncerTold` it is open, and its bytes."""

    number: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


class LeaderShares:
    """Rank 0's side of the sessions that the other hosts have with the syncer.

    Args:
        shared: returns what is known of the model's values.
        say: told, in a sentence for people, that values cannot come in shares.
    """

    def __init__(
        self,
        hosts: int,
        *,
        tell: Callable[[int, object], object],
        shared: Callable[[], Shared],
        worker: Worker,
        say: Callable[[str], object],
    ) -> None:
        self._sessions = {rank: HostSession() for rank in range(1, hosts)}
        self._tell = tell
        self._shared = shared
        self._worker = worker
        self._say = say
        self._said = False
        self._number = 0
        self._send: SendUp | None = None
        self._divided: dict[int, Divided] = {}
        self._answers = 0
        self._hello: Hello | None = None
        self._whole = False
        self._made = False
        self._asked: tuple[tuple[Ranges, ...], ...] = ()
        self._pending: dict[int, Pending] = {}
        self._held: dict[int, dict[int, Version]] = {rank: {} for rank in self._sessions}
        self._newest: dict[int, Version] = {}

    @property
    def bytes_sent(self) -> int:
        """Bytes that the other hosts have sent over their sessions."""
        return sum(session.bytes_sent for session in self._sessions.values())

    @property
    def bytes_received(self) -> int:
        """Bytes that they have received over them."""
        return sum(session.bytes_received for session in self._sessions.values())

    # --- what the learner says ----------------------------------------------------------------

    def linked(self, address: str, hello: Hello, send: SendUp, *, whole: bool) -> None:
        """Have the hosts open sessions; those that are open already stay."""
        self.unlinked()
        self._number += 1
        self._send, self._hello, self._whole = send, hello, whole
        self._asked = ()
        self._newest.clear()  # a new incarnation adopts again what an ended one had adopted
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
        self._ask_for_values()

    def made(self) -> None:
        """Note that the model was made, so that the shares of its values are known."""
        self._made = True
        self._ask_for_values()

    def _ask_for_values(self) -> None:
        """Ask the syncer for values in shares while every session is open; else to send all here.

        A session that is lost to a silent network is open at the syncer's end for longer.
        """
        hello, send = self._hello, self._send
        if hello is None or send is None or self._whole or not self._made:
            return
        wish = self._wish() if all(map(self._is_open, self._sessions.values())) else ()
        if wish != self._asked:
            self._asked = wish
            send(UpdatesInShares(hello.name, hello.incarnation, wish), (), None)

    def _wish(self) -> tuple[tuple[Ranges, ...], ...]:
        """Return the shares to be told, by rank and fragment; none if no value can be shared.

        A fragment whose hosts have elements in common, or too many ranges, is told with none.
        """
        shared = self._shared()
        sizes = shared.sizes()
        by_fragment = [tuple(shared.shares(index)) for index in range(len(sizes))]
        apart = [
            sum(map(size_of, shares)) == size
            for shares, size in zip(by_fragment, sizes, strict=True)
        ]
        few = list(map(_are_few, by_fragment))
        self._tell_of_many(sum(each and not low for each, low in zip(apart, few, strict=True)))
        goes = [each and low for each, low in zip(apart, few, strict=True)]
        told = [
            shares if may else ((),) * len(shares)
            for shares, may in zip(by_fragment, goes, strict=True)
        ]
        wish = tuple(zip(*told, strict=True))
        if any(goes) and not can_tell_shares(wish):
            self._tell_of_many(len(sizes))
            return ()
        return wish if any(goes) else ()

    def _tell_of_many(self, fragments: int) -> None:
        """Tell people once that values go whole, over rank 0's link, that could go in shares."""
        if fragments and not self._said:
            self._said = True
            self._say(
                f"published values of {fragments} fragments come whole, over rank 0's link: the "
                "shares of this island's hosts have more ranges than messages carry; a mesh that "
                "does not interleave its hosts, or fewer fragments, mends it"
            )

    def unlinked(self) -> None:
        """Forget what was on its way: the syncer asks again for what it needs."""
        self._send = None
        self._divided.clear()
        self._pending.clear()

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
        self._answers += 1  # of one snapshot, if a link was lost: its divisions may differ
        answer, ticket, precision = self._answers, message.ticket, message.precision
        for rank, ranges in asked.items():
            self._tell(rank, ShareWanted(ticket, answer, snapshot, fragment, precision, ranges))
        self._divided[fragment] = Divided(ticket, answer, precision, size, payload, asked)
        head = replace(message, answer=answer, ranges=own)
        return head, lambda: cut(payload, own, size)

    def arrived(self, ticket: Ticket) -> None:
        """Forget a contribution that the syncer has."""
        for fragment, divided in list(self._divided.items()):
            if divided.ticket == ticket:
                del self._divided[fragment]

    def takes(
        self,
        update: FragmentUpdate,
        payload: Payload,
        *,
        record: Callable[[UpdateRefused], object],
        arrived: Callable[[Taken], object],
    ) -> bool:
        """Take in this host's share of a published value; see `Sharing`."""
        fragment, version, ranges = update.fragment, update.version, update.ranges
        if not ranges:
            self._note(fragment, version)
            return False

        def refuse(reason: str) -> None:
            record(UpdateRefused(fragment, str(version), reason))

        if not self._fits(update, payload):
            refuse(f"a share of other ranges, or lengths, than this host's came: {ranges[:4]}")
            return True

        def make() -> tuple[memoryview, bool]:
            share = joined(payload)
            return share, digest(share) == update.share_digest

        def made(found: tuple[memoryview, bool]) -> None:
            share, intact = found
            if not intact:
                refuse("the digest is not that of the share")
            elif self._is_news(fragment, version):
                self._pending[fragment] = Pending(version, share, arrived)
                self._look_whether_held(fragment)

        self._worker.submit(make, made)
        return True

    def _fits(self, update: FragmentUpdate, payload: Payload) -> bool:
        shared, fragment = self._shared(), update.fragment
        if not self._made or not 0 <= fragment < len(shared.sizes()):
            return False
        lengths = [VALUE_BYTES * (stop - start) for start, stop in update.ranges]
        own = shared.shares(fragment)[0]
        return update.ranges == own and [each.nbytes for each in payload] == lengths

    def _is_news(self, fragment: int, version: Version) -> bool:
        """Whether nothing as new has been given to the learner, or is about to be."""
        pending, newest = self._pending.get(fragment), self._newest.get(fragment)
        return (pending is None or pending.version < version) and (
            newest is None or newest < version
        )

    def _note(self, fragment: int, version: Version) -> None:
        """Note a version that the learner is given, so that no share of an older one follows.

        The other hosts forget theirs at the command to adopt it.
        """
        self._newest[fragment] = max(version, self._newest.get(fragment, version))
        for held in self._held.values():
            if fragment in held and held[fragment] <= version:
                del held[fragment]
        pending = self._pending.get(fragment)
        if pending is not None and pending.version <= version:
            del self._pending[fragment]

    def _look_whether_held(self, fragment: int) -> None:
        """Give the learner a value of which every host has told that it holds its share."""
        pending = self._pending.get(fragment)
        if pending is None:
            return
        shares = self._shared().shares(fragment)
        hosts = [held for rank, held in self._held.items() if shares[rank]]
        if all(held.get(fragment) == pending.version for held in hosts):
            self._note(fragment, pending.version)  # each share that is held serves one command
            pending.arrived(Taken(pending.share))

    # --- what the other hosts say -------------------------------------------------------------

    def on_share_held(self, rank: int, fragment: int, version: Version) -> None:
        """Note that a follower holds its share of a published value."""
        newest = self._newest.get(fragment)
        if newest is None or newest < version:
            self._held[rank][fragment] = version
            self._look_whether_held(fragment)

    def on_state(self, rank: int, session: HostSession) -> None:
        """Take in a follower's state; send what a session that it has lost may have carried."""
        before = self._is_open(self._sessions[rank])
        self._sessions[rank] = session
        if before and not self._is_open(session):
            for fragment in list(self._divided):
                self._stand_in(fragment, rank)
        if before != self._is_open(session):
            self._ask_for_values()

    def on_share_lacking(self, rank: int, ticket: Ticket, fragment: int) -> None:
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
                send(share, (found[0],), f"share-{fragment}-{rank}")

        self._worker.submit(make, made)

    def _is_open(self, session: HostSession) -> bool:
        return 0 < session.number == self._number


def _are_few(shares: Sequence[Ranges]) -> bool:
    """Whether a syncer sends a value of which the hosts have these shares, by its limits."""
    lengths = list(map(len, shares))
    return max(lengths) <= BUFFERS_MAX and sum(lengths) <= RANGES_MAX


# --- values cut and put together --------------------------------------------------------------


@dataclass(slots=True)
class Gathering:
    """Values of one kind whose shares arrive at the leader, each host's in the same order.

    `waiting` holds, by rank, the shares whose values are not complete, the oldest first.
    """

    hosts: int
    waiting: dict[int, deque[memoryview]] = field(default_factory=dict)

    def add(self, rank: int, share: memoryview) -> None:
        """Take in a host's share of the next value that it has not given a share of."""
        self.waiting.setdefault(rank, deque()).append(share)

    def ahead(self, rank: int) -> int:
        """Return how many shares of a host wait for those of others."""
        return len(self.waiting.get(rank, ()))

    def complete(self) -> list[memoryview] | None:
        """Take out the shares of the oldest value, in the order of ranks; None if one lacks."""
        if len(self.waiting) < self.hosts or not all(self.waiting.values()):
            return None
        return [self.waiting[rank].popleft() for rank in range(self.hosts)]


class HostShares:
    """Each host's shares of a model's values.

    Args:
        model: returns the model, which was made before the first value comes; None before that.
    """

    def __init__(self, model: Callable[[], Model | None], hosts: int) -> None:
        self._made = model
        self._hosts = hosts

    def shares(self, fragment: int) -> Sequence[Ranges]:
        """Return the share of each host, by rank, of a fragment's flat value."""
        shares = self._model.shares(fragment)
        return shares if len(shares) > 1 else shares * self._hosts  # or each has all of it

    def size(self, fragment: int) -> int:
        """Return the number of elements of a fragment."""
        return self._model.layout.fragments[fragment].size

    def sizes(self) -> Sequence[int]:
        """Return those of all fragments."""
        return [fragment.size for fragment in self._model.layout.fragments]

    @property
    def _model(self) -> Model:
        model = self._made()
        if model is None:
            raise InvariantError("a value came before the model was made")
        return model


def cut(payload: memoryview, ranges: Ranges, size: int) -> memoryview:
    """Return the bytes of a share: a view of the value's where the share is one range."""
    each = payload.nbytes // size
    parts = [payload[each * start : each * stop] for start, stop in ranges]
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def assembled(shares: Sequence[memoryview], ranges: Sequence[Ranges], size: int) -> memoryview:
    """Return a whole value from the shares of all hosts.

    Args:
        ranges: the shares, in the same order; elements that several hosts hold are equal.

    Returns:
        The bytes of the whole value, in the precision of the shares.
    """
    lengths = [size_of(share) for share in ranges]
    each = sum(share.nbytes for share in shares) // sum(lengths)
    whole = np.empty(each * size, np.uint8)
    for share, held in zip(shares, ranges, strict=True):
        buffer, offset = np.frombuffer(share, np.uint8), 0
        for start, stop in held:
            length = each * (stop - start)
            whole[each * start : each * stop] = buffer[offset : offset + length]
            offset += length
    return whole.data.toreadonly()


def joined(buffers: Sequence[memoryview]) -> memoryview:
    """Return the bytes of some buffers, one after the other; a single one is not copied."""
    return buffers[0] if len(buffers) == 1 else memoryview(b"".join(buffers))


def parts(shares: Sequence[Ranges], size: int) -> list[Ranges]:
    """Return which elements each host sends: its share; or an even part, if each has everything.

    Args:
        shares: each host's share, by rank; every element is in one of them.
    """
    if sum(map(size_of, shares)) == size:
        return list(shares)
    if any(size_of(share) != size for share in shares):
        raise InvariantError("the shares of an island's hosts overlap")
    return [held_by(rank, range(len(shares)), size) for rank in range(len(shares))]


def united(ranges: Iterable[Ranges]) -> Ranges:
    """Return the elements of several hosts, which have none in common, as one share."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(each for share in ranges for each in share):
        begin = merged.pop()[0] if merged and merged[-1][1] == start else start
        merged.append((begin, stop))
    return tuple(merged)
