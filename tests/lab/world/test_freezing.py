"""Processes that are stopped and go on: zombies, pauses and two syncers among the real actors."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from islands.lab.checker import order
from islands.lab.checker.evidence import History, Limits
from islands.lab.world.world import SPARE_SYNCER, LearnerHost, World
from islands.protocol.errors import FencedError
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.settings.run import RunSettings, Timing
from tests.lab.world.worlds import Entries, entries, lines, lived

TIMING = Timing(patience=0.2)
EVICT_S = TIMING.scaled(TIMING.evict_s)
SETTINGS = RunSettings(interval_steps=8, fragments=4, timing=TIMING, learning_rate=0.02)
HOSTS = {"ana": LearnerHost(), "ben": LearnerHost(step_s=0.07)}
BEGIN_S = 3.0

pytestmark = pytest.mark.simulation


def played(
    do: Callable[[World], Awaitable[None]], rest_s: float, begin_s: float = BEGIN_S
) -> tuple[World, Entries]:
    """A run in which something is done; returns its world and what was recorded since."""
    world = lived(SETTINGS, HOSTS, begin_s, do, rest_s, seed=3)
    return world, [entry for entry in entries(world) if entry["at_s"] >= begin_s]


def frozen(*names: str, for_s: float) -> Callable[[World], Awaitable[None]]:
    async def do(world: World) -> None:
        for name in names:
            assert world.processes.freeze(name)
        await asyncio.sleep(for_s)
        for name in names:
            assert world.processes.thaw(name)

    return do


@pytest.mark.parametrize("begin_s", [3.0, 3.08])
def test_a_short_pause_evicts_nobody(begin_s: float) -> None:
    _, tape = played(frozen("ana", for_s=0.6 * EVICT_S), 5.0, begin_s)
    assert not [entry for entry in tape if entry["kind"] in ("evicted", "admitted")]


@pytest.mark.parametrize("begin_s", [3.0, 3.08])
def test_a_zombie_is_evicted_and_fenced_and_returns(begin_s: float) -> None:
    _, tape = played(frozen("ana", for_s=3 * EVICT_S), 5.0, begin_s)
    (evicted,) = [entry for entry in tape if entry["kind"] == "evicted"]
    assert evicted["name"] == "ana"
    heartbeat_s = TIMING.scaled(TIMING.heartbeat_s)
    assert EVICT_S - heartbeat_s <= evicted["at_s"] - begin_s <= EVICT_S + 2 * heartbeat_s
    (admitted,) = [entry for entry in tape if entry["kind"] == "admitted"]
    assert admitted["at_s"] - begin_s - 3 * EVICT_S < 5 * EVICT_S
    since_s = admitted["at_s"]
    merged = [entry for entry in tape if entry["kind"] == "merged"]
    for entry in merged:
        if evicted["at_s"] + heartbeat_s < entry["at_s"] < since_s:
            assert entry["participants"] == ["ben"]
    assert any("ana" in entry["participants"] for entry in merged if entry["at_s"] > since_s)


@pytest.mark.parametrize(
    ("names", "pauses"),
    [((SUPERVISOR,), 2.0), ((SUPERVISOR,), 10.0), ((SYNCER,), 2.0), ((SUPERVISOR, SYNCER), 10.0)],
)
def test_a_hub_that_was_stopped_evicts_nobody(names: tuple[str, ...], pauses: float) -> None:
    _, tape = played(frozen(*names, for_s=pauses * EVICT_S), 8.0)
    evicted = {str(entry["name"]) for entry in tape if entry["kind"] == "evicted"}
    assert evicted <= {*names} - {SUPERVISOR}
    assert max(e["at_s"] for e in tape if e["kind"] == "merged") > BEGIN_S + 6.0


@pytest.mark.parametrize("for_s", [0.0, 3 * EVICT_S])
def test_of_two_syncers_the_older_one_ends(for_s: float) -> None:
    async def do(world: World) -> None:
        if for_s:
            world.processes.freeze(SYNCER)
        world.start_second_syncer()
        await asyncio.sleep(for_s)
        world.processes.thaw(SYNCER)

    world, tape = played(do, 8.0)
    ended = [entry for entry in tape if entry["kind"] == "process_ended"]
    assert [entry["name"] for entry in ended] == [SYNCER]
    assert str(ended[0]["error"]).startswith(FencedError.__name__)
    assert ended[0]["at_s"] < BEGIN_S + for_s + EVICT_S
    merged = [entry for entry in tape if entry["kind"] == "merged"]
    assert merged[-1]["actor"] == SPARE_SYNCER
    assert {"ana", "ben"} == {name for entry in merged for name in entry["participants"]}
    history, limits = History.of(lines(world)), Limits((16,), 8, 2, 1, None, {}, 16, 256, 1.0)
    for rule in (order.versions_have_one_value, order.versions_grow, order.journal_comes_first):
        assert not list(rule(history, limits))
