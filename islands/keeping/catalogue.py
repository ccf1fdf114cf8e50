"""The checkpoints in a store: which are whole, which is the newest, which may go."""

from collections.abc import Mapping

from islands.keeping.manifest import MANIFEST, UNFINISHED, Manifest, Retention, decode
from islands.keeping.store import Store
from islands.protocol.errors import DamagedError, IslandsError, unusable

NOT_FINISHED = "it has no manifest: it is being written, or was not finished"


def manifest_of(store: Store, name: str) -> Manifest | None:
    """Read the manifest of a checkpoint; None if there is none."""
    file, where = store.open(name, MANIFEST), f"{store.told(name)}/{MANIFEST}"
    if file is None:
        return None
    try:
        with file:
            manifest = decode(file.read(), where)
    except OSError as error:
        raise unusable(f"{where} cannot be read", error) from error
    if manifest.name != name:
        raise DamagedError(f"{where} is that of checkpoint {manifest.name}")
    return manifest


def held(store: Store) -> Mapping[str, Manifest | str]:
    """Return each checkpoint's manifest by its name; a sentence in place of one that is not whole.

    Raises:
        DiskError: the store cannot be listed at present.
    """
    found: dict[str, Manifest | str] = {}
    for name in store.names():
        try:
            found[name] = manifest_of(store, name) or NOT_FINISHED
        except IslandsError as error:
            found[name] = str(error)
    return found


def whole_ones(known: Mapping[str, Manifest | str]) -> list[Manifest]:
    """Return those that are whole, the oldest first."""
    found = (each for each in known.values() if isinstance(each, Manifest))
    return sorted(found, key=lambda each: each.age)


def outdated(store: Store, known: Mapping[str, Manifest | str], retention: Retention) -> list[str]:
    """Return the names of the checkpoints that go: outdated ones, and those that were not finished.

    It is called when one has just become whole, and nobody else writes here. What is damaged, of
    another format, or not known to be a checkpoint stays.
    """
    unfinished = [name for name, each in known.items() if each == NOT_FINISHED]
    mine = [name for name in unfinished if _is_marked(store, name)]
    return [*mine, *(each.name for each in retention.outdated(whole_ones(known)))]


def _is_marked(store: Store, name: str) -> bool:
    marked = store.open(name, UNFINISHED)
    if marked is not None:
        marked.close()
    return marked is not None
