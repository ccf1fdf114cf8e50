"""The observer's actor, in a run."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from jaxtyping import PyTree

from islands import LocalSystem
from islands.observer.actor import ObserverActor
from islands.protocol.identities import Version
from islands.protocol.settings.choices import UpdatePrecision
from islands.protocol.settings.run import RunSettings
from tests.lab.study.regression import Regression
from tests.run.test_single_process import reached

LIMIT_S = 60.0


class HeldUp(Regression):
    """An evaluation takes as long as a test wants it to."""

    began = threading.Event()
    over = threading.Event()

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        self.began.set()
        assert self.over.wait(LIMIT_S), "the test lets it end"
        return super().evaluate(params, state)


Then = Callable[[LocalSystem], Awaitable[object]]


def run(
    folder: Path, then: Then, updates: UpdatePrecision = UpdatePrecision.FLOAT32
) -> dict[str, object]:
    """A run of one learner in which something happens while the first evaluation goes on."""
    HeldUp.began.clear()
    HeldUp.over.clear()
    settings = RunSettings(
        interval_steps=4, fragments=1, learning_rate=0.01, update_precision=updates
    )
    system = LocalSystem(HeldUp(), settings, learners=1, evaluate_every_s=0.0)

    async def main() -> dict[str, object]:
        async with asyncio.timeout(LIMIT_S):
            running = asyncio.create_task(system.run(folder))
            await asyncio.to_thread(HeldUp.began.wait, LIMIT_S)
            await then(system)
            system.finish("seen enough")
            return await running

    return asyncio.run(main())


@pytest.mark.parametrize("updates", [UpdatePrecision.FLOAT32, UpdatePrecision.FP4])
def test_during_an_evaluation_values_are_taken_in(updates: UpdatePrecision, tmp_path: Path) -> None:
    """Each replaces the one before it, also those that are reached by increments."""

    async def then(system: LocalSystem) -> None:
        observer = system.hub.observer
        assert isinstance(observer, ObserverActor)
        before = held(observer)
        wanted = Version(before.epoch, before.number + 5)
        await reached(system, lambda: held(observer) >= wanted)
        assert not HeldUp.over.is_set()
        HeldUp.over.set()

    run(tmp_path, then, updates)
    assert b"kept_out" not in (tmp_path / "tape.jsonl").read_bytes()


def held(observer: ObserverActor) -> Version:
    version = observer.state.held[0]
    assert version is not None
    return version


def test_an_evaluation_that_takes_long_counts_as_of_its_values(tmp_path: Path) -> None:
    async def then(system: LocalSystem) -> None:
        await reached(system, lambda: system.folder.figures.merges >= 3)
        HeldUp.over.set()
        await reached(system, lambda: len(system.folder.figures.evaluations) >= 2)

    summary = run(tmp_path, then)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    found = [row for row in map(json.loads, lines) if row["kind"] == "evaluation"]
    assert found[0]["tokens"] == 0
    assert found[0]["took_s"] > 0
    assert [row["tokens"] for row in found] == sorted(row["tokens"] for row in found)
    assert found[-1]["tokens"] == summary["tokens"]
