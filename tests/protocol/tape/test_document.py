"""docs/tape.md has every kind and every field, and the version."""

from islands.files.tape_writing import HEAD
from islands.protocol.tape.entry import VERSION
from tests.protocol.tape.document import DOCUMENT, MARK, tables


def test_the_document_has_the_types_as_they_are() -> None:
    """After a change, run `python -m tests.protocol.tape.document`, and think of the version."""
    prose, _, found = DOCUMENT.read_text().partition(MARK)
    assert found == tables(), "run python -m tests.protocol.tape.document"
    assert f"This is version {VERSION}." in prose
    assert HEAD.decode() in prose
