"""Islands whose hosts each send their shares over links of their own: real actors, virtual time."""

import asyncio
from itertools import pairwise

import pytest

from islands.protocol.identities import SYNCER
from islands.protocol.settings.choices import Precision, UpdatePrecision
from messaging.simulation.network import Route
from tests.island.island_run import ISLAND, SIZE_BYTES, play
from tests.island.simulated_island import IslandWorld, SimulatedIsland, host_name

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.BFLOAT16])
def test_the_merges_of_islands_of_1_2_and_4_hosts_are_the_same_bits(precision: Precision) -> None:
    """However their devices lie; and each host's link carries its share of the bytes."""
    one = play((0,), precision)
    assert one.wrong == []
    assert len(one.of("merged")) > 20
    whole = one.sent[ISLAND]
    for owners in ((0, 1), (0, 1, 0, 1), (0, 1, 2, 3)):
        found = play(owners, precision)
        hosts = max(owners) + 1
        assert found.wrong == []
        assert found.merges == one.merges
        assert found.of("share_dropped") == []
        sent = [found.sent[host_name(ISLAND, rank)] for rank in range(hosts)]
        assert sum(sent) == whole
        for sent_bytes in sent:
            assert sent_bytes == pytest.approx(whole / hosts, rel=0.02)
        taken = [found.received[host_name(ISLAND, rank)] for rank in range(hosts)]
        assert sum(taken) == one.received[ISLAND]
        assert max(taken[1:]) < one.received[ISLAND] / hosts
        assert taken[0] - max(taken[1:]) < 2 * SIZE_BYTES, "version 0 came whole, to rank 0"


def test_what_is_encoded_on_the_host_goes_by_rank_0() -> None:
    """A share of it is no slice of its bytes."""
    found = play((0, 1), Precision.INT8, budget_tokens=200)
    assert found.wrong == []
    assert found.sent[ISLAND] > 0
    assert found.sent[host_name(ISLAND, 1)] == 0


async def cut_and_come_back(world: IslandWorld) -> None:
    """The follower's link to the syncer is cut, crashes, becomes narrow; all restart in turn."""
    other = host_name(ISLAND, 1)
    await asyncio.sleep(5.0)
    world.network.cut(other, SYNCER)
    await asyncio.sleep(5.0)
    world.network.heal(other, SYNCER)
    await asyncio.sleep(3.0)
    world.network.crash(other)
    await asyncio.sleep(3.0)
    await world.kill(SYNCER)
    world.start(SYNCER)
    await asyncio.sleep(5.0)
    await world.kill(ISLAND)
    world.start(ISLAND)
    await asyncio.sleep(3.0)
    world.network.crash(ISLAND)
    await asyncio.sleep(3.0)
    world.network.set_route(other, SYNCER, Route(latency_s=0.005, bandwidth_bytes_per_s=40_000))
    await asyncio.sleep(4.0)
    world.network.cut(other, SYNCER)


def test_links_that_are_cut_and_processes_that_restart_lose_no_promise() -> None:
    """Rank 0 stands in, so what the island did is merged all the time; nobody gets a strike."""
    found = play((0, 1), Precision.FLOAT32, cut_and_come_back, budget_tokens=7000, quorum=1)
    assert found.wrong == []
    assert found.of("quarantined") == []
    assert found.of("update_refused") == []
    fates = [line for line in found.of("fate") if str(line["ticket"]).startswith(ISLAND)]
    assert {line["fate"] for line in fates} <= {"applied", "late"}
    applied = [float(str(line["at_s"])) for line in fates if line["fate"] == "applied"]
    gaps = [later - earlier for earlier, later in pairwise(applied)]
    assert max(gaps) < 6.0
    adopted = [float(str(line["at_s"])) for line in found.of("adopted") if line["actor"] == ISLAND]
    assert max(later - earlier for earlier, later in pairwise(adopted)) < 6.0
    assert found.sent[host_name(ISLAND, 1)] > 0


async def rough(world: IslandWorld) -> None:
    """The other hosts' links lose and repeat what they carry, and let it overtake."""
    weather = Route(0.005, jitter_s=0.3, drop=0.1, duplicate=0.2)
    for rank in (1, 2):
        world.network.set_route(host_name(ISLAND, rank), SYNCER, weather)
        world.network.set_route(SYNCER, host_name(ISLAND, rank), weather)
    await asyncio.sleep(0.0)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_shares_that_are_lost_late_or_repeated_cost_no_contribution(number: int) -> None:
    """Sessions break all the time; whatever is lost of a value comes by rank 0."""
    found = play((0, 1, 2), Precision.FLOAT32, rough, budget_tokens=1500, seed=number)
    assert found.wrong == []
    assert found.of("quarantined") == []
    fates = [line for line in found.of("fate") if str(line["ticket"]).startswith(ISLAND)]
    assert len(fates) > 20
    assert {line["fate"] for line in fates} <= {"applied", "late", "stale"}
    assert sum(line["fate"] == "applied" for line in fates) > 0.7 * len(fates)
    assert len(found.of("host_linked")) > 3
    assert found.sent[host_name(ISLAND, 2)] > 0


def test_a_host_that_stays_one_publication_behind_keeps_no_value_from_the_island() -> None:
    """A fragment is published each 0.8 s, and this host's shares take 1.5 s: whole ones overtake.

    Of versions that others have replaced, no host keeps its shares.
    """
    sides: list[SimulatedIsland] = []

    async def late(world: IslandWorld) -> None:
        sides.append(world.islands[ISLAND])
        await asyncio.sleep(3.0)
        for tenths in range(1, 16):  # no silence that would end the session
            route = Route(latency_s=0.1 * tenths)
            world.network.set_route(SYNCER, host_name(ISLAND, 2), route)
            await asyncio.sleep(0.1)

    found = play((0, 1, 2), Precision.FLOAT32, late, budget_tokens=2500, quorum=1)
    assert found.wrong == []
    assert len(found.of("host_linked")) == 2, "sessions last"
    adopted = [float(str(line["at_s"])) for line in found.of("adopted") if line["actor"] == ISLAND]
    assert len(adopted) > 0.5 * len(found.of("committed"))
    assert max(later - earlier for earlier, later in pairwise(adopted)) < 2.0
    for side in sides[0].followers.values():
        assert all(len(kept) <= 1 for kept in side._values.values())  # noqa: SLF001


async def never_reached(world: IslandWorld) -> None:
    """A firewall: the follower never reaches the syncer."""
    world.network.cut(host_name(ISLAND, 1), SYNCER)
    await asyncio.sleep(0.0)


def test_where_a_host_has_no_way_to_the_syncer_rank_0_sends_everything() -> None:
    """To the bit what one host sends."""
    one = play((0,), Precision.FLOAT32, budget_tokens=400)
    found = play((0, 1), Precision.FLOAT32, never_reached, budget_tokens=400)
    assert found.wrong == []
    assert found.merges == one.merges
    assert found.sent == one.sent
    assert found.received == one.received


def test_increments_go_by_rank_0() -> None:
    """They are added to whole values, and have no slices."""
    found = play((0, 1), Precision.FLOAT32, updates=UpdatePrecision.INT8, budget_tokens=200)
    assert found.wrong == []
    assert found.sent[host_name(ISLAND, 1)] > 0
    assert found.received[host_name(ISLAND, 1)] == 0
