"""A follower of an island: its link to rank 0.

It has no actor: rank 0 tells it what each boundary carries out, and what its thread reads of a
value goes to rank 0.
"""

import asyncio
import random
from contextlib import suppress

from islands.island.commands import Arrivals, FollowerCommands, entry_of
from islands.island.forming import Ended, consequence_s
from islands.island.health import SILENT_TICKS
from islands.island.leader import LEADER, TICK_S
from islands.learner.compute import Compute, ComputeEvent, ComputeFailed
from islands.protocol.errors import FAILED, OF_NO_USE, InvariantError
from islands.protocol.learner.events import SnapshotTaken, ValueRead
from islands.protocol.messages import multihost as messages
from messaging.actors.scope import Scope
from messaging.envelope import Envelope
from messaging.links.dialer import Dialer
from messaging.links.link import Lane, Network


class IslandFollower:
    """A follower's side of an island."""

    def __init__(
        self,
        hello: messages.HostHello,
        network: Network,
        address: str,
        scope: Scope,
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
            self._send(messages.LeaveAsked(reason))
        else:
            self.end(Ended(reason, FAILED))

    def end(self, ended: Ended) -> None:
        """End this host's process, for the first cause that is reported."""
        if not self.ended.done():
            self.ended.set_result(ended)
        self.commands.stop()

    def fail(self, error: BaseException) -> None:
        """Tell rank 0 that this host cannot go on, and end."""
        ended = Ended.of(error, self._hello.rank)
        self._send(messages.HostFailed(ended.reason, mistake=ended.code == OF_NO_USE))
        self.end(ended)

    def _on_event(self, event: ComputeEvent) -> None:
        """Send rank 0 what it is to put together; all else it hears of its own thread."""
        match event:
            case SnapshotTaken(payload=payload):
                self._give("snapshot", payload)
            case ValueRead(payload=payload):
                self._give("value", payload)
            case ComputeFailed(error):
                self._loop.call_later(consequence_s(error), self.fail, error)
            case _:
                pass

    def _give(self, kind: str, payload: memoryview) -> None:
        number = self._given[kind]
        self._given[kind] += 1
        self._send(messages.ValueShare(kind, number), (payload,), f"{kind}-{number}")

    def _on_message(self, envelope: Envelope) -> None:
        self._silent_ticks = 0
        match envelope.body:
            case messages.IslandFormed(coordinator):
                if not self._coordinator.done():
                    self._coordinator.set_result(coordinator)
            case messages.CommandIssued(number, kind, body, parts):
                self._arrivals.on_head(number, kind, body, parts)
                self._take_commands()
            case messages.CommandPart(number, index) if len(envelope.payload) == 1:
                self._arrivals.on_part(number, index, envelope.payload[0])
                self._take_commands()
            case messages.Word(boundary, upto):
                self.commands.on_word(boundary, upto)
            case messages.IslandEnds(reason, code, rank):
                if code == FAILED and not self._coordinator.done():
                    self._refused = reason  # dialled again: what was there may be lost
                else:
                    self.end(Ended(reason, code, rank))
            case messages.LeaderBeat():
                pass
            case body:
                self.fail(InvariantError(f"rank 0 sent {type(body).__name__}, out of place"))

    def _take_commands(self) -> None:
        before = self._arrivals.held
        try:
            for number, kind, body, arrays in self._arrivals.complete():
                self.commands.on_command(number, entry_of(kind, body, arrays))
        except InvariantError as error:
            self.fail(error)
            return
        if self._arrivals.held > before:
            self._tell_state()

    def _tell_state(self) -> None:
        commands, compute = self.commands, self._compute
        state = messages.HostState(
            held=self._arrivals.held,
            boundary=commands.boundary,
            doing=commands.doing,
            idle=commands.idle,
            compiling=compute is not None and compute.compiling,
            steps=commands.steps,
            over=commands.ended,
            newest=tuple((each.boundary, each.steps, each.to) for each in commands.newest),
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
