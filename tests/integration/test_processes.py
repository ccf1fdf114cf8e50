"""Runs of real processes over real sockets: what dies comes back, and every token is counted."""

import asyncio
import contextlib
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
import pytest_asyncio

import islands
from islands.cli.control import target_of, tell
from islands.protocol.identities import Phase
from islands.protocol.messages.control import CommandAnswer, StepFigures, Verb
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing
from islands.run.roles import journal_disk
from islands.settings.commands import OperatorOptions
from tests.integration.fleet import WatchedHub, make_fleet, running
from tests.integration.programs import (
    LIMIT_S,
    Program,
    Room,
    control,
    entries,
    hub_address,
    imbalance,
    incarnations,
    logged,
    merges,
    open_room,
    pids,
    processed,
    summary_of,
    write_config,
)
from tests.messaging.certificates import make_certificates

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SLEEPING: dict[str, object] = {"step_s": 0.02, "megabytes": 0.25}
PAIR = ("learner-0", "learner-1")


def fleet(
    folder: Path,
    *,
    budget_tokens: int | None,
    learners: int = 2,
    timing: Timing | None = None,
    **task: object,
) -> WatchedHub:
    settings = RunSettings(run="fleet", interval_steps=8, fragments=4, budget_tokens=budget_tokens)
    settings = replace(settings, timing=timing or settings.timing)
    return make_fleet(folder, settings, {**SLEEPING, **task}, learners=learners)


async def stop(folder: Path) -> CommandAnswer:
    """Ask the hub of a folder for a proper end."""
    options = OperatorOptions(folder=folder)
    return await tell(target_of(options), Verb.STOP, "", 1)


async def end_of(run: asyncio.Task[dict[str, object] | None]) -> dict[str, object]:
    async with asyncio.timeout(LIMIT_S):
        summary = await run
    assert summary is not None
    return summary


def only_grow(versions: list[tuple[int, str]]) -> bool:
    """Whether each fragment's versions, in the order of a tape, grow and never repeat."""
    for fragment in sorted({fragment for fragment, _ in versions}):
        own = [tuple(map(int, v.split("."))) for f, v in versions if f == fragment]
        if own != sorted(set(own)):
            return False
    return True


def told_versions(tape: Path, kind: str) -> list[tuple[int, str]]:
    found = entries(tape, kind)
    return [msgspec.convert((e["fragment"], e["version"]), tuple[int, str]) for e in found]


Place = tuple[Room, WatchedHub]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A run of two learners that merges, and a room for its operator, who stops it in the end."""
    folder = tmp_path_factory.mktemp("shared")
    hub = fleet(folder / "run", budget_tokens=None)
    async with open_room(folder) as room, running(hub) as run:
        await hub.wait_merge_of(PAIR, LIMIT_S)
        yield room, hub
        await control(room, "stop")
        summary = await end_of(run)
    assert summary["reason"] == "stopped by an operator"
    assert imbalance(summary) == 0
    assert (folder / "run" / "final.safetensors").exists()


def times_admitted(hub: WatchedHub) -> dict[str, int]:
    return {name: one.incarnations for name, one in hub.folder.figures.learners.items()}


# --- one run, and what is done to it --------------------------------------------------------------


@pytest.mark.asyncio(loop_scope="module")
async def test_an_operator_sees_who_is_here(place: Place) -> None:
    told = await control(place[0], "status")
    for name in (*PAIR, "syncer"):
        assert name in told.out
    assert "run fleet goes on with 2 of 2 learners live" in told.out


@pytest.mark.asyncio(loop_scope="module")
async def test_a_learner_is_added_and_drained(place: Place) -> None:
    room, hub = place
    assert "started learner-2" in (await control(room, "add")).out
    await hub.wait_merge_of(("learner-2",), LIMIT_S)
    await control(room, "drain", "learner-2")
    await hub.wait_until(lambda: "learner-2" not in hub.launcher, LIMIT_S)
    await hub.wait_merge_of(PAIR, LIMIT_S)
    assert sorted(hub.launcher.names()) == [*PAIR, "syncer"]
    folder = room.folder / "run"

    def ends() -> list[object]:
        told = logged(folder, "process_ended", actor="hub", name="learner-2")
        return [end["error"] for end in told]

    await hub.wait_until(lambda: bool(ends()), LIMIT_S)  # the log is written beside the run
    assert ends() == [""]
    assert logged(folder, "left", name="learner-2", reason="drained by an operator")
    nobody = await control(room, "drain", "nobody", code=1)
    assert "there is no learner 'nobody' here; the learners are: learner-0, learner-1" in nobody.out


@pytest.mark.asyncio(loop_scope="module")
async def test_a_paused_run_does_not_step_until_it_is_resumed(place: Place) -> None:
    room, hub = place
    await control(room, "pause")
    members = hub.members
    await hub.wait_until(lambda: all(members[n].phase is Phase.PAUSED for n in PAIR), LIMIT_S)
    await reported(hub)
    steps = {name: hub.told[name].steps for name in PAIR}
    assert "is paused" in (await control(room, "status")).out
    await reported(hub)
    assert {name: hub.told[name].steps for name in PAIR} == steps
    await control(room, "resume")
    await hub.wait_until(lambda: all(members[n].phase is Phase.STEPPING for n in PAIR), LIMIT_S)
    await hub.wait_merge_of(PAIR, LIMIT_S)
    assert "goes on" in (await control(room, "status")).out


async def reported(hub: WatchedHub) -> None:
    """Wait until both learners have told their figures once more, and again."""
    for _ in range(2):
        told = [hub.told[name] for name in PAIR]
        await hub.wait_until(partial(_all_new, hub, told), LIMIT_S)


def _all_new(hub: WatchedHub, told: list[StepFigures]) -> bool:
    return all(hub.told[name] is not old for name, old in zip(PAIR, told, strict=True))


async def test_a_run_spends_its_budget_to_the_token(tmp_path: Path) -> None:
    hub = fleet(tmp_path / "run", budget_tokens=2400)
    async with running(hub) as run:
        summary = await end_of(run)
    assert summary["reason"] == "tokens"
    assert summary["tokens"] == 2400
    assert set(processed(summary)) == {2400}
    assert imbalance(summary) == 0
    assert incarnations(summary) == dict.fromkeys(PAIR, 1)
    assert pids(tmp_path / "run") == {}
    assert (tmp_path / "run" / "final.safetensors").exists()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_killed_learner_is_started_again_and_merges(place: Place) -> None:
    room, hub = place
    before, pid = times_admitted(hub), hub.launcher.pid("learner-1")
    hub.launcher.kill("learner-1")
    await hub.wait_until(lambda: hub.launcher.pid("learner-1") not in (None, pid), LIMIT_S)
    await hub.wait_until(lambda: times_admitted(hub) != before, LIMIT_S)
    await hub.wait_merge_of(("learner-1",), LIMIT_S)
    await room.wait(lambda: len(logged(room.folder / "run", "evicted", name="learner-1")) == 1)
    assert times_admitted(hub) == {**before, "learner-1": before["learner-1"] + 1}


@pytest.mark.asyncio(loop_scope="module")
async def test_learners_step_on_while_the_syncer_is_away(place: Place) -> None:
    room, hub = place
    before = times_admitted(hub)
    await hub.wait_until(lambda: set(PAIR) <= set(hub.told), LIMIT_S)
    steps = {name: hub.told[name].steps for name in PAIR}
    # Once the pace of its newest process is known, a learner is granted what lasts for an outage.
    await hub.wait_until(
        lambda: all(hub.told[name].steps > steps[name] + 60 for name in PAIR), LIMIT_S
    )
    hub.cluster.hold("syncer", LIMIT_S)
    hub.launcher.kill("syncer")
    await hub.wait_until(lambda: "syncer" not in hub.launcher, LIMIT_S)
    steps = {name: hub.told[name].steps for name in PAIR}
    await hub.wait_until(
        lambda: all(hub.told[name].steps > steps[name] + 20 for name in PAIR), LIMIT_S
    )
    assert "syncer" not in hub.launcher
    hub.cluster.hold("syncer", 0.0)
    await hub.wait_merge_of(PAIR, LIMIT_S)
    assert times_admitted(hub) == before
    tapes = room.folder / "run" / "processes"
    starts = entries(tapes / "syncer" / "tape.jsonl", "started")
    assert [start["epoch"] for start in starts] == [1, 2]
    assert starts[1]["resumed"]
    assert only_grow(told_versions(tapes / "syncer" / "tape.jsonl", "committed"))
    for name in PAIR:
        assert only_grow(told_versions(tapes / name / "tape.jsonl", "adopted"))


@pytest.mark.asyncio(loop_scope="module")
async def test_a_learner_that_is_terminated_leaves_in_order(place: Place) -> None:
    room, hub = place
    folder = room.folder / "run"
    admitted = ("--supervisor", hub_address(folder), "--token_file", folder / "token")
    guest = room.start("islands.learner", *admitted, "--name", "guest")
    await hub.wait_merge_of(("guest",), LIMIT_S)
    guest.process.send_signal(signal.SIGTERM)
    assert await room.ended(guest) == 0
    await hub.wait_merge_of(("learner-0",), LIMIT_S)
    assert "SIGTERM: leaving in order" in guest.err
    assert [entry["reason"] for entry in logged(folder, "left", name="guest")] == ["SIGTERM"]
    assert not logged(folder, "evicted", name="guest")


async def test_a_learner_with_a_long_first_step_is_not_killed_in_it(tmp_path: Path) -> None:
    timing = Timing(heartbeat_s=0.2, stalled_s=2.0, compile_s=40.0)
    hub = fleet(tmp_path / "run", budget_tokens=1600, learners=1, timing=timing, first_step_s=6.0)
    async with running(hub) as run:
        await hub.wait_merge_of(("learner-0",), LIMIT_S)
        summary = await end_of(run)
    assert summary["tokens"] == 1600
    assert incarnations(summary) == {"learner-0": 1}
    assert logged(tmp_path / "run", "killed") == []
    assert logged(tmp_path / "run", "status", status="stalled") == []


def met(folder: Path, name: str, other: str = "") -> int:
    """In how many rounds a learner has met another one, or anybody."""
    told = entries(folder / "processes" / name / "tape.jsonl", "gossip")
    return sum(not other or other in str(entry["partners"]) for entry in told)


@pytest.mark.long(
    "tests/lab/world/test_gossip.py::test_a_restarted_learner_begins_with_the_values_of_one_that_trains"
)
async def test_a_killed_learner_holds_up_nobody_and_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = replace(PRESETS[Preset.GOSSIP], run="fleet", interval_steps=10, budget_tokens=None)
    hub = make_fleet(folder, settings, SLEEPING, learners=3)

    async def meet(name: str, other: str, times: int) -> None:
        known = met(folder, name, other)
        await hub.wait_until(lambda: met(folder, name, other) >= known + times, LIMIT_S)

    async with running(hub) as run:
        await meet("learner-0", "learner-1", 2)
        before = hub.launcher.pid("learner-1")
        hub.launcher.kill("learner-1")
        await meet("learner-0", "learner-2", 2)
        await hub.wait_until(lambda: hub.launcher.pid("learner-1") not in (None, before), LIMIT_S)
        await meet("learner-1", "learner-0", 2)
        assert (await stop(folder)).done
        summary = await end_of(run)
    assert entries(folder / "processes" / "learner-1" / "tape.jsonl", "took_over")
    assert incarnations(summary) == {"learner-0": 1, "learner-1": 2, "learner-2": 1}
    assert imbalance(summary) == 0
    assert len(set(processed(summary))) == 1
    assert (summary_of(folder) or {}).get("reason") == summary["reason"]
    assert not any(
        str(entry["what"]).startswith("values of round")
        for name in incarnations(summary)
        for entry in entries(folder / "processes" / name / "tape.jsonl", "kept_out")
    )


# --- the hub --------------------------------------------------------------------------------------


async def test_children_outlive_a_killed_hub_and_the_next_one_adopts_them(tmp_path: Path) -> None:
    """SIGKILL of `islands run`: the same command takes up the same processes, and ends the run."""
    folder = tmp_path / "run"
    config = write_config(tmp_path / "run.yaml", learners=2)
    command = ("islands.cli", "run", config, "--folder", folder)
    async with open_room(tmp_path) as room:
        first = room.start(*command)
        await room.wait(lambda: merges(folder) > 4)
        before = pids(folder)
        assert sorted(before) == [*PAIR, "syncer"]
        first.process.kill()
        await room.ended(first)
        assert pids(folder) == before
        seen = merges(folder)
        second = room.start(*command)
        await room.wait(lambda: merges(folder) > seen + 4)
        await room.wait(lambda: recognised(folder) >= set(before))
        assert pids(folder) == before
        await stop(folder)
        assert await room.ended(second) == 0
        assert pids(folder) == {}
    summary = summary_of(folder)
    assert summary is not None
    assert imbalance(summary) == 0
    assert summary["evictions"] == 0


@pytest.mark.long("test_children_outlive_a_killed_hub_and_the_next_one_adopts_them")
@pytest.mark.parametrize("change", ["settings", "port"])
async def test_children_that_the_next_hub_cannot_use_are_replaced(
    change: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    config = write_config(tmp_path / "run.yaml", learners=2)
    command = ("islands.cli", "run", config, "--folder", folder)
    async with open_room(tmp_path) as room:
        first = room.start(*command)
        await room.wait(lambda: merges(folder) > 4)
        before = pids(folder)
        first.process.kill()
        await room.ended(first)
        with socket.socket() as other:
            if change == "settings":
                write_config(config, learners=2, run={"interval_steps": 6})
            else:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", port_of(folder)))
                other.listen()
            seen = merges(folder)
            second = room.start(*command)
            await room.wait(lambda: merges(folder) > seen + 4)
            now = pids(folder)
            assert sorted(now) == sorted(before)
            assert not set(now.values()) & set(before.values())
            await stop(folder)
            assert await room.ended(second) == 0
    assert "they end, and are started anew" in second.err
    assert ("cannot be had now" in second.err) is (change == "port")
    summary = summary_of(folder)
    assert summary is not None
    assert imbalance(summary) == 0


def port_of(folder: Path) -> int:
    return urlsplit(hub_address(folder) or "").port or 0


@pytest.mark.long("test_children_outlive_a_killed_hub_and_the_next_one_adopts_them")
async def test_a_hub_that_fails_says_who_lives_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    hub = fleet(folder, budget_tokens=None)
    async with open_room(tmp_path), running(hub) as run:
        await hub.wait_merge_of(PAIR, LIMIT_S)
        assert hub.cluster.supervisor is not None
        hub.cluster.supervisor.fail("test", RuntimeError("no good"))
        with pytest.raises(RuntimeError, match="no good"):
            await run
        assert sorted(pids(folder)) == [*PAIR, "syncer"]
    said = capfd.readouterr().err
    assert "still running without a hub: syncer, learner-0, learner-1; the same command" in said
    assert f"--folder {folder}" in said


@pytest.mark.long("test_a_closed_terminal_ends_a_run_in_order")
async def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config = write_config(tmp_path / "run.yaml", learners=2)
    async with open_room(tmp_path) as room:
        run = room.start("islands.cli", "run", config, "--folder", folder)
        await room.wait(lambda: merges(folder) > 2)
        run.process.terminate()
        await room.wait(lambda: "once more ends at once" in run.err)
        run.process.terminate()
        assert await room.ended(run) in (0, 130)  # 0: it had left before
        await room.wait(lambda: pids(folder) == {})


def recognised(folder: Path) -> set[str]:
    """The members that a later supervisor has taken up."""
    return {str(entry["name"]) for entry in logged(folder, "recognised")}


async def stop_by(number: signal.Signals, run: Program, room: Room, folder: Path) -> None:
    """Let a run merge for a while, then signal its hub, and see everybody leave."""
    seen = merges(folder)
    await room.wait(lambda: merges(folder) > seen + 4)
    run.process.send_signal(number)
    assert await room.ended(run) == 0
    assert "goes on" in run.out
    assert pids(folder) == {}
    assert summary_of(folder) is None


@pytest.mark.long("tests/lab/world/test_operator.py::test_a_run_that_has_ended_can_be_extended")
async def test_a_run_that_is_stopped_goes_on_with_the_same_command(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config = write_config(tmp_path / "run.yaml", learners=2, run={"budget_tokens": 16_000})
    command = ("islands.cli", "run", config, "--folder", folder)
    async with open_room(tmp_path) as room:
        for number in (signal.SIGTERM, signal.SIGINT):
            await stop_by(number, room.start(*command), room, folder)
        ends = logged(folder, "process_ended", actor="hub")
        assert [end["error"] for end in ends] == [""] * 6
        assert await room.ended(room.start(*command)) == 0
    summary = summary_of(folder)
    assert summary is not None
    assert imbalance(summary) == 0
    assert set(processed(summary)) == {16_000}
    starts = logged(folder, "started", actor="syncer")
    assert [start["epoch"] for start in starts] == [1, 2, 3]
    assert [start["resumed"] for start in starts] == [False, True, True]


ON_TERMINAL = """
import fcntl, os, signal, sys, termios
os.setsid()
signal.signal(signal.SIGHUP, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Replaces itself by a Python program whose terminal is its standard input."""


async def test_a_closed_terminal_ends_a_run_in_order(tmp_path: Path) -> None:
    """SIGHUP leaves no orphan that would train on without a hub, or hold the run's port."""
    folder = tmp_path / "run"
    config = write_config(tmp_path / "run.yaml", learners=1)
    command = ("islands.cli", "run", str(config), "--folder", str(folder))
    async with open_room(tmp_path) as room:
        terminal, side = os.openpty()
        os.set_blocking(terminal, False)
        words = (sys.executable, "-c", ON_TERMINAL, "-m", *command)
        run = await asyncio.create_subprocess_exec(
            *words, cwd=tmp_path, stdin=side, stdout=side, stderr=side
        )
        try:
            os.close(side)
            await room.wait(lambda: drained(terminal) and merges(folder) > 4)
            os.close(terminal)
            await room.wait(lambda: run.returncode is not None)
        finally:
            if run.returncode is None:
                run.kill()
        assert await run.wait() == 0
        assert pids(folder) == {}
    assert [end["error"] for end in logged(folder, "process_ended", actor="hub")] == [""] * 2
    assert str(islands.described(folder)["reason"]).startswith("stopped")
    assert islands.load(folder)


def drained(terminal: int) -> bool:
    """Read what a process has written to its terminal, which is small; returns True."""
    with contextlib.suppress(BlockingIOError):
        while os.read(terminal, 65536):
            pass
    return True


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
            assert (tmp_path / "run" / "journal" / "epoch.a.safetensors").exists()
            assert (tmp_path / "run" / "hub.json").exists()


async def test_a_second_start_is_refused_while_the_first_one_lives(tmp_path: Path) -> None:
    words = ("--supervisor", "ws://127.0.0.1:9", "--wait_s", "80", "--folder", "run")
    async with open_room(tmp_path) as room:
        first = room.start("islands.syncer", *words)
        await room.wait(lambda: "waiting for the supervisor" in first.err)
        second = await room.run("islands.syncer", *words)
        assert second.process.returncode == 2
        (line,) = second.err.splitlines()
        assert "run/journal is in use by another syncer" in line
        assert first.process.poll() is None
        first.process.kill()
        first.process.wait()
        journal_disk(tmp_path / "run").close()


# --- every role a command of its own --------------------------------------------------------------


@pytest.mark.long("test_a_syncer_alone_is_a_hub")
async def test_every_role_can_be_a_command_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config = write_config(tmp_path / "run.yaml", run={"budget_tokens": 3200})
    token = make_token(tmp_path)
    async with open_room(tmp_path) as room:
        supervisor = room.start(
            *("islands.supervisor", "--config", config, "--folder", folder, "--token_file", token)
        )
        address = await room.wait(lambda: hub_address(folder))
        join = ("--supervisor", address, "--token_file", token)
        syncer = room.start(
            *("islands.syncer", *join, "--listen", "127.0.0.1:0", "--folder", tmp_path / "journal"),
            *("--key_file", f"{token}.key"),
        )
        observer = room.start("islands.observer", *join, "--evaluate_every_s", "0.1")
        learners = [room.start("islands.learner", *join, "--name", name) for name in PAIR]
        for program in (supervisor, syncer, *learners, observer):
            assert await room.ended(program) == 0, program
        assert leaks(room, [token, Path(f"{token}.key")]) == []
    summary = summary_of(folder)
    assert summary is not None
    assert imbalance(summary) == 0
    assert set(processed(summary)) == {3200}
    assert "moved" in observer.err
    assert (tmp_path / "journal" / "final.safetensors").exists()


async def test_a_syncer_alone_is_a_hub(tmp_path: Path) -> None:
    """`python -m islands.syncer` prints the command for learners; pasted, it makes them join."""
    config = write_config(tmp_path / "run.yaml", run={"budget_tokens": 2400})
    token = make_token(tmp_path)
    async with open_room(tmp_path) as room:
        hub = room.start(
            *("islands.syncer", "--config", config, "--folder", "run", "--token_file", token)
        )
        line = await room.wait(lambda: learner_command(hub.err))
        words = line.replace("TOKEN", str(token)).split()
        learners = [room.start(*words, "--name", name) for name in PAIR]
        for program in (hub, *learners):
            assert await room.ended(program) == 0, program
    summary = summary_of(tmp_path / "run")
    assert summary is not None
    assert imbalance(summary) == 0
    assert sorted(incarnations(summary)) == [*PAIR]


EVALUATION = """
import sys
from pathlib import Path
import islands
from islands.settings.groups import ConnectOptions
ca, certificate, key = map(Path, sys.argv[3:])
known = ConnectOptions(tls_ca=ca, tls_certificate=certificate, tls_key=key)
values = islands.latest(sys.argv[1], token_file=sys.argv[2], connecting=known)
print(sum(value.size for value in values.values()))
"""
"""An evaluation of a user's own: how many numbers a model has."""


@pytest.mark.long("tests/messaging/websocket/test_server.py::test_failures_of_tls_are_sentences")
async def test_who_shows_no_certificate_is_not_let_in(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    config, token = write_config(tmp_path / "run.yaml"), make_token(tmp_path)
    own = ("--tls_certificate", made.server, "--tls_key", made.server_key)
    shown = (
        *("--tls_ca", made.authority, "--tls_certificate", made.client),
        *("--tls_key", made.client_key),
    )
    async with open_room(tmp_path) as room:
        hub = room.start(
            *("islands.syncer", "--config", config, "--folder", "run", "--token_file", token),
            *(*own, "--tls_client_ca", made.authority, "--tls_ca", made.authority),
        )
        address = await room.wait(lambda: hub_address(tmp_path / "run"))
        join = ("islands.learner", "--supervisor", address, "--token_file", token)
        learner = room.start(*join, *shown, "--name", "shows")
        refused = room.start(*join, "--tls_ca", made.authority, "--name", "hides", "--wait_s", 5)
        assert await room.ended(refused) == 1
        assert "certificate" in refused.err
        await room.wait(lambda: merges(tmp_path / "run") > 2)
        words = (address, token, made.authority, made.client, made.client_key)
        reader = room.start_words((sys.executable, "-c", EVALUATION, *map(str, words)))
        assert await room.ended(reader) == 0, reader
        assert int(reader.out) > 1000
        await control(room, "stop", *shown)
        assert (await room.ended(learner), await room.ended(hub)) == (0, 0)


def learner_command(banner: str) -> str:
    """The line of a banner that is to be pasted on other hosts."""
    lines = [line.strip() for line in banner.splitlines()]
    return next((line for line in lines if line.startswith("islands join")), "")


def make_token(folder: Path) -> Path:
    path = folder / "secret-file"
    path.write_text("a-token-that-must-not-be-seen-anywhere\n")
    path.chmod(0o600)
    return path


# --- what can be seen of them ---------------------------------------------------------------------


async def test_secrets_are_nowhere_to_be_seen(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config = write_config(tmp_path / "run.yaml", learners=2)
    async with open_room(tmp_path) as room:
        run = room.start("islands.cli", "run", config, "--folder", folder)
        await room.wait(lambda: merges(folder) > 2)
        await room.run("islands.cli", "status", "--folder", folder)
        assert leaks(room, [folder / "token", folder / "key"]) == []
        assert not [pid for pid in sorted(pids(folder).values()) if not uses_uvloop(pid)]
        await stop(folder)
        assert await room.ended(run) == 0
        assert leaks(room, [folder / "token", folder / "key"]) == []


def uses_uvloop(pid: int) -> bool:
    """Whether a process runs on uvloop, or could not since it is not installed."""
    if importlib.util.find_spec("uvloop") is None:
        return True
    return "/uvloop/" in Path(f"/proc/{pid}/maps").read_text()


def leaks(room: Room, secrets: list[Path]) -> list[str]:
    values = [secret.read_bytes().strip() for secret in secrets]
    return [place for place, text in seen(room, secrets) if any(v in text for v in values)]


def seen(room: Room, secrets: list[Path]) -> Iterator[tuple[str, bytes]]:
    """Everything that others may read: all files, and the command lines of what runs."""
    for path in sorted(room.folder.rglob("*")):
        if path.is_file() and path not in secrets:
            yield str(path), path.read_bytes()
    living = [program.pid for program in room.programs if program.process.poll() is None]
    living += pids(room.folder / "run").values()
    for pid in living:
        path = Path(f"/proc/{pid}/cmdline")
        if path.exists():
            yield str(path), path.read_bytes()
