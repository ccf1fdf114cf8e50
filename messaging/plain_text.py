"""Text of a peer, made fit for a terminal and for a line of a log.

What a terminal obeys (escape sequences, newlines, what turns the direction of writing context) is
shown as Python would write it, so that nobody can forge lines or hide what was said.
"""

CHARACTERS_MAX = 2000


def plain(text: str, characters: int = CHARACTERS_MAX) -> str:
    """Return a text as one line that can be printed; what is longer is cut, and says so.

    Args:
        text: Whatever a peer sent.
        characters: The most that is shown of it.
    """
    shown = text[:characters]
    if not shown.isprintable():
        shown = "".join(one if one.isprintable() else _shown(one) for one in shown)[:characters]
    return shown if len(text) <= characters else f"{shown}\u2026 ({len(text)} characters)"


def _shown(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
