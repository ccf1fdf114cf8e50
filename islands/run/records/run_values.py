"""Read the newest published values of a run, and its model with these values, from its folder.

The run may have ended, may have been killed, or may go on meanwhile: the journal is read without
its lock, and each fragment is read again if its record is replaced just then. Every fragment is
taken at its newest durable version, so fragments may be of different moments, as they are at a
learner. A folder without a journal, such as a copy, has the exported file.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from islands.files.disk import RealDisk
from islands.files.run_files import FINAL_FILE, SPEC_FILE
from islands.files.slots import FORMAT, Record, Slots
from islands.model.interfaces import Workload
from islands.model.workload import load_workload
from islands.protocol.errors import DamagedError, UserError
from islands.protocol.identities import FinalVersions, Version
from islands.protocol.settings.run import RunSettings
from islands.run.hosting.hub_address import task_folders_of
from islands.run.hosting.process_runtime import compiled_folder
from islands.run.records.model_files import described, fitted, load_model
from islands.settings.run_spec import RunPlan, RunSpec, read
from islands.syncer.journal import JOURNAL, METADATA, decode, fragment_names, written_by_another
from islands.tasks.factory import allowed_by, search_data

READS_MOST = 32
"""How often a record is read that is replaced each time before it has been read."""


@dataclass(frozen=True, slots=True)
class RunValues:
    """Published values of a run, and what they are.

    `cut` has the tokens processed by then, the version of each fragment, and why the run ended
    (empty if it has not). Arrays are float32 by path, the state's leaves included. The source is
    the folder of the journal, or the exported file, which may be all that there is: then there is
    no plan.
    """

    spec: RunSpec
    cut: FinalVersions
    arrays: dict[str, NDArray[np.float32]]
    source: Path
    fingerprint: str
    plan: RunPlan | None = None

    @property
    def folder(self) -> Path:
        return self.source.parent


def newest_values(folder: Path) -> RunValues:
    require_folder(folder)
    held = read(folder)
    if held is not None and (folder / JOURNAL).is_dir():
        found = _journalled(folder / JOURNAL, *held)
        if found is not None:
            return found
    if (folder / FINAL_FILE).exists():
        return _exported(folder / FINAL_FILE, None if held is None else held[1])
    if held is None:
        raise UserError(f"{folder} is not the folder of a run: it has no {SPEC_FILE}")
    raise UserError(
        f"the run in {folder} has published no values yet; it does so once its first learner has "
        "sent version 0"
    )


def require_folder(folder: Path) -> None:
    if not folder.exists():
        raise UserError(f"there is no folder {folder}; name the folder of a run")
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; name the folder of a run")


def _journalled(folder: Path, spec: RunSpec, plan: RunPlan) -> RunValues | None:
    """Read the journal; return None if it lacks a version of a fragment."""
    slots, names = Slots(RealDisk(folder)), fragment_names(len(plan.layout.fragments))
    other = slots.other_format([METADATA, *names])
    if other is not None:
        raise written_by_another(f"its records are {other}, not {FORMAT}")
    records = [_newest_record(slots, name, folder) for name in names]
    whole = [record for record in records if record is not None and record.version is not None]
    if len(whole) < len(names):
        return None
    alone = _newest_record(slots, METADATA, folder)
    newest = max([*whole, *([alone] if alone else [])], key=lambda record: record.sequence)
    durable = decode(newest.metadata)
    versions = tuple(record.version for record in whole if record.version is not None)
    values = [np.asarray(record.arrays["value"], np.float32) for record in whole]
    return RunValues(
        spec=spec,
        cut=FinalVersions(durable.finished or "", durable.ledger.processed, versions),
        arrays=plan.layout.assemble(values),
        source=folder,
        fingerprint=plan.layout.fingerprint,
        plan=plan,
    )


def _newest_record(slots: Slots, name: str, folder: Path) -> Record | None:
    for _ in range(READS_MOST):
        pair = slots.look(name)
        if not pair.heads and not pair.damaged:
            return None
        for head in sorted(pair.heads, key=lambda head: head.sequence, reverse=True):
            record = slots.load(head)
            if record is not None:
                return record
    raise DamagedError(f"{folder}: neither file of {name} holds a record that is whole")


def _exported(file: Path, plan: RunPlan | None) -> RunValues:
    metadata = described(file)
    try:
        settings = msgspec.convert(metadata["settings"], RunSettings)
        task, arguments = str(metadata["task"]), msgspec.convert(metadata["task_settings"], dict)
        texts = msgspec.convert(metadata["versions"], tuple[str, ...])
        versions = tuple(map(Version.parse, texts))
        cut = FinalVersions(
            str(metadata["reason"]), msgspec.convert(metadata["tokens"], int), versions
        )
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise UserError(
            f"{file} does not say of which run it is ({type(error).__name__}: {error}); "
            "it must be a file that islands has written"
        ) from error
    spec = RunSpec(settings, task, arguments)
    return RunValues(spec, cut, load_model(file), file, str(metadata.get("fingerprint", "")), plan)


@dataclass(frozen=True, slots=True)
class RunModel:
    """A workload with the values that it evaluates.

    `values` are one flat value per fragment of the workload's own layout. `differs` says how that
    layout differs from the run's though the values fit, such as by the digest of the corpus; empty
    if it does not.
    """

    spec: RunSpec
    workload: Workload
    values: list[NDArray[np.float32]]
    differs: str


def model_of(found: RunValues, task: str | None, overrides: dict[str, object]) -> RunModel:
    """Load a run's task, and fit the run's values to it.

    Data are searched for in the folders of this process first, then in those in which the run's hub
    found them. Code is not: the folder may be a stranger's.
    """
    spec = found.spec if task is None else replace(found.spec, task=task)
    search_data(task_folders_of(found.folder))
    allowed = () if task is None else allowed_by(task)
    workload = load_workload(spec, overrides, allowed=allowed)
    workload.keep_compiled(compiled_folder())
    layout = workload.plan(spec.settings).layout
    values = fitted(found.arrays, found.arrays.__getitem__, layout, found.source)
    differs = ""
    if layout.fingerprint != found.fingerprint:
        difference = None if found.plan is None else layout.first_difference(found.plan.layout)
        differs = difference or "the layouts have unlike fingerprints"
    return RunModel(spec, workload, values, differs)
