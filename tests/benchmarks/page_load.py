"""A run's page in Chromium under load: `python -m tests.benchmarks.page_load`.

It needs what `tests/browser.py` names.

- crowd: 1,024 learners of other hosts. Ten times a second the hub tells new figures of its 128
  rows, and what the tape has got since: a round of all learners each second, with its arrivals,
  fates and merge. Told is how much of the time the page's main thread is busy, and how much of
  JavaScript's heap is in use after a collection, each minute. Aims: 50 %, and a heap that is flat.
- week: the folder of a run of seven days, whose tapes were turned over many times. Told is the
  time from the address to the first row of a learner, live and as a report. Aim: 2 s.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec

from islands.files.growing_files import LIMIT_BYTES, older
from islands.files.tape_writing import HEAD
from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.page import server
from islands.page.messages import write_report
from islands.page.server import LiveRun, PageSite
from islands.protocol.identities import Incarnation, LearnerName, Phase, Role, Status
from islands.protocol.messages.registry import MESSAGE_TYPES
from islands.protocol.settings.run import RunSettings
from islands.protocol.supervisor.eviction import MemberRecord
from islands.protocol.tape.entry import Entry, encode_entry
from islands.protocol.tape.member_entries import Admitted, StatusChanged
from islands.protocol.tape.process_entries import ProcessBegan
from islands.protocol.tape.round_entries import Arrived, Closed, Committed, FateTold, Merged, Opened
from islands.run.records.figures import LearnerFigures, RunFigures
from islands.run.records.run_folder import RunFolder
from islands.settings.run_spec import RunPlan, RunSpec, write
from messaging.clock import MonotonicClock, WallClock
from messaging.websocket.network import WebsocketNetwork
from tests.browser import chromium, open_page
from tests.page.run_folder import began, merged, write_tape

if TYPE_CHECKING:
    from playwright.async_api import CDPSession

    from islands.run.coordinator import Coordinator

LEARNERS, FRAGMENTS = 1024, 24
UPDATE_S = 0.1
BUSY_AIM, OPEN_AIM_S = 0.5, 2.0
WARM_S, SAMPLE_S = 20.0, 60.0
WEEK_S, WEEK_LEARNERS, ROUND_S = 7 * 86_400.0, 8, 2.0
SPEC = RunSpec(RunSettings(run="load", fragments=FRAGMENTS, budget_tokens=10**12))
LAYOUT = plan(
    [Leaf(f"layers/{index}", (64,)) for index in range(FRAGMENTS)],
    count=FRAGMENTS,
    min_piece_bytes=64,
)
Timed = tuple[float, str, Entry]


def round_of(number: int, at_s: float, names: list[LearnerName], took_s: float) -> Iterator[Timed]:
    fragment, version = number % FRAGMENTS, f"1.{number // FRAGMENTS + 1}"
    count = len(names)
    yield at_s, "syncer", Opened(number, fragment, names, {})
    for place, name in enumerate(names):
        ticket = f"{name}/1.{place + 1}@1:{number}"
        yield at_s + 0.4 * took_s * place / count, "syncer", Arrived(ticket, 4096)
    yield at_s + 0.5 * took_s, "syncer", Closed(number, fragment, names, {}, [], 1.0, 0.0)
    for place, name in enumerate(names):
        ticket = f"{name}/1.{place + 1}@1:{number}"
        applied = FateTold(ticket=ticket, fragment=fragment, fate="applied", tokens=4096)  # type: ignore[arg-type]
        yield at_s + 0.5 * took_s + 0.3 * took_s * place / count, "syncer", applied
    whole = msgspec.structs.replace(
        merged(number),
        fragment=fragment,
        version=version,
        contributions=count,
        participants=names,
        asked=count,
        learners=count,
        tokens=[4096] * count,
        steps=[8] * count,
        weights=[1.0] * count,
        norms=[0.1] * count,
    )
    yield at_s + 0.9 * took_s, "syncer", whole
    yield at_s + 0.95 * took_s, "syncer", Committed(fragment, version, "d")


# --- a crowd --------------------------------------------------------------------------------------


class CrowdedHub:
    """As much of a hub as its page asks for, with learners that step by the clock alone."""

    def __init__(self, folder: Path) -> None:
        self.clock = MonotonicClock()
        self.began_s = self.clock.now_s()
        self.names = [LearnerName(f"learner-{index}") for index in range(LEARNERS)]
        self.figures = RunFigures(
            {name: LearnerFigures(status="live", incarnations=1) for name in self.names}
        )
        self.members = {
            name: MemberRecord(
                Role.LEARNER,
                name,
                Incarnation(1, place + 1),
                Status.LIVE,
                1,
                0.0,
                phase=Phase.STEPPING,
            )
            for place, name in enumerate(self.names)
        }
        self.spec, self.plan = SPEC, RunPlan(LAYOUT, shards=4)
        self.settings = SimpleNamespace(folder=folder)
        self.folder = SimpleNamespace(figures=self.figures)
        self.cluster = SimpleNamespace(starts_in_s=dict, learners=list)

    @property
    def now_s(self) -> float:
        return self.clock.now_s() - self.began_s

    elapsed_s = wall_s = now_s

    def step(self) -> None:
        """Let every learner have stepped until now."""
        now_s = self.now_s
        for place, name in enumerate(self.names):
            done = self.figures.learners[name]
            done.steps = int(10 * now_s)
            done.tokens, done.stepping_s = 512 * done.steps, now_s
            done.loss, done.step_time_s = 2.0 + 10 / (10 + now_s) + 0.01 * (place % 7), 0.1
            done.bytes_up = done.bytes_down = 1000 * done.steps
            self.members[name].heard_s = now_s - 0.001 * (place % 900)
        self.figures.speed.add(now_s, self.figures.tokens)
        self.figures.losses.add(self.figures.tokens, 2.0 + 10 / (10 + now_s))
        self.figures.merges = int(now_s)


async def grow(hub: CrowdedHub, path: Path) -> None:
    """Write the tape of the crowd as its time passes."""
    waiting: list[Timed] = []
    number = 0
    with path.open("ab") as tape:
        while True:  # until cancelled
            hub.step()
            if not waiting or hub.now_s >= number:
                waiting += round_of(number, hub.now_s, hub.names, 1.0)
                number += 1
            if number % 5 == 0 and waiting:
                who = hub.names[number % LEARNERS]
                status = Status.SUSPECT if number % 2 else Status.LIVE
                waiting.insert(0, (hub.now_s, "supervisor", StatusChanged(who, status)))
            due = [each for each in waiting if each[0] <= hub.now_s]
            waiting = [each for each in waiting if each[0] > hub.now_s]
            tape.write(b"".join(encode_entry(*each) + b"\n" for each in due))
            tape.flush()
            await asyncio.sleep(UPDATE_S)


async def crowd(folder: Path, seconds: float) -> None:
    hub = CrowdedHub(folder)
    write(folder, SPEC, hub.plan)
    entries: list[Timed] = [(0.0, "hub", ProcessBegan(1, WallClock().now_s(), 0.0))]
    entries += [
        (0.0, "supervisor", Admitted(name, Role.LEARNER, f"1.{place + 1}"))
        for place, name in enumerate(hub.names)
    ]
    write_tape(folder / "tape.jsonl", entries)
    server.INTERVAL_S = server.FIGURES_S = UPDATE_S
    async with served(hub) as address, chromium() as browser:
        growing = asyncio.create_task(grow(hub, folder / "tape.jsonl"))
        page, told = await open_page(browser, address)
        await page.wait_for_selector("#learners tbody tr")
        devtools = await page.context.new_cdp_session(page)
        await devtools.send("Performance.enable")
        await asyncio.sleep(WARM_S)
        heaps, shares = [await heap_mb(devtools)], []
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            before = await metric(devtools, "TaskDuration"), time.monotonic()
            await asyncio.sleep(min(SAMPLE_S, max(1.0, ends_s - time.monotonic())))
            spent_s = await metric(devtools, "TaskDuration") - before[0]
            shares.append(spent_s / (time.monotonic() - before[1]))
            heaps.append(await heap_mb(devtools))
            print(f"  busy {shares[-1]:.1%}, heap {heaps[-1]:.1f} MB", flush=True)
        growing.cancel()
        with suppress(asyncio.CancelledError):
            await growing
        assert told == [], told
    busy = max(shares)
    print(
        f"crowd: {LEARNERS} learners, main thread busy {busy:.1%} at most, aim {BUSY_AIM:.0%}: "
        f"{'reached' if busy < BUSY_AIM else 'missed'}; heap {heaps[0]:.1f} to {heaps[-1]:.1f} MB"
    )


@asynccontextmanager
async def served(hub: CrowdedHub) -> AsyncIterator[str]:
    """Serve the page of a hub on a port of loopback while the block lasts; yield its address."""
    network = WebsocketNetwork(MESSAGE_TYPES, report=print)
    await network.open("127.0.0.1", 0)
    network.serve(PageSite(LiveRun(cast("Coordinator", hub)), None))
    try:
        yield f"http://127.0.0.1:{network.port}/page/"
    finally:
        await network.close()


async def metric(devtools: "CDPSession", name: str) -> float:
    found = (await devtools.send("Performance.getMetrics"))["metrics"]
    return next(float(each["value"]) for each in found if each["name"] == name)


async def heap_mb(devtools: "CDPSession") -> float:
    """Megabytes that JavaScript uses after a collection."""
    await devtools.send("HeapProfiler.collectGarbage")
    return await metric(devtools, "JSHeapUsedSize") / 1e6


# --- a week ---------------------------------------------------------------------------------------


def write_week(folder: Path) -> int:
    """Write what a run of a week leaves: tapes up to their limit, each with an older part.

    Returns:
        The bytes of its folder.
    """
    records = RunFolder(folder, SPEC.settings, fragments=FRAGMENTS)
    write(folder, SPEC, RunPlan(LAYOUT, shards=4))
    names = [LearnerName(f"learner-{index}") for index in range(WEEK_LEARNERS)]
    records.write(*began("hub", 0.0))
    for place, name in enumerate(names):
        records.write(1.0, "supervisor", Admitted(name, Role.LEARNER, f"1.{place + 1}"))
    records.keep(WEEK_S)
    records.close()
    for path in (folder / "tape.jsonl", folder / "processes" / "syncer" / "tape.jsonl"):
        own = path.parent.name == "syncer"
        path.parent.mkdir(parents=True, exist_ok=True)
        number = int(WEEK_S / ROUND_S)
        lines: list[bytes] = []
        size = 0
        while size < 2 * LIMIT_BYTES - 2**16:  # the newest entries first, until both parts are full
            number -= 1
            round_ = list(round_of(number, number * ROUND_S, names, 1.0))
            told = [each for each in round_ if own or isinstance(each[2], Merged)]
            block = b"\n".join(encode_entry(*each) for each in told)
            lines.append(block)
            size += len(block) + 1
        lines.reverse()
        half = len(lines) // 2
        beginning = encode_entry(*began("syncer" if own else "hub", 0.0))
        older(path).write_bytes(b"\n".join([HEAD, beginning, *lines[:half]]) + b"\n")
        path.write_bytes(b"\n".join([HEAD, *lines[half:]]) + b"\n")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def week(folder: Path) -> None:
    """Measure how fast the page of a week opens."""
    size = write_week(folder)
    hub = CrowdedHub(folder)
    hub.began_s -= WEEK_S
    hub.step()
    report = folder.parent / "report.html"
    async with chromium() as browser:
        async with served(hub) as address:
            live_s = await opened_s(browser, address)
        began_s = time.monotonic()
        write_report([folder], report)
        wrote_s = time.monotonic() - began_s
        report_s = await opened_s(browser, report.as_uri())
    print(
        f"week: {size / 1e6:.0f} MB in its folder; open in {live_s:.2f} s live, and in "
        f"{report_s:.2f} s as a report of {report.stat().st_size / 1e6:.1f} MB, written in "
        f"{wrote_s:.2f} s; aim {OPEN_AIM_S:.0f} s: "
        f"{'reached' if max(live_s, report_s) < OPEN_AIM_S else 'missed'}"
    )


async def opened_s(browser: object, address: str) -> float:
    """Seconds from an address to the first row of a learner."""
    began_s = time.monotonic()
    page, told = await open_page(browser, address)  # type: ignore[arg-type,unused-ignore]
    await page.wait_for_selector("#learners tbody tr")
    took_s = time.monotonic() - began_s
    assert told == [], told
    await page.context.close()
    return took_s


async def measure(which: str, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="page-load-") as place:
        for name, duty in (("week", week), ("crowd", lambda folder: crowd(folder, seconds))):
            if which in ("", name):
                folder = Path(place) / name / "run"
                folder.mkdir(parents=True)
                await duty(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", choices=("crowd", "week"), default="")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the crowd is shown")
    chosen = parser.parse_args()
    asyncio.run(measure(chosen.only, chosen.seconds))


if __name__ == "__main__":
    main()
