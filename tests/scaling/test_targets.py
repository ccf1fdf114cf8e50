"""The wanted number of islands: by hand, at both ends, and where a target cannot be met."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.protocol.errors import SettingsError
from islands.scaling.targets import Deadline, Entry, Gain, PerHour, wanted_islands

HOUR_S = 3600.0
SPOT = Entry("spot", "eu", 2, tokens_per_s=100.0, hour_cost=10.0)
CLOUD = Entry("cloud", "us", 1, tokens_per_s=200.0, hour_cost=30.0)


def test_a_deadline_asks_for_as_few_as_are_enough() -> None:
    """Of the cheapest tokens first: 900,000 of them in 1,000 s are 900 a second."""
    wanted = wanted_islands([CLOUD, SPOT], Deadline(1000.0, 900_000))
    assert wanted.islands == {"spot": 9, "cloud": 0}
    assert "9 for 900.0 k tokens within 16:40, at 100 tokens/s each" in wanted.why["spot"]
    few = Entry("spot", "eu", 2, 100.0, 10.0, most=4)
    assert wanted_islands([CLOUD, few], Deadline(1000.0, 900_000)).islands == {
        "spot": 4,
        "cloud": 3,
    }


def test_data_of_a_region_asks_for_islands_there() -> None:
    """However dear they are; what may be trained anywhere goes to the cheapest."""
    wanted = wanted_islands([CLOUD, SPOT], Deadline(1000.0, 150_000, {"us": 1_000_000}))
    assert wanted.islands == {"spot": 2, "cloud": 5}
    assert "5 for 1.0 M tokens of us's own data" in wanted.why["cloud"]


def test_entries_that_cost_the_same_keep_their_islands() -> None:
    """None is drained in one region so that another comes in the next."""
    a, b = Entry("a", "x", 1, 100.0), Entry("b", "y", 4, 100.0)
    assert wanted_islands([a, b], Deadline(100.0, 40_000)).islands == {"a": 0, "b": 4}


def test_a_deadline_that_cannot_be_met_is_told() -> None:
    """With all islands that there may be, and what these leave undone."""
    wanted = wanted_islands([SPOT], Deadline(1000.0, 10_000_000))
    assert wanted.islands == {"spot": 64}
    assert wanted.unmet == (
        "the deadline cannot be met: 64 islands, as many as there may be, leave 3.6 M of 10.0 M "
        "tokens undone by then"
    )


@pytest.mark.parametrize(
    ("entry", "target", "sentence"),
    [
        (Entry("a", present=3), Deadline(10.0, 10.0), "no island has stepped yet"),
        (Entry("a", present=3, tokens_per_s=1.0), Deadline(0.0, 10.0), "the deadline is over"),
    ],
)
def test_where_nobody_knows_nothing_changes(entry: Entry, target: Deadline, sentence: str) -> None:
    """And the reason is told."""
    wanted = wanted_islands([entry], target)
    assert wanted.islands == {"a": 3}
    assert sentence in wanted.unmet


def test_an_entry_without_a_speed_counts_as_the_others() -> None:
    """An entry of which no island has stepped yet can be asked for all the same."""
    other = Entry("new", "us")
    wanted = wanted_islands([SPOT, other], Deadline(100.0, 0.0, {"us": 30_000}))
    assert wanted.islands == {"spot": 0, "new": 3}


def test_when_all_is_done_one_island_is_left() -> None:
    """The last one is never drained by the way, unless that was said."""
    assert wanted_islands([SPOT, CLOUD], Deadline(10.0)).islands == {"spot": 1, "cloud": 0}
    assert wanted_islands([SPOT, CLOUD], Deadline(10.0), least=0).islands == {
        "spot": 0,
        "cloud": 0,
    }


def test_money_pays_for_the_cheapest_tokens_first() -> None:
    """Ten a hundred tokens a second, then thirty for two hundred."""
    few = Entry("spot", "eu", 2, 100.0, 10.0, most=4)
    assert wanted_islands([CLOUD, few], PerHour(100.0)).islands == {"spot": 4, "cloud": 2}
    assert wanted_islands([CLOUD, SPOT], PerHour(40.0)).islands == {"spot": 4, "cloud": 0}
    free = Entry("own", "home", 0, 1.0, 0.0, most=5)
    assert wanted_islands([free, CLOUD], PerHour(0.0)).islands == {"own": 5, "cloud": 0}


def test_a_sum_that_is_just_enough_is_enough() -> None:
    """Tenths are no exact numbers of a computer."""
    cheap = Entry("a", hour_cost=0.1, tokens_per_s=1.0)
    assert wanted_islands([cheap], PerHour(0.3)).islands == {"a": 3}


def test_money_that_pays_for_none_is_told() -> None:
    """The least is kept, and what it costs is in the sentence."""
    wanted = wanted_islands([CLOUD, SPOT], PerHour(9.0))
    assert wanted.islands == {"spot": 1, "cloud": 0}
    assert "one costs 10.00 an hour at the least, and 9.00 may be spent" in wanted.unmet


def test_money_needs_prices() -> None:
    """And a region of data needs an entry there."""
    with pytest.raises(SettingsError, match="needs the price of an hour of a: see prices"):
        wanted_islands([Entry("a")], PerHour(9.0))
    with pytest.raises(SettingsError, match="data names mars; no entry"):
        wanted_islands([SPOT], Deadline(9.0, 0.0, {"mars": 1.0}))


def test_no_entries_are_no_islands() -> None:
    """A sentence says so."""
    wanted = wanted_islands([], PerHour(9.0))
    assert (wanted.islands, bool(wanted.unmet)) == ({}, True)


@pytest.mark.parametrize("most", [0, 1, 2, 4096])
@pytest.mark.parametrize("least", [0.001, 0.02, 0.5, 0.999])
def test_islands_are_added_while_one_more_is_worth_it(most: int, least: float) -> None:
    """Of a fleet that scales as √n, against a search one by one."""
    entry = Entry("a", most=most)

    def merged(number: int) -> float:
        return float(number**0.5)

    wanted = wanted_islands([entry], Gain(least, merged)).islands["a"]
    by_one = 1
    while by_one < most and merged(by_one + 1) / merged(by_one) - 1 >= least:
        by_one += 1
    assert wanted == min(most, by_one)


def test_few_fleets_are_played_to_find_it() -> None:
    """One that scales as it should takes two, and none is larger than may be worth it."""
    played = list[int]()

    def merged(number: int) -> float:
        played.append(number)
        return 3.0 * number

    wanted = wanted_islands([Entry("a", most=4096)], Gain(0.02, merged))
    assert wanted.islands == {"a": 50}
    assert sorted(played) == [49, 50]
    assert wanted.why["a"] == "50 of 50 in all: one more would add less than 2.0%"


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4096),
            st.floats(0.01, 1e6),
            st.floats(0.0, 1e4),
            st.integers(0, 4096),
        ),
        min_size=1,
        max_size=5,
    ),
    st.floats(0.0, 1e6),
    st.floats(1.0, 1e6),
    st.floats(0.0, 1e12),
)
def test_no_target_asks_for_more_than_may_be(
    told: list[tuple[int, float, float, int]], money: float, left_s: float, tokens: float
) -> None:
    """And money is kept to; a deadline is met, or a sentence says that it is not."""
    entries = [
        Entry(f"e{index}", "x", present, speed, cost, most)
        for index, (present, speed, cost, most) in enumerate(told)
    ]
    by_name = {each.name: each for each in entries}
    paid = wanted_islands(entries, PerHour(money), least=0)
    cost = sum(number * (by_name[name].hour_cost or 0) for name, number in paid.islands.items())
    assert cost <= money * (1 + 1e-6)
    done = wanted_islands(entries, Deadline(left_s, tokens), least=0)
    speed = sum(number * (by_name[name].tokens_per_s or 0) for name, number in done.islands.items())
    assert done.unmet or speed * left_s >= tokens * (1 - 1e-6)
    for wanted in (paid, done):
        assert all(0 <= wanted.islands[each.name] <= each.most for each in entries)
        assert list(wanted.why) == list(wanted.islands) or set(wanted.why) == set(wanted.islands)
