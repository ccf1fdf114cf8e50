"""Folders of a run: for their owner's eyes, and for one process at a time.

The lock of a folder ends with its holder, however that ends.
"""

import fcntl
from pathlib import Path
from typing import IO

from islands.errors import UserError, unusable


def make_private(folder: Path) -> None:
    """Make a folder that its owner alone can enter, for it holds the model and the secrets.

    One that is there stays as it is: whoever made it knows who is to read it.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def lock_folder(folder: Path, name: str, user: str) -> IO[bytes]:
    """Make the folder if it is missing, and keep others out of it.

    Args:
        folder: that is to be used alone.
        name: of the file that is locked.
        user: who else may hold it, for the sentence.

    Returns:
        The file; whoever closes it frees the folder.

    Raises:
        UserError: the folder cannot be used, or somebody else uses it.
    """
    try:
        make_private(folder)
        file = (folder / name).open("ab")
    except OSError as error:
        raise unusable(f"the folder {folder} cannot be used", error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise UserError(
            f"the folder {folder} is in use by another {user}; choose another, or end that one"
        ) from error
    except OSError:
        return file  # a file system without locks: nobody can be kept out
    return file
