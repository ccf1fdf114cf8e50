"""What the proxy does to bytes: websocket streams taken apart, bits flipped, frames repeated."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.lab.faults.stream_faults import Faults, Mutator, Part, Stretch, WebsocketScanner

HEAD = b"GET /hub HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\n\r\n"
BINARY, PING, CLOSE = 0x82, 0x89, 0x88


def frame(payload: bytes, first: int = BINARY, mask: bytes = b"") -> bytes:
    """Make a websocket frame; the payload is taken as masked already."""
    masked = 0x80 if mask else 0
    if len(payload) < 126:
        size = bytes((masked | len(payload),))
    elif len(payload) < 1 << 16:
        size = bytes((masked | 126,)) + len(payload).to_bytes(2, "big")
    else:
        size = bytes((masked | 127,)) + len(payload).to_bytes(8, "big")
    return bytes((first,)) + size + mask + payload


FRAMES = (
    frame(b"small"),
    frame(b"x" * 300, mask=b"mask"),
    frame(b"", mask=b"mask"),
    frame(b"ping", PING),
    frame(b"y" * 70_000),
    frame(b"bye", CLOSE, b"mask"),
)
STREAM = HEAD + b"".join(FRAMES)


def scanned(pieces: Sequence[bytes]) -> list[Stretch]:
    """Scan a stream that comes in pieces."""
    scanner = WebsocketScanner()
    return [stretch for piece in pieces for stretch in scanner.feed(piece)]


def in_pieces(stream: bytes, places: Sequence[int]) -> list[bytes]:
    """Cut a stream at these places."""
    ends = sorted({*places, 0, len(stream)})
    return [stream[start:end] for start, end in pairwise(ends)]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_parts_are_found_however_the_stream_is_cut(places: list[int]) -> None:
    """The stretches are the stream, and each part has the bytes that belong to it."""
    stretches = scanned(in_pieces(STREAM, [*places, *range(300)]))
    assert b"".join(stretch.data for stretch in stretches) == STREAM
    parts = dict.fromkeys(Part, b"")
    for stretch in stretches:
        parts[stretch.part] += stretch.data
    assert parts[Part.HEAD] == HEAD
    assert parts[Part.PAYLOAD] == b"small" + b"x" * 300 + b"y" * 70_000
    assert parts[Part.CONTROL] == b"pingbye"
    assert parts[Part.OTHER] == b""
    assert sum(stretch.last for stretch in stretches) == len(FRAMES)


@pytest.mark.parametrize(
    "stream",
    [b"\x16\x03\x01 anything at all", b"HTTP/1.1 401 Unauthorized\r\n\r\nbody", b"GET-no"],
    ids=["tls", "refusal", "no http"],
)
def test_what_is_no_websocket_passes_as_it_is(stream: bytes) -> None:
    """Streams that never upgrade are not taken for frames, and no payload is found in them."""
    stretches = scanned(in_pieces(stream, range(len(stream))))
    assert b"".join(stretch.data for stretch in stretches) == stream
    assert {stretch.part for stretch in stretches} <= {Part.HEAD, Part.OTHER}


def test_one_bit_flips_at_the_offset() -> None:
    """Exactly one bit of exactly that byte differs, wherever the stream is cut."""
    for place in (0, 5, len(HEAD), len(STREAM) - 1):
        mutator = Mutator(random.Random(0))
        pieces = in_pieces(STREAM, range(0, len(STREAM), 7))
        out = b"".join(mutator.change(piece, Faults(flip_at=place)) for piece in pieces)
        differing = [
            (at, (a ^ b).bit_count())
            for at, (a, b) in enumerate(zip(out, STREAM, strict=True))
            if a != b
        ]
        assert differing == [(place, 1)]
        assert mutator.flips == 1


def test_random_flips_hit_payload_only_and_repeat_with_the_seed() -> None:
    """One seed, one set of bits, however the stream is cut; heads and headers are spared."""
    outs = []
    for step in (11, 4096):
        mutator = Mutator(random.Random(5))
        pieces = in_pieces(STREAM, range(0, len(STREAM), step))
        outs.append(b"".join(mutator.change(p, Faults(flip_mean_bytes=500)) for p in pieces))
        assert mutator.flips > 50
    assert outs[0] == outs[1] != STREAM
    untouched = [(s.part, s.data) for s in scanned([outs[0]]) if s.part is not Part.PAYLOAD]
    assert untouched == [(s.part, s.data) for s in scanned([STREAM]) if s.part is not Part.PAYLOAD]


def test_a_data_frame_is_repeated_whole() -> None:
    """The chosen data frame comes twice, right after itself; control frames are not counted."""
    mutator = Mutator(random.Random(0))
    pieces = in_pieces(STREAM, range(0, len(STREAM), 13))
    out = b"".join(mutator.change(piece, Faults(duplicate_at=3)) for piece in pieces)
    assert out == HEAD + b"".join((*FRAMES[:5], FRAMES[4], FRAMES[5]))
    assert (mutator.duplicates, mutator.data_frames) == (1, 4)


def test_every_data_frame_can_be_repeated() -> None:
    """With a share of one each data frame comes twice."""
    out = Mutator(random.Random(0)).change(STREAM, Faults(duplicate_share=1.0))
    twice = [f * (1 if f[0] in (PING, CLOSE) else 2) for f in FRAMES]
    assert out == HEAD + b"".join(twice)
