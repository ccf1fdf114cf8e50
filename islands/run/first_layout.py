"""A hub without a task before it has a run: the first loop that joins tells the layout.

Until then this desk listens at the supervisor's address, and answers whoever asks for the run spec
that the run wants a layout. The first one that can be planned is the run's; all loops then ask
again, until the hub listens in place of the desk.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from islands.actors.role_actor import LinkAcceptor
from islands.layout.loop_layout import LoopLayout, decode_layout
from islands.protocol.errors import UserError
from islands.protocol.identities import SUPERVISOR
from islands.protocol.messages import membership
from islands.protocol.messages.registry import PROTOCOL
from islands.run.hosting.process_runtime import network_of, on_ending_signals, token_of
from islands.settings.groups import ConnectOptions, ListenOptions
from messaging.actors.scope import Scope
from messaging.codec.limits import Limits
from messaging.envelope import Envelope
from messaging.links.link import Link
from messaging.plain_text import plain
from messaging.websocket.network import WebsocketNetwork

LAYOUT_BYTES_MAX = 1 << 24
"""Most bytes of a layout as JSON."""

WAITS = "this hub waits for the first training loop that joins by islands.join; come again later"

Check = Callable[[LoopLayout], object]
"""Plans a run by a layout; raises a UserError if that cannot be."""


@dataclass(frozen=True, slots=True)
class FirstLayout:
    """The first layout, and the port of the desk, which the hub is to use."""

    layout: LoopLayout
    port: int


def answer(
    envelope: Envelope, taken: LoopLayout | None, check: Check
) -> tuple[object, LoopLayout | None]:
    """Decide what a message is answered, and which layout is the run's after it."""
    body, name = envelope.body, envelope.sender
    if (
        isinstance(body, membership.RunSpecRequest | membership.LayoutTold)
        and body.protocol != PROTOCOL
    ):
        reason = f"this hub speaks protocol {PROTOCOL}, not {body.protocol}"
        return membership.Refused(
            name, f"{reason}: install the same version of islands", retry=False
        ), taken
    match body:
        case membership.RunSpecRequest():
            return membership.LayoutWanted(name), taken
        case membership.LayoutTold() if taken is not None:
            return membership.LayoutTaken(name), taken
        case membership.LayoutTold() if len(envelope.payload) == 1:
            try:
                layout = decode_layout(envelope.payload[0])
                check(layout)
            except (msgspec.MsgspecError, UserError) as error:
                reason = f"a run cannot be planned by the layout of {name}: {plain(str(error))}"
                return membership.Refused(name, reason, retry=False), None
            return membership.LayoutTaken(name), layout
        case _:
            return membership.Refused(name, WAITS, retry=True), taken


async def first_layout(
    listening: ListenOptions,
    connecting: ConnectOptions,
    check: Check,
    waits: Callable[[str], object],
) -> FirstLayout | None:
    """Wait for the first loop that tells its layout.

    `waits` is called with the URL once it is listened at. Return None if a signal ended the wait.
    """
    limits = Limits(
        payload_bytes=LAYOUT_BYTES_MAX, payloads={membership.LayoutTold.__name__: LAYOUT_BYTES_MAX}
    )
    network = network_of(connecting, listening, token=token_of(connecting), limits=limits)
    loop = asyncio.get_running_loop()
    found: asyncio.Future[FirstLayout | None] = loop.create_future()
    with on_ending_signals(lambda _: _settle(found, None)):
        try:
            await network.open(listening.host, listening.port, advertise=listening.advertise)
            desk = _Desk(network, check, found)
            waits(network.url(SUPERVISOR))
            try:
                return await found
            finally:
                await network.close()  # the last answer goes out before its link closes
                await desk.close()
        finally:
            await network.close()


class _Desk:
    """Answers the links that others open, until a layout was taken."""

    def __init__(
        self, network: WebsocketNetwork, check: Check, found: "asyncio.Future[FirstLayout | None]"
    ) -> None:
        self._port = network.port
        self._check = check
        self._found = found
        self._taken: LoopLayout | None = None
        self._sent = 0
        self._scope = Scope("first layout", self._failed)
        self._acceptor = LinkAcceptor(
            network.listen(SUPERVISOR),
            self._scope,
            room=self._room,
            receive=self._receive,
            lost=lambda _: None,
        )

    async def close(self) -> None:
        await self._scope.close()

    def _failed(self, _: str, error: BaseException) -> None:
        if not self._found.done():
            self._found.set_exception(error)

    async def _room(self) -> None:
        """Read on at once: each message is answered as it comes."""

    def _receive(self, connection: int, envelope: Envelope) -> None:
        link = self._acceptor.link(connection)
        if link is None:
            return
        body, self._taken = answer(envelope, self._taken, self._check)
        self._send(link, envelope.sender, body)
        if self._taken is not None:
            _settle(self._found, FirstLayout(self._taken, self._port))

    def _send(self, link: Link, name: str, body: object) -> None:
        self._sent += 1
        link.send(Envelope(SUPERVISOR, name, self._sent, body))


def _settle(found: "asyncio.Future[FirstLayout | None]", first: FirstLayout | None) -> None:
    if not found.done():
        found.set_result(first)
