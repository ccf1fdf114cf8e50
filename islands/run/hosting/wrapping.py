"""Sentences for a terminal, whose lines end between words."""

from shutil import get_terminal_size
from textwrap import TextWrapper
from typing import TextIO


def wrapped(text: str, columns: int) -> str:
    """Break long lines between words; a command, which is indented, stays whole to be copied."""
    whole = TextWrapper(columns, break_long_words=False, break_on_hyphens=False)
    lines = text.split("\n")
    return "\n".join(line if line.startswith(" ") else whole.fill(line) for line in lines)


def fitted(text: str, stream: TextIO) -> str:
    """Return a text as it is printed to a stream: wrapped if that is a terminal."""
    return wrapped(text, get_terminal_size().columns) if stream.isatty() else text
