"""The codec: what goes in comes out, and nothing else gets in."""

import itertools
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NewType

import msgpack  # noqa: TID251  foreign bytes
import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.codec.frames import CHUNK_PREFIX_BYTES, Assembler, Codec, is_chunk
from messaging.codec.limits import Limits, check_document
from messaging.envelope import Envelope, message
from messaging.errors import EncodeError, FrameError, LocalFault
from tests.messaging.doubles import frames_of

Epoch = NewType("Epoch", int)


class Mood(StrEnum):
    CALM = "calm"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Version:
    epoch: Epoch
    number: int


@message
class Report:
    name: str
    step_s: float
    mood: Mood
    versions: tuple[Version, ...]
    tokens: dict[int, int]
    seal: bytes
    note: str | None = None


@message
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class Stranger:
    value: object


CODEC = Codec([Report, Empty])


def view(data: bytes) -> memoryview:
    return memoryview(data)


SIZES = st.integers(0, 2**63 - 1)
REPORTS = st.builds(
    Report,
    name=st.text(max_size=50),
    step_s=st.floats(allow_nan=False),
    mood=st.sampled_from(Mood),
    versions=st.lists(st.builds(Version, epoch=SIZES, number=SIZES), max_size=5).map(tuple),
    tokens=st.dictionaries(SIZES, SIZES, max_size=5),
    seal=st.binary(max_size=50),
    note=st.none() | st.text(max_size=20),
)
NAMES = st.text(max_size=20)
ENVELOPES = st.builds(
    Envelope,
    sender=NAMES,
    recipient=NAMES,
    id=SIZES,
    body=REPORTS | st.just(Empty()),
    payload=st.lists(st.binary(max_size=2000).map(view), max_size=4).map(tuple),
)


def document(**changes: object) -> dict[str, Any]:
    plain = {"type": "Empty", "sender": "a", "recipient": "b", "id": 1, "body": {}}
    return {**plain, **changes}


def packed(**changes: object) -> bytes:
    data = msgpack.packb(document(**changes))
    assert isinstance(data, bytes)
    return data


def fed(assembler: Assembler, frame: bytes) -> Envelope | None:
    """Let a frame arrive as a bulk socket does."""
    if not is_chunk(frame) or len(frame) <= CHUNK_PREFIX_BYTES:
        return assembler.feed(frame)
    data = frame[CHUNK_PREFIX_BYTES:]
    assembler.begin_chunk(frame[:CHUNK_PREFIX_BYTES], len(data))[:] = data
    return assembler.end_chunk()


def assemble(assembler: Assembler, frames: list[bytes]) -> list[Envelope]:
    return [done for frame in frames if (done := fed(assembler, frame)) is not None]


# ------------------------------------------------------------------------------ what goes in


@given(st.lists(ENVELOPES, max_size=4), st.integers(900, 3000))
def test_frames_come_back_equal(envelopes: list[Envelope], chunk_bytes: int) -> None:
    assembler, numbers = Assembler(CODEC), itertools.count()
    for envelope in envelopes:
        frames = list(frames_of(CODEC, envelope, chunk_bytes, numbers))
        assert max(len(frame) for frame in frames) <= chunk_bytes
        assert assemble(assembler, frames) == [envelope]


@given(ENVELOPES)
def test_every_frame_is_one_msgpack_document(envelope: Envelope) -> None:
    frames = [msgpack.unpackb(frame) for frame in frames_of(CODEC, envelope, 2048)]
    assert [frame[0] for frame in frames] == [0] + [1] * (len(frames) - 1)
    assert frames[0][1] == zlib.crc32(frames[0][2])
    assert b"".join(frame[5] for frame in frames[1:]) == b"".join(envelope.payload)


def test_bodies_are_converted_not_trusted() -> None:
    report = Report("x", 1.5, Mood.BUSY, (Version(Epoch(1), 2),), {3: 4}, b"\xff")
    body = CODEC.decode(CODEC.encode(Envelope("a", "b", 1, report)))[0].body
    assert isinstance(body, Report)
    assert isinstance(body.mood, Mood)
    assert isinstance(body.versions, tuple)
    assert isinstance(body.versions[0], Version)


def test_unknown_fields_are_tolerated() -> None:
    data = packed(colour="red", body={"new_field": [1, {"deep": 2}]})
    assert CODEC.decode(data) == (Envelope("a", "b", 1, Empty()), ())


@pytest.mark.parametrize(
    "body",
    [
        Stranger(1),
        Report("x" * 70_000, 1.0, Mood.CALM, (), {}, b""),
        Report("\ud800", 1.0, Mood.CALM, (), {}, b""),
        Report("x", 1.0, Mood.CALM, (), {2**70: 1}, b""),
        Report("x", 1.0, Mood.CALM, (), {1: object()}, b""),  # type: ignore[dict-item]
        Report("x", 1.0, Mood.CALM, tuple(Version(Epoch(1), n) for n in range(5000)), {}, b""),
    ],
    ids=["unregistered", "too large", "not unicode", "too big", "no value", "too many"],
)
def test_what_cannot_travel_is_refused_at_home(body: object) -> None:
    with pytest.raises(EncodeError):
        CODEC.encode(Envelope("a", "b", 1, body))


def test_message_types_must_be_distinct_and_checkable() -> None:
    @message
    class Either:
        value: Version | Report

    with pytest.raises(LocalFault, match="two message types"):
        Codec([Empty, Empty])
    with pytest.raises(LocalFault, match="Either"):
        Codec([Either])


# --------------------------------------------------------------------- what must not get in


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        packed()[:-1],
        packed() + b"\x00",
        packed(id=-1),
        packed(id="1"),
        packed(type="Unknown"),
        packed(type="x" * 300),
        packed(sender=b"bytes"),
        packed(body=[]),
        packed(body={"a": {True: 1}}),
        packed(body={"a": {1.5: 1}}),
        packed(payload=[-1]),
        packed(payload=[1] * 65),
        packed(payload=[1 << 29]),
        packed(body={"a": msgpack.ExtType(1, b"x")}),
        packed(body={"a": msgpack.Timestamp(1)}),
        packed(type="Report", body={"name": "only"}),
        msgpack.packb([1, 2, 3]),
        msgpack.packb(1),
        b"\x81\x90\x01",
        b"\x82\xa1a\x01\xa1a\x02",
        packed().replace(b"\xa1a", b"\xa1\xff"),
        b"\xdd\xff\xff\xff\xff" + b"\x01" * 100,
        b"\xdf\xff\xff\xff\xff" + b"\x01" * 100,
        b"\xdb\xff\xff\xff\xff" + b"\x01" * 100,
        b"\xc6\xff\xff",
        b"\x91" * 5000 + b"\x01",
        b"\x81\xa1a" * 2000 + b"\x01",
        b"\x9f" + (b"\xdc\x0f\xff" * 15),
        msgpack.packb([{}] * 20_000),
        bytes(1 << 17),
    ],
)
def test_bad_documents_are_frame_errors(data: bytes) -> None:
    with pytest.raises(FrameError):
        CODEC.decode(data)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        CODEC.decode(data)
    with pytest.raises(FrameError):
        fed(Assembler(CODEC), data)


@given(ENVELOPES, st.data())
def test_a_changed_document_is_valid_or_refused(envelope: Envelope, draw: st.DataObject) -> None:
    data = bytearray(CODEC.encode(envelope))
    for _ in range(draw.draw(st.integers(1, 4))):
        start = draw.draw(st.integers(0, len(data)))
        stop = draw.draw(st.integers(start, min(len(data), start + 3)))
        data[start:stop] = draw.draw(st.binary(max_size=4))
    try:
        CODEC.decode(bytes(data))
    except FrameError:
        return


@given(st.recursive(st.integers() | st.binary() | st.text() | st.booleans() | st.none(), st.lists))
def test_the_walk_accepts_what_msgpack_writes(value: object) -> None:
    try:
        data = msgpack.packb(value)
    except OverflowError:  # an integer beyond 64 bits
        return
    assert isinstance(data, bytes)
    check_document(data, Limits(depth=1000))


@given(st.binary(max_size=60))
def test_what_the_walk_accepts_msgpack_can_read(data: bytes) -> None:
    try:
        check_document(data, Limits())
    except FrameError:
        return
    msgpack.unpackb(data, raw=True, strict_map_key=False, object_pairs_hook=list)


@given(ENVELOPES.filter(lambda e: any(b.nbytes for b in e.payload)), st.data())
def test_a_flipped_bit_is_never_applied(envelope: Envelope, draw: st.DataObject) -> None:
    frames = list(frames_of(CODEC, envelope, 1024))
    which = draw.draw(st.integers(0, len(frames) - 1))
    bit = draw.draw(st.integers(0, 8 * len(frames[which]) - 1))
    damaged = bytearray(frames[which])
    damaged[bit // 8] ^= 1 << bit % 8
    frames[which] = bytes(damaged)
    assembler = Assembler(CODEC)
    with pytest.raises(FrameError):
        assemble(assembler, frames)


@given(ENVELOPES, st.data())
def test_frames_in_disorder_complete_only_what_was_sent(
    envelope: Envelope, draw: st.DataObject
) -> None:
    numbers = itertools.count()
    frames = [frame for _ in range(2) for frame in frames_of(CODEC, envelope, 1024, numbers)]
    order = draw.draw(st.lists(st.integers(0, len(frames) - 1), max_size=2 * len(frames)))
    assembler = Assembler(CODEC)
    for number, which in enumerate(order):
        if which != number:
            with pytest.raises(FrameError):
                fed(assembler, frames[which])
            return
        assert fed(assembler, frames[which]) in (None, envelope)


BOMBS = {
    "deep lists": b"\x91" * 65_000 + b"\x01",
    "empty maps": b"\xdc\xff\x00" + b"\x80" * 0xFF00,
    "lists that claim much": b"\xdc\x7f\xff" * 21_000,
    "lists that claim most": b"\xdd\xff\xff\xff\xff" * 13_000,
    "short strings": b"\xdc\x7f\x00" + b"\xa1\xff" * 0x7F00,
    "a map of many keys": b"\xde\x3f\x00"
    + b"".join(b"\xcd" + n.to_bytes(2, "big") + b"\xc0" for n in range(0x3F00)),
    "many fields": msgpack.packb({f"{n}": None for n in range(8000)}),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_bombs_are_refused_without_allocating(bomb: bytes) -> None:
    assert len(bomb) <= CODEC.limits.header_bytes
    tracemalloc.start()
    try:
        with pytest.raises(FrameError):
            CODEC.decode(bomb)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


def _with_chunk(frame: int = 1, **changes: int) -> bytes:
    """Build a chunk with a right checksum for its number on the socket, and wrong contents."""
    place = {"number": 7, "index": 0, "offset": 0, **changes}
    number, index, offset = place["number"], place["index"], place["offset"]
    data = bytes(changes.get("size", 10))
    checksum = zlib.crc32(data, zlib.crc32(struct.pack(">QIQ", number, index, offset), frame))
    return b"".join(
        (
            b"\x96\x01",
            struct.pack(">BI", 0xCE, checksum),
            struct.pack(">BQBIBQ", 0xCF, number, 0xCE, index, 0xCF, offset),
            struct.pack(">BI", 0xC6, len(data)),
            data,
        )
    )


@pytest.mark.parametrize(
    "frames",
    [
        lambda _: [_with_chunk(0)],
        lambda head: [head, head],
        lambda head: [head, _with_chunk(2)],
        lambda head: [head, _with_chunk(number=8)],
        lambda head: [head, _with_chunk(index=1)],
        lambda head: [head, _with_chunk(index=9)],
        lambda head: [head, _with_chunk(offset=5)],
        lambda head: [head, _with_chunk(), _with_chunk(2)],
        lambda head: [head, _with_chunk(size=21)],
        lambda head: [head, _with_chunk(size=0)],
        lambda head: [head, _with_chunk()[:20]],
        lambda head: [head, _with_chunk() + b"x"],
        lambda head: [head[:8]],
        lambda head: [head + b"x"],
    ],
    ids=[
        *("chunk without head", "two heads", "other number"),
        *("other envelope", "other buffer", "no such buffer"),
        *("gap", "repeated", "beyond the end", "no data", "cut short", "too long"),
        *("head cut short", "head too long"),
    ],
)
def test_frames_out_of_place_are_refused(frames: Callable[[bytes], list[bytes]]) -> None:
    envelope = Envelope("a", "b", 7, Empty(), payload=(memoryview(bytes(20)), memoryview(b"xy")))
    head = next(frames_of(CODEC, envelope, 1024))
    with pytest.raises(FrameError):
        assemble(Assembler(CODEC), frames(head))


def test_chunks_land_in_the_receivers_buffers() -> None:
    place = bytearray(5000)
    heads: list[tuple[object, tuple[int, ...]]] = []

    def allocate(head: Envelope, sizes: tuple[int, ...]) -> list[memoryview]:
        heads.append((head.body, sizes))
        return [memoryview(place)]

    data = bytes(range(250)) * 20
    envelope = Envelope("a", "b", 7, Empty(), payload=(memoryview(data),))
    (arrived,) = assemble(Assembler(CODEC, allocate), list(frames_of(CODEC, envelope, 1024)))
    assert heads == [(Empty(), (5000,))]
    assert bytes(place) == data
    assert arrived.payload[0].obj is place
    assert arrived.payload[0].readonly


def test_receiver_can_refuse_a_payload() -> None:
    def allocate(_: Envelope, sizes: tuple[int, ...]) -> list[memoryview]:
        raise FrameError(f"no fragment has {sizes} bytes")

    envelope = Envelope("a", "b", 7, Empty(), payload=(memoryview(b"xy"),))
    assembler = Assembler(CODEC, allocate)
    with pytest.raises(FrameError, match="no fragment"):
        assembler.feed(next(frames_of(CODEC, envelope, 1024)))


def test_wrong_buffers_are_our_own_fault() -> None:
    envelope = Envelope("a", "b", 7, Empty(), payload=(memoryview(b"xy"),))
    assembler = Assembler(CODEC, lambda *_: [memoryview(bytearray(3))])
    with pytest.raises(LocalFault, match="sizes"):
        assembler.feed(next(frames_of(CODEC, envelope, 1024)))
