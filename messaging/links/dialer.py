"""Keeps one session with a peer alive: dials, receives, and reconnects, until it is stopped.

`link_state` decides how long to wait for what.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from math import inf

from messaging.envelope import Envelope
from messaging.errors import DialFailed, LinkClosed
from messaging.links.link import Link, Network
from messaging.links.link_state import Backoff, DialSettings, Liveness


class Dialer:
    """One session with a peer, over one link after another; `link` is the open one, or None.

    The callbacks run on the loop and must not block. An exception in one of them is a programming
    error, which `run` raises. `last_failure` says why dialling failed or a link was lost last.
    """

    def __init__(
        self,
        network: Network,
        addresses: str | Sequence[str],
        *,
        local: str,
        on_open: Callable[[Link], None],
        on_envelope: Callable[[Link, Envelope], None],
        on_close: Callable[[Link, str], None],
        rng: random.Random,
        settings: DialSettings | None = None,
        room: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Prepare the session; `run` dials one of the addresses, in turn, under the name `local`.

        `on_open` is called with each new link (send the first message there), `on_envelope` with
        each envelope, in order, and `on_close` once for each link, with the reason of its end.
        `room` is awaited before each envelope, until its receiver has room (backpressure). `rng`
        draws the jitter.
        """
        self.link: Link | None = None
        self.last_failure: str | None = None
        self._network = network
        self._addresses = (addresses,) if isinstance(addresses, str) else tuple(addresses)
        self._next_address = 0
        self._local = local
        self._on_open = on_open
        self._on_envelope = on_envelope
        self._on_close = on_close
        self._rng = rng
        self._settings = settings or DialSettings()
        self._backoff = Backoff(self._settings)
        self._room = room
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None  # of the liveness of `link`
        self._waiting: asyncio.Timeout | None = None  # of a dial, or of a pause between dials
        self._ended_sent = 0
        self._ended_received = 0

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
        loop = asyncio.get_running_loop()
        try:
            while not self._stopped:
                link = await self._dial()
                if link is None:
                    pause_s = self._backoff.refused(self._rng.random())
                else:
                    opened_s = loop.time()
                    await self._receive_all(link)
                    pause_s = self._backoff.lost(loop.time() - opened_s, self._rng.random())
                await self._pause(pause_s)
        finally:
            self._drop_link("the dialler ended")

    def stop(self, reason: str) -> None:
        """Close the session and let `run` return."""
        self._stopped = True
        if self.link is not None:
            self.link.close(reason)
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def _dial(self) -> Link | None:
        address = self._addresses[self._next_address]
        try:
            async with asyncio.timeout(self._settings.dial_timeout_s) as self._waiting:
                link = await self._network.dial(address, local=self._local)
        except (DialFailed, TimeoutError) as error:
            self.last_failure = str(error) or f"no answer from {address!r}"
            self._next_address = (self._next_address + 1) % len(self._addresses)
            return None
        finally:
            self._waiting = None
        if self._stopped:  # `stop` came before the dial ended
            link.close("no session is wanted any more")
            return None
        return link

    async def _receive_all(self, link: Link) -> None:
        """Pass on the envelopes of a link until it is lost."""
        loop = asyncio.get_running_loop()
        liveness = Liveness(self._settings.liveness_s, loop.time())
        self.link = link
        self._watch_later(link, liveness)
        try:
            self._on_open(link)
            while True:  # until the link is lost
                envelope = await link.receive()
                if self._room is not None:
                    liveness.heard(loop.time(), held=True)
                    await self._room()
                liveness.heard(loop.time(), held=False)
                if not self._stopped:  # while there was no room
                    self._on_envelope(link, envelope)
        except LinkClosed as closed:
            self.last_failure = link.close_reason or str(closed)
            self._drop_link(self.last_failure)

    async def _pause(self, pause_s: float) -> None:
        if self._stopped:
            return
        try:
            async with asyncio.timeout(pause_s) as self._waiting:
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return
        finally:
            self._waiting = None

    def _watch_later(self, link: Link, liveness: Liveness) -> None:
        if liveness.check_s < inf:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(liveness.check_s, self._watch, link, liveness)

    def _watch(self, link: Link, liveness: Liveness) -> None:
        """Close the link if its peer has been silent for too long."""
        reason = liveness.check(asyncio.get_running_loop().time())
        if reason is None:
            self._watch_later(link, liveness)
        else:
            link.close(reason)

    def _drop_link(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        link, self.link = self.link, None
        if link is not None:
            link.close(reason)
            self._ended_sent += link.bytes_sent
            self._ended_received += link.bytes_received
            self._on_close(link, link.close_reason or reason)
