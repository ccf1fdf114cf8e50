"""Who is let in, who is not, and that neither touches those who are in already."""

import asyncio
import gc
import logging
import random
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import quote, urlsplit

import pytest
import uvloop

from messaging.errors import DialDenied, DialFailed, LinkClosed, LocalFault
from messaging.links.link import Lane, Link
from messaging.websocket.network import WebsocketNetwork
from messaging.websocket.security import Secret, client_tls, server_tls
from messaging.websocket.settings import WebsocketSettings
from tests.messaging.certificates import Certificates
from tests.messaging.doubles import Probe, probe

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

LOOPBACK = "127.0.0.1"
SECRET = Secret("correct-horse-battery")
HEADERS = {
    "Host": LOOPBACK,
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Authorization": SECRET.header(),
    "Islands-Protocol": "1",
    "Islands-Name": "raw",
}
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Hub:
    """A network that listens at "far" and wants a secret, with what it reported."""

    def __init__(
        self,
        settings: WebsocketSettings | None = None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        *,
        guests: bool = False,
    ) -> None:
        self.guests = guests
        self.reports: list[str] = []
        self.streams: list[Streams] = []
        self.network = WebsocketNetwork(
            [Probe],
            settings=settings,
            secret=SECRET,
            server_tls=server_tls,
            client_tls=client_tls,
            report=self.reports.append,
        )

    async def __aenter__(self) -> Self:
        await self.network.open(LOOPBACK, 0)
        self.listener = self.network.listen("far", guests=self.guests)
        return self

    async def __aexit__(self, *_: object) -> None:
        for streams in self.streams:
            await hang_up(streams)
        await self.network.close()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[tuple[Link, Link]]:
        """Both ends of a session of an honest peer."""
        near = await self.network.dial(self.listener.address, local="near")
        far = await self.listener.accept()
        yield near, far
        near.close("done")

    async def connect(self) -> Streams:
        self.streams.append(await asyncio.open_connection(LOOPBACK, self.network.port))
        return self.streams[-1]

    async def request(self, path: str = "/far", **headers: str | None) -> tuple[Streams, str]:
        """Send an opening request of our own making; return the connection and the answer."""
        streams = await self.connect()
        changed = {name.replace("_", "-"): value for name, value in headers.items()}
        streams[1].write(opening(path, HEADERS | changed))
        return streams, (await streams[0].readuntil(b"\r\n\r\n")).decode()

    async def raw_session(self, then: bytes = b"") -> tuple[Streams, Streams, Link]:
        """A session spoken byte by byte here: control, bulk, and the hub's end.

        `then` comes on bulk once the session is complete.
        """
        control, answer = await self.request()
        assert answer.startswith("HTTP/1.1 101")
        _, size = await control[0].readexactly(2)
        hello = (await control[0].readexactly(size)).decode()
        found = re.search(r'"session": "([^"]+)"', hello)
        assert found is not None
        bulk, answer = await self.request(Islands_Session=found[1])
        assert answer.startswith("HTTP/1.1 101")
        control[1].write(b"\x81\x82\0\0\0\0go")
        bulk[1].write(then)
        assert await control[0].readexactly(7) == b"\x81\x05ready"
        return control, bulk, await self.listener.accept()


def opening(path: str, headers: Mapping[str, str | None]) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


async def still_works(ends: tuple[Link, Link]) -> None:
    """A session carries an envelope each way."""
    for sender, receiver in (ends, ends[::-1]):
        assert sender.send(probe(5))
        assert (await receiver.receive()).id == 5


async def until_ended(streams: Streams) -> bytes:
    """Read until the other side ends the connection; return what came."""
    data = b""
    try:
        while piece := await streams[0].read(1 << 16):
            data += piece
    except ConnectionResetError:
        pass
    await hang_up(streams)
    return data


async def hang_up(streams: Streams) -> None:
    streams[1].close()
    try:
        await streams[1].wait_closed()
    except OSError:
        return


def close_frame(data: bytes) -> tuple[int, str]:
    """Code and reason of the first close frame in what a server sent."""
    start = data.index(b"\x88")
    size = data[start + 1]
    (code,) = struct.unpack(">H", data[start + 2 : start + 4])
    return code, data[start + 4 : start + 2 + size].decode()


@pytest.mark.parametrize("shown", [None, "Bearer wrong-wrong-wrong-wrong", "Basic x", "Bearer "])
async def test_without_the_secret_nobody_comes_in(shown: str | None) -> None:
    async with Hub() as hub:
        streams, answer = await hub.request(Authorization=shown)
        assert answer.startswith("HTTP/1.1 401")
        assert "WWW-Authenticate: Bearer" in answer
        await until_ended(streams)
        assert "secret was shown" in hub.reports[0]
        assert not any("wrong-wrong" in sentence for sentence in hub.reports)


class Tickets:
    """Knows tokens that begin with `ticket-`, and refuses those that were cancelled."""

    def __init__(self) -> None:
        self.cancelled = ""

    def __call__(self, token: str) -> object | None:
        if token.startswith("ticket-"):
            gone = token == self.cancelled
            return "this ticket was\ncancelled: ask for another" if gone else (token,)
        return None


async def test_a_token_beside_the_secret_is_judged_by_who_gave_it_out() -> None:
    tickets = Tickets()
    async with Hub() as hub:
        hub.network.judge = tickets
        links: list[tuple[Link, Link]] = []
        networks = [WebsocketNetwork([Probe], secret=Secret(f"ticket-number-{n}-")) for n in (1, 2)]
        for network in (*networks, hub.network):
            near: Link = await network.dial(hub.listener.address, local="near")
            links.append((near, await hub.listener.accept()))
        assert [far.holder for _, far in links] == [
            ("ticket-number-1-",),
            ("ticket-number-2-",),
            None,
        ]
        assert "ticket-number" not in str(hub.reports)
        tickets.cancelled = "ticket-number-1-"
        hub.network.end_refused()
        with pytest.raises(LinkClosed, match="cancelled: ask for another"):
            await links[0][0].receive()
        with pytest.raises(
            DialDenied, match=r"refused: this ticket was\\ncancelled: ask for anoth"
        ):
            await networks[0].dial(hub.listener.address, local="near")
        for near, far in links[1:]:
            near.send(probe(1))
            assert (await far.receive()).body == probe(1).body
        for network in networks:
            await network.close()


async def test_a_token_that_is_refused_later_ends_its_session_within_a_second() -> None:
    tickets = Tickets()
    async with Hub(WebsocketSettings(handshake_s=0.5)) as hub:
        hub.network.judge = tickets
        network = WebsocketNetwork([Probe], secret=Secret("ticket-number-1-"))
        near = await network.dial(hub.listener.address, local="near")
        tickets.cancelled = "ticket-number-1-"
        with pytest.raises(LinkClosed, match="cancelled"):
            await near.receive()
        await network.close()


async def test_floods_of_wrong_secrets_do_not_flood_the_log() -> None:
    async with Hub(WebsocketSettings(refusals_per_s=3)) as hub:
        for _ in range(30):
            await hub.request(Authorization="Bearer no")
        assert len(hub.reports) < 30


async def test_secret_in_the_url_is_refused_even_if_right() -> None:
    async with Hub() as hub:
        streams, answer = await hub.request("/far?token=correct-horse-battery")
        assert answer.startswith("HTTP/1.1 400")
        await until_ended(streams)
        assert "correct-horse" not in " ".join(hub.reports)
        for address in (
            f"ws://{LOOPBACK}:{hub.network.port}/far?token=correct-horse-battery",
            f"ws://user:correct-horse-battery@{LOOPBACK}:{hub.network.port}/far",
        ):
            with pytest.raises(DialFailed, match="give the secret by itself") as caught:
                await hub.network.dial(address, local="near")
            assert "correct-horse" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/nobody", {}, 404),
        ("/", {}, 404),
        ("/far", {"Islands_Protocol": "99"}, 426),
        ("/far", {"Islands_Protocol": None}, 426),
        ("/far", {"Upgrade": None}, 426),
        ("/far", {"Islands_Name": None}, 400),
        ("/far", {"Islands_Name": "%00"}, 400),
        ("/far", {"Islands_Name": quote("x" * 300)}, 400),
        ("/far", {"Sec_WebSocket_Version": "99"}, 400),
        ("/far", {"Islands_Session": "guess"}, 409),
    ],
)
async def test_requests_that_open_no_session(
    path: str, headers: dict[str, str | None], status: int
) -> None:
    async with Hub() as hub:
        streams, answer = await hub.request(path, **headers)
        assert answer.startswith(f"HTTP/1.1 {status}")
        await until_ended(streams)


async def test_health_check_is_told_that_a_hub_is_here() -> None:
    async with Hub() as hub:
        for path, shown, status in (
            ("/", None, 200),
            ("/", "Bearer wrong-wrong-wrong-wrong", 401),
            ("/?x", None, 400),
            ("/far", None, 401),
        ):
            streams, answer = await hub.request(path, Upgrade=None, Authorization=shown)
            assert answer.startswith(f"HTTP/1.1 {status}")
            body = await until_ended(streams)
            assert (body == b"islands hub\n") is (status == 200)
            assert ("Islands-Protocol" in answer) is (status != 200)
        assert len(hub.reports) == 3


async def test_late_dials_of_a_listener_that_has_ended_are_no_news() -> None:
    async with Hub() as hub:
        address = hub.listener.address
        hub.listener.close()
        for _ in range(3):
            with pytest.raises(DialFailed, match=r"nobody listens at 'far' on .* any more"):
                await hub.network.dial(address, local="near")
        assert hub.reports == []
        hub.listener = hub.network.listen("far")
        async with hub.session() as ends:
            await still_works(ends)


async def test_dials_cancelled_at_any_moment_leave_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asyncio.get_running_loop().set_debug(True)  # then aiohttp tells what it finds unclosed
    async with Hub() as hub, hub.session() as ends:
        for passes in range(60):
            dialling = asyncio.create_task(hub.network.dial(hub.listener.address, local="fickle"))
            for _ in range(passes):
                await asyncio.sleep(0)
            if dialling.done():
                break
            dialling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dialling
            del dialling
        await still_works(ends)
        gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_peers_that_vanish_during_the_upgrade_are_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Hub() as hub, hub.session() as ends:
        for _ in range(20):
            streams = await hub.connect()
            streams[1].write(opening("/far", HEADERS))
            await hang_up(streams)
        await still_works(ends)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("where", [0, 1], ids=["control", "bulk"])
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x82\x85\0\0\0\0junk!", 1002),  # a message that is no frame of ours
        (b"\x81\x82\0\0\0\0hi", 1002),  # a text message
        (b"\xc2\x82\0\0\0\0hi", 1002),  # claims to be compressed, which was not agreed
        (b"\x82\xff" + struct.pack(">Q", 1 << 30) + b"\0\0\0\0", 1009),  # claims 1 GiB
        (b"\x82\xff" + b"\xff" * 8 + b"\0\0\0\0", 1009),  # claims all there is
        (b"\x8a\x83\0\0\0\x007 1", None),  # the echo of a mark that was never sent: harmless
        (b"\x8a\x81\0\0\0\x007", 1002),  # an echo without a time
        (b"\x8a\x84\0\0\0\x007 -1", 1002),  # an echo from before all time
        (b"\x8a\x94\0\0\0\x007 " + b"9" * 18, None),  # an echo from after all time
        (b"\x8a\x99\0\0\0\x007 " + b"9" * 23, 1002),  # an echo from later than that
    ],
    ids=[
        *("no frame", "text", "deflate", "1 GiB", "2^64"),
        *("odd echo", "no time", "early", "late", "too late"),
    ],
)
async def test_bad_frames_end_their_session_alone(
    where: int, data: bytes, code: int | None
) -> None:
    async with Hub(WebsocketSettings(close_s=0.2)) as hub, hub.session() as ends:
        *raw, far = await hub.raw_session()
        raw[where][1].write(data)
        if where == 1 and data[0] == 0x8A:
            code = 1002  # nobody echoes there
        if code is None:
            await still_works(ends)
            far.close("enough")
            code = 1000
        else:
            with pytest.raises(LinkClosed):
                await far.receive()
        got = {}
        for streams in raw:
            streams[1].write(b"\x88\x80\0\0\0\0")
            got[streams] = await until_ended(streams)
        codes = [close_frame(data)[0] for data in got.values() if b"\x88" in data]
        assert code in codes
        await still_works(ends)


async def test_random_bytes_inside_a_session() -> None:
    rng = random.Random(2)
    async with Hub() as hub, hub.session() as ends:
        for _ in range(20):
            *raw, far = await hub.raw_session()
            raw[rng.randrange(2)][1].write(rng.randbytes(5000))
            for streams in raw:
                streams[1].write_eof()
            with pytest.raises(LinkClosed):
                await far.receive()
            for streams in raw:
                await until_ended(streams)
        await still_works(ends)


async def test_silent_peer_is_given_up() -> None:
    async with Hub(WebsocketSettings(ping_s=0.02, silent_pings=3)) as hub, hub.session() as ends:
        *_, far = await hub.raw_session()
        with pytest.raises(LinkClosed, match="nothing heard for"):
            await far.receive()
        await still_works(ends)


async def test_bulk_sockets_that_carry_nothing_are_kept_alive() -> None:
    async with Hub(WebsocketSettings(ping_s=0.02, silent_pings=100)) as hub:
        _, bulk, far = await hub.raw_session()
        async with asyncio.timeout(10):
            assert await bulk[0].readexactly(4) == b"\x8a\x00\x8a\x00"
        bulk[1].write(b"\x8a\x80\0\0\0\0" * 3)
        await bulk[0].readexactly(4)
        assert not far.closed
        bulk[1].write(b"\x8a\x80\0\0\0\0" * 1000)
        with pytest.raises(LinkClosed):
            await far.receive()


async def test_bulk_message_that_never_ends_is_given_up() -> None:
    async with Hub(WebsocketSettings(ping_s=0.02, silent_pings=3)) as hub, hub.session() as ends:
        control, bulk, far = await hub.raw_session()
        bulk[1].write(b"\x82\xfe\x10\x00\0\0\0\0")
        while not far.closed:
            await control[0].read(100)
            control[1].write(b"\x8a\x80\0\0\0\0")
            bulk[1].write(b"x")
        assert "not carried over" in (far.close_reason or "")
        await still_works(ends)


async def test_peers_that_come_at_once_all_come_in() -> None:
    async with Hub() as hub:
        dialling = [
            asyncio.create_task(hub.network.dial(hub.listener.address, local=f"near-{number}"))
            for number in range(200)
        ]
        async with asyncio.timeout(30):
            accepted = [await hub.listener.accept() for _ in dialling]
        near = await asyncio.gather(*dialling)
        assert sorted(link.remote for link in accepted) == sorted(link.local for link in near)
        assert not any(link.closed for link in near)
        assert not hub.reports


async def test_session_without_its_bulk_sockets_is_given_up() -> None:
    async with Hub(WebsocketSettings(handshake_s=0.2)) as hub:
        streams, answer = await hub.request()
        assert answer.startswith("HTTP/1.1 101")
        await until_ended(streams)
        async with hub.session() as ends:
            assert ends[1].remote == "near"


async def test_connections_are_bounded() -> None:
    settings = WebsocketSettings(connections_max=6, unauthenticated_max=5)
    async with Hub(settings) as hub, hub.session() as ends, hub.session(), hub.session():
        await until_ended(await hub.connect())
        with pytest.raises(DialFailed):
            await hub.network.dial(hub.listener.address, local="one too many")
        await still_works(ends)


@pytest.mark.parametrize("files", [1, 64, 256, 300, 1024, 65536, 1 << 40])
def test_connections_leave_files_for_the_disk(files: int) -> None:
    settings = WebsocketSettings().within(files)
    assert 1 <= settings.connections_max <= max(1, files // 4, files - 256)
    assert 1 <= settings.unauthenticated_max <= max(1, settings.connections_max // 4)
    assert WebsocketSettings().within(1 << 40) == WebsocketSettings()


async def test_sessions_nobody_accepts_are_bounded() -> None:
    async with Hub(WebsocketSettings(backlog=3)) as hub:
        waiting = [await hub.network.dial(hub.listener.address, local="near") for _ in range(3)]
        with pytest.raises(DialFailed, match="too many sessions that wait"):
            await hub.network.dial(hub.listener.address, local="near")
        hub.listener.close()
        for link in waiting:
            with pytest.raises(LinkClosed, match="not accepted"):
                await link.receive()


async def test_listening_beyond_this_machine_needs_a_secret() -> None:
    network = WebsocketNetwork([Probe])
    with pytest.raises(LocalFault, match="there is no secret: give one"):
        await network.open("0.0.0.0", 0)  # noqa: S104 (it is refused)
    await network.close()


async def test_busy_port_is_a_sentence() -> None:
    async with Hub() as hub:
        other = WebsocketNetwork([Probe])
        with pytest.raises(LocalFault, match=rf"{LOOPBACK}:{hub.network.port} is in use"):
            await other.open(LOOPBACK, hub.network.port)
        await other.close()


@pytest.mark.parametrize(
    ("advertise", "place"),
    [
        (None, r"127\.0\.0\.1:{port}"),
        ("hub.example", r"hub\.example:{port}"),
        ("hub.example:80", r"hub\.example:80"),
        ("2001:db8::1", r"\[2001:db8::1\]:{port}"),
        ("[2001:db8::1]:80", r"\[2001:db8::1\]:80"),
    ],
)
async def test_advertised_address_is_what_others_dial(advertise: str | None, place: str) -> None:
    network = WebsocketNetwork([Probe])
    await network.open(LOOPBACK, 0, advertise=advertise)
    assert re.fullmatch(f"ws://{place.format(port=network.port)}/far", network.url("far"))
    assert network.listen("far").address == network.url("far")
    await network.close()


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::"])  # noqa: S104 (it has a secret)
async def test_bound_to_everything_it_advertises_an_address_of_its_own(everywhere: str) -> None:
    network = WebsocketNetwork([Probe], secret=SECRET)
    try:
        await network.open(everywhere, 0)
    except LocalFault:
        pytest.skip(f"this machine cannot listen at {everywhere}")
    host = urlsplit(network.url("far")).hostname or ""
    assert host != everywhere
    assert (":" in host) is (":" in everywhere) or host == socket.gethostname().lower()
    await network.close()


async def sentence_of(network: WebsocketNetwork, address: str) -> str:
    with pytest.raises(DialFailed) as caught:
        await network.dial(address, local="near")
    return str(caught.value)


async def test_failures_of_dialling_are_sentences() -> None:
    stranger = WebsocketNetwork([Probe])
    async with Hub() as hub:
        place = f"{LOOPBACK}:{hub.network.port}"
        assert "wants another secret" in await sentence_of(stranger, f"ws://{place}/far")
        assert f"nobody listens at 'near' on {place}" in await sentence_of(
            hub.network, f"ws://{place}/near"
        )
        assert "speaks no TLS" in await sentence_of(stranger, f"wss://{place}/far")
    assert f"nobody listens at {place}: is the hub running" in await sentence_of(
        stranger, f"ws://{place}/far"
    )
    for address in (
        "far",
        "http://127.0.0.1:1/far",
        "ws://127.0.0.1:1",
        "ws://127.0.0.1:1/",
        "ws://a:b:c/d",
    ):
        assert "no address" in await sentence_of(stranger, address)
    assert "is not known" in await sentence_of(stranger, "ws://no-such-host.invalid:1/far")
    await stranger.close()


@asynccontextmanager
async def answering(reply: bytes | None) -> AsyncIterator[str]:
    answered = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if reply is None:
            await reader.read()
        else:
            writer.write(reply)
        await hang_up((reader, writer))
        answered.set()

    server = await asyncio.start_server(answer, LOOPBACK, 0)
    yield f"ws://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/far"
    await answered.wait()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "no Islands hub: .* status 200"),
        (b"220 mail.example ESMTP\r\n\r\n", "no Islands hub"),
        (b"", "ended the connection without an answer"),
        (None, r"no answer from .* within 0\.3 s"),
    ],
    ids=["web server", "mail server", "hangs up", "silent"],
)
async def test_servers_of_another_kind_are_told_apart(reply: bytes | None, says: str) -> None:
    network = WebsocketNetwork([Probe], settings=WebsocketSettings(handshake_s=0.3))
    async with answering(reply) as address:
        assert re.search(says, await sentence_of(network, address))
    await network.close()


async def test_sessions_under_tls(certificates: Certificates) -> None:
    files = certificates
    async with Hub(
        server_tls=server_tls(files.server, files.server_key, files.authority),
        client_tls=client_tls(files.authority, files.client, files.client_key),
    ) as hub:
        assert hub.listener.address.startswith("wss://")
        async with hub.session() as ends:
            await still_works(ends)


def test_large_payloads_under_tls_on_uvloop(certificates: Certificates) -> None:
    files = certificates
    payload = (memoryview(random.Random(0).randbytes(5_000_001)),)

    async def main() -> None:
        tls = server_tls(files.server, files.server_key)
        async with (
            Hub(server_tls=tls, client_tls=client_tls(files.authority)) as hub,
            hub.session() as ends,
        ):
            for link in ends:
                assert link.send(probe(1, payload), Lane.BULK)
            for link in ends:
                assert (await link.receive()).payload == payload

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def test_failures_of_tls_are_sentences(certificates: Certificates) -> None:
    files = certificates
    networks = {"stranger": client_tls(files.stranger), "bare": client_tls(files.authority)}
    async with Hub(server_tls=server_tls(files.server, files.server_key, files.authority)) as hub:
        address = hub.listener.address
        for name, says in (("stranger", "is not trusted"), ("bare", "demand a client certificate")):
            dialler = WebsocketNetwork([Probe], secret=SECRET, client_tls=networks[name])
            assert says in await sentence_of(dialler, address)
            await dialler.close()
        plain = WebsocketNetwork([Probe], secret=SECRET)
        assert "TLS (wss://)" in await sentence_of(plain, address.replace("wss", "ws"))
        await plain.close()


async def test_certificate_of_another_name_is_refused(certificates: Certificates) -> None:
    files = certificates
    tls = server_tls(files.server, files.server_key)
    network = WebsocketNetwork([Probe], server_tls=tls, client_tls=client_tls(files.authority))
    await network.open("127.0.0.2", 0)
    assert "is not trusted" in await sentence_of(network, network.listen("far").address)
    await network.close()
    await network.close()  # twice is no mistake
