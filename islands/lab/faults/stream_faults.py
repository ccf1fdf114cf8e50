"""Faults of the bytes of one direction of a TCP connection on their way; no sockets here.

Of a websocket stream (an HTTP upgrade, then frames) enough is understood to strike where it
hurts: inside the payload of a data frame, or a whole frame once more. Other streams pass as they
are, but a bit of them can be flipped as well.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

_DATA_OPCODES = (0x0, 0x1, 0x2)
_HEAD_END = b"\r\n\r\n"
_HEAD_BYTES_MAX = 1 << 16
_HEADER_BYTES_LEAST = 2
_TWO_BYTES, _EIGHT_BYTES = 126, 127  # what a short length says of the bytes that hold the real one


class Cut(StrEnum):
    """The effect of a cut on bytes; the connection stays open either way."""

    NONE = "none"
    HOLD = "hold"  # as a real network, where TCP sends again: after the cut everything arrives
    LOSE = "lose"  # as no network that TCP runs over: the stream goes on with a gap


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that one direction suffers.

    Attributes:
        latency_s: How much later each byte arrives.
        jitter_s: Up to so much more, drawn for each piece read; the order of bytes stays.
        bandwidth_bytes_s: The most that passes; None: no limit.
        dribble_s: One byte at a time, so far apart; None: no.
        cut: Whether anything passes at all.
        reset_after_bytes: Once so many bytes of the connection were delivered, both its ends get a
            reset; None: never.
        close_delay_s: How much later the end of the stream is passed on.
        flip_at: One bit of the byte at this offset of the connection is flipped; None: no.
        flip_mean_bytes: One bit in about so many bytes of websocket payload is flipped; None: no.
        duplicate_at: The data frame of this number (from 0) is passed twice; None: no.
        duplicate_share: Share of the data frames that are passed twice.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bandwidth_bytes_s: float | None = None
    dribble_s: float | None = None
    cut: Cut = Cut.NONE
    reset_after_bytes: int | None = None
    close_delay_s: float = 0.0
    flip_at: int | None = None
    flip_mean_bytes: float | None = None
    duplicate_at: int | None = None
    duplicate_share: float = 0.0


class Part(StrEnum):
    """The part of a stream that a stretch belongs to."""

    HEAD = "head"  # of HTTP
    HEADER = "header"  # of a frame
    PAYLOAD = "payload"  # of a data frame
    CONTROL = "control"  # payload of a ping, pong or close frame
    OTHER = "other"  # no websocket


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive bytes of one kind; `last` if a frame ends with them."""

    part: Part
    data: bytes
    is_data_frame: bool = False
    last: bool = False


class WebsocketScanner:
    """Divides a stream into its parts, however it is cut into pieces.

    Attributes:
        head: The HTTP request or response, as far as it has passed.
    """

    def __init__(self) -> None:
        self.head = b""
        self._part = Part.HEAD
        self._header = b""
        self._left = 0
        self._opcode = 0

    def feed(self, data: bytes) -> Iterator[Stretch]:
        """Yield the stretches of the next piece; together they are the piece."""
        while data:
            if self._part is Part.OTHER:
                yield Stretch(Part.OTHER, data)
                return
            if self._part is Part.HEAD:
                stretch = self._take_head(data)
            elif self._part is Part.HEADER:
                stretch = self._take_header(data)
            else:
                stretch = self._take_payload(data)
            yield stretch
            data = data[len(stretch.data) :]

    def _take_head(self, data: bytes) -> Stretch:
        before = len(self.head)
        self.head += data
        end = self.head.find(_HEAD_END)
        if end >= 0:
            self.head = self.head[: end + len(_HEAD_END)]
            upgraded = b"upgrade: websocket" in self.head.lower()
            self._part = Part.HEADER if upgraded else Part.OTHER
        elif not _may_be_http(self.head):
            self._part = Part.OTHER
        return Stretch(Part.HEAD, data[: len(self.head) - before])

    def _take_header(self, data: bytes) -> Stretch:
        before = len(self._header)
        header = self._header + data[:14]
        size = _header_bytes(header)
        if size is None or size > len(header):
            self._header = header
            return Stretch(Part.HEADER, data[:14], _is_data(header[0]))
        self._opcode = header[0] & 0x0F
        self._left = _payload_bytes(header)
        self._header = b""
        if self._left:
            self._part = Part.PAYLOAD if _is_data(self._opcode) else Part.CONTROL
        taken = data[: size - before]
        return Stretch(Part.HEADER, taken, _is_data(self._opcode), last=self._left == 0)

    def _take_payload(self, data: bytes) -> Stretch:
        part, taken = self._part, data[: self._left]
        self._left -= len(taken)
        if self._left == 0:
            self._part = Part.HEADER
        return Stretch(part, taken, part is Part.PAYLOAD, last=self._left == 0)


class Mutator:
    """Flips bits and repeats frames of one direction, as its faults and its seed say.

    Attributes:
        flips: Bits flipped so far.
        duplicates: Frames repeated so far.
        data_frames: Data frames that have passed whole.
    """

    def __init__(self, rng: random.Random) -> None:
        self.flips = 0
        self.duplicates = 0
        self.data_frames = 0
        # Apart, so that what is drawn does not depend on how the stream comes in pieces.
        self._gaps, self._bits, self._repeats = (random.Random(rng.random()) for _ in range(3))
        self._scanner = WebsocketScanner()
        self._offset = 0
        self._frame: list[bytes] = []
        self._to_next_flip: int | None = None

    @property
    def head(self) -> bytes:
        """The HTTP request or response, as far as it has passed."""
        return self._scanner.head

    def change(self, data: bytes, faults: Faults) -> bytes:
        """Return what comes out for the next piece."""
        out: list[bytes] = []
        for stretch in self._scanner.feed(data):
            passed = self._flipped(stretch, faults)
            out.append(passed)
            if stretch.is_data_frame:
                self._frame.append(passed)
                if stretch.last:
                    out.append(self._repeated(faults))
        return b"".join(out)

    def _flipped(self, stretch: Stretch, faults: Faults) -> bytes:
        data = stretch.data
        places: list[int] = []
        if faults.flip_at is not None and 0 <= faults.flip_at - self._offset < len(data):
            places.append(faults.flip_at - self._offset)
        self._offset += len(data)
        if stretch.part is Part.PAYLOAD and faults.flip_mean_bytes is not None:
            places += self._places_to_flip(len(data), faults.flip_mean_bytes)
        if not places:
            return data
        changed = bytearray(data)
        for place in places:
            changed[place] ^= 1 << self._bits.randrange(8)
        self.flips += len(places)
        return bytes(changed)

    def _places_to_flip(self, size: int, mean_bytes: float) -> Iterator[int]:
        place = self._to_next_flip
        if place is None:
            place = int(self._gaps.expovariate(1 / mean_bytes))
        while place < size:
            yield place
            place += 1 + int(self._gaps.expovariate(1 / mean_bytes))
        self._to_next_flip = place - size

    def _repeated(self, faults: Faults) -> bytes:
        frame, self._frame = self._frame, []
        number = self.data_frames
        self.data_frames += 1
        by_chance = faults.duplicate_share > 0 and self._repeats.random() < faults.duplicate_share
        if number != faults.duplicate_at and not by_chance:
            return b""
        self.duplicates += 1
        return b"".join(frame)


def _is_data(first: int) -> bool:
    return first & 0x0F in _DATA_OPCODES


def _may_be_http(head: bytes) -> bool:
    if len(head) > _HEAD_BYTES_MAX:
        return False
    return any(head[:4] == start[: len(head[:4])] for start in (b"GET ", b"HTTP"))


def _header_bytes(header: bytes) -> int | None:
    """Return the size of a frame's header; None if too little of it has come to say."""
    if len(header) < _HEADER_BYTES_LEAST:
        return None
    mask_bytes = 4 if header[1] & 0x80 else 0
    longer_bytes = {_TWO_BYTES: 2, _EIGHT_BYTES: 8}.get(header[1] & 0x7F, 0)
    return _HEADER_BYTES_LEAST + longer_bytes + mask_bytes


def _payload_bytes(header: bytes) -> int:
    short = header[1] & 0x7F
    if short < _TWO_BYTES:
        return short
    return int.from_bytes(header[2:4] if short == _TWO_BYTES else header[2:10], "big")
