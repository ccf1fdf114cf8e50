"""What a study compares: cells, their settings, their sweeps, and what is refused."""

from dataclasses import replace

import pytest

from islands.lab.settings.study import StudyOptions
from islands.lab.study.cells import trials_of
from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import Adoption, MergeRule, Precision
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings


def study(**changed: object) -> StudyOptions:
    return StudyOptions(**{"cells": {"one": {}}, **changed})  # type: ignore[arg-type]


def test_a_cell_is_run_once_for_each_seed_and_seed_by_seed() -> None:
    trials = trials_of(study(cells={"a": {}, "b": {}}, seeds=(3, 1)))
    assert [(t.name, t.seed) for t in trials] == [("a", 3), ("b", 3), ("a", 1), ("b", 1)]
    assert [t.settings.seed for t in trials] == [3, 3, 1, 1]


def test_settings_of_a_cell_replace_those_of_the_study() -> None:
    base = RunSettings(interval_steps=6, outer=OuterSettings(learning_rate=0.5, momentum=0.25))
    cell = {"run": {"merge": "average", "outer": {"momentum": 0.9}}}
    (trial,) = trials_of(study(run=base, cells={"a": cell}, seeds=(0,), tokens=77))
    wanted = replace(
        base,
        merge=MergeRule.AVERAGE,
        outer=OuterSettings(learning_rate=0.5, momentum=0.9),
        budget_tokens=77,
    )
    assert trial.settings == wanted


def test_what_a_preset_does_not_decide_is_that_of_the_study() -> None:
    base = RunSettings(learning_rate=0.25, piece_bytes_min=1024)
    (trial,) = trials_of(study(run=base, cells={"a": {"preset": "diloco"}}, seeds=(0,)))
    assert (trial.settings.learning_rate, trial.settings.piece_bytes_min) == (0.25, 1024)
    assert trial.settings.interval_steps == 500


def test_a_sweep_is_a_cell_for_each_combination() -> None:
    cell = {"learners": 2, "sweep": {"run.interval_steps": [6, 24], "step_s": [0.5]}}
    trials = trials_of(study(cells={"a": cell}, seeds=(0,)))
    assert [t.name for t in trials] == [
        "a interval_steps=6 step_s=0.5",
        "a interval_steps=24 step_s=0.5",
    ]
    assert [t.settings.interval_steps for t in trials] == [6, 24]
    assert all((t.cell.learners, t.cell.step_s) == (2, 0.5) for t in trials)


def test_data_parallel_training_keeps_all_it_does() -> None:
    base = RunSettings(outer=OuterSettings(0.7, 0.9), quorum=None, precision=Precision.BFLOAT16)
    (trial,) = trials_of(study(run=base, cells={"dp": {"data_parallel": True}}, seeds=(0,)))
    assert trial.settings.adoption is Adoption.DELAY_CORRECTED
    assert (trial.settings.outer.learning_rate, trial.settings.outer.momentum) == (1.0, 0.0)
    assert trial.settings.merge is MergeRule.AVERAGE
    assert (trial.settings.quorum, trial.settings.precision) == (1, Precision.FLOAT32)


def test_the_seed_reaches_the_task() -> None:
    """If it takes one, so that the order of the data differs from seed to seed."""
    first, second = trials_of(study(seed_argument="seed", task_settings={"rows": 2}))
    assert (first.task_settings, second.task_settings) == (
        {"rows": 2, "seed": 0},
        {"rows": 2, "seed": 1},
    )


def test_only_what_is_asked_for_and_the_baseline() -> None:
    """`--only` leaves out the others, but nothing can be compared without a baseline."""
    cells: dict[str, object] = {"dp": {}, "a-1": {}, "a-2": {}, "b": {}}
    trials = trials_of(study(cells=cells, only="a-", baseline="dp", seeds=(0,)))
    assert [t.name for t in trials] == ["dp", "a-1", "a-2"]
    swept = {"dp": {"sweep": {"run.learning_rate": [1e-3, 1e-2]}}, "b": {}}
    trials = trials_of(study(cells=swept, only="b", baseline="dp", seeds=(0,)))
    assert [t.name for t in trials] == ["dp learning_rate=0.001", "dp learning_rate=0.01", "b"]
    with pytest.raises(SettingsError, match="only is 'z'; it must be part of a name: dp, a-1"):
        trials_of(study(cells=cells, only="z", baseline="dp"))


def test_names_say_what_is_swept() -> None:
    sweep = {"run.learning_rate": [0.1], "run.outer.learning_rate": [0.5]}
    (trial,) = trials_of(study(cells={"a": {"sweep": sweep}}, seeds=(0,)))
    assert (trial.key, trial.name) == ("a", "a learning_rate=0.1 outer.learning_rate=0.5")
    with pytest.raises(SettingsError, match="cells has 'a step_s=1' twice"):
        trials_of(study(cells={"a": {"sweep": {"step_s": [1, 1]}}}))


def test_a_fingerprint_is_of_all_that_matters_and_nothing_else() -> None:
    (before,) = trials_of(study(seeds=(0,)))
    (renamed,) = trials_of(study(cells={"other": {}}, seeds=(0,)))
    (default,) = trials_of(study(seeds=(0,), cells={"one": {"run": {"merge": "average"}}}))
    assert before.fingerprint == renamed.fingerprint == default.fingerprint
    changed = [
        study(seeds=(1,)),
        study(seeds=(0,), tokens=10),
        study(seeds=(0,), task_settings={"rows": 1}),
        study(seeds=(0,), run=RunSettings(learning_rate=0.1)),
        study(seeds=(0,), cells={"one": {"learners": 2}}),
        study(seeds=(0,), cells={"one": {"speeds": [1.0, 2.0]}}),
        study(seeds=(0,), cells={"one": {"joins": [{"at_share": 0.5}]}}),
        study(seeds=(0,), cells={"one": {"joins": [{"at_share": 0.25}]}}),
        study(seeds=(0,), task="examples.digits:Digits"),
    ]
    found = {trial.fingerprint for options in changed for trial in trials_of(options)}
    assert len(found) == len(changed)
    assert before.fingerprint not in found


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ({}, "cells holds none"),
        ({"a": 3}, "cells.a is 3; it must be a mapping"),
        ({"a": {"learner": 3}}, "unknown key cells.a.learner; did you mean learners?"),
        ({"a": {"run": {"merges": "average"}}}, "cells.a.run.merges; did you mean merge?"),
        ({"a": {"run": {"outer": 1}}}, "cells.a.run.outer is 1; it must hold settings"),
        ({"a": {"run": {"merge": "mode"}}}, "cells.a.run: Invalid enum value 'mode'"),
        ({"a": {"run": {"outer": {"optimizer": "adm"}}}}, "cells.a.run.outer.optimizer is 'adm'"),
        ({"a": {"run": {"interval_steps": 0}}}, "cells.a.run.interval_steps is 0; it must be"),
        ({"a": {"learners": 0}}, "cells.a.learners is 0; it must be at least 1"),
        ({"a": {"step_s": 0}}, "cells.a.step_s is 0.0; it must be above 0"),
        ({"a": {"noise": -1}}, "cells.a.noise is -1.0; it must be at least 0"),
        ({"a": {"speeds": [1, 0]}}, "cells.a.speeds is [1.0, 0.0]; it must be at most one number"),
        ({"a": {"learners": 1, "speeds": [1, 2]}}, "for each of 1 learners"),
        ({"a": {"run": {"seed": 3}}}, "cells.a.run.seed is set; the file decides that for all"),
        ({"a": {"sweep": {"run.nothere": [1]}}}, "unknown key cells.a.run.nothere"),
        ({"a": {"sweep": {"step_s": []}}}, "cells.a.sweep is {'step_s': []}; it must be lists"),
        ({"a": {"joins": [{"learners": 0}]}}, "cells.a.joins.learners is 0; it must be at least 1"),
        ({"a": {"joins": [{"at_share": 0.0}]}}, "cells.a.joins.at_share is 0.0; it must be above"),
        ({"a": {"joins": [{"at_share": 1.0}]}}, "cells.a.joins.at_share is 1.0; it must be above"),
        ({"a": {"joins": [{"learner": 1}]}}, "unknown key cells.a.joins.learner; did you mean"),
        ({"a": {"joins": [{}], "data_parallel": True}}, "one learner, which nobody joins"),
        ({"a": {"sweep": {"run.seed": 3}}}, "cells.a.sweep is {'run.seed': 3}; it must be lists"),
    ],
)
def test_what_cannot_work_is_told_with_its_key(cells: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError) as found:
        trials_of(study(cells=cells))
    assert told in str(found.value)


def test_a_baseline_must_be_there() -> None:
    with pytest.raises(SettingsError, match="baseline is 'dp'; it must be one of one"):
        trials_of(study(baseline="dp"))
