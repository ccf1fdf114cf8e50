"""Bills against sums by hand: what is paid, for whom, and for tokens that came to nothing."""

import msgspec
import pytest

from islands.costs.bill import COLUMNS, HUB, ISLANDS_SHOWN, Stay, amount, as_json, bill_of, table_of
from islands.costs.prices import Machines
from tests.costs.test_prices import prices_of

SPOT = Machines("eu-west", "H100:8", preemptible=True, hosts=2)
OWN = Machines("on-premises", "H100:4")
GB = 10**9


def test_money_is_that_by_hand() -> None:
    prices = prices_of(TEXT_HERE)
    spot = Stay("spot-0", SPOT, 7200.0, 10 * GB, 20 * GB, tokens=4_000_000, merged=3_000_000)
    own = Stay("own-0", OWN, 1800.0, GB, 0, tokens=1_000_000, merged=1_000_000)
    bill = bill_of([spot, own], prices, hub_s=3 * 3600.0)
    first, second, hub = bill.lines
    assert first.hours_cost == pytest.approx(2 * 16 * 1.5)
    assert first.traffic_cost == pytest.approx(10 * 0.02 + 20 * 0.05)
    assert first.accelerator_hours == 32.0
    assert first.cost_per_million == pytest.approx(49.2 / 3)
    assert first.lost_cost == pytest.approx(49.2 / 4)
    assert second.cost == pytest.approx(0.5 * 4 * 2.0 + 0.1)
    assert (hub.name, hub.islands) == (HUB, 0)
    assert hub.cost == pytest.approx(3 * 0.5)
    whole = bill.whole
    assert whole.cost == pytest.approx(49.2 + 4.1 + 1.5)
    assert (whole.islands, whole.merged) == (2, 4_000_000)
    assert bill.lost_cost == pytest.approx(12.3)
    costs = {line.name: line.cost for line in bill.regions}
    assert costs == pytest.approx({"eu-west": 49.2, "on-premises": 4.1, "us-east": 1.5})


TEXT_HERE = """
currency: EUR
accelerator_hour:
  H100: {eu-west: {on_demand: 4.0, preemptible: 1.5}, on-premises: 2}
host_hour: {other: 0.5}
traffic_gb: {eu-west: {us-east: 0.02}, us-east: {eu-west: 0.05, other: 0.07}, other: {other: 0.1}}
hub: {region: us-east}
"""


def test_an_island_without_a_price_is_named_and_not_counted_for_nothing() -> None:
    stays = [Stay(f"tpu-{index}", Machines("a", "TPU:4"), 3600.0) for index in range(3)]
    bill = bill_of([*stays, Stay("lost", None, 1.0)], prices_of(TEXT_HERE))
    assert len(bill.missing) == 2
    assert "an hour of TPU in a" in bill.missing[0]
    assert "nobody tells where lost ran" in bill.missing[1]
    assert [line.name for line in bill.lines] == [HUB]


def test_without_prices_there_are_hours_and_no_money() -> None:
    bill = bill_of([Stay("a", None, 7200.0, GB, GB, 10, 5.0)], None)
    (line,) = bill.lines
    assert (line.hours, line.cost, line.region) == (2.0, 0.0, "other")
    assert bill.currency == ""
    assert table_of(bill)[-1].startswith("Without prices there is no money")


@pytest.mark.parametrize("number", [0, 1, 4096])
def test_a_table_fits_a_terminal(number: int) -> None:
    stays = [
        Stay(f"a-very-long-name-of-an-island-{index}", SPOT, 1e7, 10**15, 10**15, 10**12, 1e12)
        for index in range(number)
    ]
    lines = table_of(bill_of(stays, prices_of(TEXT_HERE), 1e7))
    assert max(map(len, lines)) <= COLUMNS
    assert len(lines) <= ISLANDS_SHOWN + 8
    assert any(line.startswith(f"all {number} ") for line in lines)
    assert any("more)" in line for line in lines) == (number > ISLANDS_SHOWN)


def test_json_has_every_island() -> None:
    stays = [Stay(f"site-{index}", SPOT, 3600.0, 0, 0, 10, 5.0) for index in range(100)]
    bill = bill_of(stays, prices_of(TEXT_HERE))
    told = msgspec.json.decode(as_json(bill))
    assert len(told["islands"]) == 101
    assert told["whole"]["cost"] == pytest.approx(100 * 16 * 1.5)
    assert told["whole"]["lost_cost"] == pytest.approx(50 * 16 * 1.5)
    assert told["currency"] == "EUR"


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0.00"), (0.034, "0.03"), (12.5, "12.50"), (1250.4, "1,250"), (1.25e6, "1.2 M")],
)
def test_amounts_are_short(number: float, text: str) -> None:
    assert amount(number) == text
