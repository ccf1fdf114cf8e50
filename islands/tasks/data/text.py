"""Text at a place, whatever keeps it: files, or a dataset of Hugging Face's on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from islands.tasks.data.documents import SourceFile, find_text
from islands.tasks.data.saved_dataset import is_saved, open_saved


class Text(Protocol):
    """The documents of a corpus, which can be read as often as they are needed."""

    @property
    def field(self) -> str:
        """Name of the field or column that holds the text of a document, where there are any."""

    def manifest(self) -> tuple[SourceFile, ...]:
        """Read every file once and describe it."""

    def documents(self) -> Iterator[bytes]:
        """Yield the text of every document as UTF-8, in an order that never changes."""


def text_at(place: Path, field: str = "text") -> Text:
    """Find the text at a place: a folder, a file, a pattern such as `docs/**/*.md`, or a dataset.

    Raises:
        DataError: There is no text, or it cannot be read; the sentence names the place.
    """
    return open_saved(place, field) if is_saved(place) else find_text(place, field)
