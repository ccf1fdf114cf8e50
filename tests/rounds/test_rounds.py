"""What the rules of a round come to, on the real states and the event model.

Figures are of protocol §12: with equal speeds, random phases and 10 % noise the effective H is
within 5 % of H and participation is at least 0.99; one odd learner does not change the others' H;
nothing that comes, goes or restarts leaves the run in a state without progress.
"""

import random

import pytest

from islands.protocol.identities import Phase, Status
from islands.protocol.settings.run import RunSettings, Timing
from tests.benchmarks.slowness import Cell, computed_s, play
from tests.rounds.model import BATCH_TOKENS, Link, Model

STEP_S = 0.1
LEARNERS = 8
WARM_S = 20.0


def settings_of(interval: int, fragments: int, **changes: object) -> RunSettings:
    return RunSettings(interval_steps=interval, fragments=fragments, **changes)  # type: ignore[arg-type]


def median_steps(model: Model, before: dict[str, int]) -> int:
    done = sorted(steps - before.get(name, 0) for name, steps in model.steps().items())
    return done[len(done) // 2]


def measured(model: Model, seconds: float) -> tuple[float, float]:
    """Run on; the effective H in steps of the median learner, and the participation."""
    start_s, before = model.now_s, {str(name): steps for name, steps in model.steps().items()}
    model.run(seconds)
    interval = model.effective_interval(start_s, median_steps(model, before))
    return interval, model.participation(start_s)


def assert_balanced(model: Model) -> None:
    """The ledger of every fragment balances to 0, and all agree on what was processed."""
    rows = model.syncer.ledger_rows()
    assert [row.imbalance for row in rows] == [0] * len(rows)
    assert len({row.processed for row in rows}) == 1
    assert min(row.lost for row in rows) >= 0
    assert min(row.pending for row in rows) >= 0


def assert_progress(model: Model, cycles: int = 2) -> None:
    versions = [model.syncer.version(index) for index in range(model.fragments)]
    seconds = 15 + (cycles + 1) * model.settings.interval_steps * STEP_S
    model.run(seconds)
    for index, before in enumerate(versions):
        after = model.syncer.version(index)
        assert after is not None
        assert before is None or after.number >= before.number + cycles
        for learner in model.learners.values():
            held = learner.accounts[index].version
            assert held is not None
            assert before is None or held >= before
    assert_balanced(model)
    assert len(model.payloads) <= model.settings.open_rounds_max(model.fragments) * LEARNERS


@pytest.mark.quick("0-24-24")
@pytest.mark.parametrize(
    ("interval", "fragments", "seconds"), [(24, 24, 40.0), (96, 12, 100.0), (96, 24, 80.0)]
)
@pytest.mark.parametrize("phases", [0, 1])
def test_compute_sets_the_interval(
    interval: int, fragments: int, seconds: float, phases: int
) -> None:
    model = Model(settings_of(interval, fragments), [STEP_S] * LEARNERS, seed=phases)
    model.run(WARM_S)
    effective, participation = measured(model, seconds)
    assert effective == pytest.approx(interval, rel=0.05)
    assert participation >= 0.99
    assert_balanced(model)


@pytest.mark.quick("8")
@pytest.mark.parametrize("learners", [2, 3, 8, 64])
def test_learners_that_step_alike_all_take_part(learners: int) -> None:
    """Without noise they report in the same order after every step, here the last one first.

    So the one that reports never sets the pace; the grace is known all the same.
    """
    settings = settings_of(24, 24)
    model = Model(settings, [], noise=0.0)
    for index in reversed(range(learners)):
        model.add_learner(f"learner-{index}", STEP_S)
    model.run(5 * settings.interval_steps * STEP_S)
    effective, participation = measured(model, 2 * settings.interval_steps * STEP_S)
    assert model.syncer.core.step_s == pytest.approx(STEP_S, rel=0.01)
    assert effective == pytest.approx(24, rel=0.05)
    assert participation >= 0.99


@pytest.mark.quick("slow link")
@pytest.mark.parametrize(
    ("latency_s", "merge_s"), [(0.02, 0.01), (0.05, 0.02)], ids=["fast link", "slow link"]
)
def test_the_network_does_not_set_the_interval(latency_s: float, merge_s: float) -> None:
    link = Link(latency_s=latency_s, merge_s=merge_s, journal_s=merge_s)
    model = Model(settings_of(24, 12, overlap_steps=6), [STEP_S] * LEARNERS, link=link)
    model.run(WARM_S)
    effective, participation = measured(model, 50.0)
    assert effective == pytest.approx(24, rel=0.05)
    assert participation >= 0.95
    assert_balanced(model)


@pytest.mark.parametrize("copy_steps", [0.1, 0.9, 1.5, 5.0])
@pytest.mark.parametrize(("interval", "fragments"), [(24, 1), (24, 2)])
def test_slow_copies_cost_no_merge(copy_steps: float, interval: int, fragments: int) -> None:
    link = Link(copy_s=copy_steps * STEP_S)
    model = Model(settings_of(interval, fragments), [STEP_S] * 4, link=link)
    model.run(WARM_S)
    effective, participation = measured(model, 60.0)
    assert effective == pytest.approx(interval, rel=0.05)
    assert participation >= 0.99
    assert_progress(model)


@pytest.mark.parametrize(
    "step_s",
    [
        10 * STEP_S,
        pytest.param(STEP_S / 4, marks=pytest.mark.long("test_an_odd_learner_harms_nobody")),
    ],
)
def test_an_odd_learner_harms_nobody(step_s: float) -> None:
    model = Model(settings_of(24, 24), [STEP_S] * 7 + [step_s])
    model.run(WARM_S)
    start_s = model.now_s
    effective, _ = measured(model, 40.0)
    assert effective == pytest.approx(24, rel=0.05)
    assert min(model.share_of(f"learner-{index}", start_s) for index in range(7)) >= 0.99
    assert_progress(model)


def test_a_slow_learner_contributes_what_it_has() -> None:
    model = Model(settings_of(24, 24), [STEP_S] * 7 + [4 * STEP_S])
    model.run(WARM_S)
    start_s = model.now_s
    model.run(30.0)
    assert model.share_of("learner-7", start_s) >= 0.8


@pytest.mark.quick("tensor", "P=1")
@pytest.mark.parametrize(
    ("interval", "wanted", "fragments", "seconds"),
    [(24, 1, 1, 120.0), (10, 24, 24, 20.0), (24, 24, 5, 60.0), (24, 24, 1, 120.0)],
    ids=["P=1", "P>H", "five tensors", "one tensor"],
)
def test_any_number_of_fragments(
    interval: int, wanted: int, fragments: int, seconds: float
) -> None:
    model = Model(settings_of(interval, wanted), [STEP_S] * LEARNERS, fragments=fragments)
    model.run(WARM_S)
    effective, participation = measured(model, seconds)
    assert effective == pytest.approx(interval, rel=0.05)
    assert participation >= 0.99
    assert_progress(model)


def test_learners_come_and_go() -> None:
    model = Model(settings_of(24, 12), [STEP_S])
    model.run(WARM_S)
    assert measured(model, 30.0)[0] == pytest.approx(24, rel=0.05)
    for index in range(1, LEARNERS):
        model.add_learner(f"learner-{index}", STEP_S)
    model.run(WARM_S)
    effective, participation = measured(model, 30.0)
    assert effective == pytest.approx(24, rel=0.05)
    assert participation >= 0.99
    for index in range(LEARNERS - 1):
        model.kill_learner(f"learner-{index}")
    model.run(WARM_S)
    assert measured(model, 30.0)[0] == pytest.approx(24, rel=0.05)
    assert_progress(model)


def test_everybody_restarts() -> None:
    model = Model(settings_of(24, 6), [STEP_S] * 4, journal=True)
    model.run(WARM_S)
    merges = model.syncer.durable.merges
    model.restart_syncer(1.0)
    for index in range(4):
        model.kill_learner(f"learner-{index}")
    for index in range(4):
        model.add_learner(f"learner-{index}", STEP_S)
    assert_progress(model)
    assert model.syncer.durable.merges >= merges
    assert model.syncer.durable.rejoins == 4


@pytest.mark.parametrize("phases", range(6))
def test_the_syncer_restarts(phases: int) -> None:
    model = Model(settings_of(12, 4), [STEP_S] * 3, journal=True, seed=phases)
    chance = random.Random(phases)
    model.run(10.0)
    for _ in range(8):
        model.run(chance.uniform(0.5, 3.0))
        model.restart_syncer(chance.choice([0.0, 0.5, 2.0]))
    assert_progress(model)
    rows = model.syncer.ledger_rows()
    assert rows[0].lost == 0
    steps = {str(name): done for name, done in model.steps().items()}
    assert rows[0].processed == pytest.approx(sum(steps.values()) * BATCH_TOKENS, rel=0.01)


@pytest.mark.parametrize("written", range(5))
def test_the_syncer_restarts_while_it_is_seeded(written: int) -> None:
    model = Model(settings_of(12, 4), [STEP_S] * 2, journal=True)
    while sum(held is not None for held in model.syncer.durable.published) < written:
        model.run(0.0005)
    model.restart_syncer()
    assert_progress(model)


@pytest.mark.parametrize("budget", [BATCH_TOKENS, 3_000, 250_000, 250_077])
@pytest.mark.parametrize("times", [[1.0] * 4, [1.0, 1.0, 3.0, 0.5]], ids=["equal", "uneven"])
def test_a_run_ends_with_its_budget(budget: int, times: list[float]) -> None:
    model = Model(settings_of(24, 6, budget_tokens=budget), [STEP_S * t for t in times])
    model.run(400.0)
    assert model.finished == "tokens"
    assert_ended(model, budget)
    assert sum(model.steps().values()) * BATCH_TOKENS == budget - budget % BATCH_TOKENS


def assert_ended(model: Model, budget: int) -> None:
    """The ledger holds the whole budget, nothing is pending, and all adopted the last version."""
    assert_balanced(model)
    for index, row in enumerate(model.syncer.ledger_rows()):
        assert row.processed == budget - budget % BATCH_TOKENS
        assert row.pending == 0
        for learner in model.learners.values():
            if learner.phase is Phase.FINISHED:
                assert learner.accounts[index].version == model.syncer.version(index)
    assert not model.payloads


def test_a_flapping_link_applies_nothing_twice() -> None:
    model = Model(settings_of(12, 4), [STEP_S] * 3)
    model.run(10.0)
    for _ in range(30):
        model.cut_link("learner-0")
        model.run(0.7)
        model.heal_link("learner-0")
        model.run(0.4)
    assert_progress(model)
    assert model.syncer.ledger_rows()[0].lost == 0
    assert model.share_of("learner-0", model.now_s - 5) >= 0.9


@pytest.mark.parametrize("ending", ["time", "enough"])
def test_states_are_at_rest_also_as_a_run_ends(ending: str) -> None:
    budget_s = 15.0 if ending == "time" else None
    model = Model(settings_of(6, 3, budget_s=budget_s), [STEP_S, STEP_S, 3 * STEP_S], journal=True)
    model.rests = True
    model.run(10.0)
    if ending == "enough":
        model.stop("enough")
    model.run(200.0)
    assert model.finished == ending
    assert_balanced(model)


def test_any_order_of_faults_ends_well(seed: int) -> None:
    """Kills, cuts, evictions and restarts in any order; then all heals, and the run ends.

    After every event, what the syncer keeps about all learners is what a count from scratch finds.
    """
    chance = random.Random(seed)
    settings = settings_of(
        chance.choice([6, 12]),
        chance.choice([1, 3, 6]),
        budget_tokens=60_000,
        quorum=chance.choice([1, 1, 2, None]),
        timing=Timing(round_s=2.0, final_s=10.0),
    )
    times = [STEP_S * chance.choice([0.5, 1, 1, 3]) for _ in range(3)]
    model = Model(settings, times, journal=True, seed=seed)
    model.recounts = True
    model.rests = True
    for _ in range(12):
        model.run(chance.uniform(0.1, 3.0))
        if model.finished is None:
            _disturb(model, chance)
    for index in range(3):
        name = f"learner-{index}"
        if name not in {str(known) for known in model.learners}:
            model.add_learner(name, STEP_S)
        model.heal_link(name)
    model.run(300.0)
    assert model.finished == "tokens"
    assert_balanced(model)
    assert [row.pending for row in model.syncer.ledger_rows()] == [0] * model.fragments
    assert model.syncer.ledger_rows()[0].processed == 60_000


def _disturb(model: Model, chance: random.Random) -> None:
    name = f"learner-{chance.randrange(3)}"
    present = name in {str(known) for known in model.learners}
    fault = chance.randrange(6)
    if fault == 0:
        model.restart_syncer(chance.choice([0.0, 0.3, 1.5]))
    elif not present:
        model.add_learner(name, STEP_S)
    elif fault == 1:
        model.kill_learner(name)
    elif fault == 2:
        model.set_status(name, Status.EVICTED)
    elif fault == 3:
        model.cut_link(name)
    else:
        model.heal_link(name)


# --- slow steps, copies and links: a part of the table in docs/slowness.md -----------------------

CELLS = [
    *(Cell(0.01, 0.1, 0.001, 1, 24), Cell(0.01, 5.0, 0.001, None, 1)),
    *(Cell(1.0, 0.1, 0.001, None, 48), Cell(1.0, 5.0, 0.001, None, 6)),
    *(Cell(1.0, 5.0, 1.0, 2, 1), Cell(1.0, 0.1, 6.0, 1, 1)),
    *(Cell(1.0, 1.0, 30.0, None, 1), Cell(40.0, 0.1, 30.0, None, 24)),
    *(Cell(40.0, 5.0, 1.0, None, 6), Cell(300.0, 5.0, 30.0, 1, 1)),
    Cell(300.0, 1.0, 0.001, None, 6),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_merges_come_as_computed(cell: Cell) -> None:
    found = play(cell)
    assert found.deviation <= 0.1, f"{found.between_s} s, computed {computed_s(cell)}"
    assert found.participation >= (cell.quorum or 1) / 3 - 0.01
    assert (found.killed, found.lost) == (0, 0)


def test_one_way_six_seconds_and_one_fragment_merge() -> None:
    """Timeouts of ten seconds would give up every round: what is measured stretches them."""
    model = Model(RunSettings(interval_steps=24, fragments=1), [0.1] * 2, link=Link(latency_s=6.0))
    model.run(400.0)
    assert len(model.merges()) >= 20
    assert model.count("abandoned") <= 1
    assert model.count("nothing_merged") == 0


@pytest.mark.parametrize("latency_s", [0.001, 30.0])
@pytest.mark.parametrize("step_s", [40.0, 300.0])
def test_a_stop_with_slow_steps_loses_nothing(step_s: float, latency_s: float) -> None:
    settings = RunSettings(interval_steps=24, fragments=4)
    link = Link(latency_s=latency_s, copy_s=2 * step_s)
    model = Model(settings, [step_s] * 3, link=link, tick_s=step_s / 4)
    model.run(40.5 * step_s)
    before = [row.overwritten for row in model.syncer.ledger_rows()]
    model.stop("enough")
    model.run(1e5)
    assert model.finished == "enough"
    rows = model.syncer.ledger_rows()
    steps = sum(compute.steps for compute in model.computes.values())
    assert [row.processed for row in rows] == [100 * steps] * 4
    assert [row.lost + row.pending for row in rows] == [0] * 4
    assert max(row.overwritten for row in rows) <= max(before) + 3 * 100 * 8
