"""The story *hybrid*: its data, its engine for hosts without a cluster, and a small run of it."""

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from examples.stories import here, hybrid
from islands.engines.engine import EngineAway, Island, JobState, RunMark
from islands.engines.launcher import RECORDS_FILE, records_in
from islands.engines.needs import Needs
from islands.model.jax_trainer import JaxTrainer
from islands.protocol.errors import SettingsError
from islands.tasks.data.shards import ShardKey
from tests.compiling import QUICKLY_COMPILED
from tests.engines import slurm_cluster
from tests.integration import programs

OF = RunMark("first", "ab12cd34")
TASK = hybrid.Forecast()
TOKENS = TASK.rows * hybrid.HOURS
LOST_STEPS_MOST = 30
STAYS_SHORT_THEN_LONG = 59
STORIES = programs.ROOT / "examples" / "stories"

Variables = Mapping[str, str]


def test_the_loads_are_those_of_homes_and_offices_and_grow_with_the_cold() -> None:
    loads, warm = hybrid.year(0)
    assert loads.shape == (hybrid.FEEDERS, hybrid.DAYS, 24)
    assert loads.min() > 0
    np.testing.assert_allclose(loads.mean((1, 2)), 1, rtol=1e-4)
    weekend = np.arange(hybrid.DAYS) % 7 >= 5
    noon = loads[:, :, 12]
    ratios = noon[:, weekend].mean(1) / noon[:, ~weekend].mean(1)
    assert ratios.min() < 0.7, "some feeders are offices, which close"
    assert ratios.max() > 0.9, "and some are homes"
    night, cold = loads[:, :, 3].mean(0), warm[:, 3]
    assert np.corrcoef(night, cold)[0, 1] < -0.8


def test_a_pass_has_each_day_of_each_feeder_once_and_no_day_that_is_held_out() -> None:
    days = hybrid.DAYS - hybrid.WEEK - hybrid.HELD_OUT_DAYS
    seen = [
        batch for shard in range(TASK.shards) for batch, _ in TASK.batches(ShardKey(0, shard), 0)
    ]
    loads = np.concatenate([batch.load for batch in seen])
    everything = hybrid.year(0)[0][:, hybrid.WEEK : hybrid.WEEK + days].reshape(-1, 24)
    assert len(loads) > 0.95 * len(everything)
    assert len(np.unique(loads, axis=0)) == len(loads)
    assert {row.tobytes() for row in loads} <= {row.tobytes() for row in everything}


def test_what_is_known_of_a_day_is_the_week_before_it() -> None:
    loads, _ = hybrid.year(0)
    told = hybrid.windows(0, np.array([3]), np.array([400]))
    np.testing.assert_allclose(told.known[0, : 24 * 7] + 1, loads[3, 393:400].ravel(), rtol=1e-6)
    np.testing.assert_array_equal(told.load[0], loads[3, 400])


@pytest.mark.usefixtures("quickly_compiled")
def test_a_forecast_is_learned_on_devices_for_which_each_step_waits() -> None:
    waits = []

    class Counted(hybrid.Forecast):
        def _wait(self) -> np.float32:
            waits.append(self.step_s)
            return np.float32(0)

    trainer = JaxTrainer(Counted(step_s=0.3), 1)
    trainer.setup()
    before = trainer.evaluate([trainer.value(0)])["error"]
    batches = trainer.batches(ShardKey(0, 0), 0)
    for batch, _ in [next(batches) for _ in range(20)]:
        trainer.step(batch, 3e-3).loss()
    assert trainer.evaluate([trainer.value(0)])["error"] < 0.7 * before
    assert waits == [0.3] * 20


def island(name: str, attempt: int = 1) -> Island:
    return Island(name, OF, Needs("here:Spot"), "sleep 1000", attempt=attempt)


async def test_a_machine_is_taken_away_and_there_is_none_for_a_while(tmp_path: Path) -> None:
    logs = {"logs": str(tmp_path)}
    kept = here.Here(OF, logs)
    spot = here.Spot(OF, {**logs, "stay_s": "1e-9", "away_s": "1e9"})
    async with programs.open_room(tmp_path) as room:
        job = kept.place(island("cluster-0"))
        lost = spot.place(island("cloud-0"))

        def ended(engine: here.Here) -> Callable[[], bool]:
            return lambda: engine.list()[0].state is JobState.ENDED

        await room.wait(ended(spot))
        assert [(j.name, j.job, j.code) for j in spot.list()] == [("cloud-0", lost, -9)]
        with pytest.raises(EngineAway, match="no machine left"):
            spot.place(island("cloud-0", 2))
        assert [each.state for each in kept.list()] == [JobState.RUNNING]
        kept.end(job, at_once=False)
        await room.wait(ended(kept))
        assert kept.list()[0].code == -15
    with pytest.raises(SettingsError, match=r"settings\.stays is not known to spot"):
        here.Spot(OF, {"stays": "1"})


def story(room: programs.Room, seed: int) -> dict[str, Any]:
    """Return the file of the story, so that what its islands write stays in the room."""
    told: dict[str, Any] = yaml.safe_load((STORIES / "hybrid.yaml").read_text())
    told["listen"] = "127.0.0.1:0"
    told["run"]["seed"] = told["task_settings"]["seed"] = seed
    told["islands"]["cloud"]["settings"]["seed"] = seed
    for entry in told["islands"].values():
        entry["learner"]["folder"] = str(room.folder / "learners")
        entry.setdefault("settings", {})["logs"] = str(room.folder / "logs")
    return told


def start(room: programs.Room, told: dict[str, Any], more: Variables) -> programs.Program:
    """Start a run of a file, in the folder `run` of the room."""
    file = room.folder / "run.yaml"
    file.write_text(yaml.safe_dump(told))
    environment = {"PYTHONPATH": f"{programs.ROOT}{os.pathsep}{STORIES}", **more}
    words = ("islands.cli", "run", file, "--folder", room.folder / "run")
    return room.start(*map(str, words), environment=environment)


@contextlib.asynccontextmanager
async def cluster_in(room: programs.Room) -> AsyncIterator[tuple[Mapping[str, object], Variables]]:
    """Open a real Slurm, or none where this host has none; what an entry says, what a hub needs."""
    if slurm_cluster.missing() is not None:
        yield {}, {}
        return
    async with slurm_cluster.open_cluster(room) as slurm:
        setup = f"export PATH={Path(sys.executable).parent}:$PATH"
        settings = {"chdir": str(room.folder)}
        entry = {"engine": "slurm", "cpus": 1, "setup": [setup], "settings": settings}
        yield entry, slurm.environment


@pytest.mark.long("test_a_machine_is_taken_away_and_there_is_none_for_a_while")
@pytest.mark.integration
async def test_islands_of_two_engines_come_and_go_beside_those_of_the_hub(tmp_path: Path) -> None:
    """The cluster is a real Slurm where this host has one."""
    folder = tmp_path / "run"
    async with programs.open_room(tmp_path) as room, cluster_in(room) as (entry, variables):
        told = story(room, STAYS_SHORT_THEN_LONG)
        told["learners"], told["run"]["budget_s"] = 1, None
        for each in told["islands"].values():
            each["count"] = 1
        told["islands"]["cluster"] |= entry
        told["islands"]["cloud"]["settings"] |= {"stay_s": 20, "away_s": 0.1}
        hub = start(room, told, {**QUICKLY_COMPILED, **variables})

        def admitted(name: str) -> int:
            return len(programs.logged(folder, "admitted", name=name))

        await room.wait(lambda: admitted("cluster-0"))
        await room.wait(lambda: starts_of(folder, "cloud-0") > 1)
        before = admitted("cloud-0")
        await room.wait(lambda: admitted("cloud-0") > before)
        back = len(programs.entries(folder / "tape.jsonl"))
        await room.wait(lambda: {"cloud-0", "cluster-0", "learner-0"} <= merged(folder, back))
        await programs.control(room, "stop")
        assert await room.ended(hub) == 0, str(hub)
    summary: dict[str, Any] = programs.summary_of(folder) or {}
    assert programs.imbalance(summary) == 0
    assert programs.incarnations(summary) == {"cloud-0": before + 1, "cluster-0": 1, "learner-0": 1}
    assert all(row["steps"] > 0 for row in summary["learners"].values())
    for fragment in summary["ledger"]["fragments"]:
        assert fragment["lost"] <= LOST_STEPS_MOST * TOKENS, "a kill costs the last steps alone"
        assert fragment["applied"] >= 0.7 * fragment["processed"]
    assert summary["error"] < 25, "39 untrained"


def merged(folder: Path, since: int) -> set[object]:
    """Who was merged since so many entries of the run's tape."""
    late = [e for e in programs.entries(folder / "tape.jsonl")[since:] if e["kind"] == "merged"]
    return {name for entry in late for name in entry["participants"]}  # type: ignore[attr-defined]


def starts_of(folder: Path, island: str) -> int:
    """How often the hub has placed an island."""
    placed = records_in(folder / RECORDS_FILE).islands.get(island)
    return 0 if placed is None else placed.starts
