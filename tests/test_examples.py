"""Every example runs as it stands there: parsed, planned, its task built, and a step taken."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml

from islands.cli.parsing import parse
from islands.lab.experiments.comparison import cells_of
from islands.lab.settings.fleets import ComparisonOptions
from islands.lab.settings.study import StudyOptions
from islands.lab.study.cells import trials_of
from islands.model.jax_settings import cpu_environment
from islands.model.jax_trainer import JaxTrainer
from islands.protocol.settings.run import RunSettings
from islands.run.records.model_files import write_model
from islands.settings.host import LearnerOptions, RunOptions, SupervisorOptions, SyncerOptions
from islands.settings.run_spec import RunSpec
from islands.tasks.data.shards import ShardKey
from islands.tasks.task import Sampler, Task
from tests.compiling import QUICKLY_COMPILED
from tests.tasks.by_name import task_of

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
NO_RUNS = ("learner.yaml", "study.yaml")
RUNS = sorted(path.name for path in EXAMPLES.glob("*.yaml") if path.name not in NO_RUNS)
MORE_STUDIES = sorted(f"studies/{path.name}" for path in (EXAMPLES / "studies").glob("*.yaml"))
FLEETS = sorted(f"fleets/{path.name}" for path in (EXAMPLES / "fleets").glob("*.yaml"))
QUICK = {
    "stdlib.yaml": ("--run.budget_tokens", "20_000", "--learners", "2"),
    "digits.yaml": ("--run.budget_s", "4"),
    "line.yaml": ("--run.budget_tokens", "10_000"),
    "text.yaml": ("--run.budget_tokens", "5_000", "--learners", "1"),
    "lora.yaml": ("--run.budget_tokens", "5_000", "--learners", "1"),
    "two_hosts.yaml": ("--run.budget_tokens", "5_000", "--learners", "1"),
}
DRY = ("stdlib.yaml", "line.yaml")
"""What a dry run is tried with: all of it that differs between runs is a task of its own."""


pytestmark = pytest.mark.usefixtures("quickly_compiled")


@pytest.fixture(autouse=True)
def _beside_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the examples are started, as line.yaml says."""
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(str(EXAMPLES))


answer = partial(subprocess.run, capture_output=True, text=True, check=False)


def islands(*arguments: str, cwd: Path = EXAMPLES) -> subprocess.CompletedProcess[str]:
    """`python -m islands.cli`, by default in the folder of the examples."""
    quickly = QUICKLY_COMPILED if "--dry-run" in arguments else {}  # it takes no more than a step
    return python("-m", "islands.cli", *arguments, cwd=cwd, **quickly)


def python(
    *arguments: str, cwd: Path = EXAMPLES, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A program, by default in the folder of the examples."""
    environment = {**os.environ, **cpu_environment(1), **variables, "PYTHONPATH": str(ROOT)}
    return answer([sys.executable, *arguments], cwd=cwd, env=environment, timeout=110)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_understood_by_all_who_read_it(name: str) -> None:
    """One file serves `islands run`, a syncer, and a supervisor, and each sees the same run."""
    arguments = ["--config", name]
    run, _ = parse(RunOptions, arguments, program="islands run", description="")
    syncer, _ = parse(SyncerOptions, arguments, program="islands.syncer", description="")
    supervisor, _ = parse(
        SupervisorOptions, arguments, program="islands.supervisor", description=""
    )
    assert run.file == syncer.file == supervisor.file
    assert run.listening == syncer.listening == supervisor.listening
    assert run.file.run != RunSettings()


@pytest.mark.quick("line", "digits", "stdlib")
@pytest.mark.parametrize("name", RUNS)
def test_its_task_trains(name: str) -> None:
    file = parse(RunOptions, [name], program="islands run", description="")[0].file
    task = task_of(file.task, file.task_settings)
    assert isinstance(task, Task)
    assert len(JaxTrainer(task, file.run.fragments).layout.fragments) == file.run.fragments
    trainer = JaxTrainer(task, 1)  # fewer functions to compile
    trainer.setup()
    batch = next(batch for batch, _ in trainer.batches(ShardKey(0, 0), 0))
    loss = trainer.step(batch, file.run.learning_rate).loss()
    assert 0 < loss < 100


def trainer_of(name: str, settings: dict[str, object]) -> JaxTrainer:
    task = task_of(name, settings)
    assert isinstance(task, Task)
    return JaxTrainer(task, 1)


@pytest.mark.long("test_its_task_trains")
def test_adapters_start_from_the_base_and_are_all_that_is_merged(tmp_path: Path) -> None:
    shape = {"width": 16, "layers": 2, "heads": 2, "head_width": 8, "hidden": 24, "scan": True}
    settings = {"decoder": shape, "length": 16, "validation_windows": 8}
    plain = trainer_of("islands.tasks.stdlib_bytes:StdlibBytes", settings)
    plain.setup()
    values = [plain.value(0) + np.float32(0.01)]  # none of them is zero
    write_model(tmp_path / "final.safetensors", plain.layout, values, {})

    adapted = {**settings, "base": str(tmp_path), "rank": 2}
    trainer = trainer_of("lora:Lora", adapted)
    trainer.setup()
    assert {leaf.path.rpartition("/")[2] for leaf in trainer.layout.leaves} == {"a", "b"}
    assert {leaf.stack for leaf in trainer.layout.leaves} == {2}
    assert trainer.evaluate([trainer.value(0)]) == plain.evaluate(values)

    batch = next(batch for batch, _ in trainer.batches(ShardKey(0, 0), 0))
    losses = [trainer.step(batch, 0.03).loss() for _ in range(10)]
    assert losses[-1] < losses[0] - 0.05
    untrained = trainer_of("lora:Lora", {**adapted, "base": ""})
    assert untrained.layout.fingerprint != trainer.layout.fingerprint


@pytest.mark.long("test_its_task_trains")
def test_adapters_continue_a_text_as_their_base_does_until_they_are_trained() -> None:
    """They get the added bytes alone, B being zero at first: `islands model generate` works."""
    settings = {"decoder": "0.05M", "length": 16}
    adapted = task_of("lora:Lora", settings)
    plain = task_of("islands.tasks.stdlib_bytes:StdlibBytes", settings)
    assert isinstance(adapted, Sampler)
    assert isinstance(plain, Sampler)
    assert isinstance(adapted, Task)
    params = adapted.init(jax.random.key(0)).params
    found = b"".join(adapted.sample(params, b"def ", 20, temperature=0.5, seed=3))
    told = plain.sample(params["base"], b"def ", 20, temperature=0.5, seed=3)
    assert len(found) == 20
    assert found == b"".join(told)


def test_the_hosts_own_file_is_understood() -> None:
    arguments = ["--config", "learner.yaml"]
    found, _ = parse(LearnerOptions, arguments, program="islands.learner", description="")
    assert found.name == "island-0"
    assert found.task_settings == {"rows": 8}
    task = task_of(RunSpec().task, found.task_settings)
    assert isinstance(task, Task)
    assert task.shards > 0


@pytest.mark.parametrize("name", [*NO_RUNS, *RUNS, *MORE_STUDIES])
def test_every_example_says_how_it_is_started(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert re.search(rf"^#     .*{re.escape(name)}", text, re.MULTILINE)
    assert yaml.safe_load(text)


@pytest.mark.parametrize("name", ["study.yaml", *MORE_STUDIES])
def test_a_study_is_understood(name: str) -> None:
    options, _ = parse(StudyOptions, [name], program="islands lab study", description="")
    trials = trials_of(options)
    assert {trial.key for trial in trials} == set(options.cells)
    assert options.baseline in options.cells
    for trial in trials:
        assert isinstance(task_of(trial.task, trial.task_settings), Task)


@pytest.mark.parametrize("name", FLEETS)
def test_every_file_of_fleets_can_be_played(name: str) -> None:
    options, _ = parse(
        ComparisonOptions, ["--config", name], program="islands lab simulate", description=""
    )
    assert len(cells_of(options)) >= len(options.fleets) > 0
    assert options.name == Path(name).stem


@pytest.mark.integration
@pytest.mark.quick("line.yaml")
@pytest.mark.parametrize("name", RUNS)
def test_it_runs_to_its_end(name: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t" * 32)
    token.chmod(0o600)
    folder = tmp_path / "run"
    found = islands(
        *("run", name, *QUICK[name], "--folder", str(folder), "--listen", "127.0.0.1:0"),
        *(("--token_file", str(token)) if name == "two_hosts.yaml" else ()),
    )
    assert found.returncode == 0, found.stderr
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["ledger"]["imbalance"] == 0
    assert summary["merges"] > 0


PROGRAMS = {
    "averaged": ("-m", "islands.cli", "run", "--task", "averaged:Averaged", *QUICK["line.yaml"]),
    "mesh": ("mesh.py", "--learners", "2", "--model-parallel", "2", "--tokens", "2000"),
}


@pytest.mark.long("test_it_runs_to_its_end")
@pytest.mark.integration
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_to_its_end(name: str, tmp_path: Path) -> None:
    words = [*PROGRAMS[name]]
    if "run" in words:
        words += ["--folder", str(tmp_path / "run"), "--listen", "127.0.0.1:0"]
    found = python(*words)
    assert found.returncode == 0, found.stderr
    files = {path.stem for path in EXAMPLES.glob("*.py")}
    assert files == {*PROGRAMS, "line", "lora", "digits", "streams", "arrivals"}


@pytest.mark.long("test_it_runs_to_its_end")
@pytest.mark.integration
def test_a_task_beside_its_file_is_found_from_any_folder(tmp_path: Path) -> None:
    arguments = ("run", str(EXAMPLES / "line.yaml"), *QUICK["line.yaml"], "--folder", "run")
    found = islands(*arguments, "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "run" / "summary.json").exists()
    folder = str(tmp_path / "run")
    found = islands("model", "evaluate", folder, "--json", cwd=EXAMPLES)
    assert "the run names the task 'line:Line', whose code this host was not told" in found.stderr
    found = islands("model", "evaluate", folder, "--json", "--task", "line:Line", cwd=EXAMPLES)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["figures"]


@pytest.mark.integration
@pytest.mark.quick("line.yaml")
@pytest.mark.parametrize("name", DRY)
def test_its_dry_run_refuses_nothing(name: str) -> None:
    """As a start in the same folder would not."""
    found = islands("run", name, "--dry-run", "--listen", "127.0.0.1:0")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "nothing would be refused" in found.stdout
