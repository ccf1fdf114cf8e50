"""DiLoCo and Streaming DiLoCo, by the production actors, against a lock-step loop in float64.

The loop shares no code with the program. It is given the batch and the rate of every step, and does
the rest itself: inner steps, contributions, the outer Nesterov step, and what a learner adopts.
"""

from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.lab.world.world import LearnerHost
from islands.protocol.settings.choices import Adoption
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from tests.paper.recorded import Recorded, play

Array = NDArray[np.float64]

HOSTS = {"ana": LearnerHost(step_s=0.1), "ben": LearnerHost(step_s=0.13), "eve": LearnerHost()}
ROUNDS = 20
RATE = {"learning_rate": 0.05, "warmup_steps": 4, "total_steps": 200}
DILOCO = replace(PRESETS[Preset.DILOCO], interval_steps=6, **RATE)  # type: ignore[arg-type]
STREAMING = replace(
    PRESETS[Preset.STREAMING_DILOCO],
    interval_steps=10,
    **RATE,  # type: ignore[arg-type]
)
CASES = {
    "diloco": DILOCO,
    "streaming": STREAMING,
    "streaming-overwritten": replace(STREAMING, adoption=Adoption.OVERWRITE),
    "two-rounds-at-once": replace(STREAMING, overlap_steps=5),
    "each-step": replace(DILOCO, interval_steps=1),
    "fragments-per-step": replace(DILOCO, interval_steps=2, fragments=3, overlap_steps=1),
}


@dataclass
class Loop:
    settings: RunSettings
    learners: list[Recorded]
    published: list[tuple[int, int, Array]] = field(default_factory=list)
    shared: Array = field(init=False)
    velocity: Array = field(init=False)
    local: list[Array] = field(init=False)
    moment: list[Array] = field(init=False)

    def play(self, rounds: int) -> None:
        """Train until so many values were adopted: `published` has fragment, step and value."""
        settings, count = self.settings, len(self.learners[0].layout.fragments)
        self.shared = self.learners[0].facts[0].astype(np.float64)
        self.velocity = np.zeros_like(self.shared)
        self.local = [self.shared.copy() for _ in self.learners]
        self.moment = [np.zeros_like(self.shared) for _ in self.learners]
        under_way: list[tuple[int, int, Array]] = []
        sent = step = 0
        while len(self.published) < rounds:
            self._step(step)
            step += 1
            while under_way and under_way[0][0] == step:
                self._adopt(*under_way.pop(0))
            while step * count >= (sent + 1) * settings.interval_steps:
                fragment = sent % count
                arrives = step + settings.overlap_steps_max, fragment, self._outer_step(fragment)
                under_way.append(arrives)
                sent += 1
            while under_way and under_way[0][0] == step:
                self._adopt(*under_way.pop(0))

    def _step(self, number: int) -> None:
        for mine, moment, learner in zip(self.local, self.moment, self.learners, strict=True):
            seed, rate = learner.steps[number]
            _, target, noise = (fact.astype(np.float64) for fact in learner.facts)
            moment[:] = 0.5 * moment + (mine - target - noise[seed % len(noise)])
            mine[:] = mine - rate * moment

    def _outer_step(self, fragment: int) -> Array:
        part, outer = self.learners[0].parts[fragment], self.settings.outer
        delta = np.mean([self.shared[part] - mine[part] for mine in self.local], axis=0)
        self.velocity[part] = outer.momentum * self.velocity[part] + delta
        ahead = delta + outer.momentum * self.velocity[part]
        self.shared[part] -= outer.learning_rate * ahead
        value: Array = self.shared[part].copy()
        return value

    def _adopt(self, due: int, fragment: int, value: Array) -> None:
        part, settings = self.learners[0].parts[fragment], self.settings
        keep = settings.local_share if settings.adoption is Adoption.MIX else 0.0
        for mine in self.local:
            mine[part] = keep * mine[part] + (1 - keep) * value
        self.published.append((fragment, due, value))


def _play(settings: RunSettings) -> list[Recorded]:
    rounds = ROUNDS + settings.fragments
    interval_s = max(host.step_s for host in HOSTS.values()) * settings.interval_steps
    found, _ = play(settings, HOSTS, 2.0 + 2 * interval_s * rounds / settings.fragments)
    assert found.keys() == HOSTS.keys()
    assert all(len(one.adopted) >= rounds for one in found.values())
    return list(found.values())


@pytest.mark.parametrize("name", CASES)
def test_it_agrees_with_the_loop_over_20_outer_steps(name: str) -> None:
    """Every learner adopts each value after exactly the paper's steps, and it is the same value."""
    settings = CASES[name]
    learners = _play(settings)
    loop = Loop(settings, learners)
    loop.play(ROUNDS)
    published = sorted(loop.published[:ROUNDS], key=itemgetter(1, 0))
    fragments = len(learners[0].layout.fragments)
    assert fragments == settings.fragments
    for learner in learners:
        # Two values that are due at one step may arrive in either order.
        found = sorted(learner.adopted[fragments:][:ROUNDS], key=itemgetter(1, 0))
        for (fragment, at_steps, value), (which, due, expected) in zip(
            found, published, strict=True
        ):
            assert (fragment, at_steps) == (which, due)
            error = np.linalg.norm(value - expected) / np.linalg.norm(expected)
            assert error < 1e-5
    first, last = loop.published[0][2], loop.published[-1][2]
    assert np.linalg.norm(first - learners[0].facts[0][learners[0].parts[0]]) > 0.1
    assert first.size != last.size or np.linalg.norm(first - last) > 0.1
