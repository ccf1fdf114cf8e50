"""The entries of a run as its figures, its engines' records and the file of prices tell them."""

from pathlib import Path

import pytest

from islands.engines.engine import JobState
from islands.engines.launcher import Records
from islands.engines.needs import Needs, entry_of
from islands.engines.placing import Placement
from islands.protocol.errors import UserError
from islands.run.records.figures import LearnerFigures
from islands.run.records.run_folder import RunFolder
from islands.scaling.fleet import Run, fleet_in_file, fleet_of
from islands.settings.run_spec import write
from tests.costs.test_prices import prices_of
from tests.costs.test_spent import admitted
from tests.page.run_folder import LAYOUT, PLAN, SPEC

PRICES = prices_of("{host_hour: {x: 2, y: 3}, learners: {'learner-*': {region: y}}}")


def stepped(tokens: int, stepping_s: float, since_s: float | None = 0.0) -> LearnerFigures:
    """A learner that has stepped; it is there unless `since_s` is None."""
    return LearnerFigures(
        tokens=tokens, stepping_s=stepping_s, since_s=since_s, step_time_s=stepping_s / 10
    )


def test_entries_are_those_of_members_and_of_engines() -> None:
    """Islands in a queue are there, those that have ended are not, and both have a region."""
    learners = {
        "site-0": stepped(100, 10.0),
        "site-1": stepped(300, 10.0),
        "learner-0": stepped(50, 10.0),
        "learner-1": stepped(70, 10.0, since_s=None),
        "laptop-ab12": LearnerFigures(since_s=1.0),
    }
    placements = {
        "site-1": Placement("site", "1", JobState.RUNNING),
        "site-2": Placement("site", "2", JobState.WAITING),
        "site-3": Placement("site", "3", JobState.ENDED, ended=""),
    }
    records = Records(placements, {"site": Needs("slurm", region="x", hosts=2)})
    prices = prices_of(
        "{host_hour: {x: 2, y: 3}, learners: {'learner-*': {region: y}, '*': {region: x}}}"
    )
    fleet = fleet_of(learners, 520, records, prices, most=9)
    by_name = {each.name: each for each in fleet.entries}
    site, here, own = by_name["site"], by_name["learner"], by_name["laptop-ab12"]
    assert (site.region, site.present, site.tokens_per_s, site.hour_cost) == ("x", 3, 20.0, 4.0)
    assert (here.region, here.present, here.tokens_per_s, here.hour_cost) == ("y", 1, 5.0, 3.0)
    assert (site.most, own.most, own.present, own.tokens_per_s) == (9, 1, 1, None)
    assert fleet.by_region == {"x": 400, "y": 120}
    assert fleet.islands["site"] == ("site-0", "site-1", "site-2")
    assert fleet.newest("site", 2) == ("site-2", "site-1")
    left = fleet.without({"site-2": None})
    assert [each.present for each in left.entries if each.name == "site"] == [2]


@pytest.mark.parametrize(
    ("name", "entry"), [("site-0", "site"), ("a-b-12", "a-b"), ("host-f00d", "host-f00d")]
)
def test_an_entry_is_what_stands_before_the_number(name: str, entry: str) -> None:
    """As hubs name the islands that they add."""
    assert entry_of(name) == entry


def test_a_file_tells_the_fleet_that_would_begin() -> None:
    """Without speed, and without a price if there are none."""
    needs = {"a": Needs("slurm", count=2, region="x"), "b": Needs("ray", count=0)}
    first, second = fleet_in_file(needs, None, 9).entries
    assert (first.present, first.hour_cost, second.present) == (2, None, 0)
    assert fleet_in_file({"a": needs["a"]}, PRICES, 9).entries[0].hour_cost == 2.0


def test_a_folder_tells_the_fleet_of_its_run(tmp_path: Path) -> None:
    """Whoever is a member by the figures that the hub kept last."""
    records = RunFolder(tmp_path, SPEC.settings, fragments=len(LAYOUT.fragments))
    write(tmp_path, SPEC, PLAN)
    for name in ("learner-0", "learner-1"):
        records.write(1.0, "supervisor", admitted(name))
    records.keep(5.0)
    records.close()
    run = Run.of(tmp_path)
    ended = [run.ended]
    assert [each.present for each in run.fleet(PRICES, 9).entries] == [2]
    (tmp_path / "summary.json").write_text("{}")
    ended.append(run.ended)
    assert ended == [False, True]
    (tmp_path / "figures.json").write_text("{}")
    with pytest.raises(UserError, match=r"figures.json is damaged; nobody knows who is there"):
        run.fleet(PRICES, 9)
    with pytest.raises(UserError, match="is not the folder of a run"):
        Run.of(tmp_path.parent)
