"""Pairing: what holds for every roster, and what becomes of rosters that differ for a moment."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.protocol.gossip.pairing import neighbours_of, random_pairs, ring
from islands.protocol.settings.choices import Neighbours
from islands.protocol.settings.gossip import GossipSettings

PAIRS = GossipSettings(Neighbours.RANDOM_PAIRS)
RING = GossipSettings(Neighbours.RING)
SIZES = [1, 2, 3, 4, 5, 8, 63, 64, 1000, 4095, 4096]


def names(count: int) -> list[str]:
    return [f"learner-{index}" for index in range(count)]


def of(name: str, settings: GossipSettings, roster: list[str], round_: int = 0) -> tuple[str, ...]:
    return neighbours_of(name, settings, seed=0, round_=round_, cycle=round_, roster=roster)


@pytest.mark.parametrize("count", SIZES)
def test_everybody_is_in_one_pair_but_an_odd_one(count: int) -> None:
    for round_ in (0, 1, 2**40):
        pairs = random_pairs(names(count), seed=7, round_=round_)
        paired = [name for pair in pairs for name in pair]
        assert len(pairs) == count // 2
        assert len(set(paired)) == len(paired)
        assert set(paired) <= set(names(count))


@given(st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=40), st.integers(0, 2**63))
def test_partners_find_each_other(roster: set[str], round_: int) -> None:
    forth, back = sorted(roster), sorted(roster, reverse=True)
    for name in forth:
        for other in of(name, PAIRS, forth, round_):
            assert of(other, PAIRS, back, round_) == (name,)


def test_every_pair_is_as_likely_as_any_other() -> None:
    drawn = (random_pairs(names(6), seed=1, round_=round_) for round_ in range(3000))
    counts = Counter(tuple(sorted(pair)) for pairs in drawn for pair in pairs)
    assert len(counts) == 15
    assert all(500 < count < 700 for count in counts.values())


def test_another_seed_draws_other_pairs() -> None:
    first = [random_pairs(names(8), seed=0, round_=r) for r in range(20)]
    assert first == [random_pairs(names(8), seed=0, round_=r) for r in range(20)]
    assert first != [random_pairs(names(8), seed=1, round_=r) for r in range(20)]


@pytest.mark.parametrize("count", SIZES[1:])
def test_a_ring_is_closed_and_mutual(count: int) -> None:
    members = sorted(names(count))
    for name in members[:3] + members[-3:]:
        beside = ring(name, members)
        assert len(beside) == min(2, count - 1)
        assert all(name in ring(other, members) for other in beside)


def test_alone_a_learner_rests() -> None:
    graph = GossipSettings(Neighbours.GRAPH, {"a": ("b",)})
    assert [of("a", one, ["a"]) for one in (PAIRS, RING, graph)] == [(), (), ()]


def test_a_graph_has_lines_both_ways_between_those_present() -> None:
    graph = GossipSettings(Neighbours.GRAPH, {"a": ("b", "c"), "c": ("d",)})
    assert of("c", graph, ["a", "b", "c", "d"]) == ("a", "d")
    assert of("c", graph, ["a", "b", "c"]) == ("a",)
    assert of("e", graph, ["a", "e"]) == ()


def test_now_and_then_a_round_is_among_everybody() -> None:
    settings = GossipSettings(Neighbours.RING, everyone_every=2)
    sizes = [len(of("learner-0", settings, names(6), cycle)) for cycle in range(6)]
    assert sizes == [2, 2, 5, 2, 2, 5]


def test_rosters_that_differ_pair_nobody_wrongly_for_long() -> None:
    before, after = names(9), names(10)
    differing = [
        r
        for r in range(20)
        if of("learner-0", PAIRS, before, r) != of("learner-0", PAIRS, after, r)
    ]
    assert 0 < len(differing) < 20
