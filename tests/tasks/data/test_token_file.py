"""Files of tokens that somebody else made."""

from pathlib import Path

import numpy as np
import pytest

from islands.protocol.errors import DataError
from islands.tasks.data.prepared import open_tokens

TOKENS = np.arange(1000, dtype=np.uint16)


@pytest.mark.parametrize("name", ["t.npy", "t.bin"])
def test_a_file_is_mapped_and_its_last_tokens_are_held_out(tmp_path: Path, name: str) -> None:
    if name == "t.npy":
        np.save(tmp_path / name, TOKENS)
    else:
        TOKENS.astype("<u2").tofile(tmp_path / name)
    found = open_tokens(tmp_path / name, "uint16", held_out=0.1, vocabulary=1000)
    assert isinstance(found.train, np.memmap)
    assert found.train.tolist() == list(range(900))
    assert found.validation.tolist() == list(range(900, 1000))
    assert found.file.path == name
    assert found.file.size_bytes == (tmp_path / name).stat().st_size


def test_a_token_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    """A model would silently take another token in its place."""
    TOKENS.tofile(tmp_path / "t.bin")
    with pytest.raises(DataError, match=r"token 999, .* 999: set vocabulary to at least 1000"):
        open_tokens(tmp_path / "t.bin", "uint16", held_out=0, vocabulary=999)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((2, 3), np.uint16), r"uint16\[2, 3\], and not one row"),
        (np.zeros(3, np.float32), r"float32\[3\], and not one row"),
    ],
)
def test_another_array_is_refused(tmp_path: Path, array: np.ndarray, says: str) -> None:
    np.save(tmp_path / "t.npy", array)
    with pytest.raises(DataError, match=says):
        open_tokens(tmp_path / "t.npy", "uint16", held_out=0, vocabulary=10)


def test_files_that_cannot_be_mapped_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.bin cannot be read: No such file"):
        open_tokens(tmp_path / "none.bin", "uint16", held_out=0, vocabulary=10)
    for name, data in (("empty.bin", b""), ("odd.bin", b"abc"), ("no.npy", b"abc")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=f"{name} is no array of tokens"):
            open_tokens(tmp_path / name, "uint16", held_out=0, vocabulary=10)
