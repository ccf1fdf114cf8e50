"""A link that loses its bandwidth in the middle of a run, and gets it back: production actors.

Three learners on a quadratic of four fragments of 64 KiB, steps of 10 ms, H = 8, P = 4, τ = 2: a
period is 80 ms, and of a contribution's bytes 18 ms are hidden. At 5 Mbit/s float32 takes 105 ms
and fp4 13 ms, at 1 Gbit/s both less than 1 ms.
"""

from functools import cache

import numpy as np
import pytest

from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.world import LearnerHost
from islands.protocol.settings.choices import Adoption, Precision
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape import round_entries
from tests.lab.world.cut_link import Course, Outcome, play

pytestmark = pytest.mark.simulation

STEP_S, TOKENS, STEPS = 0.01, 8, 600
PERIOD_S = 8 * STEP_S
LOOK_S = 0.2
CUT_S, BACK_S = 2.0, 4.0
GOOD = Course(None)
CUT = Course(CUT_S)
CUT_AND_BACK = Course(CUT_S, BACK_S)
HOSTS = {f"learner-{index}": LearnerHost(STEP_S, 0.05, 0.05, TOKENS) for index in range(3)}


def trainer(*_: object) -> NumpyTrainer:
    shapes = [(f"layers/{index}", (128, 128)) for index in range(4)]
    return NumpyTrainer(4, shapes=shapes, batch_tokens=TOKENS, noise=3.0, noises=64)


@cache
def ran(precision: Precision, course: Course, adoption: Adoption) -> Outcome:
    """Play it once; K is everybody."""
    settings = RunSettings(
        interval_steps=8,
        fragments=4,
        overlap_steps=2,
        quorum=None,
        adoption=adoption,
        precision=precision,
        learning_rate=0.02,
        budget_tokens=TOKENS * STEPS * len(HOSTS),
    )
    return play(settings, course, HOSTS, trainer)


def loss(found: Outcome) -> float:
    """Distance of the final values from the optimum."""
    rng = np.random.default_rng(0)
    size = sum(value.size for value in found.values)
    rng.standard_normal(size, np.float32)  # the initial values
    target = rng.standard_normal(size, np.float32)
    return float(np.linalg.norm(np.concatenate(found.values) - target) / np.linalg.norm(target))


@pytest.mark.quick("overwrite")
@pytest.mark.parametrize("adoption", [Adoption.OVERWRITE, Adoption.DELAY_CORRECTED])
def test_precision_follows_a_cut_within_three_periods_and_its_end(adoption: Adoption) -> None:
    found = ran(Precision.ADAPTIVE, CUT_AND_BACK, adoption)
    cut_s, back_s = CUT_S + LOOK_S, BACK_S  # a look that saw the cut may come so much later
    assert found.precision(CUT_S) == "float32"
    precision = found.precision(cut_s + 3 * PERIOD_S)
    assert precision in ("fp4", "two_bit")
    assert found.precision(back_s) == precision
    assert found.precision(found.ended_s) == "float32"


@pytest.mark.parametrize("course", [CUT, CUT_AND_BACK], ids=["cut", "cut and back"])
def test_no_learner_waits(course: Course) -> None:
    """The learner whose link is cut takes its steps as if nothing had happened."""
    found = ran(Precision.ADAPTIVE, course, Adoption.DELAY_CORRECTED)
    assert found.slowest() > 0.85 / STEP_S


@pytest.mark.long("test_precision_follows_a_cut_within_three_periods_and_its_end")
def test_the_loss_is_that_of_a_good_link_and_a_fixed_precision_stalls() -> None:
    good = ran(Precision.FLOAT32, GOOD, Adoption.DELAY_CORRECTED)
    fixed = ran(Precision.FLOAT32, CUT, Adoption.DELAY_CORRECTED)
    adaptive = ran(Precision.ADAPTIVE, CUT, Adoption.DELAY_CORRECTED)
    assert adaptive.share["merges"] > 0.9 * good.share["merges"]
    assert fixed.share["merges"] < 0.6 * good.share["merges"]
    assert loss(adaptive) < 1.02 * loss(good)
    assert loss(fixed) > loss(adaptive)


def test_no_round_is_abandoned_for_a_cut_link() -> None:
    found = ran(Precision.ADAPTIVE, CUT_AND_BACK, Adoption.DELAY_CORRECTED)
    assert not [one for one in found.lines if isinstance(one.entry, round_entries.Abandoned)]
