"""Keeps one session with a peer alive: dials, receives, and reconnects, until it is stopped.

`link_state` takes the decisions; this file carries them out and reports events to it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

from messaging.envelope import Envelope
from messaging.errors import DialFailed, LinkClosed
from messaging.links.link import Link, Network
from messaging.links.link_state import (
    CloseSession,
    Dial,
    Dialled,
    DialRefused,
    DialSettings,
    Heard,
    Held,
    LinkAction,
    LinkEvent,
    LinkState,
    Lost,
    Phase,
    SendHeartbeat,
    SetTimer,
    Started,
    StopRequested,
    TimerDue,
)

OnOpen = Callable[[Link], None]
OnEnvelope = Callable[[Link, Envelope], None]
OnClose = Callable[[Link, str], None]


class Dialer:
    """One session with a peer, over one link after another.

    The callbacks run on the loop and must not block. An exception in one of them is a programming
    error: `run` raises it, or, for `on_heartbeat`, the loop's exception handler gets it.

    Attributes:
        link: The open link, or None.
        last_failure: Why dialling failed or a link was lost last, for people; None at first.
    """

    def __init__(
        self,
        network: Network,
        addresses: str | Sequence[str],
        *,
        local: str,
        on_open: OnOpen,
        on_envelope: OnEnvelope,
        on_close: OnClose,
        rng: random.Random,
        settings: DialSettings | None = None,
        on_heartbeat: OnOpen | None = None,
        room: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Prepare the session; `run` dials.

        Args:
            network: The network on which to dial.
            addresses: One address, or several that are tried in turn.
            local: Name under which to dial.
            on_open: Called with each new link; send the first message here.
            on_envelope: Called with each envelope, in order.
            on_close: Called once for each link that was opened, with the reason of its end.
            rng: Source of the jitter.
            settings: Back-off, heartbeat and liveness.
            on_heartbeat: Called every `heartbeat_s` with the open link; send something here.
            room: Awaited before each `on_envelope`, until its receiver has room (backpressure).
        """
        names = (addresses,) if isinstance(addresses, str) else tuple(addresses)
        self.link: Link | None = None
        self._ended_sent = 0
        self._ended_received = 0
        self.last_failure: str | None = None
        self._network = network
        self._local = local
        self._on_open = on_open
        self._on_envelope = on_envelope
        self._on_close = on_close
        self._on_heartbeat = on_heartbeat
        self._room = room
        self._rng = rng
        self._settings = settings or DialSettings()
        self._state = LinkState(names, self._settings)
        self._address = names[0]
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._dialling: asyncio.Timeout | None = None

    @property
    def phase(self) -> Phase:
        """Current phase of the session; see `Phase`."""
        return self._state.phase

    @property
    def bytes_sent(self) -> int:
        """Bytes sent over this link and all earlier ones."""
        return self._ended_sent + (0 if self.link is None else self.link.bytes_sent)

    @property
    def bytes_received(self) -> int:
        """Bytes received over this link and all earlier ones."""
        return self._ended_received + (0 if self.link is None else self.link.bytes_received)

    async def run(self) -> None:
        """Keep the session alive until `stop`. Cancelling closes the link as well."""
        self._report(Started())
        try:
            while self._state.phase is not Phase.STOPPED:  # one iteration per phase of a session
                if self._state.phase is Phase.DIALLING:
                    await self._dial()
                elif self._state.phase is Phase.OPEN:
                    await self._listen()
                else:
                    await self._wait()
        finally:
            self._set_timer(None)
            self._drop_link("the dialler ended")

    def stop(self, reason: str) -> None:
        """Close the session and let `run` return."""
        self._report(StopRequested(reason))
        if self._dialling is not None and not self._dialling.expired():
            self._dialling.reschedule(asyncio.get_running_loop().time())
        self._wake()

    async def _dial(self) -> None:
        try:
            async with asyncio.timeout(self._settings.dial_timeout_s) as self._dialling:
                link = await self._network.dial(self._address, local=self._local)
        except (DialFailed, TimeoutError) as error:
            self.last_failure = str(error) or f"no answer from {self._address!r}"
            self._report(DialRefused(self.last_failure, self._rng.random()))
            return
        finally:
            self._dialling = None
        self.link = link
        self._report(Dialled())
        if self._state.phase is Phase.OPEN:
            self._on_open(link)
        else:
            self.link = None  # `stop` came before the dial ended: close it without `on_open`

    async def _listen(self) -> None:
        link = self.link
        assert link is not None
        try:
            while True:  # until the link is lost
                envelope = await link.receive()
                if self._room is not None:
                    self._report(Held())
                    await self._room()
                self._report(Heard())
                if self._state.phase is Phase.OPEN:  # not stopped while there was no room
                    self._on_envelope(link, envelope)
        except LinkClosed as closed:
            self.last_failure = link.close_reason or str(closed)
            self._drop_link(self.last_failure)
            self._report(Lost(self.last_failure, self._rng.random()))

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _report(self, event: LinkEvent) -> None:
        for action in self._state.handle(event, now_s=asyncio.get_running_loop().time()):
            self._perform(action)

    def _perform(self, action: LinkAction) -> None:
        match action:
            case Dial():
                self._address = action.address
                self._wake()
            case SetTimer():
                self._set_timer(action.at_s)
            case SendHeartbeat():
                if self.link is not None and self._on_heartbeat is not None:
                    self._on_heartbeat(self.link)
            case CloseSession():
                if self.link is not None:
                    self.link.close(action.reason)
            case _:
                assert_never(action)

    def _set_timer(self, at_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            self._timer = asyncio.get_running_loop().call_at(at_s, self._report, TimerDue())

    def _drop_link(self, reason: str) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.close(reason)
            self._ended_sent += link.bytes_sent
            self._ended_received += link.bytes_received
            self._on_close(link, link.close_reason or reason)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
