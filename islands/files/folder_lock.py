"""Folders of a run, which only their owner can enter and only one process at a time can use.

The system releases the lock of a folder when the process that holds it ends, however it ends.
"""

import fcntl
from pathlib import Path
from typing import IO

from islands.files.whole_files import flush
from islands.protocol.errors import UserError, unusable


def make_private(folder: Path) -> None:
    """Make a folder that its owner alone can enter, because it holds the model and the secrets.

    A folder that exists keeps its permissions: its maker knows who may read it.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
        flush(each.parent)
    folder.mkdir(exist_ok=True)


def lock_folder(folder: Path, name: str, user: str) -> IO[bytes]:
    """Make the folder if it is missing, and lock it against other processes.

    Return its lock file of this name, whose closing releases the lock. The error message names the
    `user` that may hold it, such as "hub".
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
        return file  # the file system has no locks, so the folder stays unlocked
    return file
