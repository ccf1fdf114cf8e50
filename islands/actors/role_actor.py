"""The base of all roles' actors: their context, the links they dial and accept, and how they end.

A connection's number is never reused. Texts that a role repeats in its answers, on its tape and in
its records are bounded here: a message with a longer one ends its link.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from islands.files.tape_writing import Tape
from islands.layout.leaves import Layout
from islands.protocol.errors import InvariantError, IslandsError, RefusedError
from islands.protocol.messages.control import Note
from islands.protocol.messages.membership import TEXTS_MAX
from islands.protocol.sessions import Exit
from islands.protocol.settings.run import REDIAL_LONGEST_S, RunSettings
from islands.protocol.tape.entry import Entry, Notable
from islands.protocol.tape.process_entries import Failed, KeptOut, Refused
from messaging.actors.actor import Actor
from messaging.actors.scope import Scope
from messaging.clock import Clock, LoopClock
from messaging.envelope import Envelope
from messaging.errors import EncodeError, LinkClosed
from messaging.links.dialer import Dialer
from messaging.links.link import Lane, Link, Listener, Network
from messaging.links.link_state import DialSettings
from messaging.plain_text import plain
from messaging.websocket.security import Keyring

T = TypeVar("T")

EVENTS_MAX = 1 << 20
"""Capacity of the mailbox: more waiting events than this are a bug of this program."""

ROOM = 256
"""Backpressure: the readers of links pause while so many events wait, then go on in turn."""

NOTED_MAX = 64
"""Values of a list that a note keeps: a list of a thousand learners would fit into no frame."""

NOTES_KEPT = 1024
"""Notable entries that wait for the supervisor; older ones stay on this process's tape only."""

CAUSED_BY_PEERS = (Refused, KeptOut)
"""Entries that any peer with the token can cause at will."""

ENTRIES_PER_S = 20


def ignored(*_: object) -> None:
    """The default of a callback."""


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings that an actor is given.

    The addresses of the `supervisor` are tried in turn. Tape times count from `origin_s`, on a
    `clock` that is finer than the event loop's, which does not move while several events are
    handled. With `reports`, the supervisor is in another process, and must be sent what its run
    folder keeps: notable entries of the tape, and step figures. `peers` opens links to learners
    that gossip (None: `network` does), which show and accept the `keyring`, not the run's token.
    """

    settings: RunSettings
    layout: Layout
    network: Network
    tape: Tape
    supervisor: str | tuple[str, ...] = "supervisor"
    origin_s: float = 0.0
    clock: Clock = field(default_factory=LoopClock)
    reports: bool = False
    peers: Network | None = None
    keyring: Keyring | None = None

    @property
    def elapsed_s(self) -> float:
        return self.clock.now_s() - self.origin_s

    @property
    def dialling(self) -> DialSettings:
        """Back-off and liveness timeouts of all sessions."""
        timing = self.settings.timing
        return DialSettings(
            backoff_first_s=timing.scaled(0.1),
            backoff_longest_s=timing.scaled(REDIAL_LONGEST_S),
            dial_timeout_s=timing.scaled(5.0),
            stable_s=timing.scaled(5.0),
            liveness_s=timing.scaled(timing.suspect_s),
        )


class RoleActor(Actor[T]):
    """An actor that performs the actions of a pure state.

    Its teardown is the same whether it was stopped, failed or killed: `release` frees threads,
    listeners and links, then the scope ends the tasks.
    """

    def __init__(self, name: str, context: Context) -> None:
        super().__init__(name, capacity=EVENTS_MAX, room=ROOM)
        self.context = context
        self.scope = Scope(name, self.fail)
        self._failure: BaseException | None = None
        self._envelopes = 0
        self._to_supervisor: Dialer | None = None
        self._notes: deque[Note] = deque(maxlen=NOTES_KEPT)
        self._limit = EntryLimit()

    async def on_stop(self, reason: str) -> None:
        await self.kill()
        if self._failure is not None:
            raise self._failure

    async def on_failure(self, error: BaseException) -> None:
        try:
            detail = error.detail if isinstance(error, IslandsError) else None
            self.record(Failed(repr(error), detail or None))
        finally:
            await self.kill()

    def leave(self, reason: str) -> None:
        self.ref.stop(reason)

    async def kill(self) -> None:
        """End as a killed process does, without a message to anybody."""
        self.release()
        await self.scope.close()

    def release(self) -> None:
        """Free threads, listeners and links; the scope ends the tasks."""

    def fail(self, part: str, error: BaseException) -> None:
        self._failure = error
        self.ref.stop(f"{part} failed: {error!r}")

    def dial(
        self,
        address: str | tuple[str, ...],
        rng: random.Random,
        *,
        opened: Callable[[], None],
        received: Callable[[Envelope], None],
        closed: Callable[[], None],
        settings: DialSettings | None = None,
        network: Network | None = None,
    ) -> Dialer:
        def on_open(_: object) -> None:
            opened()
            self._send_notes()

        dialer = Dialer(
            network or self.context.network,
            address,
            local=self.name,
            on_open=on_open,
            on_envelope=lambda _, envelope: received(envelope),
            on_close=lambda _, __: closed(),
            rng=rng,
            settings=settings or self.context.dialling,
            room=self.mailbox.wait_room,
        )
        if address == self.context.supervisor:
            self._to_supervisor = dialer
        self.scope.spawn(dialer.run(), str(address))
        return dialer

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def post(self, event: T) -> None:
        """Put an event into this actor's own mailbox; the readers of links wait for room first."""
        if not self.ref.tell(event) and not self.ref.stopped:
            self.fail("mailbox", InvariantError(f"{self.name} does not keep up with its mailbox"))

    def record(self, entry: Entry) -> None:
        """Write an entry to the tape, its texts cut to one line; rate-limit those peers cause."""
        entry = plainly(entry)
        if isinstance(entry, CAUSED_BY_PEERS):
            before = self._limit.left_out(self.now_s())
            if before is None:
                return
            entry = replace(entry, left_out=before) if before else entry
        self.context.tape.write(self.context.elapsed_s, self.name, entry)
        if self.context.reports and isinstance(entry, Notable):
            self._notes.append(Note(entry.kind, msgspec.json.encode(noted(entry)).decode()))
            self._send_notes()

    @property
    def supervisor_link(self) -> Link | None:
        """The open link to the supervisor, if there is one."""
        return None if self._to_supervisor is None else self._to_supervisor.link

    def _send_notes(self) -> None:
        while self._notes and self.send(self.supervisor_link, self._notes[0]):
            self._notes.popleft()

    def send(
        self,
        link: Link | None,
        body: object,
        payload: tuple[memoryview, ...] = (),
        lane: Lane = Lane.CONTROL,
        *,
        recipient: str | None = None,
        topic: str | None = None,
    ) -> bool:
        """Send a message; False if the link is down or skipped it, which the state will notice.

        A `recipient` is a peer to whom the process at the other end relays it. A newer message of
        the same topic replaces a waiting one; see `Link.send`.
        """
        if link is None or link.closed:
            return False
        self._envelopes += 1
        to = link.remote if recipient is None else recipient
        envelope = Envelope(self.name, to, self._envelopes, body, payload=payload)
        try:
            return link.send(envelope, lane, topic)
        except EncodeError as error:  # a retry would fail too: record why this process ends
            if not isinstance(body, Note):
                self.record(Failed(str(error)))
            raise


class MemberActor(RoleActor[T]):
    """An actor with two sessions: with the supervisor, and with the syncer that this one names.

    `exit` says why it ends, once its state has decided so.
    """

    def __init__(self, name: str, context: Context) -> None:
        super().__init__(name, context)
        self.exit: Exit | None = None
        self._to_syncer: Dialer | None = None
        self._syncer_address: str | None = None

    async def on_stop(self, reason: str) -> None:
        await super().on_stop(reason)
        if self.exit is not None and self.exit.failed:
            raise RefusedError(self.exit.reason)

    @property
    def syncer_link(self) -> Link | None:
        """The open link to the syncer, if there is one."""
        return None if self._to_syncer is None else self._to_syncer.link

    def dial_syncer(self, address: str, dial: Callable[[str], Dialer]) -> None:
        """Have the session with the syncer at this address from now on."""
        if address == self._syncer_address:
            return
        if self._to_syncer is not None:
            self._to_syncer.stop("the syncer moved")
        self._syncer_address, self._to_syncer = address, dial(address)

    def drop_syncer_link(self, reason: str) -> None:
        """Close the link to the syncer; the session opens another."""
        if (link := self.syncer_link) is not None:
            link.close(reason)


def plainly(entry: Entry) -> Entry:
    changed: dict[str, str] = {}
    for name in entry.__struct_fields__:
        text = getattr(entry, name)
        if type(text) is str and (shown := plain(text)) is not text:
            changed[name] = shown
    return replace(entry, **changed) if changed else entry


def noted(entry: Entry) -> Entry:
    """A tape entry as a note carries it: long lists are cut to their beginning."""
    cut: dict[str, object] = {}
    for name in entry.__struct_fields__:
        value = getattr(entry, name)
        if isinstance(value, list) and len(value) > NOTED_MAX:
            cut[name] = value[:NOTED_MAX]
        elif isinstance(value, dict) and len(value) > NOTED_MAX:
            cut[name] = dict(islice(value.items(), NOTED_MAX))
    return replace(entry, **cut) if cut else entry


class EntryLimit:
    """Rate limit of the entries that peers can cause on one actor's tape; the rest is counted."""

    def __init__(self, per_s: int = ENTRIES_PER_S) -> None:
        self._per_s = per_s
        self._second = float("-inf")
        self._written = 0
        self._left_out = 0

    def left_out(self, now_s: float) -> int | None:
        """Return how many entries were left out since the last one; None to leave this one out."""
        if now_s - self._second >= 1.0:
            self._second, self._written = now_s, 0
        self._written += 1
        if self._written > self._per_s:
            self._left_out += 1
            return None
        before, self._left_out = self._left_out, 0
        return before


READ_AT_ONCE = 16
"""Envelopes read from one link before the readers of other links have their turn."""


def too_long(body: object) -> str | None:
    """Return why a message is not received, since a text in it is too long; None if it is."""
    for name, most in TEXTS_MAX.items():
        text = getattr(body, name, None)
        if isinstance(text, str) and len(text) > most:
            return f"a {name} of {len(text)} characters; at most {most} are allowed"
    return None


class LinkAcceptor:
    """The links that others opened, by connection.

    `room` waits until there is room for one more envelope (backpressure): meanwhile others wait in
    the link, whose own bounds slow its peer down. `receive` gets the number of the connection and
    every envelope, in order, and `lost` the number of every connection that has ended.
    """

    def __init__(
        self,
        listener: Listener,
        scope: Scope,
        *,
        room: Callable[[], Awaitable[None]],
        receive: Callable[[int, Envelope], None],
        lost: Callable[[int], None],
    ) -> None:
        self._listener = listener
        self._scope = scope
        self._room = room
        self._receive = receive
        self._lost = lost
        self._links: dict[int, Link] = {}
        self._connections = 0
        scope.spawn(self._accept(), "accept")

    def link(self, connection: int) -> Link | None:
        """The link of a connection; None once it is closed."""
        return self._links.get(connection)

    def drop(self, connection: int, reason: str) -> None:
        """Close a link, and receive nothing more from it; do nothing if it is gone."""
        link = self._links.pop(connection, None)
        if link is not None:
            link.close(reason)

    def close(self, reason: str) -> None:
        self._listener.close()
        for connection in sorted(self._links):
            self.drop(connection, reason)

    async def _accept(self) -> None:
        while True:  # until the listener closes
            try:
                link = await self._listener.accept()
            except LinkClosed:
                return
            self._connections += 1
            self._links[self._connections] = link
            self._scope.spawn(self._read(self._connections, link), f"link-{self._connections}")

    async def _read(self, connection: int, link: Link) -> None:
        try:
            for number in count(1):  # until the link is lost
                envelope = await link.receive()
                await self._room()
                long = too_long(envelope.body)
                if long is not None:
                    self.drop(connection, long)
                if connection in self._links:  # not dropped, now or while there was no room
                    self._receive(connection, envelope)
                if number % READ_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except LinkClosed:
            pass
        finally:
            self._links.pop(connection, None)
            self._lost(connection)
