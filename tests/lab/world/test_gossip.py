"""Learners that gossip, as the real actors on a virtual clock: nobody waits, every token counts."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from islands.lab.world.world import Costs, LearnerHost, NumpyTrainers, World
from islands.protocol.gossip.gossip import Gossip
from islands.protocol.settings.choices import GossipRule, MergeRule, Neighbours, Weighting
from islands.protocol.settings.gossip import GossipSettings
from islands.protocol.settings.run import RunSettings
from messaging.simulation.network import Route
from tests.lab.world.gossip_oracle import Learner, Watched, recompute
from tests.lab.world.worlds import entries, ledger, lived, until

pytestmark = pytest.mark.simulation

Line = dict[str, Any]

PAIRS = GossipSettings(Neighbours.RANDOM_PAIRS)
RING = GossipSettings(Neighbours.RING, rule=GossipRule.AVERAGE)
GRAPH = GossipSettings(Neighbours.GRAPH, {"ana": ("ben", "eve"), "eve": ("zoe",)})
NAMES = ("ana", "ben", "eve", "zoe")
SLOW = Costs(route=Route(latency_s=0.2, jitter_s=0.3))


def settings_of(gossip: GossipSettings, tokens: int = 8000, fragments: int = 1) -> RunSettings:
    """A run of some 25 seconds: 0.1 s and 8 tokens a step, and an exchange every ten steps."""
    return RunSettings(
        interval_steps=10,
        fragments=fragments,
        piece_bytes_min=4,
        merge=MergeRule.AVERAGE,
        weighting=Weighting.UNIFORM,
        gossip=gossip,
        budget_tokens=tokens,
        learning_rate=1e-2,
        warmup_steps=5,
        norm_limit=100.0,
    )


async def over(world: World) -> None:
    await until(lambda: world.finished is not None or bool(world.failures), limit_s=600.0)
    assert world.failures == []


class Played:
    """A run to its end; something is done in its course."""

    def __init__(
        self,
        settings: RunSettings,
        *course: Callable[[World], Awaitable[None]],
        hosts: Mapping[str, LearnerHost] | None = None,
        seed: int = 1,
        **options: Any,  # noqa: ANN401 (those of `World`)
    ) -> None:
        trainers = NumpyTrainers(settings, kind=Watched)
        hosts = hosts or {name: LearnerHost() for name in NAMES}
        self.world = lived(settings, hosts, *course, over, seed=seed, trainers=trainers, **options)
        self.lines = entries(self.world)

    def of(self, kind: str) -> Iterator[Line]:
        return (line for line in self.lines if line["kind"] == kind)

    @property
    def ledger(self) -> dict[str, int]:
        """The books of the first fragment at the end."""
        return ledger(self.world)[0]

    def trainer(self, name: str) -> Watched:
        trainer = self.world.trainers[name]
        assert isinstance(trainer, Watched)
        return trainer


def check_nobody_waits(played: Played) -> None:
    """Between two reports of one process that steps, there are about as many steps as seconds ask.

    A step takes 0.1 s, and its noise is a tenth.
    """
    at: dict[tuple[str, str], tuple[float, int]] = {}
    for line in played.of("progress"):
        if line["phase"] != "stepping":
            continue
        who, now = (line["actor"], line["incarnation"]), (line["at_s"], line["tokens"] // 8)
        before_s, steps = at.setdefault(who, now)
        assert now[1] - steps >= (now[0] - before_s) / 0.1 * 0.9 - 3, line


@pytest.mark.parametrize("gossip", [PAIRS, RING, GRAPH], ids=lambda one: one.neighbours.value)
@pytest.mark.parametrize("costs", [None, SLOW], ids=["near", "far"])
def test_every_token_is_applied_and_nobody_waits(
    gossip: GossipSettings, costs: Costs | None
) -> None:
    played = Played(settings_of(gossip, fragments=3), costs=costs)
    assert played.world.finished == "tokens"
    assert (played.ledger["processed"], played.ledger["applied"]) == (8000, 8000)
    assert not list(played.of("kept_out"))
    assert len(list(played.of("gossip"))) > 100
    check_nobody_waits(played)


def test_no_syncer_merges_before_the_end() -> None:
    played = Played(settings_of(PAIRS, fragments=3))
    assert len(list(played.of("opened"))) == len(list(played.of("merged"))) == 3
    last_exchange_s = max(line["at_s"] for line in played.of("gossip"))
    assert min(line["at_s"] for line in played.of("opened")) > last_exchange_s


def test_what_is_kept_is_the_mean_of_all_local_values() -> None:
    held: dict[str, np.ndarray] = {}

    async def look(world: World) -> None:
        while True:  # until the virtual time is over
            await asyncio.sleep(0.001)
            state = world.syncer_state
            if state is not None and state.core.closing is not None:
                break
        await asyncio.sleep(0.2)  # the last step has ended, and no value was merged
        for name in NAMES:
            trainer = world.trainers[name]
            assert isinstance(trainer, Watched)
            held[name] = trainer.local

    costs = Costs(route=Route(latency_s=0.1, jitter_s=0.0))
    played = Played(settings_of(PAIRS), look, costs=costs)
    mean = np.mean([held[name] for name in NAMES], axis=0)
    assert np.abs(held["ana"] - held["ben"]).max() > 1e-4
    for name in NAMES:
        np.testing.assert_allclose(played.trainer(name).local, mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_run_agrees_with_a_float64_recomputation(number: int) -> None:
    played = Played(settings_of(PAIRS, tokens=10000), seed=number)
    met: dict[int, dict[str, tuple[str, ...]]] = {}
    for line in played.lines:
        if line["kind"] in ("gossip", "widowed"):
            partners = tuple(line.get("partners", ()))
            met.setdefault(line["round"], {})[line["actor"]] = partners
    rounds = [met[number] for number in sorted(met)][:28]
    assert sum(all(one.values()) and len(one) == 4 for one in rounds) >= 20
    learners = {name: Learner(played.trainer(name)) for name in NAMES}
    recompute(learners, rounds)
    replayed = {name: Learner(played.trainer(name)) for name in NAMES}
    for name, one in learners.items():
        core = played.trainer(name)
        actual = core.held[one.at]
        off = np.linalg.norm(actual - one.local) / np.linalg.norm(one.local)
        assert off < 1e-5, (name, off)
        apart = np.linalg.norm(replayed[name].local - one.local)
        assert apart / np.linalg.norm(one.local) > 0.01, "the oracle moved"


async def kill(world: World) -> None:
    """Ben's machine vanishes for good."""
    await asyncio.sleep(10.0)
    await world.kill("ben", silent=True)


@pytest.mark.parametrize("gossip", [PAIRS, RING], ids=lambda one: one.neighbours.value)
def test_a_killed_learner_takes_its_tokens_with_it_and_holds_up_nobody(
    gossip: GossipSettings,
) -> None:
    played = Played(settings_of(gossip), kill)
    books = played.ledger
    assert books["lost"] > 0
    assert books["applied"] + books["lost"] == books["processed"] == 8000
    check_nobody_waits(played)
    (ended_s,) = (e["at_s"] for e in played.of("process_killed") if e["name"] == "ben")
    later = [e for e in played.of("gossip") if e["at_s"] > ended_s + 6.0]
    assert len(later) > 20
    assert all("ben" not in e["partners"] for e in later)


def awaits(world: World, name: str) -> bool:
    """Whether somebody has an exchange under way in which a learner's share has yet to come."""
    states = [learner.state for other in NAMES if (learner := world.learner(other))]
    schedules = [core.schedule for core in states]
    exchanges = [one.exchanges for one in schedules if isinstance(one, Gossip)]
    return any(name in one.awaited for each in exchanges for one in each.open.values())


def test_a_learner_that_dies_in_a_pairing_leaves_its_partner_whole(seed: int) -> None:
    moment_s = 6.0 + 4.0 * random.Random(seed).random()

    async def kill_then(world: World) -> None:
        await asyncio.sleep(moment_s)
        while not awaits(world, "ben"):  # noqa: ASYNC110  the states of others tell nobody
            await asyncio.sleep(0.01)
        await world.kill("ben", silent=True)

    gossip = replace(PAIRS, rule=GossipRule.AVERAGE) if seed % 2 else PAIRS
    played = Played(settings_of(gossip), kill_then, costs=SLOW, seed=seed)
    books = played.ledger
    assert books["applied"] + books["lost"] == books["processed"] == 8000
    check_nobody_waits(played)
    assert any("ben" in entry["missing"] for entry in played.of("widowed"))
    for name in NAMES:
        assert np.isfinite(played.trainer(name).local).all(), name


async def restart(world: World) -> None:
    """Ben's process dies, and another one begins ten seconds later."""
    await kill(world)
    await asyncio.sleep(10.0)
    world.start("ben")


def test_a_restarted_learner_begins_with_the_values_of_one_that_trains() -> None:
    played = Played(settings_of(PAIRS, tokens=16000, fragments=2), restart)
    (took,) = (e for e in played.of("took_over") if e["actor"] == "ben")
    assert took["round"] > 10
    assert not list(played.of("kept_out"))
    met = [e for e in played.of("gossip") if e["actor"] == "ben" and e["at_s"] > took["at_s"]]
    assert len(met) > 5
    assert played.ledger["applied"] + played.ledger["lost"] == 16000
    locals_ = [played.trainer(name).local for name in NAMES]
    np.testing.assert_allclose(locals_[1], locals_[0])


def test_a_learner_cut_off_from_the_hub_goes_on_exchanging() -> None:
    async def hubless(world: World) -> None:
        await asyncio.sleep(8.0)
        await world.kill("syncer")
        await asyncio.sleep(3.0)
        world.start("syncer")

    played = Played(settings_of(PAIRS), hubless)
    during = [e for e in played.of("gossip") if 8.2 < e["at_s"] < 11.0]
    assert len(during) >= 6
    assert played.ledger["applied"] == 8000


def test_a_slow_learner_is_met_at_the_pace_of_the_fast_ones() -> None:
    hosts = {name: LearnerHost(0.3 if name == "eve" else 0.1) for name in NAMES}
    played = Played(settings_of(PAIRS), hosts=hosts)
    steps = {
        name: [e["steps"] for e in played.of("gossip") if e["actor"] == name] for name in NAMES
    }
    assert 2 <= np.median(steps["eve"]) <= 5
    assert np.median(steps["ana"]) == 10
    assert played.ledger["applied"] == 8000


def test_now_and_then_all_meet() -> None:
    gossip = GossipSettings(Neighbours.RANDOM_PAIRS, rule=GossipRule.AVERAGE, everyone_every=3)
    played = Played(settings_of(gossip))
    sizes = {e["round"]: len(e["partners"]) for e in played.of("gossip") if e["round"] > 8}
    assert {size for round_, size in sizes.items() if round_ % 4 == 3} == {3}
    assert {size for round_, size in sizes.items() if round_ % 4 != 3} == {1}


def test_values_stay_within_bounds() -> None:
    played = Played(settings_of(PAIRS, tokens=16000), restart, costs=SLOW)
    assert all(np.isfinite(played.trainer(name).local).all() for name in NAMES)
    start = np.linalg.norm(played.trainer("ana").start - played.trainer("ana").target)
    for name in NAMES:
        trainer = played.trainer(name)
        assert np.linalg.norm(trainer.local - trainer.target) < 0.3 * start
