"""Finds a checkpoint by what a person names it, and reads it back with every byte verified."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from islands.files.disk import RealDisk
from islands.files.run_files import PLAN_FILE, SPEC_FILE
from islands.files.whole_files import parts_of, unsealed
from islands.keeping.catalogue import held, whole_ones
from islands.keeping.manifest import NAME, Manifest, digest_of
from islands.keeping.saving import CHECKPOINTS
from islands.keeping.store import Store, store_at
from islands.protocol.errors import DamagedError, UserError, unusable
from islands.settings.run_spec import RunPlan, RunSpec
from islands.settings.run_spec import read as read_run
from islands.syncer.journal import Journal, Recovered

AUTO = "auto"
"""The newest whole checkpoint, if there is no whole journal."""


@dataclass(frozen=True, slots=True)
class Found:
    """A whole checkpoint, and where it is."""

    store: Store
    manifest: Manifest

    @property
    def told(self) -> str:
        return self.store.told(self.manifest.name)


def find(wish: str, folder: Path, stored: Store | None = None) -> Found:
    """Find what `--resume` names: a checkpoint of this run by its merges or name, or a path.

    Args:
        wish: a number of merges, or a name such as 2-400; `auto` for the newest whole checkpoint;
            else the path or URL of a checkpoint, of a folder of checkpoints, or of another run's
            folder.
        folder: the run's folder.
        stored: where this run stores checkpoints, if not in its folder.
    """
    if wish == AUTO or wish.isdecimal() or NAME.fullmatch(wish):
        return _among(stored or store_at(folder / CHECKPOINTS), wish)
    parent, _, name = wish.rstrip("/").rpartition("/")
    above = store_at(parent or ".")
    if name in above.names():
        return _among(above, name)
    inside = store_at(f"{wish.rstrip('/')}/{CHECKPOINTS}")
    return _among(inside if inside.names() else store_at(wish), AUTO)


def newest_until(store: Store, merges: int) -> Found | None:
    """Find the newest whole checkpoint that was taken when the run had made so many merges."""
    found = [each for each in whole_ones(held(store)) if each.merges <= merges]
    return Found(store, found[-1]) if found else None


def _among(store: Store, wish: str) -> Found:
    """Find a checkpoint in a store by its name, or the newest with so many merges."""
    whole = whole_ones(held(store))
    chosen = [each for each in whole if wish in (AUTO, each.name, str(each.merges))]
    if not chosen:
        there = ", ".join(each.name for each in whole) or "none"
        named = "" if wish == AUTO else f" {wish}"
        raise UserError(
            f"there is no whole checkpoint{named} in {store.told('').rstrip('/')}; there are: "
            f"{there}"
        )
    return Found(store, chosen[-1])


@dataclass(frozen=True, slots=True)
class Restored:
    """A checkpoint as read: the run's spec and plan, and its journal."""

    manifest: Manifest
    spec: RunSpec
    plan: RunPlan
    recovered: Recovered


def read(found: Found, room: Path) -> Restored:
    """Read a checkpoint and verify every byte; `room` is an empty folder for its files."""
    store, manifest = found.store, found.manifest
    with store.reading(manifest.name):
        for name in manifest.files:
            _fetch(found, name, room / name)
    told = read_run(room)
    if told is None:
        raise DamagedError(f"{found.told} names no {SPEC_FILE} and {PLAN_FILE}")
    spec, plan = told
    recovered = Journal(RealDisk(room), len(plan.layout.fragments)).recover()
    if recovered is None or not _is_one_moment(recovered, manifest):
        raise DamagedError(f"{found.told} does not hold the versions that its manifest tells of")
    return Restored(manifest, spec, plan, recovered)


def _is_one_moment(recovered: Recovered, manifest: Manifest) -> bool:
    """Return whether the books are those of the manifest, and no other version had to do."""
    newest = max(each.version.epoch for each in recovered.durable.published if each is not None)
    return recovered.durable.merges == manifest.merges and newest <= recovered.durable.epoch


def peek(found: Found) -> RunSpec:
    """Read what a checkpoint's run was begun with."""
    file = found.store.open(found.manifest.name, SPEC_FILE)
    text = None
    if file is not None:
        with file:
            text = unsealed(file.read())
    if text is None:
        raise DamagedError(f"{found.told} has no whole {SPEC_FILE}")
    return RunSpec.decode(text)


def _fetch(found: Found, name: str, target: Path) -> None:
    """Copy a file of a checkpoint, which must be what the manifest says."""
    file = found.store.open(found.manifest.name, name)
    if file is None:
        raise DamagedError(f"{found.told} lacks {name}, which its manifest names")
    try:
        with file, target.open("wb") as copy:

            def copied() -> Iterator[bytes]:
                for part in parts_of(file):
                    copy.write(part)
                    yield part

            described = digest_of(copied())
    except OSError as error:
        raise unusable(f"{found.told}/{name} cannot be copied to {target.parent}", error) from error
    if described != found.manifest.files[name]:
        raise DamagedError(f"{found.told}/{name} is damaged: it is not what was written")
