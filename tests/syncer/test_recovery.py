"""A run goes on from its journal, also with more to do; of two syncers the newer one goes on."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from islands.files.disk import Disk, RealDisk
from islands.lab.world.disk import SimulatedDisk
from islands.protocol.errors import DamagedError, DiskError, FencedError, JournalError, UserError
from islands.protocol.identities import Incarnation, LearnerName
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.journalling import Durable, fresh, resume_run
from islands.protocol.syncer.ledger import Book
from islands.protocol.tape.round_entries import Extended
from islands.run.roles import journal_disk
from islands.syncer.journal import DISK_RETRY_S, Journal, JournalWriter
from tests.syncer.actor_bench import Room
from tests.syncer.bench import Bench, opened, seeded
from tests.syncer.test_journal import FRAGMENTS, Writer
from tests.virtual import virtual

SETTINGS = RunSettings(run="r", fragments=2, budget_tokens=1000, budget_s=60.0)


def held(*, ended: str | None = None, reported: bool = True, **changed: object) -> Durable:
    """What a journal holds of a run that has processed 960 tokens in 40 seconds."""
    durable = fresh(SETTINGS, fragments=2, shards=4, epoch=1)
    durable.run, durable.fingerprint = "r", "layout"
    durable.ledger.closed_processed = 960
    durable.elapsed_s = 40.0
    durable.stopping = durable.finished = ended
    durable.reported = ended is not None and reported
    for name, value in changed.items():
        setattr(durable, name, value)
    return durable


def take(durable: Durable, **changed: object) -> Extended | None:
    return resume_run(durable, replace(SETTINGS, **changed), "layout")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "durable",
    [held(), held(stopping="tokens"), held(ended="tokens", reported=False)],
    ids=["in the middle", "closing", "over and not heard"],
)
def test_after_a_crash_it_goes_on_where_it_was(durable: Durable) -> None:
    before = (durable.stopping, durable.finished)
    assert take(durable) is None
    assert (durable.stopping, durable.finished) == before


def test_the_learning_rates_clock_goes_on_under_another_interval() -> None:
    bench = seeded("ana", settings=RunSettings(interval_steps=4, fragments=2))
    for _ in range(3):
        (pull,) = opened(bench)
        bench.commit([pull])
        bench.adopt("ana")
    assert bench.core.durable.clock == 6.0
    settings = replace(bench.settings, interval_steps=16)
    again = Bench(settings, durable=bench.core.durable, epoch=2)
    assert again.core.durable.clock == 6.0
    again.learners, again.connections = bench.learners, {"ana": 0}
    again.hello("ana")
    opened(again)
    assert again.core.durable.clock == 14.0


@pytest.mark.parametrize(
    "durable",
    [held(), held(stopping="tokens"), held(ended="tokens"), held(ended="tokens", reported=False)],
    ids=["in the middle", "closing", "over", "over and not heard"],
)
@pytest.mark.parametrize("budget", [2000, None])
def test_a_larger_budget_goes_on(durable: Durable, budget: int | None) -> None:
    durable = deepcopy(durable)
    extended = take(durable, budget_tokens=budget)
    assert extended is not None
    assert (extended.budget_tokens, extended.before) == (budget, 1000)
    assert (durable.stopping, durable.finished, durable.reported) == (None, None, False)
    assert durable.leases.budget_tokens == budget


def test_a_run_that_is_over_says_how_to_extend_it() -> None:
    with pytest.raises(JournalError) as caught:
        take(held(ended="tokens"))
    assert str(caught.value) == (
        "run 'r' has processed 960 of 1,000 tokens, and is over (tokens); to extend it, give it "
        "budget_tokens above 1000"
    )


@pytest.mark.parametrize("durable", [held(), held(ended="tokens")], ids=["in the middle", "over"])
def test_a_budget_cannot_be_cut(durable: Durable) -> None:
    with pytest.raises(JournalError, match=r"cannot be cut to 999; go on with budget_tokens 1000"):
        take(durable, budget_tokens=999)


def test_a_run_without_a_budget_gets_none() -> None:
    durable = held()
    durable.leases.budget_tokens = None
    with pytest.raises(JournalError, match="cannot be cut to 1,000"):
        take(durable)


def test_more_time_goes_on_with_what_time_ended() -> None:
    durable = held(ended="time", elapsed_s=60.0)
    with pytest.raises(JournalError, match=r"above 1000, or a budget_s above 60"):
        take(durable)
    assert take(durable, budget_s=90.0) is not None
    assert durable.finished is None
    with pytest.raises(JournalError, match="is over"):
        take(held(ended="tokens", elapsed_s=60.0), budget_s=90.0)


def test_more_tokens_without_time_are_of_no_use() -> None:
    """It would end at once; the sentence says what else it needs."""
    with pytest.raises(JournalError, match=r"used up its 60.0 s; .* budget_s above 61 as well"):
        take(held(ended="tokens", elapsed_s=61.0), budget_tokens=2000)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"run": "other"}, "its run is r, not other"),
        ({"fingerprint": "other"}, "its layout is layout, not other"),
    ],
)
def test_the_journal_of_another_run_is_left_alone(changed: dict[str, str], sentence: str) -> None:
    settings = replace(SETTINGS, run=changed.get("run", "r"), budget_tokens=2000)
    with pytest.raises(JournalError, match=sentence):
        resume_run(held(), settings, changed.get("fingerprint", "layout"))


def test_grants_follow_the_interval_of_this_start() -> None:
    durable = held()
    take(durable, interval_steps=500)
    assert durable.leases.chunk_steps == 1000


def test_tokens_are_counted_with_books_that_are_open() -> None:
    durable = held(ended="tokens")
    durable.ledger.books[LearnerName("ana")] = Book(Incarnation(1, 1), processed=40)
    with pytest.raises(JournalError, match=r"processed 1,000 of 1,000 tokens"):
        take(durable)


HEARTBEAT_S = RunSettings().timing.heartbeat_s


class Start(Room):
    def __init__(self, disk: Disk, settings: RunSettings = SETTINGS) -> None:
        super().__init__(disk, settings=settings)
        self.task = asyncio.get_running_loop().create_task(self.actor.run())

    @property
    def journalled(self) -> int:
        return sum(json.loads(line)["kind"] == "journalled" for line in self.tape.lines)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])  # noqa: TID251  of one task
        await self.actor.kill()


@virtual
async def test_the_older_of_two_syncers_ends_itself_and_the_newer_goes_on() -> None:
    disk = SimulatedDisk(random.Random(0))
    old = Start(disk)
    await asyncio.sleep(10.0)
    assert not old.task.done()
    new = Start(disk)
    await asyncio.sleep(2 * HEARTBEAT_S + 0.1)
    assert old.task.done()
    with pytest.raises(FencedError, match="epoch 2 owns the journal, this syncer is 1"):
        old.task.result()
    new.actor.finish("enough")
    await asyncio.sleep(1.0)
    assert not new.task.done()
    assert new.actor.state.durable.finished == "enough"
    assert new.journalled > 0
    await new.end()


class Failing(SimulatedDisk):
    error: Exception | None = None

    def write(self, name: str, parts: Sequence[bytes | memoryview]) -> None:
        if self.error is not None and name.startswith(("fragment", "metadata")):
            raise self.error
        super().write(name, parts)


@virtual
async def test_a_disk_that_fails_is_tried_again_and_a_damaged_journal_is_not() -> None:
    disk = Failing(random.Random(0))
    disk.error = DiskError("fragment-00000.a.safetensors cannot be written: input/output error")
    start = Start(disk)
    await asyncio.sleep(100 * DISK_RETRY_S)
    assert not start.task.done()
    assert "disk" in start.kinds()
    assert start.actor.state.version(1) is None
    disk.error = None
    await asyncio.sleep(2 * DISK_RETRY_S)
    assert start.actor.state.version(1) is not None
    disk.error = DamagedError("gone")
    start.actor.finish("enough")
    await asyncio.sleep(1.0)
    with pytest.raises(DamagedError, match="gone"):
        start.task.result()


class Later:
    """A worker whose work is done when the test says so."""

    def __init__(self) -> None:
        self.works: list[Callable[[], object]] = []

    def submit(self, work: Callable[[], object], _done: Callable[[Any], object]) -> None:
        self.works.append(work)

    def close(self) -> None: ...


def test_who_is_closed_while_it_reads_reads_no_further(tmp_path: Path) -> None:
    holder = Writer(tmp_path)
    for fragment in range(FRAGMENTS):
        holder.commit(fragment, 0)
    worker, heard = Later(), list[object]()
    journal = Journal(RealDisk(tmp_path), FRAGMENTS)
    hear = heard.append
    writer = JournalWriter(journal, worker, written=hear, delayed=hear, failed=hear, damaged=hear)
    writer.take_over(hear)
    writer.close()
    (work,) = worker.works
    error = work()
    assert isinstance(error, JournalError)
    assert "given up" in str(error)
    assert heard == []


def test_a_folder_has_one_journal_at_a_time(tmp_path: Path) -> None:
    first = journal_disk(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="in use by another syncer; choose another, or end that"):
        journal_disk(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    first.close()
    journal_disk(tmp_path).close()


@virtual
async def test_the_end_of_a_syncer_frees_its_journal(tmp_path: Path) -> None:
    for _ in range(2):
        start = Start(journal_disk(tmp_path))
        await asyncio.sleep(1.0)
        await start.end()
