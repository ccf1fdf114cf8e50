"""Presets: the settings of known algorithms by one name."""

from pathlib import Path

import pytest

from islands.cli.parsing import parse
from islands.lab.settings.study import StudyOptions
from islands.lab.study.cells import trials_of
from islands.protocol.errors import SettingsError
from islands.protocol.settings.choices import Adoption, Automatic, LearnerWaits, MergeRule
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.settings.host import RunOptions


def options(*line: str) -> RunOptions:
    return parse(RunOptions, list(line), program="islands run", description="")[0]


def test_every_preset_has_settings_of_its_own() -> None:
    assert set(PRESETS) == set(Preset)
    assert len(set(map(repr, PRESETS.values()))) == len(Preset)


def test_without_a_word_a_run_has_the_settings_that_our_studies_chose() -> None:
    found = options().file.run
    assert found == PRESETS[Preset.DECOUPLED]
    assert (found.merge, found.adoption) == (MergeRule.AVERAGE, Adoption.DELAY_CORRECTED)
    assert PRESETS[Preset.DECOUPLED_DILOCO] == RunSettings()


@pytest.mark.parametrize(
    ("told", "fragments", "moments", "momentum"),
    [
        ((), 6, True, 0.0),
        (("--run.interval_steps", "1"), 1, True, 0.0),
        (("--run.interval_steps", "8"), 8, True, 0.0),
        (("--run.interval_steps", "9"), 12, True, 0.5),
        (("--run.interval_steps", "9", "--run.merge_moments", "false"), 12, False, 0.5),
        (("--run.interval_steps", "96", "--run.outer.momentum", "0.1"), 12, True, 0.1),
        (("--run.interval_steps", "96", "--run.precision", "int8"), 12, False, 0.5),
        (("--run.precision", "fp4"), 6, False, 0.0),
        (("--run.precision", "fp4", "--run.merge_moments", "true"), 6, True, 0.0),
        (("--run.interval_steps", "24", "--run.fragments", "2"), 2, True, 0.5),
    ],
)
def test_what_is_best_beside_an_interval_comes_with_it(
    told: tuple[str, ...],
    fragments: int,
    moments: bool,  # noqa: FBT001
    momentum: float,
) -> None:
    found = options(*told).file.run
    assert (found.fragments, found.merge_moments) == (fragments, moments)
    assert found.outer.momentum == momentum


@pytest.mark.parametrize("name", Preset)
def test_a_preset_is_a_run_by_one_name(name: Preset) -> None:
    learners = ("--learners", "1") if name is Preset.DATA_PARALLEL else ()
    assert options("--preset", name, *learners).file.run == PRESETS[name]


def test_what_is_said_anywhere_overrides_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("run: {interval_steps: 50, outer: {momentum: 0.5}}\n")
    found = options(str(file), "--preset", "diloco", "--run.learning_rate", "0.5").file.run
    assert (found.interval_steps, found.outer.momentum, found.learning_rate) == (50, 0.5, 0.5)
    assert (found.outer.learning_rate, found.learner_waits) == (0.7, LearnerWaits.AT_TAU)


def test_the_last_preset_counts(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("preset: diloco\n")
    assert options(str(file)).file.run.interval_steps == 500
    assert options(str(file), "--preset", "muloco").file.run.interval_steps == 30
    with pytest.raises(SettingsError, match="preset is dilocco; it must be"):
        options("--preset", "dilocco")


def test_data_parallel_training_has_one_learner() -> None:
    with pytest.raises(SettingsError, match="learners is 2; the preset data_parallel trains one"):
        options("--preset", "data_parallel", "--learners", "2")


def test_a_cell_of_a_study_may_have_a_preset_of_its_own() -> None:
    study = StudyOptions(
        run=RunSettings(learning_rate=0.5, interval_steps=7),
        cells={"a": {"preset": "diloco", "run": {"fragments": 3}}, "b": {}},
        seeds=(0,),
    )
    first, second = (trial.settings for trial in trials_of(study))
    assert (first.learning_rate, first.interval_steps, first.fragments) == (0.5, 500, 3)
    assert (second.interval_steps, second.quorum) == (7, 1)
    assert PRESETS[Preset.DECOUPLED].quorum is Automatic.AUTO
    (long,) = trials_of(
        StudyOptions(
            cells={"long": {"preset": "decoupled", "run": {"interval_steps": 24}}}, seeds=(0,)
        )
    )
    assert (long.settings.interval_steps, long.settings.fragments) == (24, 12)
    with pytest.raises(SettingsError, match="preset is 'no'; it must be one of decoupled"):
        trials_of(StudyOptions(cells={"a": {"preset": "no"}}))
