"""Sealed files: small files of a run that carry a digest of their own content.

Each is a JSON object, whose last member is the digest of everything before it. A change by hand
damages such a file: change a run by its options instead.
"""

import re
from pathlib import Path

from blake3 import blake3

from islands.files.atomic_write import replace_file
from islands.protocol.errors import DamagedError, unusable

DIGEST_BYTES = 16
_SEAL = re.compile(rb',\n"blake3":"[0-9a-f]{32}"\}\n\Z')


def sealed(content: bytes) -> bytes:
    """Return a JSON object with its digest added."""
    open_end = content.strip().removesuffix(b"}").rstrip()
    told = blake3(open_end).hexdigest(length=DIGEST_BYTES).encode()
    return open_end + b',\n"blake3":"' + told + b'"}\n'


def unsealed(data: bytes) -> bytes | None:
    """Return the object without its digest; None if the digest is missing or wrong."""
    seal = _SEAL.search(data)
    content = b"" if seal is None else data[: seal.start()] + b"}"
    return content if seal is not None and sealed(content) == data else None


def write_sealed(path: Path, content: bytes) -> None:
    """Replace a file by a sealed object; a crash leaves either the old file or the new one, whole.

    Raises:
        OSError: the disk is full or broken; the old file stays.
    """
    replace_file(path, sealed(content))


def read_sealed(path: Path) -> bytes | None:
    """Return the object in a file; None if there is no such file.

    Raises:
        DamagedError: the file is not as it was written.
        UserError: the file cannot be read.
    """
    try:
        content = unsealed(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(f"{path} cannot be read", error) from error
    if content is None:
        raise DamagedError(f"{path} is damaged: it is not what was written")
    return content
