"""The file of prices: what it may hold, which price is meant, and a sentence for what is wrong."""

from pathlib import Path

import pytest
import yaml

from islands.cli.cost import prices_in
from islands.costs.prices import Machines, Prices, Unpriced, read_prices
from islands.protocol.errors import SettingsError

TEXT = """
currency: EUR
accelerator_hour:
  H100: {eu-west: {on_demand: 4.0, preemptible: 1.5}, other: 5}
host_hour: {eu-west: 0.5}
traffic_gb:
  eu-west: {us-east: 0.02, other: 0.09}
  us-east: {eu-west: 0.05, us-east: 0.01}
hub: {region: us-east}
learners:
  spot-*: {region: eu-west, accelerators: H100:8, preemptible: true, hosts: 2}
  "*": {region: on-premises}
"""


def prices_of(text: str = TEXT) -> Prices:
    return read_prices(yaml.safe_load(text), "prices.yaml")


def test_a_file_of_prices_is_read(tmp_path: Path) -> None:
    """By the reader of all settings, so that a key which occurs twice is told."""
    (tmp_path / "prices.yaml").write_text(TEXT)
    assert prices_in(tmp_path / "prices.yaml") == prices_of()
    assert prices_in(None) is None
    (tmp_path / "twice.yaml").write_text("host_hour: {a: 1}\nhost_hour: {b: 1}\n")
    with pytest.raises(SettingsError, match="host_hour occurs twice"):
        prices_in(tmp_path / "twice.yaml")


@pytest.mark.parametrize(
    ("place", "hour"),
    [
        (Machines("eu-west", "H100:8", preemptible=True, hosts=2), 24.0),
        (Machines("eu-west", "H100:8"), 32.0),
        (Machines("mars", "H100", preemptible=True), 5.0),
        (Machines("", "H100:4"), 20.0),
        (Machines("eu-west", hosts=3), 1.5),
    ],
)
def test_an_hour_costs_its_hosts_and_their_accelerators(place: Machines, hour: float) -> None:
    assert prices_of().hour_of(place) == hour


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (
            Machines("eu-west", "TPU:4"),
            "no price of an hour of TPU in eu-west .on_demand.; it is told",
        ),
        (Machines("mars"), "no price of an hour of a host in mars .on_demand.*by host_hour.mars"),
    ],
)
def test_a_price_that_is_missing_is_never_zero(place: Machines, sentence: str) -> None:
    """The sentence names the place in the file that would tell it."""
    with pytest.raises(Unpriced, match=sentence):
        prices_of().hour_of(place)


def test_a_preemptible_host_without_such_a_price_is_told() -> None:
    prices = prices_of("accelerator_hour: {H100: {other: {on_demand: 4}}}")
    with pytest.raises(Unpriced, match=r"H100 in a .preemptible."):
        prices.hour_of(Machines("a", "H100", preemptible=True))


def test_traffic_is_paid_where_it_leaves() -> None:
    prices = prices_of()
    assert prices.gb_of("eu-west", "us-east") == 0.02
    assert prices.gb_of("eu-west", "mars") == 0.09
    assert prices.gb_of("us-east", "eu-west") == 0.05
    assert (prices.gb_of("eu-west", "eu-west"), prices.gb_of("us-east", "us-east")) == (0.0, 0.01)
    with pytest.raises(Unpriced, match=r"traffic from us-east to mars.*traffic_gb.us-east.mars"):
        prices.gb_of("us-east", "mars")
    assert Prices().gb_of("us-east", "mars") == 0.0


def test_the_first_pattern_that_matches_a_name_counts() -> None:
    prices = prices_of()
    assert prices.machines_of("spot-7") == Machines("eu-west", "H100:8", preemptible=True, hosts=2)
    assert prices.machines_of("site-0") == Machines("on-premises")
    assert Prices(learners={"spot-*": Machines()}).machines_of("site-0") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("acelerator_hour: {}", "unknown field `acelerator_hour`"),
        ("host_hour: {a: -1}", "Expected `float` >= 0.0 - at `$.host_hour[...]`"),
        ("host_hour: {a: .nan}", "- at `$.host_hour[...]`"),
        ("accelerator_hour: {H100: {a: {preemptible: 1.0e+12}}}", "Expected `float` <= 1000000000"),
        ("accelerator_hour: {H100: 3}", "Expected `object`, got `int`"),
        ("learners: {a: {regoin: x}}", "unknown field `regoin` - at `$.learners[...]`"),
        ("learners: {a: 3}", "Expected `object`, got `int` - at `$.learners[...]`"),
        ("learners: [a]", "Expected `object`, got `array` - at `$.learners`"),
        ("learners: {a: {accelerators: 'H100:0'}}", "accelerators is 'H100:0'; it must be a kind"),
        ("hub: {hosts: 0}", "hosts is 0; it must be"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        prices_of(text)
    assert str(refused.value).startswith("prices.yaml: ")
    assert sentence in str(refused.value)
