"""Sentences for a terminal, whose lines end between words.

A terminal breaks a line that is too long wherever that falls, in the middle of a word or an option.
"""

import re
import textwrap
from shutil import get_terminal_size
from typing import TextIO

CONTINUED = " \\"


OPTION = re.compile(r"--\S+ [^-\s]\S*|\S+")
"""An option with its value, or another word of a command."""


def wrapped(text: str, columns: int) -> str:
    """Break long lines between words; a path or an address is a word, so it can be copied.

    A line that is indented is a command, which is continued after a backslash, as a shell reads it;
    an option stays with its value.
    """
    return "\n".join(each for line in text.split("\n") for each in _lines(line, columns))


def _lines(line: str, columns: int) -> list[str]:
    if len(line) <= columns:
        return [line]
    if not line.startswith(" "):
        return textwrap.wrap(line, columns, break_long_words=False, break_on_hyphens=False)
    indent = " " * (len(line) - len(line.lstrip()))
    lines = [indent]
    for word in OPTION.findall(line):
        if lines[-1].strip() and len(lines[-1]) + len(word) + len(CONTINUED) >= columns:
            lines[-1] += CONTINUED
            lines.append(2 * indent)
        lines[-1] += word if not lines[-1].strip() else f" {word}"
    return lines


def fitted(text: str, stream: TextIO) -> str:
    """Return a text as it is printed to a stream: wrapped if that is a terminal."""
    return wrapped(text, get_terminal_size().columns) if stream.isatty() else text
