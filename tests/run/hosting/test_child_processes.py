"""Real child processes: started, watched, adopted, ended."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from islands.protocol.errors import UserError
from islands.run.hosting import process_identity
from islands.run.hosting.child_processes import ProcessLauncher
from islands.run.hosting.process_output import NO_MEMORY, TOLD_CHARACTERS

pytestmark = pytest.mark.integration

LIMIT_S = 60.0
ROOT = Path(__file__).resolve().parents[3]

PRELUDE = """
import os, signal, socket, sys
link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
link.connect(b"\\0" + bytes.fromhex(sys.argv[1]))
def say(*words):
    link.send(" ".join(map(str, words)).encode())
def leave(*_):
    say("leaves")
    sys.exit(0)
"""
OBEDIENT = (
    "signal.signal(signal.SIGTERM, leave); say('ready', os.getpid())\nwhile 1: signal.pause()"
)
STUBBORN = (
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('ready', os.getpid())\n"
    "while 1: signal.pause()"
)

# A launcher in a process of its own, which a test can kill.
FIRST_LAUNCHER = """
import asyncio, sys
from pathlib import Path
from islands.run.hosting.child_processes import ProcessLauncher
async def main():
    folder, *command = sys.argv[1:]
    launcher = ProcessLauncher(lambda _: command, lambda _: {}, Path(folder), lambda *_: None)
    launcher.start("a")
    print("recorded", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


class Room:
    """A launcher of tiny programs, what it told, and what the programs say."""

    def __init__(self, folder: Path) -> None:
        self.programs: dict[str, str] = {"a": OBEDIENT}
        self.interpreter = sys.executable
        self.folder = folder
        self.ends: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("")
        self.socket.setblocking(False)  # noqa: FBT003  (the only form there is)
        self.launcher = self.make()

    def make(self, log_limit_bytes: int = 2**20, log_check_s: float = 60.0) -> ProcessLauncher:
        return ProcessLauncher(
            self.command,
            lambda name: {"ISLANDS_TEST_NAME": name},
            self.folder,
            lambda name, end: self.ends.put_nowait((name, end.told)),
            log_limit_bytes=log_limit_bytes,
            log_check_s=log_check_s,
        )

    def command(self, name: str) -> list[str]:
        address = self.socket.getsockname()[1:].hex()
        return [self.interpreter, "-S", "-c", PRELUDE + self.programs[name], address]

    def start(self, name: str, program: str) -> None:
        self.programs[name] = program
        self.launcher.start(name)

    async def heard(self) -> list[str]:
        async with asyncio.timeout(LIMIT_S):
            said = await asyncio.get_running_loop().sock_recv(self.socket, 4096)
        return said.decode().split()

    async def ready(self) -> int:
        word, pid = await self.heard()
        assert word == "ready"
        return int(pid)

    async def ended(self) -> tuple[str, str]:
        async with asyncio.timeout(LIMIT_S):
            return await self.ends.get()

    async def stop(self, name: str, told: str = "") -> None:
        self.launcher.stop(name, LIMIT_S)
        assert await self.heard() == ["leaves"]
        assert await self.ended() == (name, told)

    async def kill(self) -> None:
        self.launcher.kill("a")
        assert await self.ended() == ("a", "killed by SIGKILL")

    def restart(self, log_limit_bytes: int = 2**20, log_check_s: float = 60.0) -> None:
        self.launcher.close()
        self.launcher = self.make(log_limit_bytes, log_check_s)

    async def close(self) -> None:
        for name in self.launcher.names():
            self.launcher.kill(name)
        while self.launcher.names():
            await self.ended()
        self.launcher.close()
        self.socket.close()


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    room = Room(tmp_path)
    try:
        yield room
    finally:
        await room.close()


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_child_is_watched_on_either_loop(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def within() -> None:
        room = Room(tmp_path)
        try:
            room.start("a", OBEDIENT)
            await room.ready()
            await room.stop("a")
        finally:
            await room.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(within())


MEMORY = Path("/sys/fs/cgroup/memory")
GREEDY = """
open(os.environ["ROOM"] + "/cgroup.procs", "w").write(str(os.getpid()))
held = bytearray(2**28)
"""


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A control group with 32 MiB, which a program enters."""
    room = MEMORY / f"islands-test-{os.getpid()}"
    try:
        room.mkdir()
        (room / "memory.limit_in_bytes").write_text(str(2**25))
    except OSError as error:
        pytest.skip(f"no control group of memory can be made here: {error}")
    monkeypatch.setenv("ROOM", str(room))
    yield
    room.rmdir()


@pytest.mark.usefixtures("small_memory")
async def test_who_has_no_memory_left_is_told_so(room: Room) -> None:
    room.start("greedy", GREEDY)
    name, told = await room.ended()
    assert (name, told) == ("greedy", f"killed by SIGKILL: {NO_MEMORY}")
    room.launcher.start("a")
    await room.ready()
    await room.kill()


@pytest.fixture
def bystander() -> Generator["subprocess.Popen[bytes]"]:
    """A process that no launcher started; it echoes what it is sent."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S607
    yield process
    process.kill()
    process.communicate()


async def wait_gone(pid: int) -> None:
    """Wait for the end of a process that may be nobody's child here."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    gone, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(descriptor, gone.set)
    async with asyncio.timeout(LIMIT_S):
        await gone.wait()
    loop.remove_reader(descriptor)
    os.close(descriptor)


# ------------------------------------------------------------------------------- start and end


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("print('done')", ""),
        ("print('first'); sys.exit('no such task\\n\\n')", "exit code 1: no such task"),
        ("sys.exit(2)", "exit code 2"),
        ("raise ValueError('x' * 999)", f"exit code 1: ValueError: {'x' * (TOLD_CHARACTERS - 12)}"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("os.kill(os.getpid(), 40)", "killed by signal 40"),
        ("os._exit(3)", "exit code 3"),
    ],
    ids=["orderly", "sys.exit", "silent", "unhandled", "segfault", "unnamed signal", "os._exit"],
)
async def test_an_end_is_told_in_one_sentence(room: Room, program: str, sentence: str) -> None:
    room.start("a", program)
    assert "a" in room.launcher
    assert await room.ended() == ("a", sentence)
    assert room.launcher.names() == []
    assert room.launcher.pid("a") is None


async def test_a_kill_is_told(room: Room) -> None:
    room.start("a", OBEDIENT)
    assert await room.ready() == room.launcher.pid("a")
    await room.kill()
    room.launcher.kill("a")


async def test_what_cannot_be_started_has_ended(room: Room) -> None:
    room.interpreter = "/nowhere/python"
    room.launcher.start("a")
    name, sentence = await room.ended()
    assert name == "a"
    assert sentence.startswith("cannot be started: ")
    assert "No such file" in sentence


async def test_each_start_appends_to_the_log_and_tells_of_its_own_words_only(room: Room) -> None:
    room.start("a", "print('out'); sys.exit('of the first')")
    assert await room.ended() == ("a", "exit code 1: of the first")
    room.start("a", "sys.exit(1)")
    assert await room.ended() == ("a", "exit code 1")
    assert room.launcher.log("a") == room.folder / "processes" / "a" / "output.log"
    assert room.launcher.log("a").read_text() == "out\nof the first\n"


async def test_a_child_has_its_own_session_and_its_own_environment(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/nobody")
    monkeypatch.setenv("ISLANDS_TEST_INHERITED", "yes")
    names = ("NOTIFY_SOCKET", "ISLANDS_TEST_INHERITED", "ISLANDS_TEST_NAME")
    room.start("a", f"say(os.getsid(0), *map(os.environ.get, {names}))")
    session, *variables = await room.heard()
    assert variables == ["None", "yes", "a"]
    assert int(session) != os.getsid(0)
    assert await room.ended() == ("a", "")


async def test_what_a_child_leaves_behind_ends_with_it(room: Room) -> None:
    room.start("a", f"os.fork()\n{OBEDIENT}")
    pids = [await room.ready(), await room.ready()]
    await room.kill()
    for pid in pids:
        await wait_gone(pid)


async def test_without_pidfds_ends_are_seen_all_the_same(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    room.start("a", "sys.exit('last words')")
    assert await room.ended() == ("a", "exit code 1: last words")
    room.start("b", OBEDIENT)
    await room.ready()
    await room.stop("b")


# -------------------------------------------------------------------------------------- grace


async def test_who_ignores_sigterm_is_killed_after_the_grace(room: Room) -> None:
    room.start("a", STUBBORN)
    await room.ready()
    room.launcher.stop("a", 0.05)
    assert await room.ended() == ("a", "killed by SIGKILL")
    room.launcher.close()
    room.launcher.start("a")
    assert room.launcher.names() == [], "closed, it starts nothing more"


async def test_a_paused_child_hears_that_it_is_to_end(room: Room) -> None:
    room.start("a", OBEDIENT)
    os.kill(await room.ready(), signal.SIGSTOP)
    await room.stop("a")


# ------------------------------------------------------------------------ adoption, identities


async def test_children_of_a_killed_launcher_are_adopted(room: Room) -> None:
    room.programs["a"] = f"print('at work')\n{OBEDIENT}"
    room.launcher.close()
    command = [sys.executable, "-c", FIRST_LAUNCHER, str(room.folder), *room.command("a")]
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)  # noqa: ASYNC220
    try:
        pid = await room.ready()
        assert first.stdout is not None
        assert first.stdout.readline() == b"recorded\n"
    finally:
        first.kill()
        first.communicate(timeout=LIMIT_S)
    room.launcher = room.make()
    assert room.launcher.adopt() == ["a"]
    room.launcher.start("a")
    assert room.launcher.pid("a") == pid
    await room.stop("a", "exit code unknown: at work")
    room.launcher.start("a")
    assert await room.ready() != pid


async def test_who_closes_without_ending_its_children_leaves_them_to_the_next(room: Room) -> None:
    """Also where the next one names the folder by another path."""
    room.start("a", OBEDIENT)
    await room.ready()
    room.launcher.close()
    another = room.folder / "another"
    another.symlink_to(room.folder)
    room.folder = another
    room.launcher = room.make()
    assert room.launcher.adopt() == ["a"]
    await room.kill()


async def test_what_a_child_started_is_not_adopted(room: Room) -> None:
    room.programs["a"] = f"if os.fork() == 0: signal.pause()\n{OBEDIENT}"
    room.launcher.start("a")
    pid = await room.ready()
    room.restart()
    assert room.launcher.adopt() == ["a"]
    assert room.launcher.pid("a") == pid
    await room.kill()


async def test_a_pid_of_another_is_never_signalled(
    room: Room, bystander: "subprocess.Popen[bytes]"
) -> None:
    found = process_identity.facts(bystander.pid)
    assert found is not None
    stranger = process_identity.Identity(bystander.pid, found.started_ticks - 1)
    assert room.launcher.adopt() == []
    room.launcher.kill("a")
    assert not process_identity.send_signal(stranger, signal.SIGKILL)
    assert bystander.stdin is not None
    assert bystander.stdout is not None
    bystander.stdin.write(b"alive\n")
    bystander.stdin.flush()
    assert bystander.stdout.readline() == b"alive\n"


def test_signals_are_guarded_without_pidfds_too(
    bystander: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    found = process_identity.facts(bystander.pid)
    assert found is not None
    meant = process_identity.Identity(bystander.pid, found.started_ticks)
    assert not process_identity.send_signal(replace(meant, started_ticks=1), signal.SIGKILL)
    assert process_identity.lives(meant)
    assert process_identity.send_signal(meant, signal.SIGKILL)
    assert bystander.wait(LIMIT_S) == -signal.SIGKILL
    assert not process_identity.lives(meant)
    assert not process_identity.send_signal(meant, signal.SIGKILL)


def test_a_zombie_does_not_live() -> None:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    found = process_identity.facts(process.pid)
    assert found is not None
    assert found.zombie
    assert not process_identity.lives(process_identity.Identity(process.pid, found.started_ticks))
    process.wait(LIMIT_S)
    assert process_identity.facts(process.pid) is None


async def test_a_folder_has_one_launcher(room: Room) -> None:
    with pytest.raises(UserError, match="in use by another run"):
        room.make()
    room.restart()


# ------------------------------------------------------------------------------------ log files


async def test_a_log_is_turned_over_under_a_child_that_goes_on_writing(room: Room) -> None:
    room.restart(log_limit_bytes=1000, log_check_s=0.02)
    full = room.launcher.log("a").with_name("output.1.log")
    program = (
        f"while not os.path.exists({str(full)!r}) or os.path.getsize('/dev/fd/1'):\n"
        "    print('early', flush=True)\n"
        "sys.exit('late')"
    )
    room.start("a", program)
    assert await room.ended() == ("a", "exit code 1: late")
    assert full.stat().st_size > 1000
    assert room.launcher.log("a").read_text().endswith("late\n")
