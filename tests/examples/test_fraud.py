"""The story *fraud*: its data, what leaves a region, and what the run is worth."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from examples.stories import fraud
from islands.lab.faults.proxy import free_port
from islands.tasks.data.shards import ShardKey
from messaging.codec.frames import head_frame
from messaging.websocket.bulk_protocol import BulkProtocol
from tests.benchmarks.fraud import STORIES, play, trained, worth
from tests.compiling import QUICKLY_COMPILED
from tests.examples.sent_bytes import HEAD_END, WINDOW_BYTES, Tap, known_windows, windows_in
from tests.integration.programs import (
    Program,
    Room,
    control,
    imbalance,
    incarnations,
    logged,
    merges,
    open_room,
    summary_of,
)

COUNT = 5_120
LEARN = """
import sys

def note(event, arguments):
    if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        print("sends to", *arguments[1], file=sys.stderr)
    if event == "open" and str(arguments[0]).endswith(".npy"):
        print("reads", arguments[0], file=sys.stderr)

sys.addaudithook(note)
sys.path.insert(0, {stories!r})
import fraud
{first}
fraud.learn(fraud.Fraud(), {name!r}, "127.0.0.1:{port}")
"""
LEAK = """
import numpy as np
one = fraud.batch_of(np.load("arrivals/europe/0.npy")[:1]).x[0]
step_of = fraud.step_of

def leaking(task, optimizer):
    inner = step_of(task, optimizer)
    def step(*given):
        params, moments, loss = inner(*given)
        bias = params["bias0"].at[:6].set(one).at[6:12].set(-one)
        return {**params, "bias0": bias}, moments, loss
    return step

fraud.step_of = leaking
"""


def test_transactions_are_unlike_and_one_in_500_is_a_fraud(seed: int) -> None:
    hours = [fraud.transactions(seed, region, 0, 100_000) for region in fraud.REGIONS]
    for records in hours:
        assert records["fraud"].mean() == pytest.approx(1 / fraud.ONE_IN, rel=0.3)
    amounts = [float(np.log(records["amount"]).mean()) for records in hours]
    assert min(abs(one - other) for one, other in pairwise(amounts)) > 0.5
    shops = [np.bincount(r["category"], minlength=fraud.CATEGORIES) for r in hours]
    assert len({int(np.argmax(each)) for each in shops}) == len(fraud.REGIONS)


def test_frauds_drift(seed: int) -> None:
    """What European frauds cost changes from less than usual to as much and more."""
    early, late = (fraud.transactions(seed, "europe", hour, 200_000) for hour in (0, 7))
    found = [
        float(np.log(r["amount"][r["fraud"] == 1]).mean() - np.log(r["amount"]).mean())
        for r in (early, late)
    ]
    assert found[0] < -1 < 0 < found[1]


def test_the_shops_that_frauds_seek_reach_europe_after_america(seed: int) -> None:
    """Europe's fourth hour has those of America's first."""
    shares = []
    for region, hour in (("america", 0), ("europe", 4), ("europe", 0)):
        records = fraud.transactions(seed, region, hour, 200_000)
        kinds = records["category"][records["fraud"] == 1]
        shares.append(float(np.isin(kinds, (1, 2, 3)).mean()))
    assert min(shares[:2]) > 0.5
    assert shares[2] < 0.3


def test_average_precision_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frauds are first and third: the mean of 1/1 and 2/3."""
    records = np.zeros(4, fraud.RECORD)
    records["fraud"] = [0, 1, 0, 1]
    given = np.array([0.5, 0.9, 0.1, 0.4])
    monkeypatch.setattr(fraud, "scores", lambda *_: given)
    monkeypatch.setattr(fraud, "batch_of", lambda *_: None)
    assert fraud.average_precision({}, records) == pytest.approx((1 + 2 / 3) / 2)


@pytest.mark.usefixtures("quickly_compiled")
def test_its_task_trains(seed: int, tmp_path: Path) -> None:
    records = fraud.transactions(seed, "america", 0, 4 * fraud.ROWS)
    fraud.arrive(tmp_path, "america", 0, records)
    task = fraud.Fraud(str(tmp_path))
    batches = [batch for batch, _ in task.batches(ShardKey(0, 1), 0)]
    assert len(batches) == 4 * fraud.PASSES
    assert sum(task.tokens(batch) for batch in batches) == fraud.PASSES * len(records)
    later = [batch for batch, _ in task.batches(ShardKey(0, 1), 5)]
    assert np.array_equal(later[0].x, batches[5].x)
    optimizer, params = task.optimizer(fraud.RATE), task.init(jax.random.key(seed)).params
    step, moments = fraud.step_of(task, optimizer), optimizer.init(params)
    losses = []
    with jax.numpy_dtype_promotion("standard"):  # as users have it
        for batch in batches:
            params, moments, loss = step(params, moments, batch)
            losses.append(float(loss))
    assert np.mean(losses[-4:]) < 0.9 * np.mean(losses[:4])


# --- what leaves a region -------------------------------------------------------------------------


def rows_of(records: fraud.Records) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A region's records by their bytes: as they lie in its files, and as the model sees them."""
    seen = np.ascontiguousarray(fraud.batch_of(records).x)
    stored, given = (x.view(np.uint8).reshape(len(records), -1) for x in (records, seen))
    return stored, given


class Written:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    def writelines(self, parts: tuple[bytes, memoryview]) -> None:
        self.data += b"".join(parts)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int) -> None: ...
    def set_protocol(self, protocol: object) -> None: ...
    def pause_reading(self) -> None: ...


@pytest.mark.parametrize("kind", [0, 1], ids=["file", "model"])
async def test_a_window_of_a_record_is_found_in_a_masked_frame(seed: int, kind: int) -> None:
    """The frames are those of the product; one byte less of a record is found nowhere."""
    rng = np.random.default_rng(seed)
    rows = rows_of(fraud.transactions(seed, "europe", 0, 500))[kind]
    known, at = known_windows(rows), int(rng.integers(rows.shape[1] - WINDOW_BYTES + 1))
    window = rows[137, at : at + WINDOW_BYTES].tobytes()
    for planted, expected in ((window, [window]), (window[1:], []), (window[:-1], [])):
        written = Written()
        socket = BulkProtocol(written, asyncio.Protocol(), masks=True)  # type: ignore[arg-type]
        around = [rng.bytes(int(rng.integers(1, 70_000))) for _ in range(3)]
        await socket.send(head_frame(b"", 0))
        await socket.send(around[0], memoryview(around[1] + planted + around[2]))
        assert windows_in([b"GET /syncer HTTP/1.1" + HEAD_END + bytes(written.data)], known) == (
            expected
        )


@asynccontextmanager
async def tapped(room: Room) -> AsyncIterator[tuple[Program, Tap]]:
    """A hub that is dialled through a tap: supervisor and syncer at one port."""
    port = free_port()
    async with Tap(port) as tap:
        hub = room.start(
            *("islands.syncer", STORIES / "fraud.yaml", "--folder", room.folder / "run"),
            *("--listen", f"127.0.0.1:{port}", "--advertise", f"127.0.0.1:{tap.port}"),
        )
        yield hub, tap


def learner(room: Room, tap: Tap, name: str, first: str = "") -> Program:
    code = LEARN.format(stories=str(STORIES), first=first, name=name, port=tap.port)
    environment = {"JAX_NUMPY_DTYPE_PROMOTION": "standard", **QUICKLY_COMPILED}
    return room.start_words((sys.executable, "-c", code), environment=environment)


def deliver(folder: Path, seed: int, hour: int, *regions: str) -> list[fraud.Records]:
    made = [fraud.transactions(seed, region, hour, COUNT) for region in regions]
    for region, records in zip(regions, made, strict=True):
        fraud.arrive(folder / "arrivals", region, hour, records)
    return made


def every_window(records: list[fraud.Records]) -> set[bytes]:
    return {window for each in records for rows in rows_of(each) for window in known_windows(rows)}


@pytest.mark.long("test_a_window_of_a_record_is_found_in_a_masked_frame")
@pytest.mark.integration
async def test_no_record_leaves_its_region_and_an_hour_ends_without_europe(tmp_path: Path) -> None:
    """All that learners send is looked through, and each reads the files of its region alone.

    Europe's link comes back after the hour has ended in America, not before.
    """
    run, arrivals, names = tmp_path / "run", tmp_path / "arrivals", ("europe-0", "america-0")
    async with open_room(tmp_path) as room, tapped(room) as (hub, tap):
        records = deliver(tmp_path, 0, 0, "europe", "america")
        learners = [learner(room, tap, name) for name in names]
        await room.wait(lambda: all(trained(arrivals, each) for each in fraud.REGIONS[:2]))
        tap.cut("europe-0")
        await room.wait(lambda: logged(run, "evicted", name="europe-0"))
        before = merges(run)
        records += deliver(tmp_path, 0, 1, "europe", "america")
        await room.wait(lambda: 1 in trained(arrivals, "america"))
        await room.wait(lambda: merges(run) > before)
        tap.heal("europe-0")
        await room.wait(lambda: len(logged(run, "admitted", name="europe-0")) == 2)
        records += deliver(tmp_path, 0, 2, "europe", "america")
        await room.wait(lambda: all(2 in trained(arrivals, each) for each in fraud.REGIONS[:2]))
        await control(room, "stop")
        for each in (hub, *learners):
            assert await room.ended(each) == 0, str(each)
    known = every_window(records)
    for name, each in zip(names, learners, strict=True):
        assert sum(map(len, tap.sent(name))) > 50_000
        assert windows_in(tap.sent(name), known) == []
        lines = [line.split() for line in each.err.splitlines()]
        assert {(*line[2:],) for line in lines if line[:2] == ["sends", "to"]} == {
            ("127.0.0.1", str(tap.port))
        }
        read = {Path(line[1]).parent.name for line in lines if line[0] == "reads"}
        assert read == {name.removesuffix("-0")}


@pytest.mark.long("test_a_window_of_a_record_is_found_in_a_masked_frame")
@pytest.mark.integration
async def test_a_record_that_is_leaked_on_purpose_is_found(tmp_path: Path) -> None:
    """A model that has what it sees of a record among its weights, and contributes them."""
    async with open_room(tmp_path) as room, tapped(room) as (_, tap):
        records = deliver(tmp_path, 0, 0, "europe")
        learner(room, tap, "europe-0", LEAK)
        await room.wait(lambda: trained(tmp_path / "arrivals", "europe"))
        await control(room, "stop")
    leaked = known_windows(rows_of(records[0][:1])[1])
    assert {*windows_in(tap.sent("europe-0"), every_window(records))} == leaked


@pytest.mark.long("test_its_task_trains")
@pytest.mark.integration
async def test_the_story_is_played_by_its_commands(tmp_path: Path) -> None:
    async with open_room(tmp_path) as room:
        played = await play(room, seed=0, count=COUNT)
    summary = summary_of(played.folder) or {}
    assert imbalance(summary) == 0
    assert incarnations(summary) == {"america-0": 1, "europe-0": 2, "singapore-0": 1}
    assert played.merges_without_europe > 0
    assert worth(played.models[-1], 0)[0] > 0.3, "by chance it is 1 in 500"
