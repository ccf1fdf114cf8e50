"""Goes back to a checkpoint: its values, outer optimizer and books become a run's journal.

The run begins once more under the checkpoint's books (`RunPlan.begun`): all members of before join
anew, and all leases are free. Its versions are those of a new epoch, so that whoever trained past
the checkpoint adopts them. What came after the checkpoint is set aside in the run's folder.

The new journal is written whole beside the old one, then the settings and the plan; then the old
journal is moved away, and the new one takes its place, the epochs last. Killed before that, the run
goes on as before; killed later, a start says that the journal is gone until the command is given
once more.
"""

import contextlib
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from islands.actors.epochs import COPY, EPOCH, known_epochs, take_epoch
from islands.files.disk import RealDisk
from islands.files.folder_lock import lock_folder, make_private
from islands.files.slots import Slots
from islands.files.whole_files import flush
from islands.keeping.finding import Found, Restored, read
from islands.keeping.manifest import Manifest, age_of
from islands.keeping.recutting import recut, why_another
from islands.keeping.saving import CHECKPOINTS
from islands.keeping.store import FolderStore
from islands.protocol.errors import IslandsError, UserError, unusable
from islands.protocol.identities import Version
from islands.settings.run_spec import RunPlan, RunSpec, write
from islands.syncer.journal import JOURNAL, Recovered, encode, fragment_names

ASIDE = "set_aside"
ENDED = ("final.safetensors", "summary.json")
"""What a run leaves behind at its end."""


def go_back(
    found: Found,
    folder: Path,
    spec: RunSpec | None = None,
    plan_of: Callable[[RunSpec, Restored], RunPlan] = lambda _, restored: restored.plan,
) -> Restored:
    """Make a checkpoint the journal of the run in `folder`, which may be a new one.

    `spec` is what the run goes on with; None for what the checkpoint has. `plan_of` plans it, given
    the checkpoint.
    """
    room, fresh = folder / f".{JOURNAL}.read", folder / f".{JOURNAL}.new"
    with contextlib.ExitStack() as stack:
        for path, lock, user in ((folder, "hub.lock", "hub"), (folder / JOURNAL, "lock", "syncer")):
            stack.enter_context(lock_folder(path, lock, user))
        for each in (room, fresh):
            shutil.rmtree(each, ignore_errors=True)
            make_private(each)
            stack.callback(shutil.rmtree, each, ignore_errors=True)
        restored = read(found, room)
        spec = spec or restored.spec
        another = why_another(spec, restored.spec)
        if another is not None:
            raise UserError(f"{found.told} is of another run, with {another}")
        restored = recut(restored, spec, plan_of(spec, restored))
        plan = replace(
            restored.plan,
            begun=secrets.token_hex(8),
            went_back_from=found.manifest.origin,
            may_return=False,
        )
        _write_journal(restored.recovered, folder, fresh)
        try:
            write(folder, spec, plan)
            _set_aside(folder, restored.manifest)
            for path in sorted(fresh.iterdir(), key=lambda each: each.name.startswith(EPOCH)):
                path.rename(folder / JOURNAL / path.name)
            flush(folder / JOURNAL)
        except OSError as error:
            raise unusable(f"{folder} cannot be written", error) from error
    return restored


def _write_journal(recovered: Recovered, folder: Path, fresh: Path) -> None:
    """Write the records of a journal that begins with these versions, in a new epoch."""
    elsewhere = {COPY: folder / f"{JOURNAL}.epoch"}
    with contextlib.suppress(IslandsError):
        known = known_epochs(Slots(RealDisk(folder / JOURNAL, None, elsewhere))).epochs
        recovered.durable.epoch = max(recovered.durable.epoch, *known, 0)
    durable, slots = recovered.durable, Slots(RealDisk(fresh, None, elsewhere))
    durable.epoch, _ = take_epoch(slots, durable.epoch + 1)
    durable.begun = ""
    versions: list[Version] = []
    for index, published in enumerate(durable.published):
        assert published is not None, "a recovered journal has a version of everything"
        versions.append(Version(durable.epoch, published.version.number))
        durable.published[index] = replace(published, version=versions[-1])
    names = fragment_names(len(durable.published))
    for name, version, arrays in zip(names, versions, recovered.fragments, strict=True):
        durable.sequence += 1
        slots.write(name, durable.sequence, encode(durable), version, arrays)


def _set_aside(folder: Path, manifest: Manifest) -> None:
    """Move what came after a checkpoint out of the way of what comes now."""
    aside = next(path for n in count(1) if not (path := folder / ASIDE / str(n)).exists())
    later = FolderStore(folder / CHECKPOINTS)
    found = [path for path in sorted((folder / JOURNAL).iterdir()) if path.name != "lock"]
    found += [folder / name for name in ENDED if (folder / name).exists()]
    found += [later.folder / name for name in later.names() if age_of(name) > manifest.age]
    for path in found:
        there = aside / path.relative_to(folder)
        make_private(there.parent)
        path.rename(there)
    if found:
        flush(aside)
    flush(folder)
