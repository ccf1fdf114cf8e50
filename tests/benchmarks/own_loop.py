"""Step time of one's own loop with and without Islands: `python -m tests.benchmarks.own_loop`.

The hub is a process of its own, planned by a file, and this loop is its one learner. Windows of
steps alternate in one process, in the order off, on, on, off, so that drift cancels. The loop
dispatches each step before it waits for the one before, as a loop that logs a loss does; steps
sleep, and leave the processor alone, as an accelerator's do. A task's trainer is stepped by the
same boundaries.

*Synchronised* is a step with a boundary next to one without. *Watched* is a step while five viewers
follow the run's page and a scraper reads `/metrics` twice a second, next to one while nobody looks.
*Saved* is a step while the hub stores one checkpoint after the other, next to one while it stores
none.

The bound is the upper one of a one-sided 95 % interval: pairs of windows are resampled. Aim: 1.01.
"""

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np
from numpy.typing import NDArray

from islands.cli.control import target_of, tell
from islands.lab.toys.toy_workload import Accelerator
from islands.layout.loop_layout import LoopLayout
from islands.learner.boundary import Dispatched
from islands.loops.join import enter, membership
from islands.loops.joined_run import JoinedRun
from islands.loops.own_model import NO_METRICS
from islands.metrics.site import METRICS
from islands.model.interfaces import PendingStep
from islands.page.server import PROTOCOL
from islands.protocol.messages.control import Verb
from islands.settings.commands import OperatorOptions
from islands.tasks.data.shards import ShardKey
from messaging.clock import MonotonicClock
from tests.integration.programs import entries
from tests.run.test_coordinator import PLACE

MIB = 2**20
AIM = 1.01
RESAMPLES = 10_000
FRAGMENTS = 6
WARM_STEPS = 30
HUB_STARTS_S = 60.0
SYNCHRONISED = ((0.02, 1, 60), (0.02, 8, 60), (0.1, 48, 12))
WATCHED = (0.02, 8, 250)
SAVED = (0.1, 48, 24)
"""Seconds of a step, MiB of the model, and steps of a window."""

SAVING = "saved"

VIEWERS = 5
SCRAPE_S = 0.5
SAVE_S = 0.1

Boundary = Callable[["Finished | None"], object]


@dataclass(frozen=True, slots=True)
class Finished:
    """A step of the accelerator, waited for a second time."""

    step: PendingStep

    def loss(self) -> float:
        return self.step.loss()

    def metrics(self) -> dict[str, float]:
        return {}


class Parameters:
    """The accelerator's arrays; its model is held on the device, so nothing is taken or given."""

    diverged = False
    optimizer = None

    def __init__(self, model: Accelerator) -> None:
        self.model = model
        model.setup()

    def take(self, params: Accelerator, optimizer: object = None) -> bool:
        assert optimizer is None
        assert params is self.model
        return True

    def give(self) -> Accelerator:
        return self.model

    def checked(self, value: object, name: str) -> object:
        return value

    def dispatched(self, loss: object, metrics: Mapping[str, object] = NO_METRICS) -> Dispatched:
        assert isinstance(loss, Finished)
        return loss


def endless(model: Accelerator) -> Iterator[object]:
    """Yield the batches of one shard after the other."""
    while True:  # the caller stops asking
        for shard in range(model.shards):
            for batch, _ in model.batches(ShardKey(0, shard), 0):
                yield batch


def window(model: Accelerator, steps: int, boundary: Boundary) -> float:
    """Return the mean seconds of a step."""
    clock, batches = MonotonicClock(), endless(model)
    before: PendingStep | None = None
    began_s = 0.0
    for count in range(steps + 2):
        boundary(None if before is None else Finished(before))
        pending = model.step(next(batches), 1e-3)
        if before is not None:
            before.loss()
        if count == 1:
            began_s = clock.now_s()
        before = pending
    ended_s = clock.now_s()
    assert before is not None
    before.loss()
    return (ended_s - began_s) / steps


def nothing(_: Finished | None) -> None:
    """A loop without Islands."""


def stepping(run: JoinedRun[Accelerator], model: Accelerator) -> Boundary:
    """Come to a boundary before each step; the first of a window has no loss to tell."""
    last: list[Finished | None] = [None]

    def come(before: Finished | None) -> None:
        last[0] = before or last[0] or Finished(model.step(next(endless(model)), 1e-3))
        run.boundary(model, last[0])

    return come


def measure(
    address: str, case: tuple[float, int, int], pairs: int, beside: str = "", run: Path = Path()
) -> str:
    """Return a line; `beside` is `watched` or `saved` where both windows are synchronised."""
    step_s, megabytes, steps = case
    model = Accelerator(step_s, megabytes * MIB // FRAGMENTS, FRAGMENTS)
    layout = LoopLayout(model.layout.leaves)
    who = membership(address, "own-loop", None, None, None, lambda _: None)
    times: list[list[float]] = [[], []]
    with (
        beside_it(address, run if beside == SAVING else None) as say,
        enter(who, 8, lambda *_: Parameters(model), layout=lambda: layout) as joined,
    ):
        boundary = stepping(joined, model)
        window(model, WARM_STEPS, boundary)
        for pair in range(pairs):
            for on in (False, True) if pair % 2 == 0 else (True, False):
                if beside and on:
                    say("come")
                times[on].append(window(model, steps, boundary if beside or on else nothing))
                if beside and on:
                    say("go")
    found = np.array(times)
    bound = upper_bound(found)
    return (
        f"{beside or 'synchronised':<14}{1e3 * step_s:4.0f} ms {megabytes:4} MiB "
        f"{1e3 * found[0].mean():9.3f} {1e3 * found[1].mean():9.3f}   "
        f"{found[1].sum() / found[0].sum():.4f}   {bound:.4f}   aim {AIM}: "
        f"{'reached' if bound <= AIM else 'missed'}"
    )


def upper_bound(times: NDArray[np.float64]) -> float:
    """Upper bound of the ratio of mean step times: 95 % of resampled sets of pairs lie below."""
    rng = np.random.default_rng(0)
    pairs = times.shape[1]
    drawn = times[:, rng.integers(0, pairs, (RESAMPLES, pairs))].sum(axis=2)
    return float(np.quantile(drawn[1] / drawn[0], 0.95))


@contextmanager
def hub(folder: Path) -> Iterator[str]:
    """Start a hub that waits for a loop; yield its address."""
    said = folder / "said"
    words = ["--folder", folder / "run"]
    words += ["--listen", "127.0.0.1:0", "--run.fragments", FRAGMENTS]
    with said.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "islands.syncer", *map(str, words)], stderr=err
        )
    deadline_s = time.monotonic() + HUB_STARTS_S
    try:
        while not (found := re.search(rb"127\.0\.0\.1:\d+", said.read_bytes())):
            if time.monotonic() > deadline_s:
                raise TimeoutError(said.read_text())
            time.sleep(0.05)
        yield found[0].decode()
    finally:
        process.kill()
        process.wait()


# --- what goes on beside it -------------------------------------------------------------------


@contextmanager
def beside_it(address: str, run: Path | None) -> Iterator[Callable[[str], None]]:
    """A process of viewers and a scraper, so that what they read costs this one nothing.

    With the folder of a run, it asks for checkpoints of that in their place. It yields a function
    that has them `come` or `go`, and waits until they have.
    """
    words = ["--onlook", address, *(() if run is None else ("--save", str(run)))]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.own_loop", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def say(word: str) -> None:
            stdin.write(f"{word}\n")
            stdin.flush()
            assert stdout.readline().startswith("done")

        try:
            yield say
        finally:
            process.kill()


async def view(session: aiohttp.ClientSession, address: str, sees: asyncio.Event) -> None:
    url = f"http://{address}{PLACE}live"
    async with session.ws_connect(url, protocols=[PROTOCOL], max_msg_size=0) as socket:
        async for message in socket:
            if "page.figures" in message.data:
                sees.set()


async def scrape(session: aiohttp.ClientSession, address: str, sees: asyncio.Event) -> None:
    while True:  # until cancelled
        async with session.get(f"http://{address}{METRICS}") as answer:
            assert answer.status == 200, answer.status
            await answer.read()
        sees.set()
        await asyncio.sleep(SCRAPE_S)


async def save(run: Path, sees: asyncio.Event) -> None:
    target = target_of(OperatorOptions(folder=run))
    while True:  # until cancelled
        await asyncio.shield(tell(target, Verb.SAVE, "", 1))
        sees.set()
        await asyncio.sleep(SAVE_S)


async def onlook(address: str, run: Path | None) -> None:
    """Come and go as standard input says."""
    tasks: list[asyncio.Task[None]] = []
    async with aiohttp.ClientSession() as session:
        while word := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if word == "come":
                sees = [asyncio.Event() for _ in range(VIEWERS + 1 if run is None else 1)]
                first = scrape(session, address, sees[0]) if run is None else save(run, sees[0])
                duties = [first, *(view(session, address, each) for each in sees[1:])]
                tasks = [asyncio.create_task(duty) for duty in duties]
                for each in sees:
                    await each.wait()
            else:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            print("done", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=12, help="pairs of windows per case")
    parser.add_argument("--onlook", help=argparse.SUPPRESS)
    parser.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.onlook:
        asyncio.run(onlook(chosen.onlook, chosen.save))
        return
    cases = [(case, "") for case in SYNCHRONISED]
    tell_cases([*cases, (WATCHED, "watched"), (SAVED, SAVING)], chosen.pairs)


def tell_cases(cases: Sequence[tuple[tuple[float, int, int], str]], pairs: int) -> None:
    """Print a line for each case: a step, its model and window, and what goes on beside it."""
    print(f"{'':<14}{'step, model':<16}{'off ms':>9} {'on ms':>9}   {'ratio':<6}   {'95 %':<6}")
    for case, beside in cases:
        with (
            tempfile.TemporaryDirectory(prefix="own-loop-") as folder,
            hub(Path(folder)) as address,
        ):
            run = Path(folder) / "run"
            line = measure(address, case, pairs, beside, run)
            saved = len(entries(run / "tape.jsonl", "checkpointed"))
            print(line, f"({saved} checkpoints)" if beside == SAVING else "", flush=True)


if __name__ == "__main__":
    main()
