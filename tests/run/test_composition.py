"""Starts that are due later, and a syncer that a newer one has replaced."""

import asyncio
import random
from collections.abc import Callable

import pytest

from islands.actors.ports import ProcessEnd
from islands.actors.role_actor import Context
from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.disk import SimulatedDisk
from islands.protocol.errors import REPLACED
from islands.protocol.identities import SYNCER
from islands.protocol.membership import Credentials
from islands.protocol.settings.run import RunSettings
from islands.run import composition
from islands.run.composition import Cluster, ClusterSpec, DelayedStarts
from islands.run.hosting.task_processes import ProcessTable
from messaging.links.memory_link import MemoryNetwork
from tests.supervisor.desk import Desk
from tests.virtual import virtual


class Starts(DelayedStarts):
    def __init__(self) -> None:
        super().__init__(lambda name: self.seen.append((asyncio.get_running_loop().time(), name)))
        self.seen: list[tuple[float, str]] = []

    def times(self) -> list[float]:
        return [at_s for at_s, _ in self.seen]


@pytest.mark.parametrize("delay_s", [0.001, 300.0, 7 * 86400.0])
@virtual
async def test_a_delayed_start_is_one_start(delay_s: float) -> None:
    starts = Starts()
    starts.start("a", delay_s)
    starts.start("a", 0.0)
    assert ("a" in starts, starts.seen) == (True, [])
    await asyncio.sleep(2 * delay_s)
    assert "a" not in starts
    assert starts.times() == pytest.approx([delay_s])
    starts.start("a", 0.0)
    assert len(starts.seen) == 2


@pytest.mark.parametrize("hold_first", [True, False], ids=["before", "after"])
@virtual
async def test_what_is_held_does_not_start_before_its_time(*, hold_first: bool) -> None:
    starts = Starts()
    if hold_first:
        starts.hold("a", 3.0)
    starts.start("a", 0.1)
    if not hold_first:
        starts.hold("a", 3.0)
    await asyncio.sleep(10.0)
    assert starts.times() == pytest.approx([3.0])
    starts.start("a", 0.0)
    assert len(starts.seen) == 2


@virtual
async def test_the_last_hold_counts() -> None:
    starts = Starts()
    starts.hold("a", 1000.0)
    starts.start("a", 5.0)
    starts.hold("a", 0.0)
    await asyncio.sleep(10.0)
    assert starts.times() == pytest.approx([5.0])


@virtual
async def test_what_is_cancelled_or_closed_does_not_start() -> None:
    starts = Starts()
    for name in ("a", "b"):
        starts.start(name, 1.0)
    starts.cancel("a")
    starts.cancel("nobody")
    assert starts.names() == ["b"]
    starts.close()
    starts.start("c", 0.0)
    await asyncio.sleep(10.0)
    assert starts.seen == []


@pytest.mark.parametrize("ends_s", [99.0, 20.0])
@virtual
async def test_the_role_of_a_newer_syncer_is_taken_back_when_it_dies(
    ends_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked after until the run has ended; the first look alone would find it taken."""
    settings, loop = RunSettings(), asyncio.get_running_loop()
    heard, said, told = list[str](), list[str](), list[Callable[[str, ProcessEnd], None]]()

    def backend(ended: Callable[[str, ProcessEnd], None]) -> ProcessTable:
        told.append(ended)
        return ProcessTable(pytest.fail, ended)

    cluster = Cluster(ClusterSpec(settings, (SYNCER, "learner-0"), say=said.append), backend)
    layout = NumpyTrainer(settings.fragments, batch_tokens=8).layout
    supervisor = cluster.make_supervisor(
        Context(settings, layout, MemoryNetwork(), MemoryTape()),
        disk=SimulatedDisk(random.Random(0)),
        credentials=Credentials(settings.run, b"a key for the tests alone"),
    )
    monkeypatch.setattr(Cluster, "core", Desk().state.memory)
    monkeypatch.setattr(supervisor, "process_ended", lambda *end: heard.extend(end))
    begun_s = loop.time()
    monkeypatch.setattr(composition, "has_live_syncer", lambda _: loop.time() < begun_s + 42.0)
    loop.call_later(ends_s, cluster.end.on_finished, "tokens")
    told[0](SYNCER, ProcessEnd(REPLACED, "a newer start"))
    await asyncio.sleep(100.0)
    assert said == ["syncer: a newer start; the run goes on with the newer one"]
    assert [each for each in heard if each == "a newer start"] == ["a newer start"] * (ends_s > 42)
    cluster.close()
