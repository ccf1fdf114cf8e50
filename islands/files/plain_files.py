"""Files of a folder that somebody else may have made: nothing but a regular file is read."""

import errno
import os
import stat
from pathlib import Path
from typing import IO


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
    """Return the content of a regular file."""
    with open_plain(path) as file:
        return file.read()
