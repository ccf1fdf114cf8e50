"""When certificates end, read from their PEM files.

The standard library tells the end of a certificate only of a peer's or of an authority's, so the
two dates are read from the file's DER here: beside a version, they are the fourth part of what was
signed, after the serial number, the algorithm and the issuer (RFC 5280, 4.1).
"""

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

BLOCK = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
FILE_BYTES_MOST = 1 << 20
UTC_TIME, GENERALIZED_TIME, VERSION = 0x17, 0x18, 0xA0
LONG = 0x80
"""The bit of a length that tells that its bytes follow."""


def earliest_end_s(path: Path) -> float | None:
    """Return when the first of a file's certificates ends, since 1970; None if none can be read."""
    try:
        text = path.read_bytes()[:FILE_BYTES_MOST].decode("ascii", "replace")
        ends = [end_s(ssl.PEM_cert_to_DER_cert(block)) for block in BLOCK.findall(text)]
    except (OSError, ValueError, IndexError):
        return None
    return min(ends, default=None)


def end_s(der: bytes) -> float:
    """Return when a certificate ends, since 1970.

    Raises:
        ValueError: it is no certificate.
        IndexError: it is cut off.
    """
    (_, certificate), *_ = _parts(der)
    (_, signed), *_ = _parts(certificate)
    _, _, _, (_, validity), *_ = (each for each in _parts(signed) if each[0] != VERSION)
    _, end = _parts(validity)
    return _time_s(*end)


def _parts(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each part of a DER value."""
    at = 0
    while at < len(content):
        tag, length, at = content[at], content[at + 1], at + 2
        if length & LONG:
            count = length & ~LONG
            length, at = int.from_bytes(content[at : at + count]), at + count
        yield tag, content[at : at + length]
        at += length


def _time_s(tag: int, text: bytes) -> float:
    """Return a date of DER in seconds since 1970; years of two digits are 1950 to 2049."""
    told = text.decode("ascii")
    if tag == UTC_TIME:
        told = ("19" if told >= "5" else "20") + told
    elif tag != GENERALIZED_TIME:
        raise ValueError("no certificate: its end is no date")
    return datetime.strptime(told, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
