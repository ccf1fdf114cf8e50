"""Whatever a wire or a file names, nothing runs that this host's operator did not allow.

A canary is a module that writes a file as it is imported, and a function of Python's own that would
write one if it were called.
"""

import ast
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

from islands.cli.__main__ import main
from islands.learner.__main__ import _learn
from islands.model.workload import load_workload
from islands.observer.__main__ import _observe
from islands.protocol.errors import TaskError
from islands.protocol.identities import SUPERVISOR, FinalVersions, Version
from islands.protocol.messages.registry import MESSAGE_TYPES, MULTIHOST_TYPES
from islands.run.coordinator import Coordinator, CoordinatorSettings
from islands.run.hosting.hub_address import HubAddress, write_hub_address
from islands.run.records.model_files import metadata_of, write_model
from islands.run.run_claim import claim_folder
from islands.settings.groups import ConnectOptions, ListenOptions
from islands.settings.host import LearnerOptions, ObserverOptions
from islands.settings.run_spec import RunSpec, write
from islands.tasks.factory import TASK_PATH
from tests.cli.run_folders import SPEC, WIDTH, KilledRun

ISLANDS = Path(__file__).parents[2] / "islands"
ZEROS = {"weight": np.zeros((WIDTH, WIDTH), np.float32)}
SAID = "whose code this host was not told to run; if you trust it, name it yourself: --tasks "


class Canary:
    """Code that leaves a trace in a folder, and the specs that name it."""

    def __init__(self, folder: Path) -> None:
        self.trace = folder / "trace"
        self.beside = folder / "beside"
        self.beside.mkdir()
        source = f"open({str(self.trace)!r}, 'w')\ndef task(**_): pass\n"
        (self.beside / "canary.py").write_text(source)

    def specs(self) -> list[RunSpec]:
        """Return specs that would leave the trace by an import, and by a call."""
        called: dict[str, object] = {"args": ["touch", str(self.trace)]}
        return [
            replace(SPEC, task="canary:task", task_settings={}),
            replace(SPEC, task="subprocess:check_output", task_settings=called),
        ]


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Canary:
    found = Canary(tmp_path)
    monkeypatch.syspath_prepend(found.beside)
    return found


def killed_with(folder: Path, spec: RunSpec) -> KilledRun:
    """A run with values whose run.json names something else than what it trained."""
    run = KilledRun(folder)
    run.publish_all(0, ZEROS)
    write(folder, spec, run.plan)
    return run


@asynccontextmanager
async def stranger(folder: Path, spec: RunSpec) -> AsyncIterator[str]:
    """A hub that answers everybody with such a spec; yields its address."""
    plan = load_workload(SPEC, allowed=["tests"]).plan(SPEC.settings)
    write(folder, spec, plan)
    listening = ListenOptions("127.0.0.1:0")
    settings = CoordinatorSettings(folder, spec, listening, ConnectOptions(), syncer_here=True)
    hub = Coordinator(settings, claim_folder(folder, spec, None), None)
    await hub.open()
    running = asyncio.create_task(hub.run())
    try:
        yield hub.network.url(SUPERVISOR)
    finally:
        await hub.leave("end of the test")
        await running


# --- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
async def test_a_learner_and_an_observer_run_no_code_that_a_hub_names(
    which: int, canary: Canary, tmp_path: Path
) -> None:
    """`RunSpecReply.spec`: they end with a sentence before anything is imported or called."""
    async with stranger(tmp_path / "run", canary.specs()[which]) as url:
        folder = tmp_path / "own"
        with pytest.raises(TaskError, match=SAID):
            await _learn(LearnerOptions((url,), folder=folder), "a")
        with pytest.raises(TaskError, match=SAID):
            await _observe(ObserverOptions((url,), folder=folder), "b")
    assert not canary.trace.exists()


async def test_what_an_operator_allows_must_be_a_task(canary: Canary, tmp_path: Path) -> None:
    spec = canary.specs()[1]
    async with stranger(tmp_path / "run", spec) as url:
        options = LearnerOptions((url,), folder=tmp_path / "own", tasks=("subprocess",))
        with pytest.raises(TaskError, match="is a function, and no class"):
            await _learn(options, "a")
    assert not canary.trace.exists()


NAMES_CODE = {"RunSpecReply.spec"}
"""Fields of messages that hold a name of code; each has a canary above."""

TEXTS = {
    *("address", "syncers", "coordinator", "host", "hardware", "name", "process", "run", "target"),
    *("credential", "digest", "digests", "epoch_proof", "fingerprint", "nonce"),
    *("proof", "revoked", "signature"),
    *("supervisor_proof", "schema", "precision", "kind", "facts", "fields", "metrics", "body"),
    *("doing", "newest", "reason", "told", "takes_over", "file", "held"),
}
"""Names of the other fields with text: nothing is imported by what they say."""


def test_every_text_of_a_message_is_known_to_name_code_or_not() -> None:
    found = {
        f"{kind.__name__}.{field}"
        for kind in (*MESSAGE_TYPES, *MULTIHOST_TYPES)
        for field, hint in get_type_hints(kind).items()
        if "str" in str(hint)
    }
    assert found >= NAMES_CODE
    unknown = {each for each in found - NAMES_CODE if each.partition(".")[2] not in TEXTS}
    assert not unknown, "say in this test what these texts may hold"


# --- files ----------------------------------------------------------------------------------------


def exported(folder: Path, spec: RunSpec) -> Path:
    """The folder of a stranger that holds one exported file, whose header names the spec."""
    run = KilledRun(folder / "there")
    layout, alone = run.plan.layout, folder / "alone"
    alone.mkdir()
    cut = FinalVersions("tokens", 1, (Version(1, 9), Version(1, 9)))
    metadata = metadata_of(spec, layout.fingerprint, cut)
    write_model(alone / "final.safetensors", layout, layout.disassemble(ZEROS), metadata)
    return alone


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("file", ["run.json", "final.safetensors"])
def test_no_command_runs_code_that_a_folder_names(
    which: int, file: str, canary: Canary, tmp_path: Path, refused: Callable[..., str]
) -> None:
    spec = canary.specs()[which]
    if file == "run.json":
        folder = killed_with(tmp_path / "run", spec).folder
    else:
        folder = exported(tmp_path, spec)
    for command in (("model", "evaluate"), ("model", "generate", "--prompt", "a")):
        told = refused(*command, str(folder))
        assert f"the run names the task {spec.task!r}, {SAID}" in told
        assert f"--task {spec.task} for other commands" in told
    for needs_none in ("report", "plot", "model export", "logs"):
        out = ["--out", str(tmp_path / "out.html")] if needs_none == "report" else []
        main([*needs_none.split(), str(folder), *out])
    assert not canary.trace.exists()


@pytest.mark.parametrize("which", [0, 1])
def test_no_hub_that_resumes_runs_code_that_the_folder_names(
    which: int, canary: Canary, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run.json` where a run goes on: the task is in the operator's own file, or asked for."""
    spec = canary.specs()[which]
    folder = killed_with(tmp_path / "run", spec).folder
    options = ["run", "--folder", str(folder), "--learners", "1", "--listen", "127.0.0.1:0"]
    for dry in ([], ["--dry-run"]):
        assert main([*options, *dry]) == 2
        told = capsys.readouterr()
        assert SAID in " ".join((told.out + told.err).split()) + " "
    assert not canary.trace.exists()


def test_a_folder_adds_nothing_to_where_code_is_searched(
    canary: Canary, tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hub.json` tells folders of data; a task that the operator names is not found there."""
    monkeypatch.setenv(TASK_PATH, "")
    folder = killed_with(tmp_path / "run", SPEC).folder
    other = canary.beside / "deeper"
    other.mkdir()
    (canary.beside / "canary.py").rename(other / "strange.py")
    address = HubAddress("ws://a:1/supervisor", "mine", task_folders=(str(other),))
    write_hub_address(folder, address)
    assert "cannot be loaded on this host" in refused(
        "model", "evaluate", str(folder), "--task", "strange:task"
    )
    assert not canary.trace.exists()


IMPORTS = {
    "__init__.py": "a name of this package, from its own table",
    "cli/commands.py": "a command's module, from its own table",
    "cli/lab.py": "an experiment's module, from its own table",
    "engines/engine.py": "an engine, from the operator's file of a run",
    "lab/faults/victim.py": "the command that chaos lets a victim run",
    "sinks/__main__.py": "a sink of this package, from the operator's options",
    "tasks/factory.py": "a task, where `find` has looked whether it is allowed",
}
"""Files that import by a name, and whose name it is."""

BY_NAME = {"import_module", "__import__", "exec", "eval", "run_module", "run_path"}


def test_code_is_run_by_name_in_few_places() -> None:
    found = {
        str(path.relative_to(ISLANDS))
        for path in ISLANDS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (getattr(node.func, "id", None) or getattr(node.func, "attr", None)) in BY_NAME
    }
    assert found == set(IMPORTS)
