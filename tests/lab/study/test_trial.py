"""One trial: the production actors on a virtual clock, with the arithmetic of a task."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from islands.lab.settings.study import StudyOptions
from islands.lab.study.cells import Trial, trials_of
from islands.lab.study.trial import CURVE_POINTS, Result, decaying, hosts_of, play
from islands.lab.world.world import LearnerHost
from islands.model.interfaces import PendingStep
from islands.model.jax_trainer import JaxTrainer
from islands.model.jax_workload import JaxWorkload
from islands.protocol.errors import TaskError
from islands.protocol.settings.run import RunSettings
from tests.lab.study.lockstep import Reference
from tests.lab.study.regression import TASK, Floats, Regression

TOKENS = 3200
INTERVAL_STEPS = 8
SEEDS = (0, 1, 2)
WARMUP_STEPS = 5
RUN = RunSettings(
    learning_rate=0.05,
    warmup_steps=WARMUP_STEPS,
    fragments=1,
    interval_steps=INTERVAL_STEPS,
    overlap_steps=1,
)


def trial(cell: dict[str, object], seed: int = 0, tokens: int = TOKENS) -> Trial:
    options = StudyOptions(
        task=TASK,
        seed_argument="seed",
        tokens=tokens,
        seeds=(seed,),
        run=RUN,
        cells={"cell": cell},
    )
    (found,) = trials_of(options)
    return found


def test_a_trial_is_the_same_at_every_call() -> None:
    one = play(trial({}, tokens=800))
    two = play(trial({}, tokens=800))
    assert replace(one, wall_s=0.0) == replace(two, wall_s=0.0)
    assert one != play(trial({}, seed=1, tokens=800))


def test_its_figures_are_those_of_a_whole_run() -> None:
    result = play(trial({"learners": 2}))
    assert (result.tokens, result.reason) == (TOKENS, "tokens")
    assert result.merges > TOKENS / (2 * 4 * INTERVAL_STEPS) * 0.8
    assert 0.7 < result.yield_share < 1.0
    assert len(result.curve) == CURVE_POINTS
    assert [mark for mark, _, _ in result.curve] == list(range(1, CURVE_POINTS + 1))
    tokens = [tokens for _, tokens, _ in result.curve]
    assert tokens == sorted(tokens)
    assert result.curve[-1] == (CURVE_POINTS, TOKENS, result.figures)
    assert result.figures["loss"] < 0.1 * result.curve[0][2]["loss"]


def test_data_parallel_training_is_plain_training_on_wide_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same batches and rates in a loop of plain steps, in float64, end with the same loss.

    The rates are those of the schedule, at most two steps late: the clock follows the rounds.
    """
    steps, step = [], JaxTrainer.step

    def recorded(trainer: JaxTrainer, batch: tuple[Floats, Floats], rate: float) -> PendingStep:
        steps.append((batch, rate))
        return step(trainer, batch, rate)

    monkeypatch.setattr(JaxTrainer, "step", recorded)
    asked = trial({"data_parallel": True})
    found = play(asked)
    assert found.yield_share == pytest.approx(1.0)
    assert len(steps) == TOKENS // 16

    task = Regression(seed=0)
    weight = np.asarray(task.init(jax.random.key(0)).params["weight"], np.float64)
    speed = np.zeros_like(weight)
    for (x, y), rate in steps:
        assert len(x) == 16
        speed = 0.5 * speed + 2 * x.T.astype(np.float64) @ (x @ weight - y) / y.size
        weight = weight - rate * speed
    loss = np.square(weight - task.truth()).mean()
    assert found.figures["loss"] == pytest.approx(loss, rel=1e-4)

    settings = decaying(asked, {"one": LearnerHost(batch_tokens=16)})
    plain = [settings.learning_rate_at(step) for step in range(len(steps))]
    for number in range(WARMUP_STEPS + 2, len(steps)):
        assert plain[number] * 0.9999 <= steps[number][1] <= plain[number - 2] * 1.0001


def reference(seed: int, *, learners: int = 4, rows: int = 4, **changed: object) -> float:
    """The loss that lock-step training comes to."""
    task = Regression(rows=rows, seed=seed)
    rule = Reference(
        learners=learners,
        interval_steps=INTERVAL_STEPS,
        overlap_steps=1,
        steps=TOKENS // (rows * learners),
        rate=RUN.learning_rate,
        warmup_steps=WARMUP_STEPS,
        carries=True,
    )
    start = np.asarray(task.init(jax.random.key(seed)).params["weight"], np.float64)
    value = replace(rule, **changed).train(task, start)  # type: ignore[arg-type]
    return float(np.square(value - task.truth()).mean())


def losses(results: list[Result]) -> list[float]:
    return [result.figures["loss"] for result in results]


def test_the_program_trains_as_a_lock_step_loop_that_shares_no_code_with_it() -> None:
    """Averages of all, for both rules of adoption, which differ by a factor of two to six.

    What is carried on does not depend on how long an exchange takes. What is overwritten does: an
    exchange takes between one step and two here, and so does the loss lie between those of one and
    of two.
    """
    cell = {"quorum": None, "merge": "average"}
    carried = losses(
        [play(trial({"run": cell | {"adoption": "delay_corrected"}}, s)) for s in SEEDS]
    )
    expected = [reference(seed) for seed in SEEDS]
    error = np.sqrt((np.var(carried, ddof=1) + np.var(expected, ddof=1)) / len(SEEDS))
    assert abs(np.mean(carried) - np.mean(expected)) < 3 * error
    overwritten = np.mean(losses([play(trial({"run": cell}, seed)) for seed in SEEDS]))
    soon, late = (
        np.mean([reference(seed, carries=False, overlap_steps=tau) for seed in SEEDS])
        for tau in (1, 2)
    )
    assert soon < overwritten < late
    assert overwritten > 2 * np.mean(carried)


def test_a_slow_learner_takes_more_virtual_time_and_no_other_tokens() -> None:
    even, uneven = (
        play(trial({"learners": 2, "speeds": speeds}, tokens=1600)) for speeds in ([], [4.0])
    )
    assert uneven.tokens == even.tokens == 1600
    assert uneven.virtual_s > 1.3 * even.virtual_s


@pytest.mark.parametrize(
    ("learners", "speeds", "by", "steps"),
    [
        (1, [], "median", 800),
        (4, [], "median", 200),
        (4, [1, 1, 4, 4], "median", 320),
        (4, [1, 4, 4, 4], "median", 114),
        (4, [1, 4, 4, 4], "fastest", 457),
        (4, [1, 1, 1, 4], "slowest", 62),
    ],
)
def test_without_total_steps_the_rate_decays_over_the_budget(
    learners: int, speeds: list[float], by: str, steps: int
) -> None:
    cell: dict[str, object] = {"learners": learners, "speeds": speeds, "run": {"pace_by": by}}
    asked = trial(cell)
    assert decaying(asked, hosts_of(asked, JaxWorkload(Regression()))).total_steps == steps


def test_learners_that_gossip_come_near_to_those_that_are_merged() -> None:
    run = {"interval_steps": INTERVAL_STEPS}
    results = [play(trial({"preset": "gossip", "run": run}, seed)) for seed in SEEDS]
    assert [(one.tokens, one.reason, one.yield_share) for one in results] == [
        (TOKENS, "tokens", 1.0)
    ] * len(SEEDS)
    merged = [reference(seed) for seed in SEEDS]
    alone = [reference(seed, learners=1, steps=TOKENS // 16) for seed in SEEDS]
    assert np.mean(losses(results)) < 1.5 * np.mean(merged)
    assert np.mean(losses(results)) < 0.7 * np.mean(alone)
    curve = [figures["loss"] for _, _, figures in results[0].curve]
    assert len(curve) == CURVE_POINTS
    assert curve[0] > 2 * curve[-1]


def test_the_rate_of_learners_that_gossip_decays_by_the_steps_of_the_fastest() -> None:
    asked = trial({"preset": "gossip", "speeds": [1, 4, 4, 4]})
    assert decaying(asked, hosts_of(asked, JaxWorkload(Regression()))).total_steps == 457


def test_a_toy_has_no_data_parallel_training() -> None:
    options = StudyOptions(
        task="islands.lab.toys.toy_workload:Sleeping", cells={"a": {"data_parallel": True}}
    )
    with pytest.raises(TaskError, match="is a toy, and has no data-parallel training"):
        play(trials_of(options)[0])
