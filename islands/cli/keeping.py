"""Commands on checkpoints: `islands checkpoints`, `verify`, `backup`, and `--resume` of a hub."""

import asyncio
import json
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from islands.cli.parsing import Common
from islands.files.folder_lock import lock_folder, make_private
from islands.files.run_files import (
    HUB_FILE,
    JOURNAL_LOCK,
    KEY_FILE,
    METRICS_FILE,
    PLAN_FILE,
    REVOKED_FILE,
    SPEC_FILE,
    TOKEN_FILE,
)
from islands.files.whole_files import replace_file
from islands.keeping.catalogue import held, whole_ones
from islands.keeping.finding import AUTO, Restored, find, peek
from islands.keeping.manifest import MANIFEST, Manifest, age_of
from islands.keeping.promotion import Answer, answered, standby_in, wish
from islands.keeping.restoring import go_back
from islands.keeping.saving import CHECKPOINTS, store_of
from islands.keeping.store import Store, store_at
from islands.keeping.verifying import faults_of_checkpoint, faults_of_run, journal_is_whole
from islands.layout.loop_layout import LoopLayout
from islands.model.workload import OwnLoop, load_workload
from islands.protocol.errors import RefusedError, UserError, unusable
from islands.protocol.identities import SYNCER
from islands.run.hosting.hub_address import checkpoints_of, read_hub_address
from islands.run.hosting.process_identity import marked
from islands.run.hosting.process_runtime import credentials_of, key_in, say
from islands.run.records.figures import gone_back
from islands.run.records.run_curves import curves_of
from islands.run.records.run_values import require_folder
from islands.settings.commands import (
    BackupOptions,
    CheckpointsOptions,
    PromoteOptions,
    VerifyOptions,
    named,
)
from islands.settings.groups import OWN_LOOP, CheckpointOptions, OnDivergence
from islands.settings.quantities import size
from islands.settings.run_spec import Diverged, RunPlan, RunSpec, Way, read, write
from islands.syncer.journal import JOURNAL
from islands.tasks.factory import allowed_by

PROMOTED_S, LOOKS_EVERY_S = 60.0, 0.1
"""Longest wait for a standby's answer, and how often it is looked for."""

PLANNED_BY = ("fragments", "pattern", "piece_bytes_min")
"""Run settings that decide how a model is cut into fragments."""


def checkpoints(options: CheckpointsOptions, _: Common) -> int:
    """List a run's checkpoints, the oldest first."""
    run = Path(options.folder)
    is_run = (run / SPEC_FILE).exists()
    store = _stored(run) if is_run else store_at(options.folder)
    known = held(store)
    if not known:
        raise UserError(f"there is no checkpoint in {store.told('').rstrip('/')}")
    judged = _evaluations(run) if is_run else []
    rows = [_row(name, each, judged) for name, each in known.items()]
    if options.json:
        for row in rows:
            print(json.dumps(row))
        return 0
    table = Table(box=None, pad_edge=False)
    for title in ("checkpoint", "tokens", "saved", "size", "evaluation", "whole"):
        table.add_column(title, justify="left" if title in ("saved", "whole") else "right")
    for row in rows:
        table.add_row(*(str(row[key]) for key in ("checkpoint", "tokens", "saved")), *_shown(row))
    Console().print(table)
    return 0


def _stored(run: Path) -> Store:
    return store_of(checkpoints_of(run), run)


def _row(name: str, each: Manifest | str, judged: list[tuple[float, float]]) -> dict[str, object]:
    if isinstance(each, str):
        empty = dict.fromkeys(("tokens", "saved", "size_bytes", "evaluation", "reason"), "")
        return {"checkpoint": name, "merges": age_of(name)[1], **empty, "whole": each}
    at = datetime.fromtimestamp(each.saved_at_s, tz=UTC).astimezone()
    figure = next((value for tokens, value in reversed(judged) if tokens <= each.tokens), None)
    return {
        "checkpoint": each.name,
        "merges": each.merges,
        "tokens": each.tokens,
        "saved": f"{at:%Y-%m-%d %H:%M:%S}",
        "size_bytes": each.size_bytes,
        "evaluation": figure,
        "reason": each.reason,
        "whole": "yes",
    }


def _shown(row: dict[str, object]) -> tuple[str, str, str]:
    held_bytes, figure = row["size_bytes"], row["evaluation"]
    return (
        size(held_bytes) if isinstance(held_bytes, int) else "",
        f"{figure:.4g}" if isinstance(figure, float) else "",
        str(row["whole"]),
    )


def _evaluations(run: Path) -> list[tuple[float, float]]:
    """Return tokens and value of the run's first figure of evaluation, in order."""
    if not (run / METRICS_FILE).exists():
        return []
    first = next(iter(curves_of(run).evaluations.values()), None)
    return [] if first is None else [(point[0], point[-1]) for point in first.points]


def verify(options: VerifyOptions, _: Common) -> int:
    """Read everything back, and print what is wrong with it; return 1 if anything is."""
    path = Path(options.folder)
    if (path / SPEC_FILE).exists() and not (path / MANIFEST).exists():
        found = faults_of_run(path, _stored(path))
        what = f"the run in {path}"
    else:
        checkpoint = find(options.folder, path)
        found, what = faults_of_checkpoint(checkpoint), checkpoint.told
    for fault in found:
        print(fault)
    print(f"{what}: {len(found) or 'nothing'} to mend")
    return 1 if found else 0


def promote(options: PromoteOptions, _: Common) -> int:
    """Have the standby in a folder take over, wait for its answer, and print that."""
    folder = named(options.folder)
    earlier = read(folder)
    if earlier is None:
        raise UserError(f"{folder} holds no standby's copy of a run; name the folder of one")
    standby = standby_in(folder)
    if standby is None:
        raise UserError(f"{folder} is no standby's folder; name the folder of one")
    key_file = options.key_file or Path(standby.key_file)
    credentials = credentials_of(earlier[0].settings.run, key_file)
    with suppress(UserError), lock_folder(folder / JOURNAL, JOURNAL_LOCK, "standby"):
        raise RefusedError(
            f"no standby runs in {folder}; python -m islands.syncer --folder {folder} goes on in "
            "it as the hub, with what was copied"
        )
    if (before := answered(folder)) is not None and before.role:
        raise RefusedError(f"{folder} goes on already, as the {before.role} of the run")
    wish(folder, credentials)
    found = asyncio.run(_answer_in(folder))
    if not found.role:
        raise RefusedError(f"the standby does not take over: {found.reason}")
    print(f"the standby in {folder} goes on as the {found.role} of the run")
    return 0


async def _answer_in(folder: Path) -> Answer:
    try:
        async with asyncio.timeout(PROMOTED_S):
            while True:
                found = answered(folder)
                if found is not None:
                    return found
                await asyncio.sleep(LOOKS_EVERY_S)
    except TimeoutError:
        raise RefusedError(
            f"the standby in {folder} did not answer within {PROMOTED_S:g} s"
        ) from None


def backup(options: BackupOptions, _: Common) -> int:
    """Copy a run's newest checkpoint and its secrets to a folder that is to be made."""
    run, out = named(options.folder), options.out
    require_folder(run)
    if out.exists():
        raise UserError(f"{out} is there already; name a folder that is yet to be made as --out")
    found = find(AUTO, run, _stored(run))
    inside = out / CHECKPOINTS / found.manifest.name
    try:
        make_private(inside)
        with found.store.reading(found.manifest.name):
            for name in (*found.manifest.files, MANIFEST):
                file = found.store.open(found.manifest.name, name)
                if file is None:
                    raise UserError(f"{found.told} lacks {name}; islands verify {run} tells more")
                with file, (inside / name).open("wb") as copy:
                    shutil.copyfileobj(file, copy)
        for name, path in _secrets(run).items():
            if path.is_file():
                content = key_in(path) if name == KEY_FILE else path.read_bytes()
                replace_file(out / name, content, private=True)
        for name in (SPEC_FILE, PLAN_FILE):
            shutil.copyfile(inside / name, out / name)
    except OSError as error:
        raise unusable(f"{out} cannot be written", error) from error
    wrong = faults_of_checkpoint(find(AUTO, out))
    if wrong:
        raise UserError(f"the copy in {out} is not whole: {wrong[0]}")
    missing = [name for name, path in _secrets(run).items() if not path.is_file()]
    without = f", and no {' or '.join(missing)}" if missing else ""
    print(
        f"{out} holds checkpoint {found.manifest.name}, and the run's secrets{without}; the run "
        f"goes on in it by: islands run --folder {out} --resume auto"
    )
    return 0


def _secrets(run: Path) -> dict[str, Path]:
    """Return where a run's token, key and revocations are, by their names in its folder."""
    found = {name: run / name for name in (TOKEN_FILE, KEY_FILE)}
    if (run / HUB_FILE).exists():
        hub = read_hub_address(run)
        told = {TOKEN_FILE: hub.token_file, KEY_FILE: hub.key_file}
        found |= {name: Path(path) for name, path in told.items() if path}
    if (run / REVOKED_FILE).exists():
        found[REVOKED_FILE] = run / REVOKED_FILE
    return found


def resumed(
    wish: str | None,
    folder: Path,
    saving: CheckpointOptions,
    spec: RunSpec,
    given: Collection[str] | None,
    task: str,
) -> RunSpec:
    """Go back to the checkpoint that `--resume` names, or to that which a hub has decided on.

    Returns what the run goes on with.
    """
    own = (folder / SPEC_FILE).exists()
    before = read(folder) if own else None
    diverged = None if before is None else before[1].diverged
    resumes = wish in (None, AUTO) and saving.on_divergence is OnDivergence.RESUME
    if resumes and diverged is not None and diverged.way is Way.GOES_BACK:
        if SYNCER in marked(folder):  # its hub was killed alone: this one ends it first
            return spec
        wish = diverged.checkpoint
    if wish is None:
        return spec
    if wish == AUTO and own and journal_is_whole(folder):
        return spec
    stored = source = store_of(saving.checkpoints, folder)
    if wish == AUTO and not whole_ones(held(source)):
        source = store_of(None, folder)  # where a backup has its one
        if not whole_ones(held(source)):
            return spec  # it begins, or was lost before the first one: the start tells
    found = find(wish, folder, source)
    if not own and given is not None:
        spec = spec.continued(peek(found), given)
    lost = ", and what came after it is in set_aside/" if (folder / JOURNAL).exists() else ""

    def plan(now: RunSpec, restored: Restored) -> RunPlan:
        return replace(planned(now, restored), diverged=diverged)

    def planned(now: RunSpec, restored: Restored) -> RunPlan:
        """Plan the run anew, for which a task is loaded, if its fragments are to be others."""
        before, earlier = restored.spec.settings, restored.plan
        if all(getattr(now.settings, name) == getattr(before, name) for name in PLANNED_BY):
            return earlier
        if now.task == OWN_LOOP:
            own = LoopLayout(earlier.layout.leaves, earlier.records, earlier.shards)
            return OwnLoop(own).plan(now.settings)
        return load_workload(now, allowed=allowed_by(task)).plan(now.settings)

    restored = go_back(found, folder, spec, plan, stored)
    gone_back(folder, restored.manifest.merges, restored.recovered.durable.ledger)
    after = read(folder)
    if after is not None and diverged is not None:  # killed before this, it goes back once more
        past = Diverged(diverged.merges, found.manifest.name, Way.WENT_BACK)
        write(folder, after[0], replace(after[1], diverged=past))
    say(
        f"the run goes back to checkpoint {found.told}: {restored.manifest.merges:,} merges, "
        f"{restored.manifest.tokens:,} tokens{lost}"
    )
    return spec
