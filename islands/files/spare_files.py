"""Small files of a run that are kept twice, so that one flipped bit loses none of them.

The copy is in the folder `spare` beside the file, and sealed. It is written first, so it is never
the older one.
"""

from pathlib import Path

from islands.files.folder_lock import make_private
from islands.files.run_files import SPARE
from islands.files.whole_files import read_sealed, replace_file, sealed, write_sealed
from islands.protocol.errors import DamagedError, IslandsError


def spare_of(path: Path) -> Path:
    return path.parent / SPARE / path.name


def write_spare(path: Path, content: bytes) -> None:
    """Write the copy of a file, which its owner alone can read."""
    make_private(spare_of(path).parent)
    replace_file(spare_of(path), sealed(content), private=True)


def write_twice(path: Path, content: bytes) -> None:
    """Replace a sealed file and its copy."""
    write_spare(path, content)
    write_sealed(path, content)


def read_spare(path: Path) -> bytes | None:
    """Return the object in the copy of a file; None if there is none that can be used."""
    try:
        return read_sealed(spare_of(path))
    except IslandsError:
        return None


def read_either(path: Path) -> bytes | None:
    """Return the object in a sealed file, or in its copy; None if there is neither."""
    try:
        found = read_sealed(path)
    except DamagedError:
        spare = read_spare(path)
        if spare is None:
            raise
        return spare
    return read_sealed(spare_of(path)) if found is None else found
