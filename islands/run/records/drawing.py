"""Drawing of lines, boxes and letters on a grid of pixels, and the grid as a PNG file.

A picture of a run is drawn once, at its end, and a plotting library for that would have to be
installed with every learner. Coordinates are fractional pixels, x to the right and y down.
"""

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
Point = tuple[float, float]

LETTER_COLUMNS = 5
LETTER_ROWS = 8
ADVANCE = LETTER_COLUMNS + 1
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
TRUECOLOUR = 2

LETTERS = bytes.fromhex(
    "0000000000 00005f0000 0007000700 147f147f14 242a7f2a12 2313086462 3649562050 0008070300"
    "001c224100 0041221c00 2a1c7f1c2a 08083e0808 0080703000 0808080808 0000606000 2010080402"
    "3e5149453e 00427f4000 7249494946 2141494d33 1814127f10 2745454539 3c4a494931 4121110907"
    "3649494936 464949291e 0000140000 0040340000 0008142241 1414141414 0041221408 0201590906"
    "3e415d594e 7c1211127c 7f49494936 3e41414122 7f4141413e 7f49494941 7f09090901 3e41415173"
    "7f0808087f 00417f4100 2040413f01 7f08142241 7f40404040 7f021c027f 7f0408107f 3e4141413e"
    "7f09090906 3e4151215e 7f09192946 2649494932 03017f0103 3f4040403f 1f2040201f 3f4038403f"
    "6314081463 0304780403 6159494d43 007f414141 0204081020 004141417f 0402010204 4040404040"
    "0003070800 2054547840 7f28444438 3844444428 384444287f 3854545418 00087e0902 18a4a49c78"
    "7f08040478 00447d4000 2040403d00 7f10284400 00417f4000 7c04780478 7c08040478 3844444438"
    "fc18242418 18242418fc 7c08040408 4854545424 04043f4424 3c4040207c 1c2040201c 3c4030403c"
    "4428102844 4c9090907c 4464544c44 0008364100 0000770000 0041360800 0201020402"
)
"""The characters from the space to the tilde, five columns each, the lowest bit on top."""
FIRST_SIGN = ord(" ")
UNKNOWN_SIGN = ord("?") - FIRST_SIGN


class Canvas:
    """A picture to draw on, white at first.

    Args:
        width: in pixels.
        height: in pixels.
    """

    def __init__(self, width: int, height: int) -> None:
        """Make all pixels white."""
        self.width, self.height = width, height
        self._pixels: NDArray[np.float32] = np.full((height, width, 3), 255, np.float32)

    def box(self, start: Point, end: Point, colour: Colour) -> None:
        """Fill a rectangle from its upper left to its lower right corner."""
        columns = self._inside(start[0], end[0], self.width)
        rows = self._inside(start[1], end[1], self.height)
        self._pixels[rows, columns] = colour

    def line(self, points: Sequence[Point], colour: Colour, thickness: float = 1.0) -> None:
        """Draw an anti-aliased line through points."""
        for start, end in pairwise(points):
            self._segment(np.array(start), np.array(end), colour, thickness / 2)

    def text(self, at: Point, text: str, colour: Colour, scale: int = 2) -> None:
        """Write a line of text with its upper left corner at `at`."""
        left = round(at[0])
        for sign in text:
            index = ord(sign) - FIRST_SIGN
            if not 0 <= index < len(LETTERS) // LETTER_COLUMNS:
                index = UNKNOWN_SIGN
            self._letter(index, left, round(at[1]), colour, scale)
            left += ADVANCE * scale

    def png(self) -> bytes:
        """Return the picture as a PNG file."""
        rows = np.clip(np.rint(self._pixels), 0, 255).astype(np.uint8)
        unfiltered = np.zeros((self.height, 1), np.uint8)
        content = np.hstack([unfiltered, rows.reshape(self.height, -1)]).tobytes()
        head = struct.pack(">IIBBBBB", self.width, self.height, 8, TRUECOLOUR, 0, 0, 0)
        chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(content, 9)), (b"IEND", b""))
        return PNG_SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)

    def _segment(
        self, start: NDArray[np.float64], end: NDArray[np.float64], colour: Colour, half: float
    ) -> None:
        """Blend the colour into each pixel, by the distance of its middle from the segment."""
        reach = half + 1.0
        low, high = np.minimum(start, end) - reach, np.maximum(start, end) + reach
        columns = self._inside(low[0], high[0], self.width)
        rows = self._inside(low[1], high[1], self.height)
        x = np.arange(columns.start, columns.stop) + 0.5 - start[0]
        y = (np.arange(rows.start, rows.stop) + 0.5 - start[1])[:, None]
        along = end - start
        length = float(along @ along)
        share = np.clip((x * along[0] + y * along[1]) / length, 0, 1) if length else 0.0
        distance = np.hypot(x - share * along[0], y - share * along[1])
        cover = np.clip(half + 0.5 - distance, 0, 1)[..., None]
        area = self._pixels[rows, columns]
        area += cover * (np.array(colour, np.float32) - area)

    def _letter(self, index: int, left: int, top: int, colour: Colour, scale: int) -> None:
        bits = np.frombuffer(LETTERS, np.uint8)[index * LETTER_COLUMNS :][:LETTER_COLUMNS]
        mask = (bits[None, :] >> np.arange(LETTER_ROWS)[:, None]) & 1
        for row, column in np.argwhere(mask).tolist():
            corner = left + column * scale, top + row * scale
            self.box(corner, (corner[0] + scale, corner[1] + scale), colour)

    @staticmethod
    def _inside(start: float, end: float, size: int) -> slice:
        """Return the range of pixels between two coordinates, clipped to the picture."""
        first, last = sorted((start, end))
        return slice(int(np.clip(first, 0, size)), int(np.clip(np.ceil(last), 0, size)))


def text_width(text: str, scale: int = 2) -> int:
    """Return the width of a line of text in pixels."""
    return ADVANCE * scale * len(text)


def _chunk(name: bytes, data: bytes) -> bytes:
    body = name + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
