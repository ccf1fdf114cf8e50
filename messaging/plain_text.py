"""Text that a peer sent, made safe for a terminal and for a line of a log.

Characters that a terminal interprets (escape sequences, newlines, marks that reverse the direction
of writing) are shown as Python escapes, so that no peer can forge lines or hide a part of its text.
"""

CHARACTERS_MAX = 2000


def plain(text: str, characters: int = CHARACTERS_MAX) -> str:
    """Return a text as one printable line; a longer text is truncated, and its length added."""
    shown = text[:characters]
    if not shown.isprintable():
        parts = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
        shown = "".join(parts)[:characters]
    return shown if len(text) <= characters else f"{shown}\u2026 ({len(text)} characters)"
