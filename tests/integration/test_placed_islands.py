"""A run whose islands are placed by an engine of somebody else, from its file to its end."""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from islands.run.hosting.process_identity import facts
from tests.integration.programs import (
    control,
    hub_address,
    imbalance,
    incarnations,
    logged,
    merges,
    open_room,
    summary_of,
    write_config,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def placed_run(folder: Path) -> Path:
    """The file of a run with two islands on an engine that is one folder."""
    (folder / "engine").mkdir()
    entry = {
        "engine": "tests.engines.folder_engine:FolderEngine",
        "count": 2,
        "setup": [f'python() {{ {sys.executable} "$@"; }}', 'exec() { "$@"; }'],
        "learner": {"threads": 1, "folder": str(folder / "learners")},
        "settings": {"folder": str(folder / "engine")},
    }
    return write_config(folder / "run.yaml", islands={"site": entry})


def jobs(folder: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for file in sorted((folder / "engine").glob("*.job")):
        told = json.loads(file.read_text())
        found.setdefault(told["name"], []).append(told)
    return found


def alive(folder: Path) -> list[int]:
    pids = [int(str(one["pid"])) for told in jobs(folder).values() for one in told]
    found = [(pid, facts(pid)) for pid in pids]
    return [pid for pid, known in found if known is not None and not known.zombie]


@pytest.mark.long("tests/engines/test_launcher.py::test_a_restarted_hub_finds_what_was_placed")
async def test_placed_islands_outlive_their_hub_and_leave_nothing_behind(tmp_path: Path) -> None:
    config, folder = placed_run(tmp_path), tmp_path / "run"
    async with open_room(tmp_path) as room:
        hub = room.start("islands.cli", "run", config, "--folder", folder)
        try:
            await room.wait(lambda: merges(folder) > 2)
            assert "started site-2" in (await control(room, "add", "site")).out
            refused = await control(room, "add", "cloud", code=1)
            assert "there are no learners 'cloud' to add; there are: site" in refused.out
            await room.wait(lambda: logged(folder, "admitted", name="site-2"))

            address = hub_address(folder)
            os.kill(hub.pid, signal.SIGKILL)
            hub.process.wait()
            again = room.start("islands.cli", "run", config, "--folder", folder)
            await room.wait(lambda: logged(folder, "recognised", name="site-2"))
            assert hub_address(folder) == address
            placed = {name: len(told) for name, told in jobs(tmp_path).items()}
            assert placed == {"site-0": 1, "site-1": 1, "site-2": 1}, "nothing is placed twice"

            await control(room, "drain", "site-1")
            (first,) = jobs(tmp_path)["site-0"]
            os.killpg(int(str(first["pid"])), signal.SIGKILL)
            await room.wait(lambda: len(jobs(tmp_path)["site-0"]) == 2)
            await room.wait(lambda: len(logged(folder, "admitted", name="site-0")) == 2)
            status = (await control(room, "status")).out
            assert "FolderEngine" in status
            assert "1 by the hub" in status
            await control(room, "stop")
            assert await room.ended(again) == 0
            summary = summary_of(folder)
            assert summary is not None
            assert (imbalance(summary), incarnations(summary)["site-0"]) == (0, 2)
            await room.wait(lambda: not alive(tmp_path))
        finally:
            for pid in alive(tmp_path):
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
