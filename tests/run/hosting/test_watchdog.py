"""Signs of life to a service manager, over a real socket; stalls of the loop on virtual time."""

import asyncio
import os
import socket
from collections.abc import Generator
from pathlib import Path

import pytest
import uvloop

from islands.run.hosting.process_runtime import STALLS, run_service, tell_stalls_unless
from islands.run.hosting.watchdog import STALLS_TOLD_S, Notifier, Stalls, Watchdog
from messaging.simulation.virtual_time import run_virtual
from tests.virtual import virtual

LIMIT_S = 10.0


class Manager:
    """What systemd is to a service: a datagram socket and a few variables."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0"))
        self.socket.setblocking(False)  # noqa: FBT003  (the only form there is)
        self.environment = {"NOTIFY_SOCKET": address, "WATCHDOG_PID": str(os.getpid())}

    def heard(self) -> list[str]:
        messages: list[str] = []
        while True:
            try:
                messages.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return messages


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Manager]:
    """A manager that listens at a path or in the abstract namespace, as systemd may."""
    abstract = f"@islands-test-{os.getpid()}"
    found = Manager(str(tmp_path / "notify") if request.param == "path" else abstract)
    yield found
    found.socket.close()


def nothing(_: float) -> None:
    """Take no notice of a stall."""


def test_states_reach_the_manager(manager: Manager) -> None:
    async def main() -> None:
        watchdog = Watchdog(nothing, notifier=Notifier(manager.environment))
        assert manager.heard() == []
        watchdog.ready("two learners")
        watchdog.ready("three\nREADY=0 learners")
        watchdog.stopping("budget spent")
        watchdog.close()
        watchdog.stopping("never said")

    asyncio.run(main())
    assert manager.heard() == [
        "READY=1\nSTATUS=two learners",
        "READY=1\nSTATUS=three READY=0 learners",
        "STOPPING=1\nSTATUS=budget spent",
    ]


@virtual
async def test_the_beat_comes_three_times_per_limit(manager: Manager) -> None:
    manager.environment["WATCHDOG_USEC"] = "3000000"
    heard: list[str] = []
    watchdog = Watchdog(nothing, notifier=Notifier(manager.environment))
    await asyncio.sleep(5.0)
    assert manager.heard() == []
    watchdog.ready()
    watchdog.stopping()
    for _ in range(3):
        await asyncio.sleep(3.0)
        heard += manager.heard()  # a socket keeps ten messages that nobody has read
    assert heard.count("WATCHDOG=1") == 10
    watchdog.close()
    await asyncio.sleep(5.0)
    assert manager.heard() == []


@virtual
async def test_the_beat_goes_on_while_a_process_starts(manager: Manager) -> None:
    manager.environment["WATCHDOG_USEC"] = "60000000"
    watchdog = Watchdog(nothing, notifier=Notifier(manager.environment))
    watchdog.begin("reading 4 GB")
    assert manager.heard() == ["STATUS=reading 4 GB", "WATCHDOG=1"]
    await asyncio.sleep(100.0)
    assert manager.heard() == ["WATCHDOG=1"] * 5
    watchdog.ready()
    assert manager.heard() == ["READY=1\nSTATUS="]
    watchdog.close()


def test_a_service_is_ready_when_it_says_so(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, told in manager.environment.items():
        monkeypatch.setenv(name, told)

    async def main(watchdog: Watchdog) -> int:
        assert manager.heard()[0] == "STATUS=starting"
        await asyncio.sleep(0)
        assert manager.heard() == []
        watchdog.ready()
        assert manager.heard() == ["READY=1\nSTATUS="]
        return 7

    assert run_service(main) == 7
    assert manager.heard() == ["STOPPING=1\nSTATUS="]


@pytest.mark.integration
@pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_the_beat_is_sent_by_a_real_loop(
    manager: Manager, loop_factory: type[asyncio.AbstractEventLoop]
) -> None:
    manager.environment["WATCHDOG_USEC"] = "30000"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        watchdog = Watchdog(nothing, notifier=Notifier(manager.environment))
        watchdog.ready()
        async with asyncio.timeout(LIMIT_S):
            assert await loop.sock_recv(manager.socket, 4096) == b"READY=1\nSTATUS="
            for _ in range(3):
                assert await loop.sock_recv(manager.socket, 4096) == b"WATCHDOG=1"
        watchdog.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
    ],
    ids=["not set", "zero", "no number", "meant for another process"],
)
def test_no_beat_is_sent_that_nobody_asked_for(manager: Manager, variables: dict[str, str]) -> None:
    manager.environment.update(variables)

    async def main() -> None:
        watchdog = Watchdog(nothing, notifier=Notifier(manager.environment))
        watchdog.ready()
        await asyncio.sleep(10.0)
        watchdog.close()

    run_virtual(main(), limit_s=60.0)
    assert manager.heard() == ["READY=1\nSTATUS="]


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "vsock:2:1234", "/" + "x" * 200])
@virtual
async def test_without_a_manager_all_goes_on(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"})
    watchdog = Watchdog(nothing, notifier=notifier)
    watchdog.ready("alone")
    await asyncio.sleep(3.0)
    watchdog.stopping()
    watchdog.close()


def test_a_manager_that_does_not_read_is_not_waited_for(manager: Manager) -> None:
    notifier = Notifier(manager.environment)
    for _ in range(2000):
        notifier.send(STATUS="x" * 1000)
    assert 0 < len(manager.heard()) < 2000
    notifier.close()


class LateLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward, as it is for a loop that stood still."""

    late_s = 0.0

    def time(self) -> float:
        return super().time() + self.late_s


def test_a_stall_is_told_once_with_its_length(manager: Manager) -> None:
    manager.environment["WATCHDOG_USEC"] = "60000"
    told: list[float] = []

    async def beat() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(LIMIT_S):
            while await loop.sock_recv(manager.socket, 4096) != b"WATCHDOG=1":
                pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LateLoop)
        watchdog = Watchdog(told.append, notifier=Notifier(manager.environment), stall_s=300.0)
        watchdog.ready()
        await beat()
        for late_s, stalls in ((100.0, 0), (1000.0, 1), (100.0, 1)):
            loop.late_s += late_s
            await beat()
            await beat()
            assert len(told) == stalls
        watchdog.close()

    with asyncio.Runner(loop_factory=LateLoop) as runner:
        runner.run(main())
    assert 900.0 < told[0] < 1300.0


class HandClock:
    def __init__(self) -> None:
        self.at_s = 0.0

    def now_s(self) -> float:
        return self.at_s


def test_stalls_come_with_advice_and_once_a_minute() -> None:
    clock, told = HandClock(), list[str]()
    stalls = Stalls(told.append, clock)
    for at_s, for_s in ((0.0, 0.6), (1.0, 2.0), (2.0, 0.7), (STALLS_TOLD_S, 0.9)):
        clock.at_s = at_s
        stalls.stalled(for_s)
    first, second = told
    assert "nothing for 0.6 s: the machine is too busy" in first
    assert "nothing for 3 times, 2.0 s at most: the machine" in second
    assert "run.timing.patience" in second


def test_stalls_of_a_process_that_imports_or_compiles_are_not_told() -> None:
    told = list[str]()
    stalls = Stalls(told.append, HandClock())
    for starting in (True, False):
        stalls.starting = lambda starting=starting: starting  # type: ignore[misc]
        stalls.stalled(1.2)
    (only,) = told
    assert "heard and sent nothing for 1.2 s" in only


def test_a_process_tells_of_no_stall_before_its_actors_live() -> None:
    seen: list[bool] = []

    async def main(_: Watchdog) -> int:
        stalls = STALLS.get()
        seen.append(stalls.starting())
        tell_stalls_unless(lambda: False)
        seen.append(stalls.starting())
        return 0

    assert run_service(main) == 0
    assert seen == [True, False]
