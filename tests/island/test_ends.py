"""Who belongs to an island; its hosts end together, and the one that caused it alone has failed."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from islands.island.follower import IslandFollower
from islands.island.forming import CONSEQUENCE_S, NOBODY, Ended, consequence_s, misfit
from islands.island.host_watchdog import (
    AFTER_ANOTHER_S,
    ASKED_TO_END,
    BY_ANOTHER,
    FIRST_BEATS,
    SILENT_BEATS,
    Pulse,
    delay_before_restart_s,
)
from islands.island.leader import LEADER, IslandLeader
from islands.lab.world.inline import InlineWorker
from islands.learner.compute import ComputeFailed
from islands.protocol.errors import DONE, FAILED, OF_NO_USE, RunOverError, TaskError
from islands.protocol.messages.multihost import HostHello
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.settings.run import Timing
from islands.protocol.supervisor.eviction import RESTARTS_MAX, Restarts
from messaging.actors.scope import Scope
from messaging.links.memory_link import MemoryNetwork
from messaging.simulation.virtual_time import run_virtual

HOSTS = 3
FACTS = {"name": "a", "the version of JAX": "1.2"}


class Island:
    """The sides of three hosts, which have formed."""

    def __init__(self, scope: Scope) -> None:
        self.network = MemoryNetwork()
        worker = InlineWorker(lambda: 0.0)
        self.leader = IslandLeader(
            HOSTS,
            host="host-0",
            facts={},
            scope=scope,
            worker=worker,
            say=lambda _: None,
            leave=lambda reason: self.leader.end(Ended(reason, FAILED, NOBODY)),
        )
        self.followers = {
            rank: IslandFollower(
                HostHello(PROTOCOL, rank, HOSTS, f"host-{rank}", {}), *(self.network, LEADER, scope)
            )
            for rank in range(1, HOSTS)
        }

    async def form(self) -> None:
        forming = [asyncio.ensure_future(each.form()) for each in self.followers.values()]
        await self.leader.form(self.network.listen(LEADER))
        self.leader.begin("", Timing())
        await asyncio.gather(*forming)

    async def codes(self) -> list[int]:
        sides: list[IslandLeader | IslandFollower] = [self.leader, *self.followers.values()]
        return [(await side.ended).code_at(rank) for rank, side in enumerate(sides)]


def codes_after(deed: Callable[[Island], Coroutine[Any, Any, None]]) -> list[int]:
    """Form an island on a virtual clock, let something happen, and return how its hosts end."""
    found: list[int] = []

    async def main() -> None:
        scope = Scope("test", lambda _, __: None)
        island = Island(scope)
        await island.form()
        await deed(island)
        found.extend(await island.codes())
        await scope.close()

    run_virtual(main(), limit_s=100.0)
    return found


@pytest.mark.parametrize("rank", range(HOSTS))
def test_a_process_that_fails_is_the_failure_of_its_host(rank: int) -> None:
    """Each of the others ends since that one did; what must be mended is told to all."""
    wanted = [BY_ANOTHER] * HOSTS
    wanted[rank] = FAILED

    def failing(error: Exception) -> list[int]:
        async def deed(island: Island) -> None:
            side = island.leader if rank == 0 else island.followers[rank]
            side.fail(error)

        return codes_after(deed)

    assert failing(KeyError("mine")) == wanted
    assert failing(TaskError("a task that nobody has")) == [OF_NO_USE] * HOSTS


def test_a_process_that_is_lost_is_no_failure_of_the_others() -> None:
    async def killed(island: Island) -> None:
        island.followers[2].end(Ended("killed", FAILED, 2))
        link = island.followers[2]._dialer.link  # noqa: SLF001  it says no word
        assert link is not None
        link.close("killed")

    assert codes_after(killed) == [BY_ANOTHER, BY_ANOTHER, FAILED]

    async def silent(island: Island) -> None:
        island.leader.ended.set_result(Ended("suspended", FAILED, 0))  # it ticks no more

    assert codes_after(silent) == [FAILED, BY_ANOTHER, BY_ANOTHER]


def test_an_island_that_is_asked_to_end_has_no_failure() -> None:
    async def asked(island: Island) -> None:
        island.followers[1].leave("SIGTERM")

    assert codes_after(asked) == [BY_ANOTHER] * HOSTS

    async def over(island: Island) -> None:
        island.leader.end(Ended("tokens", DONE, NOBODY))

    assert codes_after(over) == [DONE] * HOSTS


def test_an_error_that_follows_from_a_loss_is_none_of_its_host() -> None:
    async def lost(island: Island) -> None:
        broken = ComputeFailed(RuntimeError("connection closed by peer"))
        island.followers[1]._on_event(broken)  # noqa: SLF001  as its compute thread tells it
        await asyncio.sleep(CONSEQUENCE_S / 2)
        island.leader.fail(KeyError("rank 0 has failed before"))

    assert codes_after(lost) == [FAILED, BY_ANOTHER, BY_ANOTHER]
    assert consequence_s(KeyError("mine")) == 0.0
    caused = TaskError("its step has failed")
    caused.__cause__ = RuntimeError("gloo")
    assert consequence_s(caused) == CONSEQUENCE_S


def test_a_run_that_is_over_leaves_nothing_to_do() -> None:
    over = RunOverError("the supervisor refused: the run is over: tokens")
    assert Ended.of(over, 1).code_at(0) == Ended.of(over, 1).code_at(1) == DONE


def test_ends_that_other_hosts_cause_never_exhaust_the_restarts() -> None:
    restarts, now_s = Restarts(), 0.0
    for _ in range(1000):
        assert delay_before_restart_s(restarts, BY_ANOTHER, now_s) == AFTER_ANOTHER_S
        now_s += 1.0
    own = [delay_before_restart_s(restarts, FAILED, now_s) for _ in range(RESTARTS_MAX + 1)]
    assert None not in own[:-1]
    assert own[-1] is None


def test_a_process_that_never_beats_is_killed() -> None:
    """After the time of a compilation from its start, since it may import for long; not before."""
    assert Timing().compile_s == FIRST_BEATS
    pulse = Pulse()
    told = [pulse.second(beaten=False) for _ in range(FIRST_BEATS)]
    assert told == [False] * (FIRST_BEATS - 1) + [True]


def test_a_process_that_beats_no_more_is_killed_soon() -> None:
    for before in (0, FIRST_BEATS - 1):
        pulse = Pulse()
        assert not any(pulse.second(beaten=False) for _ in range(before))
        assert not any(pulse.second(beaten=True) for _ in range(100))
        told = [pulse.second(beaten=False) for _ in range(SILENT_BEATS)]
        assert told == [False] * (SILENT_BEATS - 1) + [True]


def hello(rank: int = 1, hosts: int = 3, protocol: int = PROTOCOL, **facts: str) -> HostHello:
    """What a host tells that was started like rank 0, but for what is named."""
    return HostHello(protocol, rank, hosts, "far", {**FACTS, **facts})


def refused(told: HostHello, here: dict[int, str] | None = None) -> tuple[str, int]:
    ended = misfit(told, hosts=3, facts=FACTS, here=here or {0: "near"})
    assert ended is not None
    return ended.reason, ended.code


def test_a_host_that_was_started_alike_is_taken() -> None:
    for rank in (2, 1):
        assert misfit(hello(rank), hosts=3, facts=FACTS, here={0: "near"}) is None


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (hello(hosts=4), "--hosts 4, and rank 0 with --hosts 3"),
        (hello(rank=3), "ranks are 0 to 2"),
        (hello(rank=0), "ranks are 0 to 2"),
        (hello(protocol=PROTOCOL + 1), "another version of Islands"),
        (hello(name="b"), "name is 'b' at rank 1 (far), and 'a' at rank 0"),
        (HostHello(PROTOCOL, 1, 3, "far", {}), "name is None"),
    ],
)
def test_a_host_that_was_started_otherwise_must_be_started_anew(told: HostHello, says: str) -> None:
    reason, code = refused(told)
    assert says in reason
    assert code == OF_NO_USE


def test_a_rank_that_is_taken_is_tried_again() -> None:
    reason, code = refused(hello(1), {0: "near", 1: "far, too"})
    assert "rank 1 (far) came while rank 1 (far, too) is here" in reason
    assert code == FAILED


LEAVING = """trap 'sleep 0.1; echo left; exit 1' TERM HUP
mkfifo "$0.pipe"
echo ready
while :; do read -t 20 <> "$0.pipe"; done
"""


PROGRAM = """import asyncio, sys
from islands.island.host_watchdog import HostWatchdog
sys.exit(asyncio.run(HostWatchdog(["/bin/bash", sys.argv[1]], "me").watch()))
"""


async def test_two_signals_at_once_are_one(tmp_path: Path) -> None:
    """Slurm signals a job twice when it preempts it: the island leaves in order even so.

    Two of one kind could be delivered as one here, so the second is another; either may come first.
    """
    (tmp_path / "leaving").write_text(LEAVING)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(tmp_path / "leaving")), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGHUP)
            assert await process.stdout.read() == b"left\n"
            assert await process.wait() == ASKED_TO_END
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
