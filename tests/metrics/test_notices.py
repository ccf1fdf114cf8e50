"""A command or a URL is told of what a person may have to act on."""

import json
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from islands.metrics.notices import notice_of, notices_sent
from islands.protocol.identities import Role
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape import member_entries as members
from islands.protocol.tape import process_entries as processes
from islands.run.records.run_folder import RunFolder

FULL = processes.Disk("no space left on device")


def test_a_notice_has_the_entry_and_its_sentence() -> None:
    told = json.loads(notice_of("mine", "syncer", FULL, 0.0))
    assert told == {
        "event": "disk",
        "run": "mine",
        "actor": "syncer",
        "summary": "syncer waits for its disk: no space left on device",
        "timestamp": "1970-01-01T00:00:00Z",
        "entry": {"error": "no space left on device"},
    }


@pytest.mark.integration
async def test_a_command_reads_each_notice_from_its_input(tmp_path: Path) -> None:
    file, said = tmp_path / "notices", list[str]()
    copy = (
        f"import sys; f = open({str(file)!r}, 'a+'); print(sys.stdin.read(), file=f); f.seek(0); "
        "sys.exit(3 if len(f.readlines()) == 1 else 0)"
    )
    folder = RunFolder(tmp_path / "run", RunSettings(run="mine"))
    async with notices_sent(f'{sys.executable} -c "{copy}"', folder, "mine", said.append, 0.0):
        folder.write(1.0, "supervisor", members.Admitted("ana", Role.LEARNER, "1.1"))
        folder.write(2.0, "syncer", FULL)
        folder.write(3.0, "syncer", processes.Failed("a hand of it"))
    folder.write(4.0, "syncer", FULL)
    told = [json.loads(line)["event"] for line in file.read_text().splitlines()]
    assert told == ["disk", "disk", "failed"]
    assert said == ["on_event could not be told: it ended with code 3"]
    folder.close()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("http://127.0.0.1:{port}/hooks/my-secret", "it was answered 302 Found"),
        ("http://127.0.0.1:{port}:1/hooks/my-secret", "its URL is none"),
    ],
)
async def test_a_web_hook_that_takes_no_notice_is_told_without_its_path(
    target: str, told: str, tmp_path: Path
) -> None:
    said = list[str]()

    async def elsewhere(_: web.BaseRequest) -> web.Response:
        return web.Response(status=302, headers={"Location": "http://127.0.0.1/login"})

    folder = RunFolder(tmp_path / "run", RunSettings(run="mine"))
    async with (
        RawTestServer(elsewhere) as server,
        notices_sent(target.format(port=server.port), folder, "mine", said.append, 0.0),
    ):
        folder.write(2.0, "syncer", FULL)
    assert said == [f"on_event could not be told: {told}"]
    folder.close()
