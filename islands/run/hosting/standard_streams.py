"""Standard streams that end no process: closed, full, hung up, or lacking letters; and lines."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from textwrap import TextWrapper
from typing import TextIO, cast

READER_GONE = (errno.EPIPE, errno.EIO)
"""Errors of a closed pipe and of a terminal that has hung up; a full disk may have room again."""

FAILING = ("strict", "surrogateescape")
"""Ways to handle a letter that an encoding lacks which fail; the second is that of the C locale."""


class LossyOutput:
    """A stream of text of which whatever cannot be written is dropped.

    Once the reader is gone, the stream's file descriptor leads to `os.devnull`, so that neither
    later output nor the interpreter's last flush fails.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            self._drop(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def _drop(self, error: OSError) -> None:
        if error.errno in READER_GONE:
            _lead_nowhere(self._stream)


@contextmanager
def usable_streams() -> Iterator[None]:
    """Let nothing that is printed inside the block end the process.

    Descriptors that are closed lead to `os.devnull`, or the next file or socket would get their
    numbers. Letters that a stream's encoding lacks are replaced, and what cannot be written is
    dropped.
    """
    _open_descriptors()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_usable, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in before:
            _empty(stream)


def _open_descriptors() -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)


def _usable(stream: TextIO | None) -> TextIO:
    if stream is None:  # its descriptor was closed as Python began
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  it stays open
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None and stream.errors in FAILING:
        reconfigure(errors="replace")
    return cast("TextIO", LossyOutput(stream))


def _empty(stream: TextIO | None) -> None:
    """Drop what a stream still holds and cannot write, or Python would fail at its own end."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        _lead_nowhere(stream)
        with contextlib.suppress(OSError):
            stream.flush()


def _lead_nowhere(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


def wrapped(text: str, columns: int) -> str:
    """Break long lines between words; a command, which is indented, stays whole to be copied."""
    whole = TextWrapper(columns, break_long_words=False, break_on_hyphens=False)
    lines = text.split("\n")
    return "\n".join(line if line.startswith(" ") else whole.fill(line) for line in lines)


def fitted(text: str, stream: TextIO) -> str:
    """Return a text as it is printed to a stream: wrapped if that is a terminal."""
    return wrapped(text, get_terminal_size().columns) if stream.isatty() else text
