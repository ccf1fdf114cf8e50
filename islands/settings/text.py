"""What `islands tokenize` is told."""

from dataclasses import dataclass, field
from pathlib import Path

from islands.protocol.errors import SettingsError
from islands.settings.groups import at_least


@dataclass(frozen=True, slots=True)
class TokenizeOptions:
    """`islands tokenize`: turns text into tokens on disk, which a run then reads.

    Args:
        text: a folder of text, a pattern of files, or one file; `.jsonl` files hold lines of JSON.
            Or the folder of one dataset that `save_to_disk` of Hugging Face's `datasets` made.
        vocabulary: number of different tokens; 256 are the bytes themselves, and more are byte
            pairs, which are learned from the text.
        out: folder to make, for `path` of the task `islands.tasks.text:TextFiles`.
        json_field: field of a line of JSON, or column of a dataset, that holds the text.
        held_out: share of the documents that is never trained on.
    """

    text: str = field(default="", metadata={"positional": True})
    vocabulary: int = 256
    out: Path = Path("tokens")
    json_field: str = "text"
    held_out: float = 0.05

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            SettingsError: name, value and what is allowed.
        """
        at_least("vocabulary", self.vocabulary, 256)
        if not 0 <= self.held_out < 1:
            raise SettingsError(f"held_out is {self.held_out}; it is a share, from 0 to below 1")
