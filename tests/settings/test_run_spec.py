"""What a run is, on disk and on its way to those who join."""

from dataclasses import replace
from pathlib import Path

import pytest

from islands.files.run_files import SPARE
from islands.lab.toys.toy_workload import Sleeping
from islands.protocol.errors import DamagedError, RefusedError, UserError
from islands.protocol.settings.choices import Precision
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings, Timing
from islands.settings.run_spec import RunPlan, RunSpec, not_whole, read, write

SPEC = RunSpec(
    RunSettings(
        run="one",
        fragments=3,
        precision=Precision.BFLOAT16,
        outer=OuterSettings(learning_rate=0.5),
        timing=Timing(patience=2.0),
    ),
    "package.module:Factory",
    {"rows": 4, "names": ["a"], "share": 0.5},
    "decoupled",
)


def plan() -> RunPlan:
    return Sleeping(megabytes=0.1).plan(SPEC.settings)


def test_a_spec_arrives_as_it_was_told() -> None:
    assert RunSpec.decode(SPEC.encode()) == SPEC


def test_a_plan_arrives_as_it_was_made() -> None:
    made = replace(plan(), begun="a1b2")
    assert RunPlan.decode(made.encode()) == made


def test_a_plan_with_another_fingerprint_is_refused() -> None:
    made = plan()
    forged = RunPlan(replace(made.layout, fingerprint="0" * 32), made.shards)
    with pytest.raises(RefusedError, match="fingerprint"):
        RunPlan.decode(forged.encode())


@pytest.mark.parametrize("text", ["", "[]", '{"settings": {"fragments": 0}}', '{"task": 1}'])
def test_what_is_no_spec_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(RefusedError, match="settings are not understood"):
        RunSpec.decode(text)


def test_a_folder_keeps_both(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    write(tmp_path / "run", SPEC, plan())
    assert read(tmp_path / "run") == (SPEC, plan())


@pytest.mark.parametrize("name", ["run.json", "plan.json"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "removed"])
def test_a_run_goes_on_while_one_copy_of_its_settings_is_whole(
    tmp_path: Path, name: str, damage: str
) -> None:
    write(tmp_path, SPEC, plan())
    _damage(tmp_path / name, damage)
    assert read(tmp_path) == (SPEC, plan())
    assert not_whole(tmp_path) == [name]
    _damage(tmp_path / SPARE / name, damage)
    with pytest.raises(DamagedError, match=rf"{name} is .*begin a run in another folder"):
        read(tmp_path)
    write(tmp_path, SPEC, plan())
    assert not_whole(tmp_path) == []
    _damage(tmp_path / SPARE / name, damage)
    assert read(tmp_path) == (SPEC, plan())


def _damage(path: Path, damage: str) -> None:
    content = bytearray(path.read_bytes())
    if damage == "removed":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=str(tmp_path / "file")):
        write(tmp_path / "file", SPEC, plan())


def test_a_larger_budget_is_the_same_run() -> None:
    later = replace(SPEC.settings, budget_tokens=5, learning_rate=1e-3, timing=Timing(patience=1.0))
    assert replace(SPEC, settings=later).changed_from(SPEC) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (replace(SPEC, task="other.module:Factory"), "package.module:Factory"),
        (replace(SPEC, task_settings={}), "rows"),
        (replace(SPEC, settings=replace(SPEC.settings, fragments=4)), "run.fragments = 3, not 4"),
        (replace(SPEC, settings=replace(SPEC.settings, seed=1)), "run.seed = 0, not 1"),
        (
            replace(SPEC, settings=replace(SPEC.settings, outer=OuterSettings(learning_rate=0.7))),
            "run.outer.learning_rate = 0.5, not 0.7",
        ),
        (replace(SPEC, preset="diloco"), "preset = decoupled, not diloco"),
        (replace(SPEC, task_settings={**SPEC.task_settings, "rows": 8}), "task_settings.rows = 4"),
    ],
)
def test_what_makes_it_another_run_is_named(changed: RunSpec, said: str) -> None:
    assert said in (changed.changed_from(SPEC) or "")


NEW = RunSpec(
    RunSettings(budget_tokens=9, seed=7, outer=OuterSettings(learning_rate=0.9, momentum=0.1)),
    "a.new.default:Task",
    {"rows": 8, "more": 1},
    "diloco",
)
"""What a later version, with other defaults, makes of the same command."""


def test_what_nobody_gives_stays_as_the_run_was_begun() -> None:
    assert NEW.continued(SPEC, ()) == SPEC
    assert NEW.continued(SPEC, {"folder", "keeping.file_mib"}) == SPEC


def test_what_is_given_now_is_the_only_thing_that_differs() -> None:
    given = NEW.continued(SPEC, {"run.budget_tokens"})
    assert given == replace(SPEC, settings=replace(SPEC.settings, budget_tokens=9))
    assert given.changed_from(SPEC) is None
    for key, said in {
        "run.seed": "run.seed = 0, not 7",
        "run.outer.learning_rate": "run.outer.learning_rate = 0.5, not 0.9",
        "task": "task = package.module:Factory, not a.new.default:Task",
        "task_settings.rows": "task_settings.rows = 4, not 8",
        "task_settings": "task_settings.rows = 4, not 8",
        "preset": "preset = decoupled, not diloco",
    }.items():
        assert NEW.continued(SPEC, {key}).changed_from(SPEC) == said


def test_a_learner_may_have_a_precision_of_its_own() -> None:
    assert SPEC.with_precision(None) == SPEC
    own = SPEC.with_precision(Precision.FP4)
    assert own.settings == replace(SPEC.settings, precision=Precision.FP4)
    assert (own.task, own.task_settings) == (SPEC.task, SPEC.task_settings)
