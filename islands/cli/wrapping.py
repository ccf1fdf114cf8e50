"""Sentences for a terminal, whose lines end between words.

A terminal breaks a line that is too long wherever that falls, in the middle of a word or an option.
"""

import sys
import textwrap
from shutil import get_terminal_size


def wrapped(text: str, columns: int) -> str:
    """Break long lines between words; lines that are indented are commands, and stay whole.

    A path or an address is a word, so it can be copied.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith(" "):
            lines.append(line)
            continue
        lines += textwrap.wrap(line, columns, break_long_words=False, break_on_hyphens=False) or [
            ""
        ]
    return "\n".join(lines)


def say(text: str) -> None:
    """Print a sentence at once, wrapped if standard output is a terminal."""
    print(wrapped(text, get_terminal_size().columns) if sys.stdout.isatty() else text, flush=True)
