"""Whole runs in one process: real actors, real JAX, memory links, one device thread per learner."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array, PRNGKeyArray, PyTree
from numpy.typing import NDArray
from safetensors.numpy import load_file

from islands import described, load
from islands.files.disk import RealDisk
from islands.numerics.optax_chain import OptaxChain
from islands.protocol.errors import IslandsError, JournalError, TaskError, UserError
from islands.protocol.settings.choices import Precision
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing
from islands.protocol.supervisor.eviction import ALIKE_MAX
from islands.run.single_process import LocalSystem
from islands.syncer.journal import Journal
from islands.tasks.data.shards import ShardKey, ShardPlan
from islands.tasks.task import Task, TaskState
from messaging.codec.tensors import as_buffer, digest
from tests.board_reader import curves_in
from tests.run.test_run_folder import rows

Floats = NDArray[np.float32]
Summary = dict[str, object]

LIMIT_S = 60.0
ROWS = 8
BUDGET = 4000
SUMMARY_KEYS = {
    *("tokens", "wall_s", "goodput", "yield", "merges", "participation", "staleness_mean"),
    *("evictions", "rejoins", "step_gap_p999_s", "longest_stall_s", "bytes_up", "bytes_down"),
    *("reason", "advice", "ledger", "learners"),
}


@dataclass(frozen=True)
class Linear(Task[Floats]):
    """Linear regression; everything about it may be varied by a test."""

    width: int = 192

    def init(self, key: PRNGKeyArray) -> TaskState:
        one, two = jax.random.split(key)
        weight = jax.random.normal(one, (self.width, self.width)) * 0.1
        return TaskState({"weight": weight, "bias": jax.random.normal(two, (self.width,)) * 0.1})

    def loss(
        self, params: PyTree, state: PyTree, batch: Floats, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        found = jnp.asarray(batch) @ params["weight"] + params["bias"]
        return jnp.mean(jnp.square(found - 2 * jnp.asarray(batch))), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.sgd(learning_rate, momentum=0.5)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Floats, int]]:
        for records, after in ShardPlan(4096, self.shards).groups(shard, position, 1):
            rng = np.random.default_rng(int(records[0]))
            yield rng.standard_normal((ROWS, self.width)).astype(np.float32), after

    def tokens(self, batch: Floats) -> int:
        return len(batch)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        weight = np.asarray(params["weight"])
        return {"distance": float(np.linalg.norm(weight - 2 * np.eye(self.width)))}


class Odd(Linear):
    """A tuple with a scalar, a bfloat16 leaf, and one tensor that is 60 % of the model."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        one, two = jax.random.split(key)
        large = jax.random.normal(one, (self.width, 384)) * 0.1
        narrow = jax.random.normal(two, (256, self.width), jnp.bfloat16)
        return TaskState((large, 0.5, {"narrow": narrow}))

    def loss(
        self, params: PyTree, state: PyTree, batch: Floats, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        large, gain, rest = params
        hidden = jnp.asarray(batch) @ large[:, :256] * gain
        found = hidden @ rest["narrow"].astype(jnp.float32) + large[:, 256:].mean()
        return jnp.mean(jnp.square(found - 2 * jnp.asarray(batch))), state

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.adam(0.01 * learning_rate)

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        return {"gain": float(params[1])}


class FailsWhenTraced(Linear):
    def loss(
        self, params: PyTree, state: PyTree, batch: Floats, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        raise ValueError("no such column: 'price'\nand a second line")


class FailsLater(Linear):
    """Its data breaks off after a few batches."""

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[Floats, int]]:
        for batch, after in super().batches(shard, position):
            if after > 2:
                raise OSError("the data disk is gone")
            yield batch, after


def settings(**changed: object) -> RunSettings:
    standard: dict[str, object] = {
        "interval_steps": 8,
        "fragments": 2,
        "budget_tokens": BUDGET,
        "learning_rate": 1.0,
        "warmup_steps": 5,
        "outer": OuterSettings(learning_rate=1.0, momentum=0.0),
    }
    return RunSettings(**{**standard, **changed})  # type: ignore[arg-type]


def finished(system: LocalSystem, folder: Path) -> Summary:
    async def main() -> Summary:
        async with asyncio.timeout(LIMIT_S):
            return await system.run(folder)

    return asyncio.run(main())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[LocalSystem, Path, Summary]:
    """One ordinary run of three learners, looked at by several tests."""
    folder = tmp_path_factory.mktemp("whole")
    system = LocalSystem(Linear(), settings(), learners=3, evaluate_every_s=0.0)
    assert len(system.model.layout.fragments) == 2
    return system, folder, finished(system, folder)


def test_every_token_of_the_budget_has_one_fate(whole: tuple[LocalSystem, Path, Summary]) -> None:
    _, _, summary = whole
    assert summary["tokens"] == BUDGET
    ledger = cast("dict[str, object]", summary["ledger"])
    assert ledger["imbalance"] == 0
    for row in cast("list[dict[str, int]]", ledger["fragments"]):
        assert row["processed"] == BUDGET
        assert sum(row.values()) == 2 * BUDGET
    learners = cast("dict[str, dict[str, int]]", summary["learners"])
    assert sum(learner["tokens"] for learner in learners.values()) == BUDGET
    assert sum(learner["steps"] for learner in learners.values()) == BUDGET // ROWS


def test_learners_of_one_process_gossip_as_well(tmp_path: Path) -> None:
    changed = replace(PRESETS[Preset.GOSSIP], interval_steps=8, fragments=2)
    run = replace(changed, budget_tokens=3 * BUDGET, learning_rate=1.0, warmup_steps=5)
    system = LocalSystem(Linear(), run, learners=3, evaluate_every_s=0.0)
    summary = finished(system, tmp_path)
    assert (summary["tokens"], summary["yield"], summary["merges"]) == (3 * BUDGET, 1.0, 2)
    start = np.linalg.norm(2 * np.eye(Linear().width))  # about: weights begin near 0
    assert cast("float", summary["distance"]) < 0.9 * start
    tape = rows(tmp_path / "tape.jsonl")
    assert {row["actor"] for row in tape if row["kind"] == "gossip"} == set(system.names)


def test_the_summary_has_all_that_one_judges_a_run_by(
    whole: tuple[LocalSystem, Path, Summary],
) -> None:
    _, folder, summary = whole
    assert summary.keys() >= SUMMARY_KEYS | {"distance"}
    assert json.loads((folder / "summary.json").read_text()) == summary
    for share in ("goodput", "yield", "participation"):
        assert 0 < cast("float", summary[share]) <= 1, share
    assert (summary["evictions"], summary["rejoins"]) == (0, 0)
    gap_s, stall_s = (
        cast("float", summary[name]) for name in ("step_gap_p999_s", "longest_stall_s")
    )
    assert 0 <= gap_s <= stall_s
    model_bytes = 4 * whole[0].model.layout.size
    assert cast("int", summary["bytes_up"]) > model_bytes
    assert cast("int", summary["bytes_down"]) > 3 * model_bytes
    learners = cast("dict[str, dict[str, int]]", summary["learners"])
    assert [row["incarnations"] for row in learners.values()] == [1, 1, 1]


def test_the_run_folder_is_whole(whole: tuple[LocalSystem, Path, Summary]) -> None:
    _, folder, summary = whole
    told = json.loads((folder / "settings.json").read_text())
    assert told["budget_tokens"] == BUDGET
    versions = json.loads((folder / "versions.json").read_text())
    assert versions["jax"] == jax.__version__
    assert {"python", "islands", "optax", "numpy"} <= versions.keys()
    tape = rows(folder / "tape.jsonl")
    assert all(list(entry)[:3] == ["at_s", "actor", "kind"] for entry in tape)
    metrics = rows(folder / "metrics.jsonl")
    assert {row["kind"] for row in metrics} == {"step", "run", "merge", "evaluation"}
    merges = [row["merges"] for row in metrics if row["kind"] == "merge"]
    assert merges == list(range(1, cast("int", summary["merges"]) + 1))
    log = rows(folder / "run.log")
    assert {"admitted", "finished"} <= {str(entry["event"]) for entry in log}
    curves = curves_in(folder / "tensorboard" / "run")
    assert {"merge/contributions", "loss", "evaluation/distance", "yield"} <= curves.keys()
    assert curves_in(folder / "tensorboard" / "learner-0").keys() >= {"loss", "step_time_s"}


def test_what_is_exported_is_what_was_published_last(
    whole: tuple[LocalSystem, Path, Summary],
) -> None:
    system, folder, _ = whole
    exported = load_file(folder / "final.safetensors")
    params = system.model.params_of(system.values)
    assert exported.keys() == {"weight", "bias"}
    for name, value in exported.items():
        np.testing.assert_array_equal(value, np.asarray(params[name]))
    last: dict[object, object] = {}
    for entry in rows(folder / "tape.jsonl"):
        if entry["kind"] == "merged":
            last[entry["fragment"]] = entry["digest"]
    found = {index: digest(as_buffer(value)) for index, value in enumerate(system.values)}
    assert last == found


def test_training_goes_somewhere(whole: tuple[LocalSystem, Path, Summary]) -> None:
    """The published model is nearer to the optimum at the end than it was at the start.

    How much depends on how often it is merged: a step takes less than a message on a busy machine.
    """
    system, _, summary = whole
    start = system.task.init(jax.random.key(system.settings.seed))
    before = system.task.evaluate(start.params, start.state)["distance"]
    assert cast("float", summary["distance"]) < 0.8 * before


async def reached(system: LocalSystem, condition: Callable[[], bool]) -> None:
    """Wait until something holds, which is asked whenever the run's figures may have changed."""
    held = asyncio.get_running_loop().create_future()

    def ask() -> None:
        if not held.done() and condition():
            held.set_result(None)

    system.folder.listeners.append(ask)
    await held
    system.folder.listeners.remove(ask)


async def another_merge(system: LocalSystem) -> None:
    seen = system.folder.figures.merges
    await reached(system, lambda: system.folder.figures.merges > seen)


async def begun(system: LocalSystem, folder: Path) -> asyncio.Task[Summary]:
    running = asyncio.create_task(system.run(folder))
    turn = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turn.set_result, None)
    await turn
    return running


def test_a_run_that_is_cancelled_leaves_its_parameters_behind(tmp_path: Path) -> None:
    system = LocalSystem(Linear(), settings(budget_tokens=None), learners=1)

    async def main() -> None:
        run = await begun(system, tmp_path)
        await reached(system, lambda: system.folder.figures.merges > 1)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(main())
    told = described(tmp_path)
    assert told["reason"] == "stopped: cancelled"
    assert cast("int", told["tokens"]) > 0
    assert load(tmp_path, like=system.task.init(jax.random.key(0)).params)


def takes_part(name: str, tape: Path) -> bool:
    """Whether a contribution of this learner was merged since it was admitted last."""
    merged = False
    for entry in rows(tape):
        if entry["kind"] == "admitted":
            merged = merged and entry["name"] != name
        elif entry["kind"] == "merged":
            merged = merged or name in cast("list[str]", entry["participants"])
    return merged


def test_a_learner_that_is_killed_comes_back(tmp_path: Path) -> None:
    timing = Timing(patience=0.3)
    system = LocalSystem(Linear(), settings(budget_tokens=None, timing=timing), learners=2)

    async def main() -> Summary:
        async with asyncio.timeout(LIMIT_S):
            running = await begun(system, tmp_path)
            await reached(system, lambda: system.folder.figures.merges >= 3)
            killed = system.folder.figures.learners["learner-1"]
            system.drop("learner-1", away_s=2.0)
            await reached(system, lambda: killed.status == "evicted")
            await reached(system, lambda: killed.incarnations == 2)
            while not takes_part("learner-1", tmp_path / "tape.jsonl"):
                await another_merge(system)
            system.finish("seen enough")
            return await running

    summary = asyncio.run(main())
    assert summary["reason"] == "seen enough"
    assert (summary["evictions"], summary["rejoins"]) == (1, 1)
    ledger = cast("dict[str, object]", summary["ledger"])
    assert ledger["imbalance"] == 0
    learners = cast("dict[str, dict[str, int]]", summary["learners"])
    assert learners["learner-1"]["incarnations"] == 2
    total = summary["tokens"]
    assert sum(row["tokens"] for row in learners.values()) == system.folder.figures.tokens == total
    evaluations = [row for row in rows(tmp_path / "metrics.jsonl") if row["kind"] == "evaluation"]
    assert evaluations[-1]["tokens"] == total
    assert json.loads((tmp_path / "summary.json").read_text()) == summary


@pytest.mark.parametrize(
    ("failing", "error", "sentence"),
    [
        (
            FailsWhenTraced(),
            TaskError,
            r"in loss: ValueError: no such column: 'price'; the task fails before its first step$",
        ),
        (
            FailsLater(),
            IslandsError,
            r"learner-\d ended too often, .*in batches: OSError: the data disk is gone; the task ",
        ),
    ],
)
def test_a_task_that_raises_ends_the_run_with_one_sentence(
    failing: Task[Floats], error: type[IslandsError], sentence: str, tmp_path: Path
) -> None:
    system = LocalSystem(failing, settings(timing=Timing(patience=0.05)), learners=2)
    with pytest.raises(error, match=sentence) as caught:
        finished(system, tmp_path)
    assert "\n" not in str(caught.value)
    causes = [caught.value, caught.value.__cause__, getattr(caught.value.__cause__, "__cause__", 0)]
    assert any(isinstance(cause, ValueError | OSError) for cause in causes), "the user's own error"
    starts = [
        entry for entry in rows(tmp_path / "tape.jsonl") if entry["kind"] == "process_started"
    ]
    assert len(starts) <= 4 + 2 * ALIKE_MAX


class EvaluatesWrongly(Linear):
    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        raise KeyError("weights")


def test_a_failing_evaluation_does_not_end_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = LocalSystem(EvaluatesWrongly(), settings(), learners=1, evaluate_every_s=0.0)
    summary = finished(system, tmp_path)
    assert cast("int", summary["tokens"]) >= BUDGET
    failed = [e for e in rows(tmp_path / "tape.jsonl") if e["kind"] == "evaluation_failed"]
    assert "in evaluate: KeyError: 'weights'" in str(failed[0]["error"])
    assert 'raise KeyError("weights")' in str(failed[0]["detail"])
    assert "in evaluate: KeyError" in (tmp_path / "run.log").read_text()
    assert capsys.readouterr().err.count("in evaluate: KeyError: 'weights'") == 1
    assert (tmp_path / "final.safetensors").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/run/run.json cannot be read: Not a dir"):
        finished(LocalSystem(Linear(), settings()), tmp_path / "file" / "run")


def test_a_folder_of_another_run_is_left_alone(
    whole: tuple[LocalSystem, Path, Summary], tmp_path: Path
) -> None:
    _, folder, _ = whole
    before = (folder / "summary.json").read_bytes()
    with pytest.raises(UserError, match="holds a run that has ended; choose another"):
        finished(LocalSystem(Linear(), settings()), folder)
    assert (folder / "summary.json").read_bytes() == before
    shutil.copytree(folder / "journal", tmp_path / "journal")
    other = LocalSystem(Linear(), settings(budget_tokens=BUDGET // 2))
    with pytest.raises(JournalError, match="cannot be cut to"):
        finished(other, tmp_path)


def test_any_optax_chain_may_be_the_outer_optimizer(tmp_path: Path) -> None:
    chain = optax.chain(optax.clip_by_global_norm(10.0), optax.scale_by_adam(), optax.scale(-0.05))
    system = LocalSystem(
        Linear(), settings(budget_tokens=1600), learners=2, outer=OptaxChain(chain)
    )
    summary = finished(system, tmp_path)
    assert summary["tokens"] == 1600
    assert cast("dict[str, object]", summary["ledger"])["imbalance"] == 0
    recovered = Journal(RealDisk(tmp_path / "journal"), len(system.values)).recover()
    assert recovered is not None
    for arrays, value in zip(recovered.fragments, system.values, strict=True):
        np.testing.assert_array_equal(arrays["value"], value)
        assert len(arrays) == 4, "value, count, mu and nu"


@pytest.mark.quick("float32", "top_k")
@pytest.mark.parametrize("precision", list(Precision))
def test_any_tree_is_a_model(precision: Precision, tmp_path: Path) -> None:
    odd = settings(budget_tokens=1600, fragments=4, precision=precision)
    system = LocalSystem(Odd(), odd, learners=2)
    layout = system.model.layout
    assert len(layout.fragments) == 4
    largest = max(layout.leaves, key=lambda leaf: np.prod(leaf.shape))
    assert np.prod(largest.shape) == pytest.approx(0.6 * layout.size, rel=0.01)
    summary = finished(system, tmp_path)
    assert summary["tokens"] == 1600
    assert cast("dict[str, object]", summary["ledger"])["imbalance"] == 0
    exported = load_file(tmp_path / "final.safetensors")
    assert {name: value.shape for name, value in exported.items()} == {
        "0": (192, 384),
        "1": (),
        "2/narrow": (256, 192),
    }
    assert all(np.isfinite(value).all() for value in exported.values())
    _, gain, rest = system.model.params_of(system.values)
    assert rest["narrow"].dtype == jnp.bfloat16
    assert float(gain) != 0.5


def test_learners_that_share_a_process_are_apart(tmp_path: Path) -> None:
    system = LocalSystem(Linear(), settings(budget_tokens=1600), learners=["here", "there"])
    summary = finished(system, tmp_path)
    assert list(cast("dict[str, object]", summary["learners"])) == ["here", "there"]
    positions: dict[tuple[int, int], dict[object, list[int]]] = {}
    for entry in rows(tmp_path / "tape.jsonl"):
        if entry["kind"] == "progress":
            for pass_index, shard, position in cast("list[list[int]]", entry["leases"]):
                readers = positions.setdefault((pass_index, shard), {})
                readers.setdefault(entry["actor"], []).append(position)
    assert positions
    for readers in positions.values():
        spans = sorted((min(reached), max(reached)) for reached in readers.values())
        assert all(before[1] <= after[0] for before, after in pairwise(spans)), spans
