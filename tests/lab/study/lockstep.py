"""Local SGD in lock-step, in float64 and one file: it shares no code with the program.

M learners take H steps each, then the average of their values is on its way to them for τ steps,
which they take from their old values. It replaces those, so that the τ steps are thrown away, or
the τ steps are carried on to it. Every learner reads records of its own.
"""

from dataclasses import dataclass
from math import cos, pi

import numpy as np
from numpy.typing import NDArray

from tests.lab.study.regression import Regression

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """What is trained how.

    Args:
        learners: M.
        interval_steps: H.
        overlap_steps: τ.
        steps: of each learner.
        rate: peak of the inner learning rate.
        warmup_steps: in which it grows.
        carries: whether the τ steps are carried on.
        momentum: of the inner optimizer.
    """

    learners: int
    interval_steps: int
    overlap_steps: int
    steps: int
    rate: float
    warmup_steps: int
    carries: bool
    momentum: float = 0.5
    floor: float = 0.1

    def rate_at(self, step: int) -> float:
        """Warm-up, then cosine decay to a tenth."""
        if step < self.warmup_steps:
            return self.rate * (step + 1) / (self.warmup_steps + 1)
        done = min(1.0, (step - self.warmup_steps) / (self.steps - self.warmup_steps))
        return self.rate * (self.floor + (1 - self.floor) * (1 + cos(pi * done)) / 2)

    def train(self, task: Regression, start: Array) -> Array:
        local = [start.copy() for _ in range(self.learners)]
        speed = [np.zeros_like(start) for _ in range(self.learners)]
        published, sent = start, local
        for step in range(self.steps):
            for learner in range(self.learners):
                x, y = _batch(task, learner + self.learners * step)
                gradient = 2 * x.T @ (x @ local[learner] - y) / y.size
                speed[learner] = self.momentum * speed[learner] + gradient
                local[learner] = local[learner] - self.rate_at(step) * speed[learner]
            since = (step + 1) % self.interval_steps
            if since == 0 or step + 1 == self.steps:
                sent, published = list(local), np.mean(local, axis=0)
            if step + 1 >= self.interval_steps and since == self.overlap_steps:
                done = [now - then for now, then in zip(local, sent, strict=True)]
                local = [published + (own if self.carries else 0) for own in done]
        return published


def _batch(task: Regression, number: int) -> tuple[Array, Array]:
    rng = np.random.default_rng((task.seed, 7, number))
    x = rng.standard_normal((task.rows, task.width))
    noise = 0.5 * rng.standard_normal((task.rows, task.width))
    return x, x @ task.truth() + noise
