"""What a link that loses its bandwidth costs a run, with adaptive contributions and without.

    python -m tests.benchmarks.cut_link [--both-ways] [--images 200000]

Three learners train a perceptron on handwritten digits, on virtual time with the production actors;
merges wait for all (K = all). After a third of the run one learner's link to the syncer falls from
1 Gbit/s to 5 Mbit/s, and it stays so. Written per row: cross-entropy of held-out images, merges,
yield, steps per second of that learner where it was slowest, and what it chose.
"""

import argparse
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from sklearn.datasets import load_digits

from islands.lab.world.world import LearnerHost
from islands.model.interfaces import Place
from islands.model.jax_workload import JaxWorkload
from islands.protocol.settings.run import Adoption, Precision, RunSettings
from islands.tasks.digits import Digits
from islands.tasks.rows import RowBatch
from tests.lab.world.cut_link import Course, Outcome, play

STEP_S = 0.005
ROWS = 32
LEARNERS = 3
HELD_OUT = 6


@dataclass(frozen=True)
class Measured(Digits):
    """Digits, with the loss on the images that the task holds out."""

    def evaluate(self, params: PyTree, state: PyTree) -> dict[str, float]:
        """Return accuracy and cross-entropy."""
        images, labels = load_digits(return_X_y=True)
        kept = np.arange(len(images)) % HELD_OUT == 0
        rows = int(kept.sum())
        held = RowBatch(
            (images[kept] / 16).astype(np.float32),
            labels[kept].astype(np.int32),
            np.ones(rows, np.float32),
        )
        told, _ = self.loss(params, state, held, jnp.zeros(2, jnp.uint32))
        return {**super().evaluate(params, state), "loss": float(told)}


def settings_of(images: int, precision: Precision) -> RunSettings:
    """Short intervals: H = 8, P = 4, τ = 2 steps of 5 ms."""
    return RunSettings(
        interval_steps=8,
        fragments=4,
        piece_bytes_min=4,
        quorum=None,
        overlap_steps=2,
        adoption=Adoption.DELAY_CORRECTED,
        precision=precision,
        budget_tokens=images,
        learning_rate=1e-3,
        warmup_steps=20,
    )


def train(
    images: int, precision: Precision, *, cut: bool, both_ways: bool
) -> tuple[dict[str, float], Outcome]:
    """Train once; return the figures of the final values, and what happened."""
    settings = settings_of(images, precision)
    workload = JaxWorkload(Measured(hidden=512, rows=ROWS), "digits")
    hosts = {
        f"learner-{index}": LearnerHost(STEP_S, 0.05, batch_tokens=ROWS)
        for index in range(LEARNERS)
    }
    third_s = images / (LEARNERS * ROWS) * STEP_S / 3
    course = Course(third_s if cut else None, both_ways=both_ways)
    found = play(settings, course, hosts, lambda name, _: workload.trainer(settings, Place(name)))
    return workload.evaluate(settings, found.values), found


def main() -> None:
    """Print a row for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--both-ways", action="store_true")
    told = parser.parse_args()
    print(f"{'link':6} {'precision':10} {'loss':>7} {'merges':>7} {'yield':>6} {'steps/s':>8}")
    for cut, precision in (
        (False, Precision.FLOAT32),
        (True, Precision.FLOAT32),
        (True, Precision.ADAPTIVE),
    ):
        figures, found = train(told.images, precision, cut=cut, both_ways=told.both_ways)
        print(
            f"{'cut' if cut else 'good':6} {precision:10} {figures['loss']:7.4f} "
            f"{found.share['merges']:7,} {found.share['yield']:6.3f} {found.slowest():8.1f}  "
            f"{' '.join(f'{at_s:.2f}s:{one.precision}/{one.every}' for at_s, one in found.changes)}"
        )


if __name__ == "__main__":
    main()
