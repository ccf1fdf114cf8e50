"""What a service manager hears of a hub that takes up a run."""

import socket
from pathlib import Path

import pytest

from tests.integration.programs import open_room, write_config

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


async def test_a_hub_is_ready_once_its_syncer_has_read_its_journal(tmp_path: Path) -> None:
    config = write_config(tmp_path / "run.yaml")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)  # noqa: FBT003  (the only form there is)
        heard: list[str] = []

        def ready() -> bool:
            try:
                heard.append(manager.recv(4096).decode())
            except BlockingIOError:
                return False
            return heard[-1].startswith("READY=1")

        async with open_room(tmp_path) as room:
            words = ("--config", config, "--folder", tmp_path / "run")
            room.start(
                "islands.syncer", *words, environment={"NOTIFY_SOCKET": str(tmp_path / "notify")}
            )
            await room.wait(ready)
            assert heard[0] == "STATUS=starting"
            assert (tmp_path / "run" / "journal" / "epoch.a").exists()
            assert (tmp_path / "run" / "hub.json").exists()
