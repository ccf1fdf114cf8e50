"""Runs of real processes over real sockets: what dies comes back, and every token is counted."""

import asyncio
import contextlib
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from islands.cli.control import target_of, tell
from islands.protocol.messages.control import CommandAnswer, Verb
from islands.protocol.settings.run import RunSettings
from islands.settings.commands import OperatorOptions
from tests.integration.fleet import WatchedHub, make_fleet, running
from tests.integration.programs import (
    LIMIT_S,
    Program,
    Room,
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

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SLEEPING: dict[str, object] = {"step_s": 0.02, "megabytes": 0.25}
PAIR = ("learner-0", "learner-1")


def fleet(folder: Path, *, budget_tokens: int | None, learners: int = 2) -> WatchedHub:
    settings = RunSettings(run="fleet", interval_steps=8, fragments=4, budget_tokens=budget_tokens)
    return make_fleet(folder, settings, SLEEPING, learners=learners)


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


# --- one process after the other ------------------------------------------------------------------


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


async def test_a_killed_learner_is_started_again_and_merges(tmp_path: Path) -> None:
    hub = fleet(tmp_path / "run", budget_tokens=None)
    async with running(hub) as run:
        await hub.wait_merge_of(PAIR, LIMIT_S)
        before = hub.launcher.pid("learner-1")
        hub.launcher.kill("learner-1")
        await hub.wait_until(lambda: hub.launcher.pid("learner-1") not in (None, before), LIMIT_S)
        await hub.wait_merge_of(("learner-1",), LIMIT_S)
        assert (await stop(tmp_path / "run")).done
        summary = await end_of(run)
    assert summary["rejoins"] == 1
    assert len(logged(tmp_path / "run", "evicted", name="learner-1")) == 1
    assert incarnations(summary) == {"learner-0": 1, "learner-1": 2}
    assert imbalance(summary) == 0
    assert summary["reason"] == "stopped by an operator"


async def test_learners_step_on_while_the_syncer_is_away(tmp_path: Path) -> None:
    hub = fleet(tmp_path / "run", budget_tokens=None)
    async with running(hub) as run:
        await hub.wait_merge_of(PAIR, LIMIT_S)
        # Once its pace is known, a learner is granted what lasts for an outage.
        await hub.wait_until(lambda: set(PAIR) <= set(hub.told), LIMIT_S)
        await hub.wait_until(lambda: all(hub.told[name].steps > 60 for name in PAIR), LIMIT_S)
        hub.cluster.hold("syncer", LIMIT_S)
        hub.launcher.kill("syncer")
        await hub.wait_until(lambda: "syncer" not in hub.launcher, LIMIT_S)
        await hub.wait_until(lambda: set(PAIR) <= set(hub.told), LIMIT_S)
        steps = {name: hub.told[name].steps for name in PAIR}
        await hub.wait_until(
            lambda: all(hub.told[name].steps > steps[name] + 20 for name in PAIR), LIMIT_S
        )
        assert "syncer" not in hub.launcher
        hub.cluster.hold("syncer", 0.0)
        await hub.wait_merge_of(PAIR, LIMIT_S)
        await stop(tmp_path / "run")
        summary = await end_of(run)
    assert imbalance(summary) == 0
    assert incarnations(summary) == dict.fromkeys(PAIR, 1)
    tapes = tmp_path / "run" / "processes"
    starts = entries(tapes / "syncer" / "tape.jsonl", "started")
    assert [start["epoch"] for start in starts] == [1, 2]
    assert starts[1]["resumed"]
    assert only_grow(told_versions(tapes / "syncer" / "tape.jsonl", "committed"))
    for name in PAIR:
        assert only_grow(told_versions(tapes / name / "tape.jsonl", "adopted"))


async def test_a_learner_that_is_terminated_leaves_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    hub = fleet(folder, budget_tokens=None, learners=1)
    async with open_room(tmp_path) as room, running(hub) as run:
        address = hub_address(folder)
        admitted = ("--supervisor", address, "--token_file", folder / "token")
        guest = room.start("islands.learner", *admitted, "--name", "guest")
        await hub.wait_merge_of(("guest",), LIMIT_S)
        guest.process.send_signal(signal.SIGTERM)
        assert await room.ended(guest) == 0
        await hub.wait_merge_of(("learner-0",), LIMIT_S)
        await stop(folder)
        summary = await end_of(run)
    assert "SIGTERM: leaving in order" in guest.err
    assert [entry["reason"] for entry in logged(folder, "left", name="guest")] == ["SIGTERM"]
    assert summary["evictions"] == 0
    assert imbalance(summary) == 0


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


def drained(terminal: int) -> bool:
    """Read what a process has written to its terminal, which is small; returns True."""
    with contextlib.suppress(BlockingIOError):
        while os.read(terminal, 65536):
            pass
    return True


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
    for records in sorted(room.folder.rglob("processes.json")):
        living += pids(records.parent).values()
    for pid in living:
        path = Path(f"/proc/{pid}/cmdline")
        if path.exists():
            yield str(path), path.read_bytes()
