"""A follower of an island: its link to rank 0, and its own session with the run's syncer.

It has no actor: rank 0 tells it what each boundary carries out, and what its thread reads of a
value goes to rank 0.

Over the session it sends and receives its shares. Rank 0 tells where the syncer is, once it is
welcome there, and which part of which snapshot to send. A follower keeps the newest shares that it
gave rank 0, until this host adopts a published value of that fragment: the one that rank 0 may
answer with, and those that follow. What it cannot send, rank 0 sends (`shares.py`), so nothing is
sent again here: while the session is down, rank 0 does not ask, and what was on its way it sends
itself.

Its shares of published values are kept until rank 0's command to adopt one comes, or one to adopt a
newer value; one that comes after that is not kept. Rank 0 is told of each that is kept, and
commands no more often than it was told.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from islands.actors.ports import Worker
from islands.island.commands import Arrivals, FollowerCommands, entry_of
from islands.island.forming import Ended, consequence_s
from islands.island.health import SILENT_TICKS
from islands.island.leader import LEADER, TICK_S
from islands.island.shares import cut, joined
from islands.layout.leaves import VALUE_BYTES
from islands.learner.compute import Compute, ComputeEvent, ComputeFailed
from islands.learner.copying import COPIES_MAX
from islands.numerics.codecs import size_bytes
from islands.protocol.errors import FAILED, OF_NO_USE, InvariantError
from islands.protocol.identities import FragmentIndex, Version
from islands.protocol.learner.actions import AdoptValue
from islands.protocol.learner.events import SnapshotTaken, ValueAdopted, ValueRead
from islands.protocol.messages.membership import Refused
from islands.protocol.messages.multihost import (
    CommandIssued,
    CommandPart,
    HostFailed,
    HostHello,
    HostState,
    IslandEnds,
    IslandFormed,
    LeaderBeat,
    LeaveAsked,
    ShareHeld,
    ShareLacking,
    ShareWanted,
    SyncerTold,
    ValueShare,
    Word,
)
from islands.protocol.messages.shares import ContributionShare, ShareWelcome, UpdateShare
from islands.protocol.ranges import size_of
from messaging.actors.scope import Scope
from messaging.codec.tensors import digest
from messaging.envelope import Envelope
from messaging.links.dialer import Dialer
from messaging.links.link import Lane, Link, Network
from messaging.links.link_state import DialSettings

VALUES_MAX = 6
"""Shares of published values of one fragment that are kept; those that come then are not."""


class IslandFollower:
    """A follower's side of an island.

    Args:
        upward: dials the run's syncer.
    """

    def __init__(
        self,
        hello: HostHello,
        network: Network,
        address: str,
        scope: Scope,
        *,
        upward: Network,
        dialling: DialSettings,
        worker: Worker,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self.commands = FollowerCommands(over=self._on_own_over)
        self._loop = loop
        self._hello = hello
        self._scope = scope
        self._coordinator: asyncio.Future[str] = loop.create_future()
        self._dialer = Dialer(
            network,
            address,
            local=f"rank-{hello.rank}",
            on_open=lambda _: self._send(hello),
            on_envelope=lambda _, envelope: self._on_message(envelope),
            on_close=lambda _, reason: self._on_link_lost(reason),
            rng=random.Random(hello.rank),
        )
        self._shares = FollowerShares(
            hello.rank,
            network=upward,
            dialling=dialling,
            scope=scope,
            worker=worker,
            changed=self._tell_state,
            lacks=lambda wanted: self._send(ShareLacking(wanted.ticket, wanted.fragment)),
            holds=lambda fragment, version: self._send(ShareHeld(fragment, version)),
        )
        self._arrivals = Arrivals()
        self._compute: Compute | None = None
        self._sent = 0
        self._given = {"snapshot": 0, "value": 0}
        self._silent_ticks = 0
        self._refused = ""

    @property
    def obstacle(self) -> str | None:
        """Why rank 0 was not reached yet, for people."""
        return self._refused or self._dialer.last_failure

    async def form(self) -> str:
        """Wait until all hosts are there; returns the address of JAX's coordinator."""
        self._scope.spawn(self._dialer.run(), "leader")
        coordinator = await self._coordinator
        self._scope.spawn(self._tick(), "health")
        return coordinator

    def train(self, compute: Compute) -> None:
        """Start the thread that steps on this host."""
        self._compute = compute
        compute.start(self._on_event)

    def leave(self, reason: str) -> None:
        """Ask rank 0 to have the island leave the run; before it has formed, only end."""
        if self._coordinator.done():
            self._send(LeaveAsked(reason))
        else:
            self.end(Ended(reason, FAILED))

    def end(self, ended: Ended) -> None:
        """End this host's process, for the first cause that is told."""
        if not self.ended.done():
            self.ended.set_result(ended)
        self.commands.stop()

    def fail(self, error: BaseException) -> None:
        """Tell rank 0 that this host cannot go on, and end."""
        ended = Ended.of(error, self._hello.rank)
        self._send(HostFailed(ended.reason, mistake=ended.code == OF_NO_USE))
        self.end(ended)

    def _on_event(self, event: ComputeEvent) -> None:
        """Send rank 0 what it is to put together; all else it hears of its own thread."""
        match event:
            case SnapshotTaken(fragment=fragment, payload=payload):
                self._give("snapshot", payload)
                self._shares.keep(fragment, self._given["snapshot"], payload)
            case ValueRead(payload=payload):
                self._give("value", payload)
            case ValueAdopted(fragment=fragment):
                self._shares.on_adopted(fragment)
            case ComputeFailed(error):
                self._loop.call_later(consequence_s(error), self.fail, error)
            case _:
                pass

    def _give(self, kind: str, payload: memoryview) -> None:
        number = self._given[kind]
        self._given[kind] += 1
        self._send(ValueShare(kind, number), (payload,), f"{kind}-{number}")

    def _on_message(self, envelope: Envelope) -> None:
        self._silent_ticks = 0
        match envelope.body:
            case IslandFormed(coordinator):
                if not self._coordinator.done():
                    self._coordinator.set_result(coordinator)
            case CommandIssued(number, kind, body, parts):
                self._arrivals.on_head(number, kind, body, parts)
                self._take_commands()
            case CommandPart(number, index) if len(envelope.payload) == 1:
                self._arrivals.on_part(number, index, envelope.payload[0])
                self._take_commands()
            case Word(boundary, upto):
                self.commands.on_word(boundary, upto)
            case IslandEnds(reason, code, rank):
                if code == FAILED and not self._coordinator.done():
                    self._refused = reason  # dialled again: what was there may be lost
                else:
                    self.end(Ended(reason, code, rank))
            case SyncerTold():
                self._shares.on_syncer(envelope.body)
            case ShareWanted():
                self._shares.on_share_wanted(envelope.body)
            case LeaderBeat():
                pass
            case body:
                self.fail(InvariantError(f"rank 0 sent {type(body).__name__}, out of place"))

    def _take_commands(self) -> None:
        before = self._arrivals.held
        try:
            for number, kind, body, arrays in self._arrivals.complete():
                entry = entry_of(kind, body, arrays)
                if isinstance(entry, AdoptValue):
                    entry = self._shares.adopts(entry)
                self.commands.on_command(number, entry)
        except InvariantError as error:
            self.fail(error)
            return
        if self._arrivals.held > before:
            self._tell_state()

    def _tell_state(self) -> None:
        commands, compute = self.commands, self._compute
        state = HostState(
            held=self._arrivals.held,
            boundary=commands.boundary,
            doing=commands.doing,
            idle=commands.idle,
            compiling=compute is not None and compute.compiling,
            steps=commands.steps,
            over=commands.ended,
            newest=tuple((each.boundary, each.steps, each.to) for each in commands.newest),
            session=self._shares.session,
            bytes_sent=self._shares.bytes_sent,
            bytes_received=self._shares.bytes_received,
        )
        self._send(state)

    def _on_own_over(self) -> None:
        """Tell rank 0 that this host comes to no further boundary; called by the compute thread."""
        with suppress(RuntimeError):  # the loop is closed, as the island has ended
            self._loop.call_soon_threadsafe(self._tell_state)

    async def _tick(self) -> None:
        """Tell rank 0 each second how this host is; end if rank 0 is silent (`health.py`)."""
        while not self.ended.done():
            await asyncio.sleep(TICK_S)
            self._tell_state()
            self._silent_ticks += 1
            if self._silent_ticks >= SILENT_TICKS:
                self.end(Ended(f"rank 0 has been silent for {self._silent_ticks} s", FAILED, 0))

    def _on_link_lost(self, reason: str) -> None:
        if self._coordinator.done():
            self.end(Ended(f"the link to rank 0 was lost: {reason}", FAILED, 0))

    def _send(
        self, body: object, payload: tuple[memoryview, ...] = (), topic: str | None = None
    ) -> None:
        link = self._dialer.link
        if link is None or link.closed:
            return  # its loss ends the island
        self._sent += 1
        lane = Lane.BULK if payload else Lane.CONTROL
        envelope = Envelope(f"rank-{self._hello.rank}", LEADER, self._sent, body, payload=payload)
        link.send(envelope, lane, topic)


class FollowerShares:
    """A follower's session with the syncer, and the shares that it may be asked for.

    Args:
        changed: called when the session has opened or ended.
        lacks: called with what was wanted and cannot be sent.
        holds: called with the fragment and the version of a share that is kept.
    """

    def __init__(
        self,
        rank: int,
        *,
        network: Network,
        dialling: DialSettings,
        scope: Scope,
        worker: Worker,
        changed: Callable[[], object],
        lacks: Callable[[ShareWanted], object],
        holds: Callable[[FragmentIndex, Version], object],
    ) -> None:
        self._rank = rank
        self._network = network
        self._dialling = dialling
        self._scope = scope
        self._worker = worker
        self._changed = changed
        self._lacks = lacks
        self._holds = holds
        self._told: SyncerTold | None = None
        self._dialer: Dialer | None = None
        self._welcome: Link | None = None
        self._ended_sent = 0
        self._ended_received = 0
        self._sent = 0
        self._kept: dict[int, deque[tuple[int, memoryview]]] = {}
        self._values: dict[int, list[tuple[Version, memoryview]]] = {}
        self._adopted: dict[int, Version] = {}

    @property
    def session(self) -> int:
        """The number of the `SyncerTold` for which the session is open; 0 if none is."""
        return 0 if self._link is None or self._told is None else self._told.number

    @property
    def bytes_sent(self) -> int:
        """Bytes that were sent over all sessions."""
        return self._ended_sent + (0 if self._dialer is None else self._dialer.bytes_sent)

    @property
    def bytes_received(self) -> int:
        """Bytes that were received over all sessions."""
        return self._ended_received + (0 if self._dialer is None else self._dialer.bytes_received)

    @property
    def _link(self) -> Link | None:
        link = self._welcome
        return None if link is None or link.closed else link

    # --- the session --------------------------------------------------------------------------

    def on_syncer(self, told: SyncerTold) -> None:
        """Open a session with the syncer of which rank 0 tells, unless it is open."""
        before, self._told = self._told, told
        same = before is not None and (before.address, before.hello) == (told.address, told.hello)
        if same and self._dialer is not None:
            self._changed()
            return
        self.close("rank 0 has another session")
        self._adopted.clear()  # a new incarnation adopts again what an ended one had adopted
        self._dialer = Dialer(
            self._network,
            told.address,
            local=f"{told.hello.name}-rank-{self._rank}",
            on_open=self._on_link_opened,
            on_envelope=self._on_message,
            on_close=lambda _, __: self._on_link_lost(),
            rng=random.Random(self._rank),
            settings=self._dialling,
        )
        self._scope.spawn(self._dialer.run(), "shares")

    def close(self, reason: str) -> None:
        """End the session."""
        dialer, self._dialer, self._welcome = self._dialer, None, None
        if dialer is not None:
            dialer.stop(reason)
            self._ended_sent += dialer.bytes_sent
            self._ended_received += dialer.bytes_received

    def _on_link_opened(self, link: Link) -> None:
        assert self._told is not None, "it dials what it was told"
        self._post(link, replace(self._told.hello, rank=self._rank))

    def _on_message(self, link: Link, envelope: Envelope) -> None:
        match envelope.body:
            case ShareWelcome():
                self._welcome = link
                self._changed()
            case UpdateShare():
                self._on_share(envelope.body, envelope.payload)
            case Refused(retry=False):  # rank 0 goes on to send everything
                self.close("the syncer refuses it")
            case _:
                pass  # a heartbeat, or a refusal for now

    def _on_link_lost(self) -> None:
        was_open, self._welcome = self._welcome is not None, None
        if was_open:
            self._changed()

    # --- shares of published values -----------------------------------------------------------

    def _on_share(self, update: UpdateShare, payload: tuple[memoryview, ...]) -> None:
        fragment, version = update.fragment, update.version

        def make() -> tuple[memoryview, bool]:
            share = joined(payload)
            fits = share.nbytes == VALUE_BYTES * size_of(update.ranges)
            return share, fits and digest(share) == update.digest

        def made(found: tuple[memoryview, bool]) -> None:
            share, intact = found
            kept = self._values.setdefault(fragment, [])
            adopted = self._adopted.get(fragment)
            is_news = adopted is None or adopted < version
            if intact and is_news and len(kept) < VALUES_MAX:
                kept.append((version, share))
                self._holds(fragment, version)

        if payload:
            self._worker.submit(make, made)

    def adopts(self, adopt: AdoptValue) -> AdoptValue:
        """Return a command with this host's share; forget what no later command needs.

        Raises:
            InvariantError: the share is not kept, which is a bug.
        """
        fragment, version = adopt.fragment, adopt.version
        kept = self._values.get(fragment, [])
        mine = [share for at, share in kept if at == version]
        if adopt.in_shares and not mine:
            raise InvariantError(f"{version} of fragment {fragment} is to be adopted, and not here")
        spent = 1 if adopt.in_shares else 0  # of those that were told twice
        left = [(version, share) for share in mine[spent:]]
        self._values[fragment] = [*left, *(each for each in kept if each[0] > version)]
        self._adopted[fragment] = max(version, self._adopted.get(fragment, version))
        return replace(adopt, payload=mine[0]) if adopt.in_shares else adopt

    # --- shares of contributions --------------------------------------------------------------

    def keep(self, fragment: int, number: int, share: memoryview) -> None:
        """Keep a share of a snapshot for as long as rank 0 may ask for it."""
        kept = self._kept.setdefault(fragment, deque(maxlen=COPIES_MAX + 2))
        kept.append((number, share))

    def on_adopted(self, fragment: int) -> None:
        """Forget the shares of a fragment, as a published value has replaced their base here."""
        self._kept.pop(fragment, None)

    def on_share_wanted(self, wanted: ShareWanted) -> None:
        """Send a part of a snapshot; rank 0 is told if that cannot be."""
        link = self._link
        kept = dict(self._kept.get(wanted.fragment, ()))
        share = kept.get(wanted.snapshot)
        self._kept[wanted.fragment] = deque(
            [(number, each) for number, each in kept.items() if number >= wanted.snapshot],
            maxlen=COPIES_MAX + 2,
        )
        if link is None or share is None:
            self._lacks(wanted)
            return
        each = size_bytes(1, wanted.precision)
        whole = share.nbytes != each * size_of(wanted.ranges)  # each host has all of the value

        def make() -> tuple[memoryview, str]:
            part = cut(share, wanted.ranges, share.nbytes // each) if whole else share
            return part, digest(part)

        def made(found: tuple[memoryview, str]) -> None:
            message = ContributionShare(
                ticket=wanted.ticket,
                answer=wanted.answer,
                fragment=wanted.fragment,
                precision=wanted.precision,
                ranges=wanted.ranges,
                digest=found[1],
            )
            if not self._post(link, message, (found[0],), f"share-{wanted.fragment}"):
                self._lacks(wanted)

        self._worker.submit(make, made)

    def _post(
        self,
        link: Link,
        body: object,
        payload: tuple[memoryview, ...] = (),
        topic: str | None = None,
    ) -> bool:
        if link.closed:
            return False
        self._sent += 1
        lane = Lane.BULK if payload else Lane.CONTROL
        return link.send(
            Envelope(link.local, link.remote, self._sent, body, payload=payload), lane, topic
        )
