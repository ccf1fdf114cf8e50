"""A broken task is told by its file and line: by `islands check`, a dry run, and a learner."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import pytest
from jaxtyping import Array, PRNGKeyArray, PyTree

from islands.cli.__main__ import main
from islands.cli.dry_run import examine
from islands.cli.parsing import Common
from islands.model.jax_workload import JaxWorkload
from islands.protocol.settings.run import RunSettings
from islands.settings.groups import ListenOptions, RunFile
from islands.settings.host import RunOptions
from islands.tasks.data.shards import ShardKey
from tests import broken_tasks

pytestmark = pytest.mark.usefixtures("quickly_compiled")

SOURCE = Path(broken_tasks.__file__)
ANY = ListenOptions(listen="127.0.0.1:0")

BROKEN = {
    "WrongTraceLevel": "copy=True",
    "ChangedAux": r"state/count is float32\[\] after the loss and int32\[\] before it",
    "EvaluateRaises": "KeyError: 'weights'",
    "LoaderRaises": "ValueError: could not convert string to float: 'n/a'",
    "IntegerLeaf": "table is int32: only floating leaves train",
    "StringsInBatch": r"passed to the function at path batch\['words'\]",
    "ChanceInInit": "init differs between two calls with the same key",
    "ClockInInit": "init differs between two calls with the same key",
    "InfiniteStart": "params/w is not finite in the beginning",
    "InfiniteLoss": "the loss of the first batch is inf",
    "InfiniteStep": "the loss of the first batch is nan after a step at learning rate 0.003",
    "NoBatches": "none of the 64 shards has a batch at position 0",
    "NoPosition": "batches gave a dict, not a batch and the position after",
    "NumpyPositions": "the position after a batch is a int64; it must be an int",
    "HalfTokens": "tokens is 2.5 for a batch; it must be a whole number, at least 1",
    "WrongPositions": "batches of shard 0 from position 1 begin with another batch",
    "FunctionLeaf": r"output component \[0\]\['activation'\], which is not a valid JAX type",
    "TooLarge": "takes 36 TiB beside its activations",
    "NoOptimizer": "optimizer returned a NoneType; it must be an optimizer of optax",
    "MistypedOptimizer": "has no attribute 'adamww'",
    "LossOfRows": r"the loss is float32\[2\]; it must be one floating number",
}
TRACED = {
    "ChangedAux",
    "IntegerLeaf",
    "FunctionLeaf",
    "TooLarge",
    "LossOfRows",
    "NoOptimizer",
    "WrongTraceLevel",
}


def line_of(name: str) -> str:
    lines, start = inspect.getsourcelines(getattr(broken_tasks, name))
    offset = next(index for index, line in enumerate(lines) if line.rstrip().endswith("# here"))
    return f"{SOURCE.name}:{start + offset}, in "


@pytest.mark.parametrize("name", BROKEN)
def test_a_check_begins_with_the_users_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"tests.broken_tasks:{name}"]) == 2
    first = capsys.readouterr().out.splitlines()[0]
    assert line_of(name) in first
    assert first.index(SOURCE.name) < 80
    assert re.search(BROKEN[name], first), first


@pytest.mark.parametrize("name", ["WrongPositions", "MistypedOptimizer"])
def test_a_dry_run_refuses_it_by_the_users_line(name: str, tmp_path: Path) -> None:
    file = RunFile(task=f"tests.broken_tasks:{name}")
    found = examine(RunOptions(file, ANY, folder=tmp_path), Common())
    assert line_of(name) in found.refused[0]
    assert re.search(BROKEN[name], found.refused[0])


@pytest.mark.parametrize("name", sorted(TRACED))
def test_shapes_alone_find_it_in_a_large_model(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", f"tests.broken_tasks:{name}", "--trace_only"]) == 2
    assert line_of(name) in capsys.readouterr().out.splitlines()[0]


class FigureInJax(broken_tasks.Sound):
    """Its evaluation leaves the conversion to a number to whoever asks, as many do."""

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, Array]:  # type: ignore[override]
        return {"norm": jnp.linalg.norm(params["w"])}


def test_a_figure_that_is_traced_is_no_mistake() -> None:
    task = "tests.model.test_task_check:FigureInJax"
    assert main(["check", task, "--trace_only"]) == 0
    assert main(["check", task]) == 0


def test_a_traceback_of_the_users_frames_alone_follows(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "tests.broken_tasks:LoaderRaises"])
    told = capsys.readouterr().out
    assert 'np.float32(float("n/a"))' in told
    files = re.findall(r'File "([^"]+)"', told)
    assert files
    assert set(files) == {str(SOURCE)}


def test_a_sound_task_has_nothing_to_mend(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "tests.broken_tasks:Sound"]) == 0
    told = capsys.readouterr().out
    assert "nothing to mend" in told
    for part in ("init", "memory", "batches", "loss", "optimizer", "step", "evaluate"):
        assert re.search(rf"^  {part} ", told, re.MULTILINE), part


class Scheduled(broken_tasks.Sound):
    """The share of its second moments that a step keeps grows."""

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.inject_hyperparams(optax.adam)(
            learning_rate, b2=lambda count: 1 - (count + 2.0) ** -0.8
        )


class Masked(broken_tasks.Sound):
    """Only arrays of three rows or more are stepped, which a probe has none of."""

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.masked(
            optax.adam(learning_rate), lambda tree: jax.tree.map(lambda x: x.shape[0] > 2, tree)
        )


def test_second_moments_that_cannot_be_estimated_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    task = "tests.model.test_task_check:Scheduled"
    sentence = "second moments are averaged at 1 paths of its state"
    for merges in (True, False):
        assert main(["check", task, "--run.merge_moments", str(merges).lower()]) == 0
        assert (sentence in " ".join(capsys.readouterr().out.split())) is merges
    assert main(["check", "tests.broken_tasks:Sound"]) == 0
    assert "are averaged at" not in capsys.readouterr().out
    masked = ["tests.model.test_task_check:Masked", "--run.merge_moments", "true"]
    assert main(["check", *masked]) == 0
    assert sentence in (text := " ".join(capsys.readouterr().out.split()))
    assert "hides them from a probe with arrays of two rows" in text


class Wide(broken_tasks.Sound):
    """A step makes 16 MiB beside its sixteen bytes of parameters."""

    def loss(
        self, params: PyTree, state: PyTree, batch: PyTree, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        wide = jnp.outer(jnp.arange(1 << 20, dtype=jnp.float32), params["w"])
        wide = jnp.sin(wide @ jnp.ones((4, 4)))
        loss, state = super().loss(params, state, batch, key)
        return loss + 1e-30 * jnp.square(wide).mean(), state


@pytest.mark.parametrize("values", [True, False], ids=["taken", "traced"])
def test_activations_are_known_without_a_guess(*, values: bool) -> None:
    report = JaxWorkload(Wide()).check(RunSettings(), values=values, room_bytes=1 << 40)
    assert report.faults == []
    assert report.temporaries is not None
    assert 16 << 20 <= report.temporaries <= 160 << 20


def test_a_check_reads_the_file_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("task: tests.broken_tasks:EvaluateRaises\nlearners: 2\nrun: {fragments: 3}\n")
    assert main(["check", str(config)]) == 2
    assert line_of("EvaluateRaises") in capsys.readouterr().out.splitlines()[0]


class OnePass(broken_tasks.Sound):
    """Its data is read once."""

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[PyTree, int]]:
        yield from () if shard.pass_index else super().batches(shard, position)


def test_data_that_ends_after_one_pass_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for task, ends in ((OnePass, True), (broken_tasks.Sound, False)):
        name = f"{task.__module__}:{task.__name__}"
        assert main(["check", name]) == 0
        assert ("the data ends after one pass" in capsys.readouterr().out) == ends
