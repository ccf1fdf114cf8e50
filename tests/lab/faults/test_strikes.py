"""A strike does to the processes of a folder what it is told, or says that nobody is there."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from islands.lab.faults.fault import Strike
from islands.lab.faults.fleet import Fleet, HubSettings
from islands.lab.faults.paths import HOST
from islands.lab.faults.schedule import strikes_of
from islands.lab.faults.strikes import NOBODY, Means, carry_out
from islands.lab.settings.chaos import ChaosOptions
from islands.run.hosting.hub_address import HubAddress, write_hub_address
from islands.run.hosting.process_identity import MARK, mark_of
from islands.settings.run_spec import RunSpec


def strike(**fault: object) -> Strike:
    return strikes_of(ChaosOptions(faults={"one": {"who": "learner-1", **fault}}))[0]


def means(folder: Path) -> Means:
    return Means(Fleet(folder, HubSettings(RunSpec(), 2)))


@pytest.fixture(name="victim")
def _victim(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for ever, marked as learner-1."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    mark = {MARK: mark_of("learner-1", tmp_path)}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=mark,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the kernel shows no environment before
        yield process
        process.kill()


async def test_a_killed_process_is_gone(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    assert await carry_out(means(tmp_path), strike(fault="kill")) == ("", None)
    assert victim.wait(10.0) == -9
    assert await carry_out(means(tmp_path), strike(fault="kill")) == NOBODY


@pytest.mark.parametrize("kind", ["freeze", "straggle"])
async def test_a_frozen_process_lives_on(
    tmp_path: Path, victim: subprocess.Popen[bytes], kind: str
) -> None:
    running = asyncio.create_task(carry_out(means(tmp_path), strike(fault=kind, for_s=0.3)))
    async with asyncio.timeout(10.0):
        while state_of(victim.pid) != "T":  # noqa: ASYNC110  the kernel tells nobody
            await asyncio.sleep(0.002)
    assert await running == ("", None)
    assert state_of(victim.pid) != "T"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Near(Fleet):
    """A fleet whose hub is in this process, and may take more memory with each connection."""

    @property
    def hub_status(self) -> Path:
        return Path("/proc/self/status")


@asynccontextmanager
async def hub(
    folder: Path, *, closes: bool = True, says: bytes = b"HTTP/1.1 101 \r\n", grows_mib: int = 0
) -> AsyncIterator[None]:
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
