"""`islands.follow` in a process of its own: to the end, over a narrow link, over a restart."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

import islands
from islands.lab.faults.fault import Direction, Fault, FaultKind, Peer
from islands.lab.faults.paths import Paths
from islands.run.hosting.process_identity import Identity, facts
from messaging.codec.tensors import as_buffer, digest
from tests.integration.programs import (
    Program,
    Room,
    entries,
    hub_address,
    logged,
    merges,
    open_room,
    peak_bytes,
    write_config,
)

pytestmark = pytest.mark.integration

FOLLOWER = """
import json, sys
import islands
from messaging.codec.tensors import as_buffer, digest
for newest in islands.follow(sys.argv[1]):
    digests = {path: digest(as_buffer(value)) for path, value in newest.values.items()}
    told = {"versions": newest.versions, "tokens": newest.tokens, "digests": digests}
    print(json.dumps(told), flush=True)
print("over", flush=True)
"""
"""Writes a line for each of the newest values, and one when the run is over."""

READER = "import sys, islands; islands.latest(sys.argv[1])"

MIB = 2**20
NARROW = Fault(
    FaultKind.BANDWIDTH, link=Peer.SUPERVISOR, way=Direction.DOWN, bytes_s=0.5 * MIB, for_s=600.0
)
FAR = "follower"
TOLD = 8
"""Lines that are awaited over the narrow link."""


class Told(msgspec.Struct):
    """One line of the follower; leaf `layers/0` is all of fragment 0."""

    versions: tuple[str, ...]
    tokens: int
    digests: dict[str, str]

    @property
    def merges(self) -> int:
        return sum(int(version.partition(".")[2]) for version in self.versions)


def lines(follower: Program) -> list[Told]:
    said = [line for line in follower.out.split("\n")[:-1] if line != "over"]
    return [msgspec.json.decode(line, type=Told) for line in said]


def hub_of(room: Room, config: Path) -> Program:
    """One process that is all of the hub, so that its tape has the syncer's commits."""
    return room.start("islands.syncer", "--config", config, "--folder", room.folder / "run")


def train(room: Room, address: str | None) -> None:
    for name in ("ana", "ben"):
        room.start("islands.learner", "--supervisor", address, "--name", name)


def follow(room: Room, address: str | None) -> Program:
    return room.start_words((sys.executable, "-c", FOLLOWER, str(address)))


def check(folder: Path, told: list[Told]) -> None:
    """All that was given is bit for bit what the syncer committed, and ends with the run's end."""
    committed = {
        (entry["fragment"], entry["version"]): entry["digest"]
        for entry in entries(folder / "tape.jsonl", "committed")
    }
    given = {
        (index, version): one.digests[f"layers/{index}"]
        for one in told
        for index, version in enumerate(one.versions)
    }
    known = given.keys() & committed.keys()  # a hub that is killed leaves some of its tape behind
    assert len(known) > len(given) / 2
    assert {each: given[each] for each in known} == {each: committed[each] for each in known}
    final, values = islands.described(folder), islands.load(folder)
    assert list(told[-1].versions) == final["versions"]
    assert told[-1].digests == {path: digest(as_buffer(x)) for path, x in values.items()}
    assert [one.merges for one in told] == sorted({one.merges for one in told})


@pytest.mark.parametrize("updates", ["float32", "int8"])
async def test_a_run_is_followed_to_its_last_values(updates: str, tmp_path: Path) -> None:
    run = {"budget_tokens": 10**7, "update_precision": updates}
    config = write_config(tmp_path / "run.yaml", run=run)
    folder = tmp_path / "run"
    async with open_room(tmp_path) as room:
        hub = hub_of(room, config)
        address = await room.wait(lambda: hub_address(folder))
        follower = follow(room, address)
        reader = room.start_words((sys.executable, "-c", READER, str(address)))
        train(room, address)
        assert await room.ended(reader) == 0, reader
        await room.wait(lambda: len(logged(folder, "left")) == 1)
        assert logged(folder, "evicted") == [], "who has read says goodbye"
        await room.wait(lambda: len(lines(follower)) > TOLD)
        told = await room.run("islands.cli", "stop", "--folder", folder)
        assert told.process.returncode == 0, told
        for program in (hub, follower):
            assert await room.ended(program) == 0, program
    assert follower.out.endswith("over\n")
    check(folder, lines(follower))


@pytest.mark.long("test_a_run_is_followed_to_its_last_values")
async def test_a_narrow_link_skips_versions_and_a_killed_hub_is_outlived(tmp_path: Path) -> None:
    """A fragment takes a second over the narrow link, in which there are dozens of merges."""
    identities: dict[str, Identity] = {}
    folder = tmp_path / "run"
    async with Paths(0, identities.get, [FAR]) as paths, open_room(tmp_path) as room:
        config = write_config(
            tmp_path / "run.yaml",
            task_settings={"step_s": 0.01, "megabytes": 2.0},
            listen=f"127.0.0.1:{paths.ports.hub}",
            advertise=f"127.0.0.1:{paths.ports.hub_proxy}",
            run={"timing": {"patience": 2.0}},
        )
        hub, address = hub_of(room, config), f"127.0.0.1:{paths.ports.hub_proxy}"
        train(room, address)
        await room.wait(lambda: merges(folder) > 20)
        follower = follow(room, address)
        found = facts(follower.pid)
        assert found is not None
        identities[FAR] = Identity(follower.pid, found.started_ticks)
        await room.wait(lambda: lines(follower))
        before_bytes = peak_bytes(hub.pid)
        narrow = asyncio.create_task(paths.break_for(NARROW, [FAR]))
        await room.wait(lambda: skips(lines(follower)))
        assert peak_bytes(hub.pid) < before_bytes + 64 * MIB, "and nothing queues at the syncer"
        narrow.cancel()
        await asyncio.gather(narrow, return_exceptions=True)
        await caught_up(room, follower, folder)

        os.kill(hub.pid, signal.SIGKILL)
        await room.ended(hub)
        hub = hub_of(room, config)
        await room.wait(lambda: lines(follower)[-1].versions[0].startswith("2."))
        await caught_up(room, follower, folder)
        told = await room.run("islands.cli", "stop", "--folder", folder)
        assert told.process.returncode == 0, told
        assert await room.ended(hub) == 0, hub
        assert await room.ended(follower) == 0, follower
    check(folder, lines(follower))


def skips(told: list[Told]) -> bool:
    """Whether its last lines are of so many merges that it must have skipped most of them."""
    return len(told) > TOLD and told[-1].merges - told[-1 - TOLD].merges > 4 * TOLD


async def caught_up(room: Room, follower: Program, folder: Path) -> None:
    """Wait until it held the newest values but one merge, at a moment at which these were known."""

    def close() -> bool:
        held = lines(follower)[-1].merges
        newest: dict[object, int] = {}
        for entry in entries(folder / "tape.jsonl", "committed"):
            newest[entry["fragment"]] = int(str(entry["version"]).partition(".")[2])
        return sum(newest.values()) - held <= 1

    await room.wait(close)
