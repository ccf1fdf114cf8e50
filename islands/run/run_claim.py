"""One hub's exclusive claim on a run's folder, refused before anything in the folder changes."""

import contextlib
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from islands.files.folder_lock import lock_folder, make_private
from islands.files.run_files import (
    HUB_FILE,
    HUB_LOCK,
    KEY_FILE,
    PLAN_FILE,
    SPEC_FILE,
    TOKEN_FILE,
    epoch_file,
)
from islands.files.whole_files import replace_file
from islands.model.interfaces import Workload
from islands.protocol.errors import DamagedError, UserError
from islands.settings.run_spec import MEND, RunPlan, RunSpec, read
from islands.settings.wire_limits import check_told, limits_of
from islands.syncer.journal import JOURNAL

ROLES = (JOURNAL, "supervisor")
"""Folders of the roles that count their starts as epochs."""
BEGINNING = (SPEC_FILE, PLAN_FILE, HUB_FILE, KEY_FILE, TOKEN_FILE)


@dataclass(frozen=True, slots=True)
class Claim:
    """The folder of a run, which is this hub's alone until it closes the lock.

    Processes of the last start still have the settings that `changed` names, as sentences. `made`
    says that this start made the folder, `resumed` that it holds a run that goes on.
    """

    plan: RunPlan
    changed: tuple[str, ...]
    lock: IO[bytes]
    folder: Path
    made: bool
    resumed: bool

    def release(self) -> None:
        """Undo a failed start: remove a folder that it made."""
        with contextlib.closing(self.lock):
            if self.made:
                shutil.rmtree(self.folder, ignore_errors=True)


def kept_files(folder: Path) -> Mapping[Path, bytes]:
    """Return the content of the files without which a run cannot go on from its folder."""
    paths = [folder / name for name in BEGINNING]
    return {path: path.read_bytes() for path in paths if path.is_file()}


def restore_files(kept: Mapping[Path, bytes]) -> list[str]:
    """Write those of the kept files that are gone, for their owner alone; return their names."""
    gone = [path for path in kept if not path.exists()]
    for path in gone:
        make_private(path.parent)
        replace_file(path, kept[path])
        path.chmod(0o600)
    return [path.name for path in gone]


@contextlib.contextmanager
def released_on_failure(claim: Claim) -> Iterator[None]:
    """Keep the claim if the body of the `with` succeeds; give it back if that fails."""
    try:
        yield
    except BaseException:
        claim.release()
        raise


def claim_folder(
    folder: Path,
    spec: RunSpec,
    workload: Workload | None,
    start_from: Path | None = None,
    *,
    may_return: bool = False,
) -> Claim:
    """Claim a run's folder for this process, with the plan it was begun with, or a new one.

    What cannot work is refused before a folder is made. The workload may be None where it holds a
    run.
    `may_return` says whether members of a hub whose folder was lost would find this one.
    """
    earlier = read(folder)
    if earlier is not None:
        changed = spec.changed_from(earlier[0])
        if changed is not None:
            raise UserError(
                f"{folder} holds another run, with {changed}: choose another folder, or leave that "
                "out, and the run goes on with what it was begun with"
            )
        plan = earlier[1]
    else:
        assert workload is not None, "a new run is planned from its workload"
        require_room(folder, start_from)
        plan = replace(
            workload.plan(spec.settings), begun=secrets.token_hex(8), may_return=may_return
        )
    check_plan(spec, plan)
    made = not folder.exists()
    with contextlib.ExitStack() as unless_settled:
        lock = unless_settled.enter_context(lock_folder(folder, HUB_LOCK, "hub"))
        if read(folder) != earlier:
            raise UserError(
                f"the folder {folder} was taken by another hub just now; choose another"
            )
        unless_settled.pop_all()
    other = () if earlier is None else spec.differences(earlier[0])
    return Claim(plan, other, lock, folder, made, earlier is not None)


def spec_in(folder: Path, spec: RunSpec, given: Collection[str] | None) -> RunSpec:
    """Return what a start in this folder runs: what the run there has, and what is given now.

    `given` are the keys that the user gave; None for all.
    """
    earlier = read(folder)
    if earlier is None or given is None:
        return spec
    return spec.continued(earlier[0], given)


def check_plan(spec: RunSpec, plan: RunPlan) -> None:
    limits_of(plan.layout)
    check_told(spec.encode(), plan.encode())


def require_room(folder: Path, start_from: Path | None) -> None:
    """Check that a new run can begin in a folder, whatever its plan."""
    for role in ROLES:
        if (folder / epoch_file(role)).exists():
            raise DamagedError(
                f"{folder} holds the {role} of a run, but {SPEC_FILE} and {PLAN_FILE} are missing; "
                f"{MEND}"
            )
    require_file(start_from)


def require_file(start_from: Path | None) -> None:
    if start_from is not None and not start_from.is_file():
        raise UserError(f"start_from is {start_from}; there is no such file")
