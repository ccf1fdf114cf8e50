"""A folder that new files arrive in: data without an end, of which each file is read once.

The n-th file in the order of names is the shard n of all passes together: shard `n % shards` of
pass `n // shards`. So files are leased as shards are: each to one learner, which reads it from its
position on, and whose successor goes on where it is known to have come to. A shard whose file has
not arrived yet has nothing at the moment.

Files are renamed into the folder when they are whole, and their names grow, as those do that begin
with a time: a file whose name comes before one that was found earlier is refused, since it would
change the numbers of all that follow. Only a process that saw the earlier names can notice that, so
files that were read must stay until the run has ended, restarts included; a task that has the name
of the `first` one among its labels is refused at a restart where it was removed. Hidden files are
left out.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from islands.protocol.errors import DataError, unusable
from islands.tasks.data.shards import ShardKey

Batch = TypeVar("Batch")


class Arrivals(Generic[Batch]):
    """The batches of files that arrive in a folder.

    Args:
        folder: The folder, which every host must see.
        read: Yields the batches of a file from a position on, each with the position after it.
        shards: Files per pass; the task's own `shards`.
    """

    def __init__(
        self, folder: Path, read: Callable[[Path, int], Iterator[tuple[Batch, int]]], shards: int
    ) -> None:
        self._folder = folder
        self._read = read
        self._shards = shards
        self._names: list[str] = []

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Batch | None, int]]:
        """Yield the batches of a file, and None as long as it has not arrived.

        Raises:
            DataError: A file has arrived whose name comes before those of earlier ones.
        """
        while (path := self.find(shard)) is None:
            yield None, position
        yield from self._read(path, position)

    @property
    def first(self) -> str:
        """Name of the first file, which stays the same as long as none is removed.

        Raises:
            DataError: No file has arrived yet.
        """
        found = self.find(ShardKey(0, 0))
        if found is None:
            raise DataError(f"no file has arrived in {self._folder}; put one there to begin with")
        return found.name

    def find(self, shard: ShardKey) -> Path | None:
        """Return the file of a shard; None if it has not arrived."""
        number = shard.pass_index * self._shards + shard.shard
        if number >= len(self._names):
            self._look()
        return self._folder / self._names[number] if number < len(self._names) else None

    def _look(self) -> None:
        try:
            found = [each.name for each in self._folder.iterdir() if each.is_file()]
        except OSError as error:
            raise unusable(f"the folder {self._folder} cannot be read", error) from error
        names = sorted(name for name in found if not name.startswith("."))
        for known, name in zip(self._names, names, strict=False):
            if known != name:
                raise DataError(
                    f"{self._folder / min(known, name)} arrived or left after {known}, and the "
                    "order of names is that of arrival: let names grow, and keep files that were "
                    "read"
                )
        self._names = max(self._names, names, key=len)
