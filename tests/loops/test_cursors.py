"""How far a loop has read its own data: what can be kept, and of which boundary it is."""

import pytest

from islands.loops.cursors import CursorReader, check_cursor, packed, unpacked
from islands.protocol.errors import SettingsError, TaskError
from islands.protocol.messages.training import CURSOR_BYTES_MAX

LARGEST = CURSOR_BYTES_MAX - 3  # msgpack tells a length of two bytes


@pytest.mark.parametrize(
    "cursor",
    [
        *(0, -(2**63), 2**64 - 1, 1.5, True, "", "här", b"", b"\xff" * LARGEST),
        {"next_index": 7, "nested": {"epoch": 1, "seen": [1, 2, 3]}, "none": None},
        {3: b"state"},
    ],
    ids=lambda cursor: str(cursor)[:12],
)
def test_a_cursor_comes_back_as_it_was(cursor: object) -> None:
    """The states of iterators are bytes, or trees of numbers and strings."""
    assert unpacked(packed(cursor)) == cursor


@pytest.mark.parametrize(
    ("cursor", "why"),
    [
        (b"\xff" * (LARGEST + 1), "the cursor has 65537 bytes, and 65536 can be kept"),
        (object(), "the cursor cannot be kept"),
        (2**64, "the cursor cannot be kept"),
        ({"a": {"b": 1j}}, "the cursor cannot be kept"),
    ],
)
def test_what_cannot_be_kept_is_told_in_a_sentence(cursor: object, why: str) -> None:
    """At the first boundary at which it would be sent."""
    with pytest.raises(TaskError, match=why):
        packed(cursor)


@pytest.mark.parametrize(
    "kept", [b"\xc1", b"\x92\x01", b"\x91" * 5000, bytes(CURSOR_BYTES_MAX + 1)]
)
def test_a_position_that_no_loop_has_sent_is_refused(kept: bytes) -> None:
    """A hub is not believed more than a loop is."""
    with pytest.raises(TaskError, match="the hub told a position"):
        unpacked(kept)


def test_a_loop_without_a_cursor_has_no_position() -> None:
    """Nothing is sent then, and nothing told."""
    reader = CursorReader(None)
    reader.note()
    assert reader.take() == b""
    assert unpacked(b"") is None


def test_a_cursor_is_that_of_the_boundary_unless_it_was_noted() -> None:
    """A wrapped step comes to its boundary after the next batch was read, and notes it before."""
    read = iter(range(100))
    state = [next(read)]
    reader = CursorReader(lambda: state[0])
    assert unpacked(reader.take()) == 0
    state[0] = next(read)
    assert unpacked(reader.take()) == 1
    reader.note()
    state[0] = next(read)
    assert unpacked(reader.take()) == 1


@pytest.mark.parametrize("wrapped", ["wrapped", ""])
def test_a_cursor_is_that_of_the_last_step(wrapped: str) -> None:
    """What is read for gradients that are accumulated is in no value before they are whole."""
    state = [0]
    reader = CursorReader(lambda: state[0])
    for batch in range(1, 13):
        state[0] = batch
        if wrapped:
            reader.note()
        reader.booked(stepped=batch % 4 == 0)
        if batch >= 4:
            assert unpacked(reader.take()) == batch - batch % 4


def test_a_cursor_is_a_function() -> None:
    """A value would be the same at every boundary."""
    check_cursor(None)
    check_cursor(dict)
    with pytest.raises(SettingsError, match="cursor is a bytes; it must be a function"):
        check_cursor(b"state")
