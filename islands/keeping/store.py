"""Where checkpoints lie: a folder, or what fsspec reaches by a URL (`s3://`, `gs://`, …).

The manifest of a checkpoint is written after all its files, and removed before them.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BufferedReader, RawIOBase
from math import inf
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from islands.files.folder_lock import make_private
from islands.files.whole_files import flush, link_file, open_plain, replace_file
from islands.keeping.manifest import FILE_NAME, MANIFEST, NAME, UNFINISHED, age_of
from islands.protocol.errors import DiskError, UserError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from fsspec import AbstractFileSystem

ASIDE = "set_aside"
"""Folder, in a store, of the checkpoints that a run left when it went back to an earlier one."""


class Store(Protocol):
    """A place of checkpoints, by their names; each method raises `DiskError` if it is away."""

    def names(self) -> list[str]:
        """Return the names of all checkpoints, whole or not, the oldest first."""

    def open(self, name: str, file: str) -> IO[bytes] | None:
        """Open a file of a checkpoint; None if there is none."""

    def free_bytes(self) -> float:
        """Return how much more can be stored, as far as that is known."""

    def put(self, name: str, file: str, source: Path) -> None:
        """Store a file, which the checkpoint may share with its source from then on."""

    def finish(self, name: str, manifest: bytes) -> None:
        """Make a checkpoint whole, which lasts once this returns."""

    def remove(self, name: str) -> bool:
        """Remove a checkpoint unless somebody reads it; return whether it is gone."""

    def set_aside(self, name: str) -> None:
        """Move a checkpoint out of the list of names, where it can still be read."""

    def reading(self, name: str) -> AbstractContextManager[None]:
        """Keep a checkpoint from being removed meanwhile, as far as the store can do so."""

    def told(self, name: str) -> str:
        """Return the path of a checkpoint, as a person would write it."""


class FolderStore:
    """Checkpoints in a folder; where its file system is the journal's, they are hard links."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        with self._told("read"):
            found = list(self.folder.iterdir()) if self.folder.exists() else []
            named = [each for each in found if NAME.fullmatch(each.name) and not _is_empty(each)]
        return sorted((each.name for each in named), key=age_of)

    def open(self, name: str, file: str) -> IO[bytes] | None:
        with self._told("read"):
            try:
                return open_plain(self.folder / name / file)
            except FileNotFoundError:
                return None

    def free_bytes(self) -> float:
        with self._told("written"):
            make_private(self.folder)
            return shutil.disk_usage(self.folder).free

    def put(self, name: str, file: str, source: Path) -> None:
        target = self.folder / name / file
        with self._told("written"):
            make_private(target.parent)
            link_file(source, target)

    def finish(self, name: str, manifest: bytes) -> None:
        with self._told("written"):
            flush(self.folder / name)
            replace_file(self.folder / name / MANIFEST, manifest)
            (self.folder / name / UNFINISHED).unlink(missing_ok=True)
            flush(self.folder)

    def remove(self, name: str) -> bool:
        folder = self.folder / name
        with self._told("removed"):
            if not folder.exists():
                return True
            if (folder / MANIFEST).exists():
                with (folder / MANIFEST).open("rb") as held:
                    try:
                        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        return False
                    except OSError:  # a file system without locks
                        pass
                    (folder / UNFINISHED).touch()  # a crash now leaves one that may go
                    (folder / MANIFEST).unlink()
                    flush(folder)
            for path in sorted(folder.iterdir(), key=lambda each: each.name == UNFINISHED):
                name = path.name.removeprefix(".")  # as of one that was being written
                if FILE_NAME.fullmatch(name) and not path.is_dir():
                    path.unlink()
            with suppress(OSError):  # somebody keeps files of his own there
                folder.rmdir()
        return True

    def set_aside(self, name: str) -> None:
        with self._told("set aside"):
            make_private(self.folder / ASIDE)
            # A crash may have left it under both names.
            shutil.rmtree(self.folder / ASIDE / name, ignore_errors=True)
            (self.folder / name).rename(self.folder / ASIDE / name)
            flush(self.folder / ASIDE)
            flush(self.folder)

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        with open_plain(self.folder / name / MANIFEST) as held:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(held, fcntl.LOCK_SH)
            yield

    def told(self, name: str) -> str:
        return str(self.folder / name)

    @contextmanager
    def _told(self, how: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DiskError(f"checkpoints in {self.folder} cannot be {how}: {error}") from error


def _is_empty(folder: Path) -> bool:
    """Return whether a folder was just made, or is just being removed; its first file is hidden."""
    try:
        return folder.is_dir() and all(each.name.startswith(".") for each in folder.iterdir())
    except FileNotFoundError:
        return True


class RemoteStore:
    """Checkpoints under a URL; nothing there keeps a reader's checkpoint from being removed."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._scheme = url.partition("://")[0]
        self._files: AbstractFileSystem | None = None
        self._root = ""

    def names(self) -> list[str]:
        with self._told("listed") as files:
            return sorted(filter(NAME.fullmatch, _held(files, self._root)), key=age_of)

    def open(self, name: str, file: str) -> IO[bytes] | None:
        with self._told("read") as files:
            try:
                found = files.open(f"{self._root}/{name}/{file}", "rb")
            except FileNotFoundError:
                return None
            return BufferedReader(_Reading(found))

    def free_bytes(self) -> float:
        return inf

    def put(self, name: str, file: str, source: Path) -> None:
        with self._told("written") as files:
            files.put_file(str(source), f"{self._made(files, name)}/{file}")

    def finish(self, name: str, manifest: bytes) -> None:
        with self._told("written") as files:
            files.pipe_file(f"{self._root}/{name}/{MANIFEST}", manifest)
            files.rm_file(f"{self._root}/{name}/{UNFINISHED}")

    def remove(self, name: str) -> bool:
        path = f"{self._root}/{name}"
        with self._told("removed") as files:
            found = _held(files, path)
            if MANIFEST in found:
                files.pipe_file(f"{path}/{UNFINISHED}", b"{}")
                files.rm_file(f"{path}/{MANIFEST}")
                found = [UNFINISHED, *found]
            for file in sorted(found, key=lambda each: each == UNFINISHED):
                if FILE_NAME.fullmatch(file) and file != MANIFEST:
                    files.rm_file(f"{path}/{file}")
        return True

    def set_aside(self, name: str) -> None:
        """Copy a checkpoint, its manifest last, and remove it where it was."""
        with self._told("set aside") as files:
            aside = self._made(files, f"{ASIDE}/{name}")
            found = filter(FILE_NAME.fullmatch, _held(files, f"{self._root}/{name}"))
            for file in sorted(found, key=lambda each: each == MANIFEST):
                files.cp_file(f"{self._root}/{name}/{file}", f"{aside}/{file}")
        self.remove(name)

    def reading(self, name: str) -> AbstractContextManager[None]:
        del name
        return nullcontext()

    def told(self, name: str) -> str:
        return f"{self._url}/{name}"

    def _made(self, files: "AbstractFileSystem", name: str) -> str:
        """Make a folder where there are folders; in an object store that would make a bucket."""
        path = f"{self._root}/{name}"
        if path.startswith("/"):
            files.makedirs(path, exist_ok=True)
        return path

    @contextmanager
    def _told(self, how: str) -> "Iterator[AbstractFileSystem]":
        """Give the file system, and turn whatever it raises into a sentence."""
        try:
            if self._files is None:
                from fsspec.core import url_to_fs

                self._files, self._root = url_to_fs(self._url)
            yield self._files
        except ImportError as error:
            raise UserError(
                f"checkpoints at {self._url} cannot be {how}: {error}; install fsspec and what it "
                f"needs for {self._scheme}://, such as pip install 'islands[s3]' for s3://"
            ) from error
        except ValueError as error:
            raise UserError(f"checkpoints at {self._url} cannot be {how}: {error}") from error
        except Exception as error:
            said = f"{error}" or repr(error)
            raise DiskError(f"checkpoints at {self._url} cannot be {how}: {said}") from error


def _held(files: "AbstractFileSystem", path: str) -> list[str]:
    """Return the names of what is under a path, as it is now."""
    files.invalidate_cache()
    try:
        held = files.ls(path, detail=False)
    except FileNotFoundError:
        return []
    return [str(each).rstrip("/").rpartition("/")[2] for each in held]


class _Reading(RawIOBase):
    """A file of a store, whose errors are those of a file, of whatever class they were."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        with memoryview(buffer).cast("B") as room:
            try:
                part = self._file.read(len(room))
            except Exception as error:
                raise OSError(f"{error}" or repr(error)) from error
            room[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._file.close()
        super().close()


def store_at(place: str | Path) -> Store:
    """Return the store at a path or a URL."""
    text = str(place)
    if "://" in text:
        return RemoteStore(text)
    return FolderStore(Path(text))


def absolute(place: str) -> str:
    """Return what names the same store from any folder; of nothing, nothing."""
    return place if not place or "://" in place else str(Path(place).absolute())
