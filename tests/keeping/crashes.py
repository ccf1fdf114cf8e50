"""What a folder holds if its process, or its host, ends between any two operations on files.

`Crashes` looks before and after each call of the system that makes, names or syncs a file while
some work is done, and keeps what is there then:

    killed           all that was done
    lost             what was synced alone: a name as its folder had it when that was synced, and
                     the content of a file as it was when it was synced
    lost contents    all names, and the content of each file as it was when it was synced
"""

import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EXDEV
from functools import partial
from pathlib import Path
from typing import Any

Tree = tuple[tuple[str, bytes | None], ...]
"""The files in a folder by their paths, with their content; None for a folder."""

CHANGING = ("mkdir", "rename", "replace", "link", "unlink", "remove", "rmdir", "fsync")


class Crashes:
    """States of the tree at `root`, each with the last moment at which a crash would leave it."""

    def __init__(self, root: Path, *, links: bool = True) -> None:
        self.states: dict[tuple[str, Tree], int] = {}
        self._root, self._links = root, links
        self._moment = 0
        self._lock = threading.RLock()
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._held: dict[int, int] = {}

    def moment(self) -> int:
        """Look at what is there now, and return its number."""
        with self._lock:
            self._moment += 1
            for kind, tree in (
                ("killed", self._tree(Path.read_bytes)),
                ("lost", self._synced(self._root.stat().st_ino)),
                ("lost contents", self._tree(lambda path: self._content(path.stat().st_ino))),
            ):
                self.states[kind, tuple(sorted(tree))] = self._moment
            return self._moment

    def _tree(self, content: Callable[[Path], bytes]) -> Iterator[tuple[str, bytes | None]]:
        for path in self._root.rglob("*"):
            yield str(path.relative_to(self._root)), None if path.is_dir() else content(path)

    def _synced(self, folder: int, prefix: str = "") -> Iterator[tuple[str, bytes | None]]:
        for name, inode in self._names.get(folder, {}).items():
            inside = inode in self._names
            yield prefix + name, None if inside else self._content(inode)
            yield from self._synced(inode, f"{prefix}{name}/")

    def _content(self, inode: int) -> bytes:
        return self._contents.get(inode, b"")

    def _sync(self, path: Path) -> None:
        inode = self._hold(path)
        if path.is_dir():
            self._names[inode] = {each.name: self._hold(each) for each in path.iterdir()}
        else:
            self._contents[inode] = path.read_bytes()

    def _hold(self, path: Path) -> int:
        """Keep a file open, so that no other one gets its inode; a folder is one at once."""
        inode = path.stat().st_ino
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_RDONLY)
            if path.is_dir():
                self._names[inode] = {}
        return inode

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch all that is done; what is there already is synced."""
        for path in (self._root, *self._root.rglob("*")):
            self._sync(path)
        before = {(os, name): getattr(os, name) for name in (*CHANGING, "open")}
        before[io, "open"] = io.open
        self.moment()
        try:
            for (module, name), call in before.items():
                setattr(module, name, partial(self._do, name, call))
            yield
            self.moment()
        finally:
            for (module, name), call in before.items():
                setattr(module, name, call)
            for handle in self._held.values():
                os.close(handle)

    def _do(self, name: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401
        how = args[1] if name == "open" and len(args) > 1 else "rb"
        reads = how in ("r", "rb") if isinstance(how, str) else not how & os.O_CREAT
        if name == "open" and reads:
            return call(*args, **options)
        with self._lock:
            if name == "link" and not self._links:
                raise OSError(EXDEV, "another file system")
            self.moment()
            found = call(*args, **options)
            if name == "fsync":
                self._sync(Path(f"/proc/self/fd/{args[0]}").readlink())
            self.moment()
            return found


def restore(tree: Tree, folder: Path) -> Path:
    """Make a folder that holds what a crash left."""
    folder.mkdir()
    for name, content in tree:
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
    return folder
