"""`islands model generate`: a text that goes on as the task's `sample` has it."""

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import pytest
from jaxtyping import PyTree

from islands.cli.__main__ import main
from islands.cli.newest_values import show_text
from islands.protocol.settings.run import RunSettings
from islands.settings.run_spec import RunSpec
from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.stdlib_bytes import StdlibBytes
from islands.tasks.task import TaskState, path_of
from tests.cli.run_folders import SPEC, WIDTH, KilledRun
from tests.lab.study.regression import Regression

pytestmark = pytest.mark.usefixtures("quickly_compiled")

ZEROS = {"weight": np.zeros((WIDTH, WIDTH), np.float32)}
PROMPT = "def f"


SMALL = DecoderConfig(width=32, layers=1, heads=2, head_width=16, hidden=64)


@dataclass(frozen=True)
class SmallBytes(StdlibBytes):
    """The default task with a small decoder."""

    decoder: DecoderConfig = SMALL
    length: int = 32


class Echo(Regression):
    """A task that answers with what it was asked, in pieces that cut a letter in two."""

    def sample(
        self, params: PyTree, prompt: bytes, count: int, *, temperature: float, seed: int
    ) -> Iterator[bytes]:
        yield from (prompt[:1], prompt[1:], f" {count} {temperature} {seed}".encode())


class Failing(Regression):
    """A task whose sampling raises."""

    def sample(
        self, params: PyTree, prompt: bytes, count: int, *, temperature: float, seed: int
    ) -> Iterator[bytes]:
        raise KeyError(prompt)


def killed(folder: Path, task: str) -> KilledRun:
    """A run of a task, at version 0."""
    run = KilledRun(folder / "run", replace(SPEC, task=task))
    run.publish_all(0, ZEROS)
    return run


def test_the_default_task_continues_a_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "tests.cli.test_generate:SmallBytes"
    run = KilledRun(tmp_path / "run", RunSpec(RunSettings(run="bytes", fragments=2), name))
    state: TaskState = SmallBytes().init(jax.random.key(3))
    flat, _ = jax.tree_util.tree_flatten_with_path(state.params)
    run.publish_all(0, {path_of(keys): np.asarray(leaf, np.float32) for keys, leaf in flat})
    texts = []
    for seed in ("1", "1", "2"):
        options = ["--task", name, "--prompt", PROMPT, "--count", "20"]
        arguments = ["model", "generate", str(run.folder), *options]
        assert main([*arguments, "--seed", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    wanted = b"".join(SmallBytes().sample(state.params, PROMPT.encode(), 20, seed=1))
    assert texts[0] == PROMPT + wanted.decode(errors="replace") + "\n"


def test_options_reach_the_task_and_pieces_become_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = killed(tmp_path, "tests.cli.test_generate:Echo")
    options = ["--prompt", "é", "--count", "3", "--temperature", "0", "--seed", "7"]
    assert main(["model", "generate", str(run.folder), "--task", run.spec.task, *options]) == 0
    assert capsys.readouterr().out == "éé 3 0.0 7\n"


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("tests.lab.study.regression:Regression", "has no method `sample`, so it cannot continue"),
        ("islands.lab.toys.toy_workload:Sleeping", "has no method `sample`"),
    ],
)
def test_a_task_that_cannot_sample_is_told(
    task: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, object] = {} if "toy" in task else SPEC.task_settings
    run = KilledRun(tmp_path / "run", replace(SPEC, task=task, task_settings=settings))
    layout = run.plan.layout
    run.publish_all(0, layout.assemble([np.zeros(f.size, np.float32) for f in layout.fragments]))
    assert (
        main(["model", "generate", str(run.folder), "--task", run.spec.task, "--prompt", "x"]) == 2
    )
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert sentence in told.err


def test_sampling_that_fails_names_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = killed(tmp_path, "tests.cli.test_generate:Failing")
    assert (
        main(["model", "generate", str(run.folder), "--task", run.spec.task, "--prompt", "x"]) == 2
    )
    last = capsys.readouterr().err.splitlines()[-1]
    assert "test_generate.py" in last
    assert "the task's sampling failed" in last


def test_an_output_that_is_no_utf8_gets_what_it_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(taken, encoding="ascii"))
    show_text(["zwölf €".encode(), b" end"], "ä \udce4 ")
    sys.stdout.flush()
    assert taken.getvalue() == b"? ? zw?lf ? end\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "folder is not set"),
        (("x",), "prompt is empty"),
        (("x", "--prompt", "a", "--count", "0"), "count is 0; it must be at least 1"),
        (("x", "--prompt", "a", "--temperature", "-1"), "temperature is -1.0; it must be at least"),
        (("x", "--prompt", "a", "--temperature", "nan"), "temperature is nan; it must be a number"),
        (("x", "--prompt", "a"), "there is no folder x"),
        (("x", "--prompt", "a", "--seed", f"{2**63 - 1}"), "there is no folder x"),
        (("x", "--prompt", "a", "--seed", f"{2**63}"), "it must be at most 9223372036854775807"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, refused: Callable[..., str]
) -> None:
    assert sentence in refused("model", "generate", *arguments)
