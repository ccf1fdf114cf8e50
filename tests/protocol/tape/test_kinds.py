"""Every line that an actor writes is an entry of the one union, field by field."""

import msgspec
import pytest

from islands.files.tape_writing import HEAD
from islands.lab.world.scenario import draw
from islands.lab.world.trial import play
from islands.protocol.errors import TapeError
from islands.protocol.tape.entry import VERSION, encode_entry
from islands.protocol.tape.kinds import decode_fields, read
from tests.protocol.tape.document import DOCUMENT, MARK, tables


@pytest.mark.parametrize("number", [1, 2])
def test_what_is_read_is_what_was_written(number: int) -> None:
    lines = play(draw(number)).lines
    again = [encode_entry(at_s, actor, entry) for at_s, actor, entry in read(lines)]
    assert again == list(lines)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b'{"at_s":0.0,"actor":"a"}',
        b'{"at_s":0.0,"actor":"a","kind":"sung"}',
        b'{"actor":"a","kind":"journalled","sequence":1}',
        b'{"at_s":0.0,"actor":"a","kind":"journalled","sequence":"1"}',
    ],
)
def test_what_is_no_entry_is_told_by_its_line(line: bytes) -> None:
    whole = b'{"at_s":0.0,"actor":"a","kind":"journalled","sequence":1}'
    with pytest.raises(TapeError, match="line 3 of the tape is damaged"):
        read([HEAD, whole, line])


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            [HEAD, HEAD.replace(b":1}", b":2}")],
            "line 2 begins a tape of version 2, and this islands",
        ),
        ([HEAD.replace(b":1}", b":0}")], "line 1 begins a tape of version 0, and this islands"),
        ([b'{"at_s":0.0,"actor":"a","kind":"resumed"}'], "does not begin with its version"),
    ],
)
def test_a_tape_of_another_version_is_refused_in_a_sentence(lines: list[bytes], told: str) -> None:
    with pytest.raises(TapeError, match=told):
        read(lines)


@pytest.mark.parametrize("fields", ["{}", '{"kind":"left","sequence":1}', '{"sequence":null}', "x"])
def test_fields_of_another_type_are_no_entry(fields: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_fields("journalled", fields)


def test_the_document_has_the_types_as_they_are() -> None:
    """After a change, run `python -m tests.protocol.tape.document`, and think of the version."""
    prose, _, found = DOCUMENT.read_text().partition(MARK)
    assert found == tables(), "run python -m tests.protocol.tape.document"
    assert f"This is version {VERSION}." in prose
    assert HEAD.decode() in prose
