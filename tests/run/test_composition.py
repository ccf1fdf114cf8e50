"""A run composed over any backend: starts that are due later, and a run on a user's own backend."""

import asyncio
import json
import random
from dataclasses import replace

import pytest

from islands.actors.ports import ProcessEnd
from islands.actors.role_actor import Context
from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.disk import SimulatedDisk
from islands.lab.world.inline_compute import InlineCompute
from islands.lab.world.inline_worker import InlineWorker
from islands.learner.actor import LearnerActor
from islands.protocol.errors import OF_NO_USE, REPLACED, TaskError
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.membership import Credentials
from islands.protocol.settings.run import RunSettings, Timing
from islands.run import composition
from islands.run.composition import Cluster, ClusterSpec, DelayedStarts
from islands.run.learner_process import make_learner
from islands.run.roles import make_syncer
from islands.supervisor.actor import Hooks
from islands.syncer.actor import SyncerActor
from islands.syncer.workers import SyncerWorkers
from messaging.links.memory_link import MemoryNetwork
from tests.run.other_backend import OtherBackend, Told
from tests.virtual import virtual


class Starts(DelayedStarts):
    """Starts that are noted with their time."""

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


LEARNERS = ("learner-0", "learner-1")
STEP_S = 0.1


class Run:
    """A small run of two learners."""

    def __init__(self, *, broken: bool = False) -> None:
        self.settings = RunSettings(
            interval_steps=8,
            fragments=2,
            budget_tokens=2000,
            warmup_steps=0,
            learning_rate=0.02,
            timing=Timing(patience=0.2),
        )
        self.broken = broken
        self.tape = MemoryTape()
        self.ends: list[tuple[str, str]] = []
        self.over = asyncio.Event()
        self.credentials = Credentials(self.settings.run, b"a key for the tests alone")
        self.disks = {name: SimulatedDisk(random.Random(name)) for name in (SUPERVISOR, SYNCER)}
        self.context = Context(self.settings, self.trainer().layout, MemoryNetwork(), self.tape)
        spec = ClusterSpec(self.settings, (SYNCER, *LEARNERS), self.ended, self.over.set)
        self.cluster = Cluster(spec, self.backend_of)

    def backend_of(self, told: Told) -> OtherBackend:
        self.backend = OtherBackend(self.work, told)
        return self.backend

    def trainer(self) -> NumpyTrainer:
        return NumpyTrainer(self.settings.fragments, batch_tokens=8)

    def ended(self, name: str, end: ProcessEnd) -> None:
        self.ends.append((name, end.told))

    def finished(self, reason: str) -> None:
        self.cluster.end.on_finished(reason)
        self.over.set()

    async def work(self, name: str) -> None:
        if self.broken and name in LEARNERS:
            raise TaskError("there is no method loss; add one")
        actor = self.role(name)
        try:
            await actor.run()
        finally:
            await actor.kill()

    def role(self, name: str) -> LearnerActor | SyncerActor:
        rng = random.Random(name)
        worker = InlineWorker(lambda: 0.001)
        if name == SYNCER:
            return make_syncer(
                name,
                self.context,
                disk=self.disks[name],
                credentials=self.credentials,
                shards=16,
                workers=SyncerWorkers.of(worker),
                rng=rng,
            )
        compute = InlineCompute(
            self.trainer(), self.settings, step_s=lambda: STEP_S, setup_s=0.2, copy_s=lambda: 0.0
        )
        return make_learner(name, self.context, compute, worker=worker, rng=rng)

    async def begin(self) -> asyncio.Task[None]:
        """Start the supervisor here, and all others on the backend."""
        supervisor = self.cluster.make_supervisor(
            self.context,
            disk=self.disks[SUPERVISOR],
            credentials=self.credentials,
            hooks=Hooks(finished=self.finished),
        )
        task = asyncio.get_running_loop().create_task(supervisor.run())
        self.cluster.start_all()
        return task


@virtual
async def test_a_run_on_another_backend_comes_to_its_end() -> None:
    run = Run()
    supervisor = await run.begin()
    await asyncio.sleep(4.0)
    run.backend.kill("learner-1")
    await run.over.wait()
    await supervisor
    assert await run.cluster.wait_ended(30.0)
    assert (run.cluster.end.reason, run.cluster.end.exit_code) == ("tokens", 0)
    assert run.backend.starts.count("learner-1") == 2
    assert ("learner-1", "killed by SIGKILL") in run.ends
    entries = [json.loads(line) for line in run.tape.lines]
    later = [entry for entry in entries if entry["kind"] == "merged" and entry["at_s"] > 5.0]
    assert any("learner-1" in entry["participants"] for entry in later)
    run.cluster.close()


@virtual
async def test_a_run_that_nobody_can_finish_fails_on_another_backend_as_well() -> None:
    run = Run(broken=True)
    supervisor = await run.begin()
    await run.over.wait()
    end = run.cluster.end
    assert (end.sentence, end.exit_code) == ("there is no method loss; add one", OF_NO_USE)
    assert sorted(end.lost) == sorted(LEARNERS)
    assert await run.cluster.leave(1.0, 1.0)
    supervisor.cancel()
    await asyncio.gather(supervisor, return_exceptions=True)
    assert run.backend.starts.count("learner-0") == 1


@pytest.mark.parametrize("ends_s", [99.0, 20.0])
@virtual
async def test_the_role_of_a_newer_syncer_is_taken_back_when_it_dies(
    ends_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked after until the run has ended; the first look alone would find it taken."""
    run, loop = Run(), asyncio.get_running_loop()
    supervisor = await run.begin()
    await asyncio.sleep(1.0)
    supervisor.cancel()
    await asyncio.gather(supervisor, return_exceptions=True)
    heard, said, begun_s = list[str](), list[str](), loop.time()
    run.cluster.spec = replace(run.cluster.spec, say=said.append)
    monkeypatch.setattr(composition, "has_live_syncer", lambda _: loop.time() < begun_s + 42.0)
    assert run.cluster.supervisor is not None
    monkeypatch.setattr(run.cluster.supervisor, "process_ended", lambda *end: heard.extend(end))
    loop.call_later(ends_s, run.finished, "tokens")
    run.backend.told(SYNCER, ProcessEnd(REPLACED, "a newer start"))
    await asyncio.sleep(100.0)
    assert said == ["syncer: a newer start; the run goes on with the newer one"]
    assert [each for each in heard if each == "a newer start"] == ["a newer start"] * (ends_s > 42)
    run.cluster.close()
