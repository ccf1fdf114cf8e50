"""Output that may lose its reader: a closed terminal or pipe ends the output, never the process."""

import contextlib
import errno
import os
from typing import TextIO

READER_GONE = (errno.EPIPE, errno.EIO)
"""Errors of a closed pipe and of a terminal that has hung up; a full disk may have room again."""


class LossyOutput:
    """A stream of text of which whatever cannot be written is dropped.

    Once the reader is gone, the stream's file descriptor leads to `os.devnull`, so that neither
    later output nor the interpreter's last flush fails.

    Args:
        stream: where the text goes, such as `sys.stdout`.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; return its number of characters, also if it was dropped."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._drop(error)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)

    def __getattr__(self, name: str) -> object:
        """Return any other attribute of the stream."""
        return getattr(self._stream, name)

    def _drop(self, error: OSError) -> None:
        if error.errno not in READER_GONE:
            return
        with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)
