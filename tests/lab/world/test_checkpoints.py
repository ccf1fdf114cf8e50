"""Checkpoints of simulated runs: what the checker knows of them, and runs that go on from one."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from islands.files.tape_writing import MemoryTape
from islands.keeping.catalogue import held, whole_ones
from islands.keeping.finding import Found
from islands.keeping.manifest import MANIFEST, Manifest
from islands.keeping.restoring import go_back
from islands.keeping.saving import CHECKPOINTS, CUT
from islands.keeping.store import FolderStore
from islands.keeping.verifying import faults_of_checkpoint
from islands.lab.checker import Violation, order
from islands.lab.checker.evidence import History
from islands.lab.world.checkpoints import (
    Checkpoints,
    Keeping,
    SimulatedCheckpointer,
    SimulatedStore,
)
from islands.lab.world.disk import SimulatedDisk, SimulatedFile
from islands.lab.world.scenario import Scenario, draw
from islands.lab.world.trial import live, world_of
from islands.lab.world.world import World
from islands.protocol.identities import SYNCER
from islands.syncer.journal import JOURNAL
from messaging.simulation.virtual_time import run_virtual
from tests.lab.world.test_operator import HOSTS, SETTINGS
from tests.lab.world.worlds import entries, ledger, lines, lived

pytestmark = pytest.mark.simulation
OFTEN = Checkpoints(1, 3, (0.3, 0.6))


class Hasty(SimulatedStore):
    """A store in which a manifest comes before the files that it names."""

    def finish(self, name: str, manifest: bytes) -> None:
        super().finish(name, manifest)
        self._undone.remove((name, MANIFEST, manifest))
        self._undone.appendleft((name, MANIFEST, manifest))


class Mixing(SimulatedCheckpointer):
    """Stores a fragment as it was in the checkpoint before."""

    def _stored(
        self, files: tuple[str, ...], metadata: bytes, reason: str, known: Sequence[Manifest]
    ) -> tuple[Manifest, float]:
        assert isinstance(self.disk, SimulatedDisk)
        (file,) = (file for file in files if file.startswith("fragment-00000"))
        opened = self.disk.open(f"{CUT}/{file}")
        assert isinstance(opened, SimulatedFile)
        now = opened.read()
        self.disk.write(f"{CUT}/{file}", [getattr(self, "before", now)])
        self.before = now
        return super()._stored(files, metadata, reason, known)


def verdict_on(keeping: Keeping, seed: int) -> list[Violation]:
    """Kill the syncer of a run in the middle of storing; what the checker says of that."""

    async def killed(world: World) -> None:
        await world.kill(SYNCER)
        world.note_kept()

    world = lived(SETTINGS, HOSTS, 3.0, killed, seed=seed, keeping=keeping)
    assert entries(world, "kept")
    assert any(entry["fault"] == "half a checkpoint" for entry in entries(world, "fault"))
    rules = (order.checkpoints_are_moments, order.checkpoints_stay)
    history, limits = History.of(lines(world)), world.limits()
    return [Violation("kept", said) for rule in rules for said in rule(history, limits)]


def test_a_manifest_before_its_files_is_found() -> None:
    said = []
    for seed in range(7):
        assert verdict_on(Keeping(OFTEN, seed), seed) == []
        hasty = Keeping(OFTEN, seed)
        hasty.store = Hasty
        said += [str(each) for each in verdict_on(hasty, seed)]
    assert any("is not what the manifest tells of" in each for each in said)


def test_a_cut_of_two_moments_is_found(tmp_path: Path) -> None:
    """By the checker, and by what reads a checkpoint in production."""
    mixing = Keeping(OFTEN, 1)
    mixing.checkpointer = Mixing
    said = [str(each) for each in verdict_on(mixing, 1)]
    assert any("which are no moment" in each for each in said)
    store = on_disk(mixing.place, tmp_path)
    faults = [faults_of_checkpoint(Found(store, each)) for each in whole(store)]
    assert any("does not hold the versions" in fault for each in faults for fault in each)


def whole(store: FolderStore) -> list[Manifest]:
    return whole_ones(held(store))


def on_disk(place: dict[str, dict[str, bytes]], folder: Path) -> FolderStore:
    """Write the checkpoints of a world into a run's folder."""
    for name, files in place.items():
        (folder / CHECKPOINTS / name).mkdir(parents=True)
        for file, content in files.items():
            (folder / CHECKPOINTS / name / file).write_bytes(content)
    return FolderStore(folder / CHECKPOINTS)


def test_a_run_goes_on_from_a_checkpoint(seed: int, tmp_path: Path) -> None:
    """The program goes back in the folder of a run that had faults; all ends as if it had none."""
    scenario = replace(draw(seed), checkpoints=OFTEN)
    world = world_of(scenario, MemoryTape())
    run_virtual(live(world, scenario), limit_s=scenario.limit_s + 100.0)
    assert world.keeping is not None
    store = on_disk(world.keeping.place, tmp_path)
    for name, content in world.disks[SYNCER].copied().items():
        if CUT not in name:
            path = tmp_path / (f"{JOURNAL}.epoch" if name == "epoch.c" else f"{JOURNAL}/{name}")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
    chosen = random.Random(seed).choice(whole(store))
    go_back(Found(store, chosen), tmp_path)
    again = resumed(scenario, tmp_path)
    assert again.finished is not None
    for _, error in again.failures:  # of a run that was over as soon as it began
        assert "the run is over" in str(error)
    for row in ledger(again):
        assert row["pending"] == 0
        fates = ("applied", "rejected", "late", "stale", "overwritten", "lost")
        assert row["processed"] == sum(row[fate] for fate in fates)
        assert chosen.tokens <= row["processed"] <= (scenario.settings.budget_tokens or 0)
    both = History.of([*lines(world), *lines(again)])
    assert list(order.versions_have_one_value(both, world.limits())) == []
    assert list(order.versions_grow(both, world.limits())) == []


def resumed(scenario: Scenario, folder: Path) -> World:
    """Play the rest of a run, without faults, from the journal in a folder."""
    calm = replace(scenario, injections=(), heal_s=0.0, checkpoints=None)
    world = world_of(calm, MemoryTape())
    files = {path.name: path.read_bytes() for path in (folder / JOURNAL).glob("*.safetensors")}
    world.lose_hub()  # the run begins once more, with what the folder has
    world.disks[SYNCER].restore(files | {"epoch.c": (folder / f"{JOURNAL}.epoch").read_bytes()})
    run_virtual(live(world, calm), limit_s=calm.limit_s + 100.0)
    return world
