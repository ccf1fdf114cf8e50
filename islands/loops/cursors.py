"""How far a loop has read its own data, as bytes that a hub keeps and does not understand."""

from collections.abc import Callable

import msgspec

from islands.protocol.errors import SettingsError, TaskError
from islands.protocol.messages.training import CURSOR_BYTES_MAX

Cursor = Callable[[], object]
"""Returns how far data was read, such as an iterator's `get_state`."""


class CursorReader:
    """Reads a loop's cursor at the boundaries at which values are taken.

    Args:
        read: returns the cursor; None where the loop has none.
    """

    def __init__(self, read: Cursor | None) -> None:
        """Read nothing yet."""
        self._read = read
        self._noted: bytes | None = None
        self._settled: bytes | None = None  # that of the last step, if some boundaries have none
        self._accumulates = False

    def note(self) -> None:
        """Read the cursor now, for the next boundary: data may be read again before it."""
        self._noted = self._packed()

    def take(self) -> bytes:
        """Return the cursor at a boundary; empty where the loop has none.

        Raises:
            TaskError: it cannot be kept.
        """
        if self._settled is not None:
            return self._settled
        return self._packed() if self._noted is None else self._noted

    def booked(self, *, stepped: bool) -> None:
        """Keep the cursor of a step for boundaries without one, before which data is read, too."""
        if not stepped:
            self._accumulates = True
        elif self._noted is not None:
            self._settled = self._noted
        elif self._accumulates:
            self._settled = self._packed()

    def _packed(self) -> bytes:
        return b"" if self._read is None else packed(self._read())


def packed(cursor: object) -> bytes:
    """Return a cursor as bytes.

    Raises:
        TaskError: it consists of other things than a hub can keep, or is too large.
    """
    try:
        made = msgspec.msgpack.encode(cursor)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TaskError(
            f"the cursor cannot be kept ({error}): it must consist of bytes, numbers, strings, "
            "lists and dictionaries, as an iterator's get_state() returns them"
        ) from error
    if len(made) > CURSOR_BYTES_MAX:
        raise TaskError(
            f"the cursor has {len(made)} bytes, and {CURSOR_BYTES_MAX} can be kept: return where "
            "the data is read, without what was read of it"
        )
    return made


def unpacked(kept: bytes) -> object:
    """Return the cursor that a hub has kept; None if there is none.

    Raises:
        TaskError: it cannot be read.
    """
    if not kept:
        return None
    try:
        if len(kept) <= CURSOR_BYTES_MAX:
            return msgspec.msgpack.decode(kept)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TaskError(f"the hub told a position that cannot be read ({error})") from error
    raise TaskError(f"the hub told a position of {len(kept)} bytes, more than {CURSOR_BYTES_MAX}")


def check_cursor(cursor: object) -> None:
    """Refuse a cursor that cannot be called.

    Raises:
        SettingsError: it is a value in place of what returns one.
    """
    if cursor is not None and not callable(cursor):
        raise SettingsError(
            f"cursor is a {type(cursor).__name__}; it must be a function that returns how far the "
            "data was read, such as an iterator's get_state"
        )
