"""Frames of bulk sockets are read right however they are cut, and wrong ones are refused."""

import asyncio
import itertools
import random
import struct
from collections.abc import Iterator

import pytest

from messaging.codec.checksums import checksum, mask_in_place, masked, rotated
from messaging.codec.frames import Assembler, Codec, chunk_parts, head_frame
from messaging.codec.limits import Limits
from messaging.envelope import Envelope
from messaging.errors import FrameError, RemoteFault
from messaging.websocket.bulk_protocol import BulkProtocol, TooLarge
from tests.messaging.doubles import Probe, probe

LIMITS = Limits(frame_bytes=1 << 16)
CODEC = Codec([Probe], LIMITS)


class RecordingTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closing = False
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close


class Session:
    """An owner that writes down what it is told."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.marks: list[bytes] = []
        self.faults: list[RemoteFault] = []
        self.ends: list[str] = []

    def bulk_arrived(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)

    def bulk_marked(self, data: bytes) -> None:
        self.marks.append(data)

    def bulk_faulted(self, fault: RemoteFault) -> None:
        self.faults.append(fault)

    def bulk_ended(self, reason: str) -> None:
        self.ends.append(reason)


def make(*, masks: bool) -> tuple[BulkProtocol, Session, RecordingTransport]:
    transport, session = RecordingTransport(), Session()
    protocol = BulkProtocol(transport, asyncio.Protocol(), masks=masks)
    protocol.attach(session, Assembler(CODEC), LIMITS.frame_bytes)
    return protocol, session, transport


def feed(protocol: BulkProtocol, data: bytes, cuts: Iterator[int]) -> None:
    """Let bytes arrive in pieces of the sizes that `cuts` gives."""
    while data:
        buffer = protocol.get_buffer(-1)
        count = min(len(buffer), len(data), next(cuts))
        buffer[:count] = data[:count]
        protocol.buffer_updated(count)
        data = data[count:]


async def sent(envelopes: list[Envelope], *, masks: bool) -> bytes:
    """What one side writes for some envelopes, with a mark behind each frame."""
    protocol, _, transport = make(masks=masks)
    numbers = itertools.count()
    for envelope in envelopes:
        await protocol.send(head_frame(CODEC.encode(envelope), next(numbers)))
        for prefix, data in chunk_parts(envelope, lambda: 1 << 13, numbers):
            await protocol.send(prefix, data)
            protocol.ping(b"1234567")
    return bytes(transport.written)


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("largest", [1, 40, 5000, 1 << 20])
async def test_frames_are_read_however_they_are_cut(masks: bool, largest: int) -> None:  # noqa: FBT001
    rng = random.Random(largest)
    envelopes = [
        probe(number, tuple(memoryview(rng.randbytes(rng.randrange(30_000))) for _ in range(2)))
        for number in range(3)
    ]
    data = await sent(envelopes, masks=masks)
    protocol, session, _ = make(masks=not masks)
    feed(protocol, data, iter(lambda: rng.randint(1, largest), 0))
    assert session.envelopes == envelopes
    assert session.faults == []
    assert len(session.marks) == data.count(b"1234567") or masks
    assert not protocol.partial


async def test_every_flipped_bit_is_seen() -> None:
    rng = random.Random(3)
    envelope = probe(1, (memoryview(rng.randbytes(20_000)),))
    data = await sent([envelope], masks=False)
    for _ in range(1000):
        place, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        broken = bytearray(data)
        broken[place] ^= bit
        protocol, session, _ = make(masks=True)
        feed(protocol, bytes(broken), iter(lambda: 4096, 0))
        assert all(arrived == envelope for arrived in session.envelopes)


async def test_random_bytes_end_in_a_fault() -> None:
    rng = random.Random(4)
    for _ in range(2000):
        protocol, session, _ = make(masks=bool(rng.randrange(2)))
        feed(protocol, rng.randbytes(rng.randrange(1, 300)), iter(lambda: 64, 0))
        assert session.envelopes == []
        assert len(session.faults) <= 1


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x02\x05", FrameError),  # in pieces
        (b"\xc2\x05", FrameError),  # compressed
        (b"\x82\x85\0\0\0\0", FrameError),  # masked by a server
        (b"\x81\x02hi", FrameError),  # text
        (b"\x8a\x02hi", FrameError),  # a pong, for nobody pings from here
        (b"\x89\x7e\x00\x80", FrameError),  # a ping of 128 bytes
        (b"\x82\x00", TooLarge),  # empty
        (b"\x82\x7f" + struct.pack(">Q", 1 << 30), TooLarge),
        (b"\x82\x7f" + b"\xff" * 8, TooLarge),
        (b"\x82\x05junk!", FrameError),
    ],
)
async def test_what_links_never_send_is_refused(data: bytes, fault: type[RemoteFault]) -> None:
    protocol, session, _ = make(masks=True)
    feed(protocol, data, iter(lambda: 3, 0))
    assert [type(found) for found in session.faults] == [fault]


async def test_a_mark_follows_a_message() -> None:
    protocol, session, _ = make(masks=True)
    mark, message = b"\x89\x030 1", head_frame(CODEC.encode(probe(1)), 0)
    feed(protocol, b"\x82" + bytes((len(message),)) + message + mark, iter(lambda: 7, 0))
    assert (session.marks, session.faults) == ([b"0 1"], [])
    feed(protocol, mark * 100, iter(lambda: 7, 0))
    assert [type(fault) for fault in session.faults] == [FrameError]
    assert session.marks == [b"0 1"]


async def test_nothing_is_read_before_the_session_begins() -> None:
    transport, session = RecordingTransport(), Session()
    protocol = BulkProtocol(transport, asyncio.Protocol(), masks=True)
    states = [transport.reading]
    protocol.attach(session, Assembler(CODEC), LIMITS.frame_bytes)
    assert [*states, transport.reading] == [False, True]
    protocol = BulkProtocol(transport, asyncio.Protocol(), masks=True)
    feed(protocol, b"\x82\x05junk!", iter(lambda: 100, 0))
    assert transport.closing


async def test_senders_wait_while_the_transport_is_full_and_fail_once_it_is_gone() -> None:
    """`send` returns when there is room again; after the loss it raises."""
    protocol, session, _ = make(masks=False)
    protocol.pause_writing()
    sending = asyncio.create_task(protocol.send(b"x"))
    await asyncio.sleep(0)
    assert not sending.done()
    protocol.resume_writing()
    await sending
    protocol.connection_lost(None)
    assert session.ends == ["connection lost: the peer ended it without a reason"]
    with pytest.raises(ConnectionResetError):
        await protocol.send(b"x")


def test_checksum_sees_changes_and_orders() -> None:
    rng = random.Random(5)
    data = rng.randbytes(100_001)
    right = checksum(data)
    assert checksum(memoryview(bytearray(data))) == right
    assert checksum(data, 1) != right
    assert checksum(data[:-1]) != right
    for size in (1, 64, 4000):
        place = rng.randrange(len(data) - size)
        broken = data[:place] + rng.randbytes(size) + data[place + size :]
        assert checksum(broken) != right or broken == data
    assert checksum(data[4096:8192] + data[:4096] + data[8192:]) != right
    assert checksum(data[1500:3000] + data[:1500] + data[3000:]) != right


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 1000, 4097])
def test_masks_follow_the_rule_of_the_rfc(size: int) -> None:
    data, key = random.Random(size).randbytes(size), b"\x01\x80\xff\x3c"
    right = bytes(byte ^ key[place % 4] for place, byte in enumerate(data))
    assert bytes(masked(memoryview(data), key)) == right
    buffer = bytearray(data)
    mask_in_place(memoryview(buffer), key)
    assert bytes(buffer) == right
    later = bytes(byte ^ key[(place + 35) % 4] for place, byte in enumerate(data))
    assert bytes(masked(memoryview(data), rotated(key, 35))) == later
