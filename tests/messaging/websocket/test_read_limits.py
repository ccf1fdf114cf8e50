"""The bounds below aiohttp's parsers: bytes before an upgrade, and pieces of messages after it."""

import asyncio
import gc
import logging
import random

import pytest
from aiohttp import web

from messaging.codec.limits import Limits
from messaging.errors import LinkClosed
from messaging.websocket.read_limits import FRAMES_AT_ONCE_MAX, REQUEST_BYTES_MAX, WholeMessages
from tests.messaging.websocket.test_server import (
    HEADERS,
    SECRET,
    Hub,
    close_frame,
    hang_up,
    opening,
    still_works,
    until_ended,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

TOO_LONG = f"a request of more than {REQUEST_BYTES_MAX} bytes"


def padded(size: int) -> bytes:
    """A request with the secret that has so many bytes, in many headers."""
    bare = len(opening("/far", HEADERS))
    headers, left = dict(HEADERS), size - bare
    while left:
        name = f"X-{len(headers):03}"
        piece = left if left <= 8000 else min(8000, left - 20)
        headers[name] = "x" * (piece - len(name) - 4)
        left -= piece
    request = opening("/far", headers)
    assert len(request) == size
    return request


@pytest.mark.parametrize("more", [0, 1])
async def test_a_request_has_so_many_bytes_and_no_more(more: int) -> None:
    async with Hub() as hub, hub.session() as ends:
        streams = await hub.connect()
        streams[1].write(padded(REQUEST_BYTES_MAX + more))
        if not more:
            assert (await streams[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        else:
            await until_ended(streams)
        assert any(TOO_LONG in sentence for sentence in hub.reports) is bool(more)
        await still_works(ends)


async def test_endless_headers_end_their_connection() -> None:
    async with Hub() as hub, hub.session() as ends:
        server = hub.network._http  # noqa: SLF001  so that the pieces come one by one
        assert server is not None
        before = list(server.connections)
        streams = await hub.connect()
        while len(server.connections) == len(before):  # noqa: ASYNC110  the hub accepts it meanwhile
            await asyncio.sleep(0)
        (handler,) = (one for one in server.connections if one not in before)
        handler.data_received(b"GET /far HTTP/1.1\r\n")
        for number in range(100):
            handler.data_received(b"H%d: %s\r\n" % (number, b"x" * 1000))
        await until_ended(streams)
        assert any(TOO_LONG in sentence for sentence in hub.reports)
        await still_works(ends)


async def test_what_follows_a_request_counts_until_it_is_answered() -> None:
    async with Hub() as hub, hub.session() as ends:
        streams = await hub.connect()
        streams[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 10_000)
        answer = await until_ended(streams)
        assert answer.count(b"HTTP/1.1") <= 1
        await still_works(ends)


SHOWN = b"Authorization: " + SECRET.header().encode()


@pytest.mark.parametrize(
    "malformed",
    [
        b"GET /far HTTP/1.1\r\nHost: x\r\n" + SHOWN + b"\x01\r\n\r\n",
        b"GET /far HTTP/1.1\r\n" + SHOWN.replace(b":", b" :") + b"\r\n\r\n",
        b"GET /far HTTP/1.1\r\n" + SHOWN.replace(b":", b"") + b"\r\n\r\n",
        b"GET /far HTTP/9 " + SHOWN + b"\r\n\r\n",
        b"GET /" + SHOWN + b"\r\n\r\n",
        b"\r\n\r\n\x00\x01",
    ],
    ids=["control character", "space", "no colon", "version", "request line", "nothing"],
)
async def test_a_malformed_request_is_repeated_nowhere(
    malformed: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the answer nor the log has its text, and the log has one sentence for many."""
    async with Hub() as hub, hub.session() as ends:
        for _ in range(50):
            streams = await hub.connect()
            streams[1].write(malformed)
            answer = await until_ended(streams)
            assert answer.startswith(b"HTTP/1.0 400")
            assert answer.endswith(b"\r\n\r\nthe request is malformed\n")
            assert b"correct-horse" not in answer
        await still_works(ends)
        said = " ".join(hub.reports) + caplog.text
        assert "correct-horse" not in said
        assert "Traceback" not in said
        assert len(hub.reports) < 50
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_secret_of_any_bytes_is_a_wrong_one(caplog: pytest.LogCaptureFixture) -> None:
    async with Hub() as hub:
        streams = await hub.connect()
        shown = opening("/far", HEADERS | {"Authorization": "Bearer ?"})
        streams[1].write(shown.replace(b"?", b"\xff\x8a"))
        assert (await until_ended(streams)).startswith(b"HTTP/1.1 401")
        assert "a wrong secret was shown" in hub.reports[0]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    "request_bytes",
    [
        opening("/far", HEADERS | {"Authorization": None}),
        b"GET /far HTTP/1.1\r\nAuthorization Bearer\r\n\r\n",
        b"GET /far HTTP/1.1\r\nA: " + b"x" * (REQUEST_BYTES_MAX + 1),
        opening("/nobody", HEADERS),
    ],
    ids=["no secret", "malformed", "too long", "unknown name"],
)
async def test_a_refused_connection_is_freed_without_the_collector(request_bytes: bytes) -> None:
    """Nothing of it is left in a cycle of references, which would wait for Python's collector."""

    def held() -> int:
        return sum(isinstance(one, web.RequestHandler) for one in gc.get_objects())

    async with Hub() as hub:
        gc.collect()
        gc.disable()
        try:
            before = held()
            for _ in range(5):
                streams = await hub.connect()
                streams[1].write(request_bytes)
                await until_ended(streams)
            async with hub.session() as ends:  # by then the hub knows that they have ended
                await still_works(ends)
                sessions = held() - before
            assert sessions == 2
        finally:
            gc.enable()


# ------------------------------------------------------------------------------------ in pieces


class Recorder:
    def __init__(self) -> None:
        self.data = bytearray()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        pass


def frame(first: int, size: int, chance: random.Random) -> bytes:
    masked = 0x80 * chance.randrange(2)
    if size < 126:
        header = bytes((first, masked | size))
    elif size < 1 << 16:
        header = bytes((first, masked | 126)) + size.to_bytes(2)
    else:
        header = bytes((first, masked | 127)) + size.to_bytes(8)
    return header + (chance.randbytes(4) if masked else b"") + chance.randbytes(size)


@pytest.mark.parametrize("largest", [1, 3, 50, 1 << 20])
@pytest.mark.parametrize("piece", [0x02, 0x00, 0x80, None])
def test_whole_messages_pass_and_the_first_piece_ends_them(
    piece: int | None, largest: int, seed: int
) -> None:
    chance = random.Random(f"{seed} {piece} {largest}")
    sizes = [chance.choice((0, 1, 125, 126, 300)) for _ in range(20)] + [70_000] * (largest > 3)
    good = b"".join(frame(chance.choice((0x82, 0x81, 0x89, 0x8A)), size, chance) for size in sizes)
    data = good if piece is None else good + frame(piece, 5, chance) + good
    recorder = Recorder()
    reader, place = WholeMessages(recorder), 0
    while place < len(data):
        step = chance.randint(1, largest)
        reader.feed_data(data[place : place + step])
        place += step
    assert recorder.data[: len(good)] == good
    assert bytes(recorder.data[len(good) :]) == (b"" if piece is None else b"\x80\x80\0\0\0\0")


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_frames_at_once_and_no_more(more: int) -> None:
    recorder = Recorder()
    WholeMessages(recorder).feed_data(b"\x89\x80\0\0\0\0" * (FRAMES_AT_ONCE_MAX + more))
    assert recorder.data.endswith(b"\x80\x80\0\0\0\0") is bool(more)


async def test_a_message_in_pieces_ends_its_session_alone() -> None:
    async with Hub() as hub, hub.session() as ends:
        *raw, far = await hub.raw_session()
        raw[0][1].write(b"\x02\x80\0\0\0\0" + b"\x00\x80\0\0\0\0" * 100)
        with pytest.raises(LinkClosed, match="broke the websocket protocol"):
            await far.receive()
        for streams in raw:
            await hang_up(streams)
        await still_works(ends)


async def test_whoever_dials_takes_no_pieces_either() -> None:
    async with Hub() as hub, hub.session() as ends:
        server = hub.network._http  # noqa: SLF001  it says what no link would
        assert server is not None
        handler = next(one for one in server.connections if one.transport is not None)
        assert handler.transport is not None
        handler.transport.write(b"\x02\x00" + b"\x00\x00" * 100)
        with pytest.raises(LinkClosed, match="broke the websocket protocol"):
            await ends[0].receive()


async def test_a_control_socket_takes_no_more_than_the_largest_head() -> None:
    async with Hub() as hub:
        *raw, far = await hub.raw_session()
        size = Limits().header_bytes + 100
        raw[0][1].write(b"\x82\xff" + size.to_bytes(8) + bytes(4))
        with pytest.raises(LinkClosed, match="exceeds limit"):
            await far.receive()
        assert close_frame(await asyncio.wait_for(raw[0][0].read(1 << 16), 30))[0] == 1009
        for streams in raw:
            await hang_up(streams)
