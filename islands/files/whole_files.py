"""Files that are replaced whole: the new one is written beside the old one, synced, then renamed.

A sealed one is a JSON object, whose last member is the digest of everything before it. A change by
hand damages such a file: change a run by its options instead.
"""

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from blake3 import blake3

from islands.protocol.errors import DamagedError, unusable

CHUNK_BYTES = 2**22
"""Bytes of one read: they are still in the cache when a digest of them is computed."""


@contextmanager
def atomic_write(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a new file that replaces the one at `path` when the block ends without an error.

    If it is `private`, nobody but its owner can ever read it.

    A crash, or a power loss, leaves either the old file or the new one, whole; after the block it
    leaves the new one. An error leaves no part of the new one: the disk may be full.
    """
    fresh = path.with_name(f".{path.name}.new")  # hidden: a user may have a file of any other name
    try:
        with _opened(fresh, private=private) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
    flush(path.parent)


def flush(folder: Path) -> None:
    """Make the names in a folder survive a power loss."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _opened(path: Path, *, private: bool) -> BinaryIO:
    path.unlink(missing_ok=True)
    mode = 0o600 if private else 0o666
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb")


def replace_file(path: Path, content: bytes, *, private: bool = False) -> None:
    with atomic_write(path, private=private) as file:
        file.write(content)


def copy_file(source: Path, target: Path) -> None:
    """Replace a file by a copy of another one, which need not fit into memory."""
    with open_plain(source) as old, atomic_write(target) as new:
        shutil.copyfileobj(old, new, CHUNK_BYTES)


def link_file(source: Path, target: Path) -> None:
    """Give the content that a file has now a second name, in place of any file of that name."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        copy_file(source, target)


def parts_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the rest of an open file, piece by piece."""
    while part := file.read(CHUNK_BYTES):
        yield part


def save(path: Path, content: bytes) -> None:
    """Replace the content of a file that a user has named, or raise a sentence for the user."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise unusable(f"{path} cannot be written", error) from error


# --- sealed files ------------------------------------------------------------------------------

DIGEST_BYTES = 16
_SEAL = re.compile(rb',\n"blake3":"[0-9a-f]{32}"\}\n\Z')


def sealed(content: bytes) -> bytes:
    """Return a JSON object with its digest added."""
    open_end = content.strip().removesuffix(b"}").rstrip()
    digest = blake3(open_end).hexdigest(length=DIGEST_BYTES).encode()
    return open_end + b',\n"blake3":"' + digest + b'"}\n'


def unsealed(data: bytes) -> bytes | None:
    """Return the object without its digest; None if the digest is missing or wrong."""
    seal = _SEAL.search(data)
    content = b"" if seal is None else data[: seal.start()] + b"}"
    return content if seal is not None and sealed(content) == data else None


def write_sealed(path: Path, content: bytes) -> None:
    replace_file(path, sealed(content))


def replace_sealed(path: Path, content: bytes) -> bool:
    """Replace a file by a sealed object without waiting for the disk, which would block a loop.

    Return whether it is replaced; a full or broken disk leaves the old file.
    """
    fresh = path.with_suffix(".new")
    try:
        fresh.write_bytes(sealed(content))
        fresh.replace(path)
    except OSError:
        return False
    return True


def read_sealed(path: Path) -> bytes | None:
    """Return the object in a file; None if there is no such file."""
    try:
        content = unsealed(read_plain(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(f"{path} cannot be read", error) from error
    if content is None:
        raise DamagedError(f"{path} is damaged: it is not what was written")
    return content


def open_plain(path: Path) -> IO[bytes]:
    """Open a regular file to read it; not a pipe, which would make one wait, nor a device."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(handle, "rb")


def read_plain(path: Path) -> bytes:
    with open_plain(path) as file:
        return file.read()
