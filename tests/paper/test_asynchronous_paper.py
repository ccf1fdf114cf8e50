"""Asynchronous DiLoCo, by the production actors on uneven machines, against one loop in float64.

The loop shares no code with the program. It is given the batch and the rate of every step, and in
which order contributions arrived, which is a fact of the machines. It does the rest itself: inner
steps, contributions, Delayed Nesterov, and what the contributor adopts.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.lab.checker.evidence import History
from islands.lab.world.world import LearnerHost
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.round_entries import Merged
from tests.paper.recorded import Recorded, play

Array = NDArray[np.float64]

STEP_S = {"ana": 0.1, "ben": 0.13, "eve": 0.19}
MERGES = 20
PRESET = replace(
    PRESETS[Preset.ASYNC_DILOCO],
    interval_steps=10,
    learning_rate=0.05,
    warmup_steps=4,
    total_steps=400,
)
OUTER = PRESET.outer
CASES = {
    "preset": PRESET,
    "two-fragments": replace(PRESET, fragments=2, piece_bytes_min=4),
    "two-at-a-time": replace(PRESET, outer=replace(OUTER, delay_merges=2)),
    "nesterov-each": replace(PRESET, outer=OuterSettings(0.3, 0.5)),
    "each-step": replace(PRESET, interval_steps=1),
}


@dataclass
class Run:
    """What is known of a run: its learners by name, the order of merges, and what was noted."""

    learners: dict[str, Recorded]
    merges: list[tuple[str, int]]


@dataclass
class Worker:
    recorded: Recorded
    local: Array
    moment: Array
    base: Array
    begun: list[int]
    steps: int = 0

    def step_to(self, steps: int) -> None:
        while self.steps < steps:
            seed, rate = self.recorded.steps[self.steps]
            _, target, noise = (fact.astype(np.float64) for fact in self.recorded.facts)
            self.moment = 0.5 * self.moment + (self.local - target - noise[seed % len(noise)])
            self.local = self.local - rate * self.moment
            self.steps += 1


@dataclass
class Outer:
    """Delayed Nesterov of one fragment; ordinary Nesterov steps where N is 1."""

    settings: OuterSettings
    momentum: Array
    arrivals: list[Array] = field(default_factory=list)

    def step(self, g: Array) -> Array:
        """Return what one arrival takes from the value: the momentum acts with every N-th alone."""
        every, rate = self.settings.delay_merges or 1, self.settings.learning_rate
        self.arrivals.append(g)
        ordinary: Array = rate * g / every
        if len(self.arrivals) < every:
            return ordinary
        self.momentum = self.settings.momentum * self.momentum + sum(self.arrivals) / every
        self.arrivals.clear()
        refreshed: Array = ordinary + rate * self.settings.momentum * self.momentum
        return refreshed


@dataclass
class Loop:
    """The asynchronous rule: whoever arrives next is merged alone, and goes on from the result."""

    settings: RunSettings
    run: Run
    adopted: list[tuple[str, int, int, Array]] = field(default_factory=list)

    def play(self) -> None:
        """Merge in the order of the run: `adopted` has name, fragment, step and value."""
        first = next(iter(self.run.learners.values()))
        shared, count = first.facts[0].astype(np.float64), len(first.parts)
        outers = [Outer(self.settings.outer, shared[part] * 0) for part in first.parts]
        workers = {
            name: Worker(*(one, shared.copy(), np.zeros_like(shared), shared.copy()), [0] * count)
            for name, one in self.run.learners.items()
        }
        for name, fragment in self.run.merges:
            worker, part = workers[name], first.parts[fragment]
            due = worker.begun[fragment] + self.settings.interval_steps
            worker.step_to(due)
            shared[part] -= outers[fragment].step(worker.base[part] - worker.local[part])
            worker.base[part] = worker.local[part] = shared[part]
            worker.begun[fragment] = due
            self.adopted.append((name, fragment, due, shared[part].copy()))


def _play(settings: RunSettings) -> Run:
    hosts = {name: LearnerHost(step_s=step_s, noise=0.0) for name, step_s in STEP_S.items()}
    needed = (MERGES * settings.fragments / len(hosts) + 2) * settings.interval_steps
    found, tape = play(settings, hosts, 4.0 + needed * max(STEP_S.values()))
    entries = [entry for _, _, entry in History.of(tape).lines]
    merges = [(each.participants, each.fragment) for each in entries if isinstance(each, Merged)]
    assert all(len(names) == 1 for names, _ in merges)
    return Run(found, [(names[0], fragment) for names, fragment in merges])


@pytest.mark.parametrize("name", CASES)
def test_it_agrees_with_the_loop_over_20_outer_steps(name: str) -> None:
    settings = CASES[name]
    run = _play(settings)
    assert len(run.merges) >= MERGES
    assert min(Counter(who for who, _ in run.merges).values()) > 2
    del run.merges[MERGES:]
    loop = Loop(settings, run)
    loop.play()
    count = len(next(iter(run.learners.values())).parts)
    assert count == settings.fragments
    adopted = {who: one.adopted[count:] for who, one in run.learners.items()}  # after version 0
    for who, fragment, due, expected in loop.adopted:
        which, at_steps, value = adopted[who].pop(0)
        assert (which, at_steps) == (fragment, due)
        assert np.linalg.norm(value - expected) / np.linalg.norm(expected) < 1e-5
    first, last = loop.adopted[0][3], loop.adopted[-1][3]
    assert first.size != last.size or np.linalg.norm(first - last) > 0.1
