"""Who exchanges with whom, and what each neighbour does with a share."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.protocol.gossip.exchanges import JUMP_MAX, neighbours_of, random_pairs, ring
from islands.protocol.identities import FragmentIndex, Incarnation
from islands.protocol.messages.gossip import Share
from islands.protocol.settings.choices import Neighbours
from islands.protocol.settings.gossip import GossipSettings
from islands.protocol.tape.gossip_entries import Exchanged, Widowed
from islands.protocol.tape.process_entries import KeptOut
from tests.learner.exchange_bench import PAIRS, RING, Bench, settings_of

PAIR = settings_of(PAIRS)
SIZES = [1, 2, 3, 4, 5, 8, 63, 64, 1000, 4095, 4096]


def names(count: int) -> list[str]:
    return [f"learner-{index}" for index in range(count)]


def met(name: str, settings: GossipSettings, roster: list[str], round_: int = 0) -> tuple[str, ...]:
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
        for other in met(name, PAIRS, forth, round_):
            assert met(other, PAIRS, back, round_) == (name,)


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
    assert [met("a", one, ["a"]) for one in (PAIRS, RING, graph)] == [(), (), ()]


def test_a_graph_has_lines_both_ways_between_those_present() -> None:
    graph = GossipSettings(Neighbours.GRAPH, {"a": ("b", "c"), "c": ("d",)})
    assert met("c", graph, ["a", "b", "c", "d"]) == ("a", "d")
    assert met("c", graph, ["a", "b", "c"]) == ("a",)
    assert met("e", graph, ["a", "e"]) == ()


def test_now_and_then_a_round_is_among_everybody() -> None:
    settings = GossipSettings(Neighbours.RING, everyone_every=2)
    sizes = [len(met("learner-0", settings, names(6), cycle)) for cycle in range(6)]
    assert sizes == [2, 2, 5, 2, 2, 5]


def test_rosters_that_differ_pair_nobody_wrongly_for_long() -> None:
    before, after = names(9), names(10)
    differing = [
        r
        for r in range(20)
        if met("learner-0", PAIRS, before, r) != met("learner-0", PAIRS, after, r)
    ]
    assert 0 < len(differing) < 20


def refused(bench: Bench) -> list[KeptOut]:
    return [entry for _, entry in bench.told if isinstance(entry, KeptOut)]


def widowed(bench: Bench) -> list[tuple[str, dict[str, str]]]:
    """Who was left without any share, and why."""
    return [(name, entry.missing) for name, entry in bench.told if isinstance(entry, Widowed)]


def test_the_first_offers_and_the_other_answers_at_its_next_boundary() -> None:
    bench = Bench(PAIR)
    bench.step("a", 10)
    bench.deliver()
    assert bench.mixes == []
    bench.step("b", 8)
    bench.deliver()
    assert sorted(bench.mix()) == [("a", ("b",)), ("b", ("a",))]
    steps = {name: e.steps for name, e in bench.told if isinstance(e, Exchanged)}
    assert steps == {"a": 10, "b": 8}
    assert bench.of["b"].clock == 0


def test_the_faster_one_sets_the_pace() -> None:
    bench = Bench(PAIR)
    for _ in range(51):
        bench.step("a", 2)
        bench.step("b", 1)
        bench.deliver()
        bench.mix()
    mixed = [
        entry.steps for name, entry in bench.told if name == "a" and isinstance(entry, Exchanged)
    ]
    assert len(mixed) == 10
    assert sum(mixed) == 100
    assert bench.of["a"].clock == bench.of["b"].clock == 9


def test_an_answer_that_does_not_come_ends_at_the_deadline() -> None:
    bench = Bench(PAIR)
    bench.step("a", 10)
    bench.mails.clear()
    bench.pass_s(PAIR.timing.round_s)
    assert widowed(bench) == [("a", {"b": "no answer in time"})]
    bench.mails.clear()
    bench.step("b", 8)
    bench.step("a", 10)
    bench.deliver()
    bench.step("b")
    bench.deliver()
    assert sorted(bench.mix()) == [("a", ("b",)), ("b", ("a",))]
    assert [e.steps for n, e in bench.told if n == "a" and isinstance(e, Exchanged)] == [20]


def test_a_lost_answer_is_asked_for_again() -> None:
    bench = Bench(PAIR)
    bench.step("a", 10)
    bench.deliver()
    bench.step("b", 8)
    bench.mails.clear()
    assert bench.mix() == [("b", ("a",))]
    bench.pass_s(PAIR.timing.round_s / 4)
    (offer,) = bench.mails
    assert isinstance(offer[2], Share)
    assert offer[2].wanted
    bench.deliver()
    assert bench.mix() == [("a", ("b",))]


def test_a_late_offer_is_declined() -> None:
    bench = Bench(PAIR)
    bench.step("a", 10)
    bench.mails.clear()
    bench.pass_s(PAIR.timing.round_s)
    bench.mails.clear()
    bench.of["a"].end()
    bench.of["a"].begin(bench.roster["a"], 10)
    bench.step("b", 10)
    bench.deliver()
    assert widowed(bench)[-1] == ("b", {"a": "that round is over here"})


def test_a_partner_of_another_roster_is_declined() -> None:
    bench = Bench(PAIR, 4)
    partner = next(
        name
        for name in "bcd"
        if name in bench.of["a"]._group(0)  # noqa: SLF001
    )
    stranger = next(name for name in "bcd" if name != partner)
    bench.hear("a", stranger, bench.share(stranger, 0))
    assert [mail[2].reason for mail in bench.mails if not isinstance(mail[2], Share)] == [
        "another neighbour in this round"
    ]
    assert refused(bench) == []
    assert bench.of["a"].clock == -1


def test_a_partner_that_goes_widows_at_once() -> None:
    for after in ({}, {"b": Incarnation(1, 9)}):
        bench = Bench(PAIR)
        bench.step("a", 10)
        bench.of["a"].on_roster(after, 0.5)
        bench.collect("a")
        assert widowed(bench) == [("a", {"b": "gone"})]


def test_a_ring_goes_on_with_the_neighbour_that_is_left() -> None:
    bench = Bench(settings_of(RING), 3)
    bench.step("a", 10)
    bench.deliver()
    bench.step("b", 1)
    bench.deliver()
    for name in "ab":
        bench.of[name].on_roster({n: i for n, i in bench.roster.items() if n != "c"}, 1.0)
        bench.collect(name)
    assert sorted(bench.mix()) == [("a", ("b",)), ("b", ("a",))]


def test_alone_a_learner_steps_on() -> None:
    bench = Bench(PAIR, 1)
    bench.step("a", 100)
    assert bench.of["a"].clock == 9
    assert (list(bench.mails), list(bench.takes), bench.told) == ([], [], [])


@pytest.mark.parametrize(
    ("change", "problem", "says"),
    [
        ({}, "its digest differs", "digest"),
        ({"fragment": FragmentIndex(1)}, None, "not on fragment 1"),
        ({"round": -1}, None, "not on fragment"),
        ({"round": JUMP_MAX}, None, "far ahead"),
    ],
)
def test_a_lie_ends_the_pairing(change: dict[str, int], problem: str | None, says: str) -> None:
    bench = Bench(PAIR)
    lie = replace(bench.share("b", 0), **change)  # type: ignore[arg-type]
    bench.hear("a", "b", lie, problem)
    (told,) = refused(bench)
    assert says in told.reason
    assert told.name == "b"
    assert bench.mixes == []
    assert bench.of["a"].clock == -1


def test_a_lying_answer_widows_at_once() -> None:
    bench = Bench(PAIR)
    bench.step("a", 10)
    bench.hear("a", "b", bench.share("b", 0), "its digest differs")
    assert widowed(bench) == [("a", {"b": "refused: its digest differs"})]


def test_an_unknown_sender_is_not_heard() -> None:
    bench = Bench(PAIR)
    bench.hear("a", "b", replace(bench.share("b", 0), incarnation=Incarnation(9, 9)))
    assert refused(bench) == []
    assert len(bench.mails) == 1
    assert bench.of["a"].clock == -1


def test_a_learner_that_has_ended_takes_no_part() -> None:
    bench = Bench(PAIR)
    bench.step("a", 10)
    bench.deliver()
    bench.step("b", 8)
    bench.of["a"].end()
    bench.deliver()
    bench.of["b"].end()
    assert bench.mix() == [("b", ("a",))]
    assert not bench.of["a"].open
    assert not bench.of["b"].open


@given(
    count=st.integers(2, 5),
    ring=st.booleans(),
    fragments=st.integers(1, 4),
    choices=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1000)), max_size=120),
)
def test_whatever_is_lost_late_or_doubled(
    *, count: int, ring: bool, fragments: int, choices: list[tuple[int, int]]
) -> None:
    settings = settings_of(RING if ring else PAIRS, 4, fragments)
    bench = Bench(settings, count)
    clocks = dict.fromkeys(bench.names, -1)
    for kind, number in choices:
        name = bench.names[number % count]
        if kind <= 2:
            bench.step(name)
        elif kind == 3:
            bench.pass_s(number / 200)
        elif kind == 4:
            bench.mix()
        elif bench.mails:
            bench.mails.rotate(-number)
            sender, receiver, message = bench.mails[0]
            if kind != 7:  # a seventh of what is delivered is delivered once more
                bench.mails.popleft()
            if kind != 6:
                bench.hear(receiver, sender, message)
        mixing = [(who, mix.fragment) for who, mix in bench.mixes]
        assert len(set(mixing)) == len(mixing)
        assert all(bench.of[who].clock >= clocks[who] for who in bench.names)
        clocks = {who: bench.of[who].clock for who in bench.names}
    bench.mix()
    bench.mails.clear()
    bench.takes.clear()
    bench.pass_s(settings.timing.round_s)
    bench.mix()
    assert refused(bench) == []
    assert all(not exchanges.open for exchanges in bench.of.values())
