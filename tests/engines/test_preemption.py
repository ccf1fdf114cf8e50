"""A cloud's notice is a graceful leave, and without one a command runs as it would by itself."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from islands.engines.engine import Island, RunMark
from islands.engines.needs import CLOUDS, Needs, read_islands
from islands.engines.preemption import (
    KNOWN,
    Answer,
    Ending,
    Notice,
    UnreadableError,
    aws_notice,
    azure_notice,
    exit_code,
    gcp_notice,
    wait_notice,
)
from islands.protocol.errors import SettingsError
from messaging.clock import LoopClock
from tests.integration.programs import (
    Entry,
    control,
    entries,
    hub_address,
    imbalance,
    merges,
    open_room,
    summary_of,
    write_config,
)
from tests.virtual import virtual

NOW_S = 1_700_000_000.0
AWS_TIME, AZURE_TIME = "2023-11-14T22:15:20Z", "Tue, 14 Nov 2023 22:15:20 GMT"  # 120 s later
LIMIT_S = 30.0


def ok(text: str) -> Answer:
    """Return the answer of a server that has this page."""
    return Answer(200, text)


def event(kind: str, machine: str = "vm_1", at: str = AZURE_TIME) -> dict[str, object]:
    """An event as Azure tells it, with more in it than is read."""
    return {
        "EventId": "C7061BAC",
        "EventStatus": "Scheduled" if at else "Started",
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": [machine],
        "NotBefore": at,
    }


def azure(*events: dict[str, object]) -> list[Answer]:
    """Return what Azure answers to a machine that is vm_1."""
    return [ok(json.dumps({"DocumentIncarnation": 1, "Events": events})), ok("vm_1\n")]


# --- what is a notice -------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_aws_tells_its_action_and_the_time(action: str) -> None:
    """The page is missing until there is one."""
    told = ok(json.dumps({"action": action, "time": AWS_TIME}))
    assert aws_notice([Answer(404, "not found")], NOW_S) is None
    assert aws_notice([told], NOW_S) == Notice(f"is to {action} this instance", 120.0)
    assert aws_notice([told], NOW_S + 500.0) == Notice(f"is to {action} this instance", 0.0)


@pytest.mark.parametrize(
    ("events", "left_s"),
    [
        ([], None),
        ([event("Preempt")], 120.0),
        ([event("Preempt", at="")], 0.0),
        ([event("Terminate")], 120.0),
        ([event("Freeze")], None),
        ([event("Preempt", "vm_2")], None),
        ([event("Reboot", at="Wed, 15 Nov 2023 22:15:20 GMT"), event("Preempt")], 120.0),
    ],
    ids=["none", "preempted", "begun", "deleted", "passes", "another's", "the soonest"],
)
def test_azure_tells_all_machines_of_a_group(
    events: list[dict[str, object]], left_s: float | None
) -> None:
    """Only a loss of this machine is one."""
    notice = azure_notice(azure(*events), NOW_S)
    assert (None if notice is None else notice.left_s) == left_s


@pytest.mark.parametrize(
    ("preempted", "maintenance", "left_s"),
    [
        ("FALSE", "NONE", None),
        ("FALSE\n", "MIGRATE_ON_HOST_MAINTENANCE", None),
        ("TRUE\n", "NONE", 30.0),
        ("FALSE", "TERMINATE_ON_HOST_MAINTENANCE", 60.0),
    ],
)
def test_gcp_preempts_or_maintains(preempted: str, maintenance: str, left_s: float | None) -> None:
    """A live migration passes; an instance with GPUs is ended instead."""
    notice = gcp_notice([ok(preempted), ok(maintenance)], NOW_S)
    assert (None if notice is None else notice.left_s) == left_s


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("answer", [Answer(500, "broken"), Answer(403, ""), ok("<html>"), ok("")])
def test_no_notice_is_read_out_of_what_is_none(cloud: str, answer: Answer) -> None:
    """Google's texts are words, so that unknown ones are no notice."""
    answers = [answer] * len(KNOWN[cloud].pages)
    if cloud == "gcp" and answer.status == 200:
        assert KNOWN[cloud].read(answers, NOW_S) is None
        return
    with pytest.raises(UnreadableError):
        KNOWN[cloud].read(answers, NOW_S)


def test_a_time_that_is_none_is_told() -> None:
    """It is no notice that nothing is left."""
    with pytest.raises(UnreadableError, match="has the time 'soon'"):
        aws_notice([ok('{"action": "stop", "time": "soon"}')], NOW_S)


# --- asking -----------------------------------------------------------------------------------


class Metadata:
    """The metadata servers of all clouds: what they answer is set as time passes."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {
            "/computeMetadata/v1/instance/preempted": "FALSE",
            "/computeMetadata/v1/instance/maintenance-event": "NONE",
            "/metadata/scheduledevents": json.dumps({"DocumentIncarnation": 0, "Events": []}),
            "/metadata/instance/compute/name": "vm_1",
        }
        self.asked: list[str] = []

    def answer(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        """Answer as the clouds do: without its header, a question is refused."""
        self.asked.append(path)
        if path == "/latest/api/token":
            wanted = method == "PUT" and "X-aws-ec2-metadata-token-ttl-seconds" in headers
            return ok("a token") if wanted else Answer(400, "")
        if path.startswith("/latest") and headers.get("X-aws-ec2-metadata-token") != "a token":
            return Answer(401, "")
        if path.startswith("/metadata") and headers.get("Metadata") != "true":
            return Answer(400, "")
        if path.startswith("/compute") and headers.get("Metadata-Flavor") != "Google":
            return Answer(403, "")
        return ok(self.pages[path]) if path in self.pages else Answer(404, "")

    async def __call__(self, method: str, url: str, headers: Mapping[str, str]) -> Answer:
        """Answer a question on the virtual clock."""
        path = url.removeprefix("http://metadata").partition("?")[0]
        return self.answer(method, path, headers)

    def take(self, cloud: str) -> None:
        """Have a cloud take the host: with so many seconds left as the cloud gives."""
        told = {"action": "terminate", "time": "1970-01-01T01:00:00Z"}
        page, text = {
            "aws": ("/latest/meta-data/spot/instance-action", json.dumps(told)),
            "azure": ("/metadata/scheduledevents", azure(event("Preempt", at=""))[0].text),
            "gcp": ("/computeMetadata/v1/instance/preempted", "TRUE"),
        }[cloud]
        self.pages[page] = text


@virtual
async def test_each_cloud_is_asked_at_its_pace_until_it_takes_the_host() -> None:
    """Its notice comes after one pause at most; one of an hour ahead waits until it is near."""
    loop = asyncio.get_running_loop()
    for cloud in CLOUDS:
        server, said = Metadata(), list[str]()
        waiting = asyncio.create_task(
            wait_notice(cloud, server, LoopClock(), said.append, "http://metadata")
        )
        await asyncio.sleep(100.5)
        polls = server.asked.count(server.asked[0])
        assert polls == (21 if cloud == "aws" else 101)
        assert not waiting.done()
        taken_s = loop.time()
        server.take(cloud)
        notice = await waiting
        due_s = 3480.0 if cloud == "aws" else taken_s
        assert due_s <= loop.time() <= due_s + KNOWN[cloud].every_s
        assert notice.left_s <= 120.0
        assert said == []


@virtual
async def test_a_server_that_is_not_there_is_told_once() -> None:
    """Questions go on, so that a notice is found once it answers; one that hangs is left."""
    server, said = Metadata(), list[str]()
    server.take("gcp")
    questions = 0

    async def ask(method: str, url: str, headers: Mapping[str, str]) -> Answer:
        nonlocal questions
        questions += 1
        if questions < 5:
            raise OSError("connection refused")
        if questions < 8:
            await asyncio.Event().wait()
        if questions < 10:
            return Answer(503, "later")
        return await server(method, url, headers)

    notice = await wait_notice("gcp", ask, LoopClock(), said.append, "http://metadata")
    assert notice.left_s == 30.0
    assert said == [
        "preemption: no notices from gcp until http://metadata answers: connection refused"
    ]


def test_a_notice_and_the_signal_that_follows_it_are_one() -> None:
    """A learner ends at once when it is asked for the second time."""
    given: list[int] = []
    ending = Ending(given.append)
    ending.on_notice()
    assert given == [signal.SIGTERM]
    ending.on_signal("SIGTERM")
    assert given == [signal.SIGTERM]
    ending.on_signal("SIGINT")
    assert given == [signal.SIGTERM, signal.SIGINT]
    assert ending.noticed


def test_a_notice_after_a_signal_adds_nothing() -> None:
    """Somebody ended the command on purpose, so its exit code stays."""
    given: list[int] = []
    ending = Ending(given.append)
    ending.on_signal("SIGTERM")
    ending.on_notice()
    ending.on_signal("SIGTERM")
    assert given == [signal.SIGTERM, signal.SIGTERM]
    assert not ending.noticed


@pytest.mark.parametrize(
    ("returned", "noticed", "code"),
    [
        (0, False, 0),
        (0, True, 75),
        (143, True, 75),
        (-15, True, 75),
        (143, False, 143),
        (2, True, 2),
        (-9, True, 137),
    ],
)
def test_the_exit_code_is_that_of_a_shell(returned: int, noticed: bool, code: int) -> None:  # noqa: FBT001
    """After a notice the run goes on, so 0 would be wrong."""
    assert exit_code(returned, noticed=noticed) == code


# --- an entry of the table --------------------------------------------------------------------


def test_an_entry_switches_notices_on() -> None:
    """The command is wrapped after the set-up lines, which make Python's environment."""
    entry = {"engine": "slurm", "notices": "aws,gcp", "setup": ". venv/bin/activate"}
    needs = read_islands({"site": entry})["site"]
    island = Island("site-0", RunMark("r", "00000000"), needs, "python train.py")
    assert island.script() == (
        ". venv/bin/activate\n"
        "exec python -m islands.engines.preemption aws,gcp -- python train.py\n"
    )


def test_a_cloud_that_is_not_known_is_refused() -> None:
    """The sentence names those that are."""
    assert tuple(KNOWN) == CLOUDS
    with pytest.raises(SettingsError, match="notices is 'ibm'; it must be some of aws, azure, gcp"):
        Needs("slurm", notices="ibm")


# --- real processes ---------------------------------------------------------------------------

LEAVES = "trap 'echo left; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


@asynccontextmanager
async def served(server: Metadata) -> AsyncIterator[str]:
    """Serve metadata at a local address."""

    async def handle(request: web.Request) -> web.Response:
        answer = server.answer(request.method, request.path, request.headers)
        return web.Response(status=answer.status, text=answer.text)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def wrapped(base: str, *command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a command under the notices of all clouds; nothing of it is left."""
    module = ("-m", "islands.engines.preemption", ",".join(CLOUDS), "--metadata", base, "--")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *module,
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.integration
@pytest.mark.parametrize("cloud", ["gcp"])
async def test_a_command_leaves_when_its_cloud_takes_the_host(cloud: str) -> None:
    """It gets SIGTERM, the sentence says how long is left, and the code that the run goes on."""
    server = Metadata()
    async with served(server) as base, wrapped(base, "sh", "-c", LEAVES) as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        server.take(cloud)
        out, told = await process.communicate()
    assert out == b"left\n"
    assert b"preemption: gcp preempts this instance in 30 s; the command leaves" in told
    assert process.returncode == 75


@pytest.mark.integration
async def test_signals_reach_a_command_and_its_exit_code_returns() -> None:
    """Its processes get them too, though no metadata server is there at all."""
    async with wrapped("http://127.0.0.1:9", "sh", "-c", f'sh -c "{LEAVES}"; exit 5') as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        out, _ = await process.communicate()
    assert out == b"left\n"
    assert process.returncode in (5, 143)  # the outer shell may see the signal first


@pytest.mark.integration
async def test_a_command_dies_with_its_wrapper() -> None:
    """Nothing is left behind by a wrapper that was killed."""
    async with wrapped("http://127.0.0.1:9", "sh", "-c", "echo $$; exec sleep 600") as process:
        assert process.stdout is not None
        child = int(await process.stdout.readline())
        descriptor = os.pidfd_open(child)
        process.kill()
        assert await process.stdout.read() == b""  # closed by the death of the last who held it
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), LIMIT_S)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


@pytest.mark.integration
async def test_a_command_that_is_not_there_is_told() -> None:
    """The exit code is that of a shell."""
    async with wrapped("http://127.0.0.1:9", "no-such-command") as process:
        _, told = await process.communicate()
    assert told == b"no-such-command: No such file or directory\n"
    assert process.returncode == 127


@pytest.mark.integration
@pytest.mark.long(
    "tests/engines/test_preemption.py::test_a_command_leaves_when_its_cloud_takes_the_host"
)
async def test_a_learner_leaves_its_run_when_its_cloud_takes_the_host(tmp_path: Path) -> None:
    """Nobody evicts it, the run goes on with the others, and the ledger balances."""
    run = tmp_path / "run"
    config = write_config(tmp_path / "run.yaml", learners=1)
    server = Metadata()
    async with served(server) as base, open_room(tmp_path) as room:
        hub = room.start("islands.cli", "run", config, "--folder", "run")
        address = await room.wait(lambda: hub_address(run))
        notices = ("aws,gcp", "--metadata", base, "--", sys.executable, "-m", "islands.learner")
        learner = ("--supervisor", address, "--token_file", run / "token", "--name", "spot")
        spot = room.start("islands.engines.preemption", *notices, *learner)
        await room.wait(lambda: [each for each in told(run, "admitted") if each["name"] == "spot"])
        heard = merges(run)
        await room.wait(lambda: merges(run) > heard + 5)
        server.take("gcp")
        assert await room.ended(spot) == 75
        assert "gcp preempts this instance in 30 s; the command leaves" in spot.err
        await room.wait(lambda: [each for each in told(run, "left") if each["name"] == "spot"])
        heard = merges(run)
        await room.wait(lambda: merges(run) > heard + 5)
        await control(room, "stop")
        assert await room.ended(hub) == 0
    assert not told(run, "evicted")
    summary = summary_of(run)
    assert summary is not None
    assert imbalance(summary) == 0


def told(run: Path, kind: str) -> list[Entry]:
    """What a run's supervisor has written of a kind."""
    return entries(run / "tape.jsonl", kind)
