"""The story *nature*: fields of three regimes, and islands of which each trains on its own."""

import json
import re
import shlex
import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

from examples.stories.nature import POINTS, REGIMES, Nature, fields
from islands.model.jax_trainer import JaxTrainer
from islands.model.jax_workload import JaxWorkload
from islands.protocol.errors import SettingsError
from islands.protocol.settings.run import RunSettings
from islands.tasks.data.shards import ShardKey
from tests.environment import ROOT
from tests.integration.programs import open_room

STORY = ROOT / "examples" / "stories" / "nature.yaml"
SHARD = ShardKey(0, 3)


def derivative() -> NDArray[np.float64]:
    """The matrix that derives the trigonometric polynomial through equidistant points."""
    step = np.subtract.outer(np.arange(POINTS), np.arange(POINTS))
    with np.errstate(divide="ignore"):
        found = 0.5 * (-1.0) ** step / np.tan(step * np.pi / POINTS)
    np.fill_diagonal(found, 0.0)
    return found


@pytest.mark.parametrize("name", REGIMES)
def test_a_field_afterwards_solves_the_equation(name: str) -> None:
    """The oracle is the exponential of the equation's matrix at the points, in float64."""
    derived = derivative()
    before, after, medium = fields(name, 4, (0,))
    for row in range(4):
        speed, diffusivity = medium[row] / (1, 5)
        solved = expm(-speed * derived + diffusivity * derived @ derived) @ before[row]
        np.testing.assert_allclose(after[row], solved, atol=1e-5)


@pytest.mark.parametrize("name", REGIMES)
def test_an_island_reads_fields_of_its_own_regime_alone(name: str) -> None:
    batches = [batch for batch, _ in islice(Nature(name, rows=6).batches(SHARD, 0), 20)]
    medium = np.concatenate([batch.medium for batch in batches])
    speed, diffusivity, _ = REGIMES[name]
    assert np.all((speed[0] <= medium[:, 0]) & (medium[:, 0] <= speed[1]))
    assert np.all((5 * diffusivity[0] <= medium[:, 1]) & (medium[:, 1] <= 5 * diffusivity[1]))
    rms = [np.sqrt(np.mean(np.square(batch.before), axis=1)) for batch in batches]
    np.testing.assert_allclose(rms, 1, atol=1e-5)


def test_central_training_reads_all_regimes_in_equal_parts() -> None:
    batch, after = next(Nature(rows=6).batches(SHARD, 5))
    own = [next(Nature(name, rows=2).batches(SHARD, 5))[0] for name in REGIMES]
    np.testing.assert_array_equal(batch.before, np.concatenate([each.before for each in own]))
    assert after == 6


def test_a_mistaken_regime_is_told_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match="regime is 'sea'; it must be all, or one of river, "):
        Nature("sea")


@pytest.mark.usefixtures("quickly_compiled")
def test_islands_of_unlike_regimes_are_one_run_whose_model_trains() -> None:
    settings = RunSettings(fragments=1)
    plans = [JaxWorkload(Nature(name)).plan(settings) for name in ("all", *REGIMES)]
    assert len({plan.layout.fingerprint for plan in plans}) == 1
    trainer = JaxTrainer(Nature("lake"), 1)
    trainer.setup()
    losses = [
        trainer.step(batch, 3e-3).loss() for batch, _ in islice(trainer.batches(SHARD, 0), 30)
    ]
    assert losses[-1] < losses[0] / 2


@pytest.mark.long("test_islands_of_unlike_regimes_are_one_run_whose_model_trains")
@pytest.mark.integration
async def test_the_commands_of_the_story_train_one_model_that_knows_all_regimes(
    tmp_path: Path,
) -> None:
    """An island that trains alone on one regime is wrong by the whole field on another."""
    for name in ("nature.py", "nature.yaml"):
        shutil.copy(STORY.with_name(name), tmp_path)
    told = re.findall(r"^#     islands (.*)", STORY.read_text(encoding="utf-8"), re.MULTILINE)
    hub, *joins = (shlex.split(line, comments=True) for line in told[:4])
    assert [words[0] for words in joins] == ["join", "join", "join"]
    async with open_room(tmp_path) as room:
        quick = ("--run.budget_tokens", "90_000", "--run.total_steps", "1_000")
        room.start("islands.cli", *hub, "--listen", "127.0.0.1:0", *quick)
        place = tmp_path / "runs" / "nature"
        await room.wait((place / "hub.json").exists)
        address = json.loads((place / "hub.json").read_text())["supervisor"]
        for words in joins:
            room.start("islands.cli", *words, "--supervisor", address)
        assert [await room.ended(program) for program in room.programs] == [0, 0, 0, 0]
    summary = json.loads((place / "summary.json").read_text())
    assert set(summary["learners"]) == set(REGIMES)
    assert summary["ledger"]["imbalance"] == 0
    assert all(summary[f"error_{name}"] < 0.6 for name in REGIMES)
