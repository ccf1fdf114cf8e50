"""Small files of a run that tell whether they are whole.

Each is a JSON object; its last member is the digest of all that stands before it. Whoever changes
one by hand has damaged it: what a run is told, it is told by its options.
"""

import re
from pathlib import Path

from blake3 import blake3

from islands.errors import DamagedError, unusable
from islands.files.replacing import replace_file

DIGEST_BYTES = 16
_SEAL = re.compile(rb',\n"blake3":"[0-9a-f]{32}"\}\n\Z')


def sealed(content: bytes) -> bytes:
    """A JSON object, with its digest."""
    open_end = content.strip().removesuffix(b"}").rstrip()
    told = blake3(open_end).hexdigest(length=DIGEST_BYTES).encode()
    return open_end + b',\n"blake3":"' + told + b'"}\n'


def unsealed(data: bytes) -> bytes | None:
    """The object without its digest; None if it is not whole."""
    seal = _SEAL.search(data)
    content = b"" if seal is None else data[: seal.start()] + b"}"
    return content if seal is not None and sealed(content) == data else None


def write_sealed(path: Path, content: bytes) -> None:
    """Put an object in the place of a file; a crash leaves the old one or the new one, whole.

    Raises:
        OSError: the disk is full or broken; the old one stays.
    """
    replace_file(path, sealed(content))


def read_sealed(path: Path) -> bytes | None:
    """The object in a file; None if there is no such file.

    Raises:
        DamagedError: the file is not what was written.
        UserError: it cannot be read.
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
