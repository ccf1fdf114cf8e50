"""Goes back to a checkpoint: its values, outer optimizer and books become a run's journal.

The run begins once more under the checkpoint's books (`RunPlan.begun`): all members of before join
anew, and all leases are free. Its versions are those of a new epoch, so that whoever trained past
the checkpoint adopts them. What came after the checkpoint is set aside: the journal in the run's
folder, later checkpoints where they are stored.

The new journal is written whole beside the old one, and later checkpoints are set aside; then the
old journal is moved away; settings and plan are written, and the new journal takes its place.
Killed before the move, the run goes on as before, and later checkpoints may be aside; killed after
it, a start says that the journal is gone until the command is given once more.
"""

import contextlib
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from islands.actors.epochs import COPY, known_epochs, take_epoch
from islands.files.disk import RealDisk
from islands.files.folder_lock import lock_folder, make_private
from islands.files.run_files import FINAL_FILE, HUB_LOCK, JOURNAL_LOCK, SUMMARY_FILE, epoch_file
from islands.files.slots import Slots
from islands.files.whole_files import flush
from islands.keeping.catalogue import held
from islands.keeping.finding import Found, Restored, read
from islands.keeping.manifest import Manifest, age_of
from islands.keeping.recutting import recut, why_another
from islands.keeping.saving import CHECKPOINTS
from islands.keeping.store import ASIDE, Store, store_at
from islands.protocol.errors import IslandsError, UserError, unusable
from islands.protocol.identities import Version
from islands.settings.run_spec import RunPlan, RunSpec, write
from islands.syncer.journal import JOURNAL, Recovered, encode, fragment_names

ENDED = (FINAL_FILE, SUMMARY_FILE)
"""What a run leaves behind at its end."""


def go_back(
    found: Found,
    folder: Path,
    spec: RunSpec | None = None,
    plan_of: Callable[[RunSpec, Restored], RunPlan] = lambda _, restored: restored.plan,
    stored: Store | None = None,
) -> Restored:
    """Make a checkpoint the journal of the run in `folder`, which may be a new one.

    `spec` is what the run goes on with; None for what the checkpoint has. `plan_of` plans it, given
    the checkpoint. `stored` is where the run stores checkpoints, if not in its folder.
    """
    stored = stored or store_at(folder / CHECKPOINTS)
    room, fresh = folder / f".{JOURNAL}.read", folder / f".{JOURNAL}.new"
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock_folder(folder, HUB_LOCK, "hub"))
        stack.enter_context(lock_folder(folder / JOURNAL, JOURNAL_LOCK, "syncer"))
        for each in (room, fresh):
            shutil.rmtree(each, ignore_errors=True)
            make_private(each)
            stack.callback(shutil.rmtree, each, ignore_errors=True)
        stack.enter_context(lock_folder(fresh, JOURNAL_LOCK, "syncer"))
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
        names = [*stored.names(), *store_at(stored.told(ASIDE)).names()]
        used = (age_of(name)[0] for name in names)
        restored.recovered.durable.epoch = max(restored.manifest.epoch, 0, *used)
        _write_journal(restored.recovered, folder, fresh)
        _set_aside_later(stored, restored.manifest)
        try:
            set_aside(folder)
            write(folder, spec, plan)
            fresh.rename(folder / JOURNAL)
            flush(folder)
        except OSError as error:
            raise unusable(f"{folder} cannot be written", error) from error
    return restored


def _write_journal(recovered: Recovered, folder: Path, fresh: Path) -> None:
    """Write the records of a journal that begins with these versions, in a new epoch."""
    elsewhere = {COPY: folder / epoch_file(JOURNAL)}
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


def _set_aside_later(stored: Store, manifest: Manifest) -> None:
    """Set aside the run's checkpoints that came after this one."""
    for name, each in held(stored).items():
        another = isinstance(each, Manifest) and each.origin != manifest.origin
        if age_of(name) > manifest.age and not another:
            stored.set_aside(name)


def set_aside(folder: Path) -> None:
    """Move the journal and the results of before out of the way of what comes now."""
    journal = folder / JOURNAL
    if {path.name for path in journal.iterdir()} == {JOURNAL_LOCK}:
        shutil.rmtree(journal)
    aside = next(path for n in count(1) if not (path := folder / ASIDE / str(n)).exists())
    for path in filter(Path.exists, (journal, *(folder / name for name in ENDED))):
        target = aside / path.name
        make_private(aside)
        path.rename(target)
        for each in (target, path):  # in this order, so that no crash loses both names
            flush(each.parent)
