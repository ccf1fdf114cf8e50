"""How many entries of a tape peers can cause: so many a second, and a count of the rest.

A refusal is worth an entry; ten thousand a second fill a disk and hide what else is on the tape.
"""

from islands.tape.process_entries import Impostor, Refused, Unexpected
from islands.tape.round_entries import KeptOut, Void

CAUSED_BY_PEERS = (Refused, Unexpected, Impostor, KeptOut, Void)
"""Entries that anybody who holds the token can cause at will."""

ENTRIES_PER_S = 20


class EntryLimit:
    """Of one actor's tape.

    Args:
        per_s: entries in one second.
    """

    def __init__(self, per_s: int = ENTRIES_PER_S) -> None:
        """Nothing was written."""
        self._per_s = per_s
        self._second = float("-inf")
        self._written = 0
        self._left_out = 0

    def left_out(self, now_s: float) -> int | None:
        """Ask whether one more entry is written.

        Returns:
            How many were not written before it; None if it is not written either.
        """
        if now_s - self._second >= 1.0:
            self._second, self._written = now_s, 0
        self._written += 1
        if self._written > self._per_s:
            self._left_out += 1
            return None
        before, self._left_out = self._left_out, 0
        return before
