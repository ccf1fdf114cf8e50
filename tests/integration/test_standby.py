"""The hub's host is lost, and a standby on another one goes on, by hand or by itself."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.integration.programs import control, entries, merges, open_room
from tests.integration.test_machine_lost import EVERY, Island

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


async def followed(island: Island, folder: Path) -> None:
    """Wait until the standbys have copied all."""
    tape = folder / "tape.jsonl"
    await island.room.wait(lambda: entries(tape, "mirrored"))


@pytest.mark.long(
    "tests/keeping/test_standby.py::test_every_record_is_copied_and_a_hub_goes_on_there"
)
async def test_a_standby_is_promoted_by_hand_and_the_old_hub_ends(tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    async with open_room(tmp_path) as room:
        island = Island(room, tmp_path)
        hub = island.hub("run", "--durability", "mirrored")
        standby = island.standby("copy")
        await followed(island, run)
        refused = await room.run(
            *("islands.cli", "promote", copy, "--key_file", f"{island.token}.key")
        )
        shutil.copytree(run, tmp_path / "old", ignore=lambda *_: {"processes"})
        lost = await island.lose(hub, run)
        told = await room.run(
            *("islands.cli", "promote", copy, "--key_file", f"{island.token}.key")
        )
        assert told.process.returncode == 0, told
        await room.wait(lambda: entries(copy / "tape.jsonl", "merged"))
        shutil.move(tmp_path / "old", run)
        old = island.hub("run", "--durability", "mirrored")
        assert await room.ended(old) == 2, old
        (started,) = await island.end(standby, copy)
        checked = await room.run("islands.cli", "verify", copy)
    assert refused.process.returncode == 2
    assert "the run's syncer is alive" in refused.err
    assert "the standby copy was promoted, and this folder is an older copy" in old.err
    assert started["resumed"] is True
    least = lost.durable.sequence - 1  # the last one may not have been told to anybody
    assert int(str(started["sequence"])) >= least
    assert checked.process.returncode == 0, checked


@pytest.mark.long("tests/keeping/test_standby_actor.py::test_it_is_the_syncer_once_no_other_lives")
async def test_where_the_supervisor_runs_apart_a_standby_goes_on_by_itself(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with open_room(tmp_path) as room:
        island = Island(room, tmp_path)
        key = ("--token_file", island.token)
        hub = room.start("islands.supervisor", island.config, "--folder", run, *key)
        await room.wait((run / "hub.json").exists)
        words: tuple[object, ...] = ("--supervisor", island.address, "--listen", "127.0.0.1:0")
        words = (*words, *key, "--durability", "mirrored", "--folder", tmp_path / "journal")
        syncer = room.start("islands.syncer", *words)
        others = [
            island.standby(name, "--listen", "127.0.0.1:0", "--promote_after", "0.5s")
            for name in ("one", "two")
        ]
        await room.wait(lambda: len(entries(run / "tape.jsonl", "mirrored")) > 1)
        await room.wait(lambda: merges(run) > 3 * EVERY)
        os.kill(syncer.pid, signal.SIGKILL)
        (promoted,) = await room.wait(lambda: entries(run / "tape.jsonl", "promoted"))
        before = merges(run)
        await room.wait(lambda: merges(run) > before + EVERY)
        again = room.start("islands.syncer", *words)
        assert await room.ended(again) == 2, again
        await control(room, "stop")
        for program in (hub, *others):
            assert await room.ended(program) == 0, program
        merged = entries(run / "tape.jsonl", "merged")
    assert f"goes on with the syncer '{promoted['name']}'" in again.err
    numbers = {each["actor"]: [] for each in merged}  # type: ignore[var-annotated]
    for each in merged:
        numbers[each["actor"]].append(each["run_merges"])
    old, new = numbers["syncer"], numbers[promoted["name"]]
    assert set(numbers) == {"syncer", promoted["name"]}
    assert new[0] >= old[-1], "what was told to somebody is lost"  # the last one may not have been
