"""Rank 0 of an island: its links to the other hosts, over which they agree and their shares come.

It is the compute of the learner's actor: what the actor commands goes to all hosts, and what a
value's hosts give of it reaches the actor as one. The first cause that ends the island is told to
all hosts, and `ended` is set to it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from islands.actors.ports import Worker
from islands.actors.role_actor import LinkAcceptor
from islands.island.agreement import LogEntry
from islands.island.commands import LeaderCommands, arrays_of, body_of, with_arrays
from islands.island.forming import Ended, disagreement, misfit, named
from islands.island.health import Health
from islands.island.shares import Gathering, HostShares, assembled, cut
from islands.learner.compute import Arrival, BookCopy, Compute, ComputeEvent, Post
from islands.protocol.errors import DONE, FAILED, OF_NO_USE
from islands.protocol.learner.actions import AdoptValue, EngineAction
from islands.protocol.learner.events import SnapshotTaken, ValueRead
from islands.protocol.messages import multihost as messages
from islands.protocol.settings.run import Timing
from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.links.link import Lane, Link, Listener

TICK_S = 1.0
LEADER = "rank-0"

AHEAD_MAX = 4
"""For each fragment, the most shares of a host that may wait for those of slower hosts."""


class IslandLeader:
    """Rank 0's side of an island.

    A host that does not belong here may be started anew, and come again, if it is `replaceable`;
    it is not if all of them are one program of JAX already, so that the island ends.
    """

    def __init__(
        self,
        hosts: int,
        *,
        host: str,
        facts: dict[str, str],
        scope: Scope,
        worker: Worker,
        say: Callable[[str], object],
        leave: Callable[[str], object],
        replaceable: bool = True,
    ) -> None:
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.commands = LeaderCommands(
            hosts,
            send=self._send_commands,
            own=self._own,
            decided=self._on_decided,
            over=self._on_own_over,
        )
        self._loop = asyncio.get_running_loop()
        self._hosts = hosts
        self._names = {0: host}
        self._facts = facts
        self._scope = scope
        self._worker = worker
        self._say = say
        self._leave = leave
        self._replaceable = replaceable
        self._newest: dict[int, list[Arrival]] = {}  # boundaries that a follower came to last
        self._going_on = set(range(hosts))  # ranks that may come to further boundaries
        self._all_over = asyncio.Event()
        self._ranks: dict[int, int] = {}  # rank by connection
        self._formed = asyncio.Event()
        self._acceptor: LinkAcceptor | None = None
        self._health: Health | None = None
        self._compute: Compute | None = None
        self._shared: HostShares | None = None
        self._post: Post = lambda _: None
        self._sent = 0
        self._gathered = {kind: Gathering(hosts) for kind in ("snapshot", "value")}
        self._own_events: dict[str, deque[SnapshotTaken | ValueRead]] = {
            kind: deque() for kind in self._gathered
        }

    # --- forming ------------------------------------------------------------------------------

    async def form(self, listener: Listener) -> None:
        """Wait until every host of the island has reported its rank."""

        async def room() -> None:
            """Read on at once: what followers send is bounded by what they were sent."""

        self._acceptor = LinkAcceptor(
            listener, self._scope, room=room, receive=self._on_message, lost=self._on_link_lost
        )
        if self._hosts > 1:
            await self._formed.wait()

    def begin(self, coordinator: str, timing: Timing) -> None:
        """Tell all hosts where JAX's coordinator is to be; from here on they end together."""
        self._health = Health(
            self._names,
            stalled_s=timing.scaled(timing.stalled_s),
            compile_s=timing.scaled(timing.compile_s),
        )
        self._broadcast(messages.IslandFormed(coordinator))
        self._scope.spawn(self._tick(), "health")

    @property
    def missing(self) -> list[int]:
        """The ranks that have not reported yet."""
        return [rank for rank in range(1, self._hosts) if rank not in self._names]

    def _on_hello(self, connection: int, hello: messages.HostHello) -> None:
        refused = misfit(hello, hosts=self._hosts, facts=self._facts, here=self._names)
        if refused is not None:
            self._say(f"a host was refused: {refused.reason}")
            self._send(connection, messages.IslandEnds(refused.reason, refused.code))
            self._drop(connection, refused.reason)
            if refused.code == OF_NO_USE and not self._replaceable:
                self.end(refused)
            return
        self._ranks[connection] = hello.rank
        self._names[hello.rank] = hello.host
        link = None if self._acceptor is None else self._acceptor.link(connection)
        if link is not None:
            link.admit()
        if len(self._ranks) == self._hosts - 1:
            self._formed.set()

    # --- the end ------------------------------------------------------------------------------

    def end(self, ended: Ended) -> None:
        """End the island, for the first cause that is reported; its hosts hear of it, too."""
        if self.ended.done():
            return
        self.ended.set_result(ended)
        self._broadcast(messages.IslandEnds(ended.reason, ended.code, ended.rank))
        for connection in list(self._ranks):
            self._drop(connection, "the island ends")
        self.commands.abandon()

    def fail(self, error: BaseException) -> None:
        """End the island, as this host cannot go on."""
        self.end(Ended.of(error, 0))

    async def finish(self, reason: str) -> None:
        """End the island in order, once no host comes to a further boundary."""
        await self._all_over.wait()
        self.end(Ended(reason, DONE))

    def _on_link_lost(self, connection: int) -> None:
        rank = self._ranks.pop(connection, None)
        if rank is None:
            return
        if self._formed.is_set():
            self.end(Ended(f"{named(rank, self._names[rank])} was lost", FAILED, rank))
        else:
            del self._names[rank]

    async def _tick(self) -> None:
        assert self._health is not None, "it has begun"
        while not self.ended.done():
            await asyncio.sleep(TICK_S)
            self._broadcast(messages.LeaderBeat())
            commands, compute = self.commands, self._compute
            self._health.hosts[0].on_state(
                commands.boundary,
                commands.steps,
                commands.doing,
                idle=commands.idle or commands.ended,
                compiling=compute is not None and compute.compiling,
            )
            why = self._disagreement() or self._health.tick()
            if why is not None:
                self.end(Ended(why, FAILED, self._health.blamed))

    def _disagreement(self) -> str | None:
        """Return why a host has taken another way through its loop than this one, or None."""
        for rank, newest in self._newest.items():
            for theirs in newest:
                own = self.commands.differing(theirs)
                if own is not None:
                    return disagreement(named(rank, self._names[rank]), theirs, own)
        return None

    # --- the compute of the learner's actor ---------------------------------------------------

    def trains(self, compute: Compute, shared: HostShares) -> None:
        self._compute, self._shared = compute, shared

    @property
    def compiling(self) -> bool:
        own = self._compute is not None and self._compute.compiling
        others = () if self._health is None else self._health.hosts.values()
        return own or any(record.compiling for record in others)

    def start(self, post: Post) -> None:
        assert self._compute is not None, "it has a compute before its actor starts"
        self._post = post
        self._compute.start(self._on_event)

    def command(self, command: EngineAction) -> None:
        """Have all hosts carry out a command at one boundary, unless none follows here."""
        assert self._compute is not None, "it has a compute before its actor starts"
        self._compute.command(command)

    def stop(self) -> None:
        if self._compute is not None:
            self._compute.stop()

    def _on_event(self, event: ComputeEvent) -> None:
        """Pass on what this host's thread reports; a value waits for the other hosts' shares."""
        if isinstance(event, SnapshotTaken):
            self._gather("snapshot", 0, event.payload, event)
        elif isinstance(event, ValueRead):
            self._gather("value", 0, event.payload, event)
        else:
            self._post(event)

    # --- values -------------------------------------------------------------------------------

    def _gather(
        self,
        kind: str,
        rank: int,
        share: memoryview,
        event: SnapshotTaken | ValueRead | None = None,
    ) -> None:
        gathering, events = self._gathered[kind], self._own_events[kind]
        if event is not None:
            events.append(event)
        gathering.add(rank, share)
        while (shares := gathering.complete()) is not None:
            self._put_together(shares, events.popleft())

    def _put_together(self, shares: list[memoryview], event: SnapshotTaken | ValueRead) -> None:
        assert self._shared is not None, "who reports has a model"
        if isinstance(event, SnapshotTaken):
            fragment = event.fragment
            self.commands.put(BookCopy(fragment))
        else:
            fragment = event.request.fragment
        ranges, size = self._shared.shares(fragment), self._shared.size(fragment)
        self._worker.submit(
            lambda: assembled(shares, ranges, size),
            lambda whole: self._post(replace(event, payload=whole)),
        )

    def _own(self, entry: LogEntry) -> LogEntry:
        return self._for(0, entry)

    def _for(self, rank: int, entry: LogEntry) -> LogEntry:
        if not isinstance(entry, AdoptValue):
            return entry
        assert self._shared is not None, "values are adopted once the model was made"
        ranges, size = self._shared.shares(entry.fragment), self._shared.size(entry.fragment)
        arrays = arrays_of(entry)
        return with_arrays(entry, [cut(arrays[0], ranges[rank], size), *arrays[1:]])

    # --- messages -----------------------------------------------------------------------------

    def _send_commands(self, issued: Sequence[tuple[int, LogEntry]]) -> None:
        for number, entry in issued:
            kind, body = type(entry).__name__, body_of(entry)
            for connection, rank in self._ranks.items():
                arrays = arrays_of(self._for(rank, entry))
                self._send(connection, messages.CommandIssued(number, kind, body, len(arrays)))
                for index, array in enumerate(arrays):
                    part, topic = messages.CommandPart(number, index), f"command-{number}-{index}"
                    self._send(connection, part, (array,), topic)

    def _on_decided(self, boundary: int, upto: int) -> None:
        """Tell the followers a word, and number what had to wait; called by the compute thread."""

        def tell() -> None:
            self._broadcast(messages.Word(boundary, upto))
            self.commands.flow()

        with suppress(RuntimeError):  # the loop is closed, as the island has ended
            self._loop.call_soon_threadsafe(tell)

    def _on_own_over(self) -> None:
        """Note that this host comes to no further boundary; called by the compute thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_over, 0)

    def _on_over(self, rank: int) -> None:
        self._going_on.discard(rank)
        if not self._going_on:
            self._all_over.set()

    def _on_message(self, connection: int, envelope: Envelope) -> None:
        body, rank = envelope.body, self._ranks.get(connection)
        if isinstance(body, messages.HostHello):
            self._on_hello(connection, body)
            return
        if rank is None:
            self._drop(connection, "it said something before hello")
            return
        if self._health is None:
            return
        record = self._health.hosts[rank]
        record.silent_ticks = 0
        match body:
            case messages.HostState(held, boundary, doing, idle, compiling):
                idle = idle or body.over
                record.on_state(boundary, body.steps, doing, idle=idle, compiling=compiling)
                self.commands.on_held(rank, held)
                self._newest[rank] = [Arrival(*each) for each in body.newest]
                if body.over:
                    self._on_over(rank)
            case messages.ValueShare(kind) if len(envelope.payload) == 1 and kind in self._gathered:
                assert self._shared is not None, "values are shared once the model was made"
                if self._gathered[kind].ahead(rank) >= AHEAD_MAX * self._shared.fragments:
                    self._drop(connection, "it gave shares of more values than there can be")
                    return
                self._gather(kind, rank, envelope.payload[0])
            case messages.HostFailed(reason, mistake):
                sentence = f"{named(rank, record.host)}: {reason}"
                self.end(Ended(sentence, OF_NO_USE if mistake else FAILED, rank))
            case messages.LeaveAsked(reason):
                self._leave(f"{named(rank, record.host)} was asked to end: {reason}")
            case _:
                self._drop(connection, "it said what no follower says")

    def _broadcast(self, body: object) -> None:
        for connection in list(self._ranks):
            self._send(connection, body)

    def _send(
        self,
        connection: int,
        body: object,
        payload: tuple[memoryview, ...] = (),
        topic: str | None = None,
    ) -> None:
        link: Link | None = None if self._acceptor is None else self._acceptor.link(connection)
        if link is None or link.closed:
            return  # its loss ends the island
        self._sent += 1
        lane = Lane.BULK if payload else Lane.CONTROL
        link.send(Envelope(LEADER, link.remote, self._sent, body, payload=payload), lane, topic)

    def _drop(self, connection: int, reason: str) -> None:
        self._ranks.pop(connection, None)
        if self._acceptor is not None:
            self._acceptor.drop(connection, reason)
