"""A file of tokens that somebody else made: an array of NumPy, or plain numbers.

The tokens of a `.npy` file are a one-dimensional array of unsigned 8, 16 or 32 bits. Those of any
other file, mostly `.bin`, are plain numbers of the dtype that the user names. The file is mapped
into memory. Its last tokens are held out, since it does not say where documents begin.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from islands.protocol.errors import DataError
from islands.tasks.data.documents import SourceFile, file_digest
from islands.tasks.data.windows import Tokens

DTYPES = ("uint8", "uint16", "uint32")
_CHUNK_TOKENS = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class TokenArray:
    """Both parts of a file of tokens, and the line of the manifest that stands for it."""

    train: Tokens
    validation: Tokens
    file: SourceFile


def open_tokens(path: Path, dtype: str, *, held_out: float, vocabulary: int) -> TokenArray:
    """Map a file of tokens into memory, and read it once to check it.

    Raises:
        DataError: The file is missing, of another form, or has tokens beyond the vocabulary.
    """
    try:
        tokens = _mapped(path, dtype)
        file = SourceFile(path.name, path.stat().st_size, file_digest(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(f"{path} is no array of tokens: {error}") from error
    starts = range(0, len(tokens), _CHUNK_TOKENS)
    largest = max((int(tokens[at : at + _CHUNK_TOKENS].max()) for at in starts), default=0)
    if largest >= vocabulary:
        raise DataError(
            f"{path} has the token {largest}, and the vocabulary has {vocabulary}: set vocabulary "
            f"to at least {largest + 1}, or dtype to the file's own"
        )
    kept = len(tokens) - int(len(tokens) * held_out)
    return TokenArray(tokens[:kept], tokens[kept:], file)


def _mapped(path: Path, dtype: str) -> Tokens:
    """Map a file into memory.

    Raises:
        ValueError: It is no one-dimensional array of one of the dtypes.
    """
    if path.suffix == ".npy":
        found: Tokens = np.load(path, mmap_mode="r", allow_pickle=False)
        if found.ndim != 1 or found.dtype.name not in DTYPES:
            shown = f"{found.dtype}{list(found.shape)}"
            raise ValueError(f"it is {shown}, and not one row of {', '.join(DTYPES)}")
        return found
    return np.memmap(path, np.dtype(dtype).newbyteorder("<"), "r")
