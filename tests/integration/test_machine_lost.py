"""The hub's machine is gone with its disk: the run goes on from a mirror, or from a checkpoint."""

import asyncio
import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from islands.files.disk import RealDisk
from islands.keeping.finding import find
from islands.keeping.saving import CHECKPOINTS
from islands.settings.run_spec import read
from islands.syncer.journal import JOURNAL, Journal, Recovered
from tests.integration.programs import (
    Program,
    Room,
    entries,
    imbalance,
    merges,
    open_room,
    pids,
    summary_of,
    write_config,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

EVERY = 10


def journal_of(folder: Path) -> Recovered:
    told = read(folder)
    assert told is not None
    recovered = Journal(RealDisk(folder / JOURNAL), len(told[1].layout.fragments)).recover()
    assert recovered is not None
    return recovered


def free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


class Island:
    """A run whose hub is in one folder, and whose learners are elsewhere."""

    def __init__(self, room: Room, folder: Path) -> None:
        self.room, self.folder = room, folder
        self.address, self.second = free_address(), free_address()
        self.token = folder / "token"
        self.token.write_text("a-token-of-this-test-alone-0123456789")
        self.config = write_config(
            folder / "run.yaml", learners=0, listen=self.address, run={"budget_tokens": 10**7}
        )
        self.learners = [
            room.start(
                *("islands.cli", "join", "--supervisor", f"{self.address},{self.second}"),
                *("--token_file", self.token, "--name", name, "--folder", folder / name),
            )
            for name in ("ana", "ben")
        ]

    def hub(self, folder: str, *words: object) -> Program:
        return self.room.start(
            *("islands.cli", "run", self.config, "--folder", self.folder / folder),
            *("--token_file", self.token, *words),
        )

    def standby(self, name: str, *words: object) -> Program:
        """A standby, in a folder of its name, that would be a hub at the second address."""
        return self.room.start(
            *("islands.standby", "--supervisor", self.address, "--listen", self.second),
            *("--folder", self.folder / name, "--name", name, "--token_file", self.token, *words),
        )

    async def lose(self, hub: Program, folder: Path, after_s: float = 0.0) -> Recovered:
        """Kill hub and syncer at once, and delete the folder; returns what its journal had."""
        await self.room.wait(lambda: merges(folder) > 3 * EVERY)
        await asyncio.sleep(after_s)
        for pid in (hub.pid, *pids(folder).values()):
            os.kill(pid, signal.SIGKILL)
        await self.room.ended(hub)
        recovered = journal_of(folder)
        shutil.rmtree(folder)
        return recovered

    async def end(self, hub: Program, folder: Path) -> list[dict[str, object]]:
        """Merge on with both learners, and end the run; returns how its syncer started."""
        await self.room.wait(
            lambda: (
                {
                    name
                    for each in entries(folder / "tape.jsonl", "merged")
                    for name in each["participants"]  # type: ignore[attr-defined]
                }
                >= {"ana", "ben"}
            )
        )
        told = await self.room.run("islands.cli", "stop", "--folder", folder)
        assert told.process.returncode == 0, told
        assert await self.room.ended(hub) == 0, hub
        for learner in self.learners:
            assert await self.room.ended(learner) == 0, learner
        summary = summary_of(folder)
        assert summary is not None
        assert imbalance(summary) == 0
        return [e for e in entries(folder / "tape.jsonl", "started") if e["actor"] == "syncer"]


@pytest.mark.long(
    "tests/keeping/test_mirror.py::test_every_record_is_copied_and_a_hub_goes_on_there"
)
async def test_with_a_mirror_no_version_is_lost(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        island = Island(room, tmp_path)
        words = ("--mirror", tmp_path / "mirror", "--durability", "mirrored")
        lost = await island.lose(island.hub("run", *words), tmp_path / "run")
        hub = island.hub("mirror")
        (started,) = await island.end(hub, tmp_path / "mirror")
    assert started["resumed"] is True
    least = lost.durable.sequence - 1  # the last one may not have been told to anybody
    assert int(str(started["sequence"])) >= least


@pytest.mark.long("tests/keeping/test_checkpoints.py::test_the_run_goes_back_and_on")
async def test_with_a_checkpoint_no_more_is_lost_than_since_it(tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    async with open_room(tmp_path) as room:
        island = Island(room, tmp_path)
        words = ("--checkpoints", stored, "--checkpoint_every", EVERY)
        lost = await island.lose(island.hub("run", *words), tmp_path / "run")
        found = find(str(stored), tmp_path)
        hub = island.hub("again", "--resume", stored, "--checkpoints", stored)
        (started,) = await island.end(hub, tmp_path / "again")
        listed = await room.run("islands.cli", "checkpoints", tmp_path / "again")
        checked = await room.run("islands.cli", "verify", tmp_path / "again")
    assert started["resumed"] is True
    assert lost.durable.merges - found.manifest.merges <= 2 * EVERY  # one may have been under way
    assert listed.process.returncode == 0, listed
    assert "checkpoint  tokens" in listed.out  # those of the store
    assert not (tmp_path / "again" / CHECKPOINTS).exists()
    assert checked.process.returncode == 0, checked
    assert "nothing to mend" in checked.out
