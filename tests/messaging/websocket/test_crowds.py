"""Crowds and strangers at the door: they are counted from the first moment, and log no secrets."""

import asyncio
import errno
import gc
import os
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import uvloop
from aiohttp import web

from messaging.codec.frames import Codec
from messaging.envelope import Envelope
from messaging.errors import DialFailed, EncodeError, LinkClosed
from messaging.links.link import Lane
from messaging.websocket import acceptor
from messaging.websocket.acceptor import Acceptor, bind
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import client_tls, server_tls
from messaging.websocket.settings import WebsocketSettings
from tests.messaging.certificates import Certificates
from tests.messaging.doubles import Probe, frames_of, probe
from tests.messaging.websocket import test_server as server

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

ON_BOTH_LOOPS = pytest.mark.parametrize(
    "factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@ON_BOTH_LOOPS
def test_silent_connections_count_before_they_shake_hands(
    certificates: Certificates, factory: type[asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        settings = WebsocketSettings(handshake_s=50.0, unauthenticated_max=20)
        tls = server_tls(certificates.server, certificates.server_key)
        async with (
            server.Hub(
                settings, server_tls=tls, client_tls=client_tls(certificates.authority)
            ) as hub,
            hub.session() as ends,
        ):
            crowd = [await hub.connect() for _ in range(100)]
            async with hub.session() as more:
                await server.still_works(more)
            for streams in crowd[:80]:
                await server.until_ended(streams)
            await server.still_works(ends)
            assert any("that open no session" in sentence for sentence in hub.reports)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


async def test_a_connection_that_never_shakes_hands_is_swept(certificates: Certificates) -> None:
    tls = server_tls(certificates.server, certificates.server_key)
    async with server.Hub(WebsocketSettings(handshake_s=0.2), server_tls=tls) as hub:
        silent, speaking = await hub.connect(), await hub.connect()
        speaking[1].write(server.opening("/far", server.HEADERS))
        await server.until_ended(silent)
        await server.until_ended(speaking)
        assert any("no TLS handshake" in sentence for sentence in hub.reports)
        assert not any(server.SECRET.header() in sentence for sentence in hub.reports)


def handlers() -> int:
    gc.collect()
    return sum(isinstance(one, web.RequestHandler) for one in gc.get_objects())


@ON_BOTH_LOOPS
def test_handshakes_that_fail_leave_nothing(
    certificates: Certificates, factory: type[asyncio.AbstractEventLoop]
) -> None:
    async def main() -> server.Hub:
        tls = server_tls(certificates.server, certificates.server_key)
        async with server.Hub(server_tls=tls, client_tls=client_tls(certificates.authority)) as hub:
            for _ in range(20):
                gone, speaking = await hub.connect(), await hub.connect()
                await server.hang_up(gone)
                speaking[1].write(server.opening("/far", server.HEADERS))
                await server.until_ended(speaking)
            async with hub.session() as ends:
                await server.still_works(ends)
        return hub

    before = handlers()
    with asyncio.Runner(loop_factory=factory) as runner:
        hub = runner.run(main())
    assert hub.reports
    assert handlers() == before


async def test_a_crowd_of_one_address_keeps_nobody_of_another_out() -> None:
    async with server.Hub(WebsocketSettings(handshake_s=50.0, unauthenticated_max=10)) as hub:
        slow = await asyncio.open_connection(
            server.LOOPBACK, hub.network.port, local_addr=("127.0.0.2", 0)
        )
        crowd = [await hub.connect() for _ in range(40)]
        for streams in crowd[:30]:
            await server.until_ended(streams)
        slow[1].write(server.opening("/far", server.HEADERS))
        assert (await slow[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        await server.hang_up(slow)


async def test_sessions_that_nobody_admits_give_way_to_newer_ones() -> None:
    async with (
        server.Hub(WebsocketSettings(guests_max=8), guests=True) as hub,
        hub.session() as member,
    ):
        member[1].admit()
        held = [await hub.network.dial(hub.listener.address, local="held") for _ in range(20)]
        with pytest.raises(LinkClosed):
            await held[0].receive()
        assert not held[-1].closed
        assert any("nobody has admitted" in sentence for sentence in hub.reports)
        await server.still_works(member)


async def test_bulk_of_a_guest_waits_at_its_own_host() -> None:
    payload = (memoryview(bytes(1 << 20)),)
    async with server.Hub(guests=True) as hub, hub.session() as (near, far):
        for number in range(20):
            assert near.send(probe(number, payload), Lane.BULK)
        assert near.send(probe(99))
        assert (await far.receive()).id == 99
        assert far.bytes_received < 1000
        far.admit()
        assert [(await far.receive()).id for _ in range(20)] == [*range(20)]


async def test_a_payload_on_the_control_socket_ends_its_session() -> None:
    """Nothing would bound how much of it waits."""
    codec = Codec([Probe])
    frames = [*frames_of(codec, probe(7, (memoryview(b"x" * 5000),)), 1 << 16)]
    async with server.Hub() as hub, hub.session() as ends:
        control, _, far = await hub.raw_session()
        control[1].write(b"".join(map(masked, frames)))
        with pytest.raises(LinkClosed, match="payload on the control socket"):
            await far.receive()
        with pytest.raises(EncodeError, match="bulk lane"):
            ends[0].send(probe(1, (memoryview(b"x"),)))
        await server.still_works(ends)


async def test_control_that_nobody_receives_is_bounded_by_bytes() -> None:
    settings = WebsocketSettings(control_inbox_bytes=10_000)
    async with server.Hub(settings) as hub, hub.session() as (near, far):
        text = "x" * 5000
        for number in range(100):
            assert near.send(Envelope("near", "far", number, Probe(number, text)))
        for number in range(50):  # so many times both ends had the loop
            far.send(probe(number))
            await near.receive()
        assert far.bytes_received < 30_000
        assert [(await far.receive()).id for _ in range(100)] == [*range(100)]


async def test_what_is_relayed_to_who_does_not_read_is_bounded_by_bytes() -> None:
    settings = WebsocketSettings(outbox_bytes=1 << 20)
    payload = (memoryview(bytes(300_000)),)
    async with server.Hub(settings, guests=True) as hub, hub.session() as (near, _):
        taken = [near.send(probe(number, payload), Lane.BULK) for number in range(60)]
        assert 3 <= sum(taken) <= 5
        large = (memoryview(bytes(5 << 20)),)
        assert near.send(probe(99, large), Lane.BULK, "a topic")
        assert not near.send(probe(99, large), Lane.BULK)


@contextmanager
def no_more_files() -> Iterator[None]:
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
    try:
        with suppress(OSError):
            while True:  # until none is left
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in taken:
            os.close(one)


async def test_too_few_files_are_told_and_overcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "PAUSE_S", 0.01)
    errors: list[OSError] = []
    exhausted, accepted = asyncio.Event(), asyncio.Event()
    taken: list[socket.socket] = []

    def take(connection: socket.socket, address: str) -> None:
        assert address == server.LOOPBACK
        taken.append(connection)
        accepted.set()

    def note(error: OSError) -> None:
        errors.append(error)
        exhausted.set()

    [listening] = await bind(server.LOOPBACK, 0, 8)
    found = Acceptor([listening], take, note)
    with socket.socket() as peer:
        peer.settimeout(0.0)
        with no_more_files():
            await asyncio.get_running_loop().sock_connect(peer, (server.LOOPBACK, found.port))
            await exhausted.wait()
            assert not taken
        await accepted.wait()
    found.close()
    found.close()
    taken[0].close()
    assert {error.errno for error in errors} == {errno.EMFILE}


async def test_a_name_with_two_addresses_has_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", 0)) for n in (1, 2, 3)]

    async def resolve(*_: object, **__: object) -> list[object]:
        return [*places]

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    for _ in range(20):
        sockets = await bind("two.example", 0, 8)
        names = [one.getsockname() for one in sockets]
        for one in sockets:
            one.close()
        assert [name for name, _ in names] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        assert len({port for _, port in names}) == 1


async def test_addresses_of_a_kind_that_this_machine_has_not_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0))
        for host in ("192.0.2.1", server.LOOPBACK)
    ]

    async def resolve(*_: object, **__: object) -> list[object]:
        return [*places]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    [listening] = await bind("two.example", 0, 8)
    assert listening.getsockname()[0] == server.LOOPBACK
    listening.close()
    places.pop()
    with pytest.raises(OSError, match="assign"):
        await bind("two.example", 0, 8)


async def test_a_dialler_follows_nobody_elsewhere() -> None:
    dialled = asyncio.Event()

    async def elsewhere(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.set()
        writer.close()

    other = await asyncio.start_server(elsewhere, server.LOOPBACK, 0)
    port = other.sockets[0].getsockname()[1]

    place = f"Location: http://{server.LOOPBACK}:{port}/far\r\n".encode()
    reply = b"HTTP/1.1 302 Found\r\n" + place + b"Content-Length: 0\r\n\r\n"
    network = WebsocketNetwork([], secret=server.SECRET)
    async with server.answering(reply) as address:
        with pytest.raises(DialFailed, match="no Islands hub: it answered with HTTP status 302"):
            await network.dial(address, local="near")
    assert not dialled.is_set()
    await network.close()
    other.close()
    await other.wait_closed()


async def test_bulk_right_behind_the_word_that_it_may_be_sent() -> None:
    payload = (memoryview(b"x" * 5000),)
    codec = Codec([Probe])
    frames = [*frames_of(codec, probe(7, payload), 1 << 16)]
    async with server.Hub() as hub, hub.session() as ends:
        for _ in range(10):
            control, bulk, far = await hub.raw_session(then=b"".join(map(masked, frames)))
            assert (await far.receive()).payload == payload
            await server.hang_up(control)
            await server.hang_up(bulk)
        await server.still_works(ends)


def masked(frame: bytes) -> bytes:
    """A binary websocket message under a mask of zeros."""
    size = len(frame)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    return b"\x82" + length + bytes(4) + frame
