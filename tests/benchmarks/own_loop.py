"""Step time of one's own loop with and without Islands: `python -m tests.benchmarks.own_loop`.

The hub is a process of its own, planned by a file, and this loop is its one learner. Windows of
steps with and without boundaries alternate in one process, in the order off, on, on, off, so that
drift cancels. The loop dispatches each step before it waits for the one before, as a loop that logs
a loss does; steps sleep, and leave the processor alone, as an accelerator's do.

The bound is the upper one of a one-sided 95 % interval: pairs of windows are resampled. Aim: 1.01.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from islands.lab.toys.toy_workload import Accelerator
from islands.layout.loop_layout import LoopLayout
from islands.learner.boundary import Dispatched
from islands.loops.join import enter, membership
from islands.loops.joined_run import JoinedRun
from islands.loops.own_model import NO_METRICS
from islands.model.interfaces import PendingStep
from messaging.clock import MonotonicClock
from tests.benchmarks.step_overhead import AIM, MIB, endless, upper_bound

FRAGMENTS = 6
WARM_STEPS = 30
HUB_STARTS_S = 60.0


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


def window(model: Accelerator, steps: int, boundary: Boundary) -> float:
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


def measure(address: str, step_s: float, megabytes: int, pairs: int, steps: int) -> str:
    model = Accelerator(step_s, megabytes * MIB // FRAGMENTS, FRAGMENTS)
    told = LoopLayout(model.layout.leaves)
    who = membership(address, "own-loop", None, None, None, lambda _: None)
    with enter(who, 8, lambda *_: Parameters(model), layout=lambda: told) as run:
        on = stepping(run, model)
        window(model, WARM_STEPS, on)
        times: list[list[float]] = [[], []]
        for pair in range(pairs):
            for which in (0, 1) if pair % 2 == 0 else (1, 0):
                times[which].append(window(model, steps, on if which else nothing))
    found = np.array(times)
    bound = upper_bound(found)
    ratio = found[1].sum() / found[0].sum()
    return (
        f"{1e3 * step_s:6.0f} ms {megabytes:4} MiB {1e3 * found[0].mean():9.3f} "
        f"{1e3 * found[1].mean():9.3f}   {ratio:.4f}   {bound:.4f}   aim {AIM}: "
        f"{'reached' if bound <= AIM else 'missed'}"
    )


def stepping(run: JoinedRun[Accelerator], model: Accelerator) -> Boundary:
    """Come to a boundary before each step; the first of a window has no loss to tell."""
    last: list[Finished | None] = [None]

    def come(before: Finished | None) -> None:
        last[0] = before or last[0] or Finished(model.step(next(endless(model)), 1e-3))
        run.boundary(model, last[0])

    return come


def hub(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a hub that waits for a loop; its address."""
    said = folder / "said"
    words = ["--folder", folder / "run"]
    words += ["--listen", "127.0.0.1:0", "--run.fragments", FRAGMENTS]
    with said.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "islands.syncer", *map(str, words)], stderr=err
        )
    deadline_s = time.monotonic() + HUB_STARTS_S
    while time.monotonic() < deadline_s:
        found = re.search(rb"127\.0\.0\.1:\d+", said.read_bytes())
        if found is not None:
            return process, found[0].decode()
        time.sleep(0.05)
    process.kill()
    raise TimeoutError(said.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=12, help="pairs of windows per case")
    chosen = parser.parse_args()
    print(f"{'step, model':<18}{'off ms':>9} {'on ms':>9}   {'ratio':<6}   {'95 %':<6}")
    for step_s, megabytes, steps in ((0.02, 1, 60), (0.02, 8, 60), (0.1, 48, 12)):
        with tempfile.TemporaryDirectory(prefix="own-loop-") as folder:
            process, address = hub(Path(folder))
            try:
                print(measure(address, step_s, megabytes, chosen.pairs, steps), flush=True)
            finally:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
