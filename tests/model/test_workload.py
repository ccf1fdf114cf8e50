"""That which is trained, by its name."""

from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
import pytest

from islands.lab.toys.toy_workload import Accelerator, Sleeping
from islands.model.interfaces import LearnerDevices
from islands.model.jax_workload import JaxWorkload
from islands.model.workload import load_workload
from islands.protocol.errors import RefusedError, TaskError
from islands.protocol.settings.run import RunSettings
from islands.run.hosting.hub_requests import check_same
from islands.settings.run_spec import RunSpec
from islands.tasks.factory import allowed_by
from islands.tasks.models.decoder_config import DecoderConfig
from islands.tasks.task import path_of
from messaging.clock import MonotonicClock
from tests.lab.study.regression import Regression

TOY = "islands.lab.toys.toy_workload:Sleeping"
SHAPED = "tests.model.test_workload:Shaped"
STDLIB = "islands.tasks.stdlib_bytes:StdlibBytes"
SETTINGS = RunSettings(fragments=3)
ALLOWED = ("tests", "no", "islands", "dataclasses")


def test_a_toy_is_a_workload_without_jax() -> None:
    workload = load_workload(RunSpec(SETTINGS, TOY, {"step_s": 0.0, "megabytes": 0.1}))
    plan = workload.plan(SETTINGS)
    trainer = workload.trainer(SETTINGS, LearnerDevices("a"))
    assert len(plan.layout.fragments) == 3
    assert trainer.layout == plan.layout


def test_a_slow_toy_takes_longer_for_a_step() -> None:
    workload = Sleeping(step_s=100.0, megabytes=0.1, slow={"b": 3.0})
    clock = MonotonicClock()
    took_s = []
    for name in ("a", "b"):
        trainer = workload.trainer(SETTINGS, LearnerDevices(name))
        assert isinstance(trainer, Accelerator)
        trainer.device.occupy(0.0)
        took_s.append(trainer.device.free_s - clock.now_s())
    assert [round(taken_s, -1) for taken_s in took_s] == [100, 300]


@pytest.mark.parametrize("told", [True, False])
def test_a_toy_carries_on_what_a_value_does_not_contain(*, told: bool) -> None:
    workload = Sleeping(step_s=0.0, megabytes=0.1)
    trainer = workload.trainer(SETTINGS, LearnerDevices("a"))
    trainer.setup()
    for _ in range(2):
        trainer.step(None, 1.0)
    sent = np.frombuffer(trainer.snapshot(0, "float32").buffer(), np.float32)
    trainer.step(None, 1.0)
    trainer.carry_on(0, np.ones_like(sent), sent if told else None)
    left = np.frombuffer(trainer.snapshot(0, "float32").buffer(), np.float32)
    assert left[0] == (1.0 if told else 3.0)
    np.testing.assert_array_equal(trainer.value(0), np.ones_like(sent))


def test_a_host_may_override_the_settings_of_the_task() -> None:
    spec = RunSpec(SETTINGS, TOY, {"step_s": 1.0, "megabytes": 0.1})
    workload = load_workload(spec, {"step_s": 2.0})
    assert isinstance(workload, Sleeping)
    assert (workload.step_s, workload.megabytes) == (2.0, 0.1)


def test_a_task_becomes_a_workload() -> None:
    workload = load_workload(RunSpec(SETTINGS, STDLIB))
    assert isinstance(workload, JaxWorkload)
    assert workload.plan(SETTINGS).layout == workload.trainer(SETTINGS, LearnerDevices("a")).layout


@jax.tree_util.register_dataclass
@dataclass
class Head:
    weight: int


def test_paths_are_the_keys_of_the_tree() -> None:
    tree = {"layers": [(1,)], "head": Head(2)}
    paths = [path_of(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(tree)]
    assert paths == ["head/weight", "layers/0/0"]


@dataclass(frozen=True)
class Shaped(Regression):
    decoder: DecoderConfig = field(default_factory=DecoderConfig)


def test_a_dataclass_among_the_settings_is_made_of_a_mapping() -> None:
    workload = load_workload(
        RunSpec(SETTINGS, SHAPED, {"decoder": {"width": 48, "heads": 2}}), allowed=["tests"]
    )
    assert isinstance(workload, JaxWorkload)
    assert workload.task == Shaped(decoder=DecoderConfig(width=48, heads=2))


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        (SHAPED, {"decoder": {"widht": 48}}, "decoder.widht is none of vocabulary, "),
        (SHAPED, {"decoder": {"width": "wide"}}, "decoder: Expected `int`, got `str`"),
        (SHAPED, {"decoder": {"heads": 3, "kv_heads": 2}}, "decoder: .*no multiple of kv_heads"),
        ("nowhere", {}, "package.module:Class"),
        ("no.such.module:Factory", {}, "cannot be loaded on this host"),
        ("islands.tasks.text:Txt", {}, r"text\.py has no Txt; its classes are .*TextFiles"),
        ("islands.lab.toys.toy_workload:Missing", {}, "Missing"),
        ("dataclasses:replace", {}, "is a function, and no class"),
        (TOY, {"rows": 1}, "refuses its settings"),
        ("islands.protocol.settings.run:RunSettings", {}, "is no class of a task; it must be de"),
        ("islands.tasks.task:Task", {}, "refuses its settings"),
    ],
)
def test_what_cannot_be_trained_is_named(name: str, settings: dict[str, object], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        load_workload(RunSpec(SETTINGS, name, settings), allowed=ALLOWED)


def test_a_host_that_would_train_something_else_is_refused() -> None:
    run = Sleeping(megabytes=0.1).plan(SETTINGS).layout
    check_same(Sleeping(megabytes=0.1).plan(SETTINGS).layout, run)
    with pytest.raises(RefusedError, match="layers/0"):
        check_same(Sleeping(megabytes=0.2).plan(SETTINGS).layout, run)


@pytest.mark.parametrize(
    ("source", "said"),
    [("def f(:", "line 1"), ("raise RuntimeError('boom')", "RuntimeError: boom")],
)
def test_a_mistake_in_the_users_file_is_told_with_its_place(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"broken_{len(source)}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"broken_{len(source)}:Task"
    with pytest.raises(TaskError, match=said):
        load_workload(RunSpec(SETTINGS, name), allowed=allowed_by(name))
