"""A strike does to the processes of a folder what it is told, or says that nobody is there."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from islands.lab.faults.fault import Strike
from islands.lab.faults.fleet import Fleet, HubSettings
from islands.lab.faults.paths import HOST
from islands.lab.faults.schedule import strikes_of
from islands.lab.faults.strikes import NOBODY, Means, PromiseBroken, carry_out
from islands.lab.faults.victim import open_orders
from islands.lab.settings.chaos import ChaosOptions
from islands.run.hosting.hub_address import HubAddress, write_hub_address
from islands.run.hosting.process_identity import Identity, facts, write_records
from islands.settings.run_spec import RunSpec


def strike(**fault: object) -> Strike:
    """One occurrence of a fault."""
    return strikes_of(ChaosOptions(faults={"one": {"who": "learner-1", **fault}}))[0]


def means(folder: Path) -> Means:
    """The processes that a folder records."""
    return Means(Fleet(folder, HubSettings(RunSpec(), 2)))


@pytest.fixture(name="victim")
def _victim(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for ever, recorded as learner-1."""
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        found = facts(process.pid)
        assert found is not None
        identity = Identity(process.pid, found.started_ticks)
        write_records(tmp_path / "processes.json", {"learner-1": identity})
        yield process
        process.kill()


async def test_a_killed_process_is_gone(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    """And of a name that nobody has, that is told."""
    assert await carry_out(means(tmp_path), strike(fault="kill")) == ("", None)
    assert victim.wait(10.0) == -9
    assert await carry_out(means(tmp_path), strike(fault="kill")) == NOBODY


@pytest.mark.parametrize("kind", ["freeze", "straggle"])
async def test_a_frozen_process_lives_on(
    tmp_path: Path, victim: subprocess.Popen[bytes], kind: str
) -> None:
    """It stands still meanwhile, and not afterwards."""
    running = asyncio.create_task(carry_out(means(tmp_path), strike(fault=kind, for_s=0.3)))
    async with asyncio.timeout(10.0):
        while state_of(victim.pid) != "T":  # noqa: ASYNC110  the kernel tells nobody
            await asyncio.sleep(0.002)
    assert await running == ("", None)
    assert state_of(victim.pid) != "T"


def state_of(pid: int) -> str:
    """The letter of the kernel for what a process does."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Near(Fleet):
    """A fleet whose hub is in this process, and may take more memory with each connection."""

    @property
    def hub_status(self) -> Path:
        """Of this process."""
        return Path("/proc/self/status")


@asynccontextmanager
async def hub(
    folder: Path, *, closes: bool = True, says: bytes = b"HTTP/1.1 101 \r\n", grows_mib: int = 0
) -> AsyncIterator[None]:
    """Something that listens where a hub is said to, and closes what comes, or does not."""
    held: list[object] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        held.append(bytearray(b"x") * (grows_mib << 20))
        if closes:
            await reader.read(1)
            writer.write(says)
            writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    write_hub_address(folder, HubAddress(f"ws://{HOST}:{port}/supervisor", "run"))
    yield
    server.close()
    for each in held:
        if isinstance(each, asyncio.StreamWriter):
            each.close()


@pytest.mark.parametrize("kind", ["half_open", "garbage"])
async def test_connections_of_strangers_must_be_closed(tmp_path: Path, kind: str) -> None:
    """The promise is broken by those that the hub has left open, and by what it takes for them."""
    told = strike(fault=kind, who="supervisor", count=5, for_s=7.0)
    blow = replace(told, fault=replace(told.fault, for_s=0.2))
    near = Means(Near(tmp_path, HubSettings(RunSpec(), 2)))
    async with hub(tmp_path):
        assert await carry_out(near, blow) == ("", None)
        missed, _ = await carry_out(means(tmp_path), blow)
        assert missed == "it cannot be measured how much memory the hub takes"
    async with hub(tmp_path, closes=False):
        with pytest.raises(PromiseBroken, match=r"5 of 5 connections of strangers were open after"):
            await carry_out(near, blow)
    async with hub(tmp_path, grows_mib=20):
        with pytest.raises(PromiseBroken, match=r"5 strangers had the hub take .* MiB more"):
            await carry_out(near, blow)
    missed, _ = await carry_out(near, blow)
    assert "0 of 5 connections could be opened" in missed


async def test_noise_that_the_hub_upgrades_nowhere_is_no_garbage(tmp_path: Path) -> None:
    """Nothing would be shown of what it makes of messages."""
    told = strike(fault="garbage", who="supervisor", count=5, for_s=7.0)
    blow = replace(told, fault=replace(told.fault, for_s=0.2))
    async with hub(tmp_path, says=b"HTTP/1.1 401 \r\n"):
        missed, _ = await carry_out(Means(Near(tmp_path, HubSettings(RunSpec(), 2))), blow)
        assert missed == "the hub upgraded no connection"


async def test_clocks_are_set_and_set_right_again(tmp_path: Path) -> None:
    """Whoever reads no orders is named; a strike that is given up sets them right as well."""
    blow = strike(fault="clock", who="all", jump_s=-5.0, for_s=0.01)
    pipe = open_orders(tmp_path / "orders" / "learner-1")
    missed, _ = await carry_out(means(tmp_path), blow)
    assert missed == "no clock of supervisor, syncer, learner-0, learner-2 could be set"
    assert os.read(pipe, 100) == b"clock -5.0\nclock 0\n"
    long = replace(blow, fault=replace(blow.fault, for_s=60.0))
    striking = asyncio.create_task(carry_out(means(tmp_path), long))
    await asyncio.sleep(0)
    striking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await striking
    assert os.read(pipe, 100) == b"clock -5.0\nclock 0\n"
    os.close(pipe)


class Busy(Fleet):
    """A fleet whose second hub is another command."""

    second = ""

    @property
    def hub_command(self) -> list[str]:
        """A command in the hub's place."""
        return [sys.executable, "-c", self.second]


@pytest.mark.parametrize(
    ("second", "broken"),
    [
        ("import sys; sys.exit('it is in use by another hub')", "not refused: it is in use by"),
        ("raise SystemExit(2)", "was not refused: "),
        ("import sys; print('it is in use by another hub'); sys.exit(2)", ""),
    ],
)
async def test_a_second_hub_must_be_refused(tmp_path: Path, second: str, broken: str) -> None:
    """By itself, with the sentence and the code: another end breaks the promise."""
    fleet = Busy(tmp_path, HubSettings(RunSpec(), 2))
    fleet.second = second
    blow = strike(fault="second", who="supervisor")
    if not broken:
        assert await carry_out(Means(fleet), blow) == ("", None)
        return
    with pytest.raises(PromiseBroken, match=broken):
        await carry_out(Means(fleet), blow)
