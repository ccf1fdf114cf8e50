"""Rate limit of the entries that peers can cause; the entries beyond it are only counted.

One refusal is worth an entry; ten thousand a second would fill a disk and hide everything else.
"""

from islands.protocol.tape.gossip_entries import ShareRefused
from islands.protocol.tape.process_entries import (
    Impostor,
    Refused,
    Unexpected,
    UpdateRefused,
)
from islands.protocol.tape.round_entries import KeptOut, Void

CAUSED_BY_PEERS = (
    Refused,
    ShareRefused,
    Unexpected,
    UpdateRefused,
    Impostor,
    KeptOut,
    Void,
)
"""Entries that any peer with the token can cause at will."""

ENTRIES_PER_S = 20


class EntryLimit:
    """Rate limit of one actor's tape.

    Args:
        per_s: most entries in one second.
    """

    def __init__(self, per_s: int = ENTRIES_PER_S) -> None:
        """Begin with no entries counted."""
        self._per_s = per_s
        self._second = float("-inf")
        self._written = 0
        self._left_out = 0

    def left_out(self, now_s: float) -> int | None:
        """Decide whether one more entry may be written.

        Returns:
            How many entries were left out since the last written one; None to leave this one out.
        """
        if now_s - self._second >= 1.0:
            self._second, self._written = now_s, 0
        self._written += 1
        if self._written > self._per_s:
            self._left_out += 1
            return None
        before, self._left_out = self._left_out, 0
        return before
