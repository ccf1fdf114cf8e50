"""A run that is begun anew where another one was: what is moved away, and when."""

import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from islands.actors.epochs import epoch_disk, take_epoch
from islands.cli.parsing import Common
from islands.files.slots import Slots
from islands.model.evaluation import Judged
from islands.model.workload import load_workload
from islands.protocol.errors import UserError
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.process_entries import Started
from islands.run.records.run_folder import GROWING, RunFolder
from islands.run.run_claim import ROLES, claim_folder, set_aside
from islands.settings.groups import ConnectOptions, ListenOptions, RunFile
from islands.settings.host import SyncerOptions
from islands.settings.run_spec import RunSpec, read, write
from islands.syncer.__main__ import entry
from messaging.errors import LocalFault


def files_in(folder: Path) -> list[str]:
    """Names of all files, with their folders."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_journal_on_a_volume_of_its_own_is_set_aside(tmp_path: Path) -> None:
    folder, volume = tmp_path / "run", tmp_path / "volume"
    folder.mkdir()
    volume.mkdir()
    (folder / "journal").symlink_to(volume)
    (volume / "state.a").write_text("old")
    set_aside(folder)
    assert files_in(volume) == ["lock"]
    assert files_in(folder / "earlier") == ["1/journal/state.a"]
    assert (folder / "journal").is_symlink()


def test_runs_that_were_set_aside_may_be_deleted(tmp_path: Path) -> None:
    for _ in range(3):
        set_aside(tmp_path)
    for number in "12":
        shutil.rmtree(tmp_path / "earlier" / number)
    (tmp_path / "earlier" / "notes").mkdir()
    set_aside(tmp_path)
    assert sorted(path.name for path in (tmp_path / "earlier").iterdir()) == ["3", "4", "notes"]


def test_what_a_run_wrote_is_not_continued_by_the_next(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        (tmp_path / "metrics.1.jsonl").write_text("old\n")
        folder = RunFolder(tmp_path, RunSettings(), say=said.append)
        for at_s in (1.0, 2.0):
            folder.evaluation(at_s, Judged(0.0, 0), {"loss": 1.0})
            folder.write(at_s, "syncer", Started(1))
        folder.close()
        assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
        set_aside(tmp_path)
    assert said == []
    assert not [name for name in (*GROWING, "metrics.1.jsonl") if (tmp_path / name).exists()]
    assert files_in(tmp_path / "tensorboard") == []
    kept = files_in(tmp_path / "earlier" / "2")
    assert {"figures.json", "metrics.1.jsonl", *GROWING} <= set(kept)
    assert any(name.startswith("tensorboard/run/") for name in kept)


TOY = RunFile("islands.lab.toys.toy_workload:Sleeping", {"megabytes": 0.25})
MISTAKES: Mapping[str, Callable[[SyncerOptions], SyncerOptions]] = {
    "a task that is not there": lambda right: replace(
        right, file=replace(TOY, task="no_such_module:Task")
    ),
    "a start that is not there": lambda right: replace(
        right, file=replace(TOY, start_from=Path("no_such.safetensors"))
    ),
    "a token that is not there": lambda right: replace(
        right, connecting=ConnectOptions(token_file=Path("no_such_token"))
    ),
    "a key that is not there": lambda right: replace(right, key_file=Path("no_such_key")),
    "a port in use": lambda right: right,
    "a start that is not there, apart": lambda right: replace(
        right,
        file=replace(TOY, start_from=Path("no_such.safetensors")),
        supervisor=("127.0.0.1:1",),
    ),
    "a port in use, apart": lambda right: replace(right, supervisor=("127.0.0.1:1",)),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_restart_that_is_refused_leaves_the_run_as_it_was(
    tmp_path: Path, mistake: Callable[[SyncerOptions], SyncerOptions]
) -> None:
    """Else the next start, without the option, would begin anew without a word."""
    spec = RunSpec(TOY.run, TOY.task, TOY.task_settings)
    with claim_folder(tmp_path, spec, load_workload(spec)).lock:
        write(tmp_path, spec, load_workload(spec).plan(spec.settings))
        RunFolder(tmp_path, spec.settings).close()
    for role in ROLES:
        take_epoch(Slots(epoch_disk(tmp_path, role)))
    (tmp_path / "tape.jsonl").write_text("old\n")
    before = contents_of(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listening = ListenOptions(f"127.0.0.1:{taken.getsockname()[1]}")
        right = SyncerOptions(TOY, listening, folder=tmp_path, restart=True)
        with pytest.raises((UserError, LocalFault)):
            entry(mistake(right), Common())
    after = contents_of(tmp_path)
    assert {name: after.get(name) for name in before} == before
    assert not [name for name in after if name.startswith("earlier/")]
    assert read(tmp_path) is not None


def contents_of(folder: Path) -> dict[str, bytes]:
    """All files of a run but those that count starts beside the folders of the roles."""
    found = {name: (folder / name).read_bytes() for name in files_in(folder)}
    return {name: data for name, data in found.items() if not name.endswith(".epoch")}
