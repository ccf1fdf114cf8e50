"""The file of prices: what it may hold, which price is meant, and a sentence for what is wrong."""

from pathlib import Path

import pytest
import yaml

from islands.cli.cost import prices_in
from islands.costs.places import Place, matching
from islands.costs.prices import Prices, Unpriced, read_prices
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
        (Place("eu-west", "H100:8", preemptible=True, hosts=2), 24.0),
        (Place("eu-west", "H100:8"), 32.0),
        (Place("mars", "H100", preemptible=True), 5.0),
        (Place("", "H100:4"), 20.0),
        (Place("eu-west", hosts=3), 1.5),
    ],
)
def test_an_hour_costs_its_hosts_and_their_accelerators(place: Place, hour: float) -> None:
    assert prices_of().hour_of(place) == hour


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (
            Place("eu-west", "TPU:4"),
            "no price of an hour of TPU in eu-west .on_demand.; it is told",
        ),
        (Place("mars"), "no price of an hour of a host in mars .on_demand.*by host_hour.mars"),
    ],
)
def test_a_price_that_is_missing_is_never_zero(place: Place, sentence: str) -> None:
    """The sentence names the place in the file that would tell it."""
    with pytest.raises(Unpriced, match=sentence):
        prices_of().hour_of(place)


def test_a_preemptible_host_without_such_a_price_is_told() -> None:
    prices = prices_of("accelerator_hour: {H100: {other: {on_demand: 4}}}")
    with pytest.raises(Unpriced, match=r"H100 in a .preemptible."):
        prices.hour_of(Place("a", "H100", preemptible=True))


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
    learners = prices_of().learners
    assert matching("spot-7", learners) == Place("eu-west", "H100:8", preemptible=True, hosts=2)
    assert matching("site-0", learners) == Place("on-premises")
    assert matching("site-0", {"spot-*": Place()}) is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("acelerator_hour: {}", "acelerator_hour is not known; it may have currency,"),
        ("host_hour: {a: -1}", "host_hour.a is -1.0; it must be in"),
        ("host_hour: {a: .nan}", "host_hour.a is nan; it must be in"),
        ("accelerator_hour: {H100: {a: {preemptible: 1e12}}}", "H100.a.preemptible is 1e12"),
        ("accelerator_hour: {H100: 3}", "Expected `object`, got `int`"),
        ("learners: {a: {regoin: x}}", "learners.a.regoin is not known; there are region,"),
        ("learners: {a: 3}", "learners.a is 3; it must be a table of region,"),
        ("learners: [a]", "learners is ['a']; it must be a table"),
        ("learners: {a: {accelerators: 'H100:0'}}", "accelerators is 'H100:0'; it must be a kind"),
        ("hub: {hosts: 0}", "hub: hosts is 0; it must be in [1, 100000]"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        prices_of(text.replace("1e12", "1.0e+12"))
    told = str(refused.value).replace("1000000000000.0", "1e12")
    assert told.startswith("prices.yaml: ")
    assert sentence in told
