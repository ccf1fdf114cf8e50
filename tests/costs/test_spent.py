"""Bills of run folders, of this version and of older ones, and of hubs that were started again."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from islands.costs.prices import Machines
from islands.costs.spent import (
    Pace,
    Placed,
    bill_of_run,
    hour_of,
    placed_by_engines,
    stays_of,
)
from islands.engines.engine import Island, Job, JobState
from islands.engines.launcher import RECORDS_FILE, EngineLauncher, Host, Records, records_in
from islands.engines.needs import Needs
from islands.engines.placing import Placement, Placements
from islands.files.run_files import FIGURES_FILE
from islands.files.whole_files import read_sealed, write_sealed
from islands.lab.world.inline import InlineWorker
from islands.protocol.errors import UserError
from islands.protocol.identities import Role, Status
from islands.protocol.messages.control import StepFigures
from islands.protocol.tape.member_entries import Admitted, Evicted, Left, Recognised, StatusChanged
from islands.run.records.figures import LearnerFigures, RunFigures
from islands.run.records.run_folder import RunFolder
from islands.settings.run_spec import write
from tests.costs.test_prices import prices_of
from tests.page.run_folder import LAYOUT, PLAN, SPEC, make_run
from tests.virtual import virtual

PRICES = prices_of("{host_hour: {x: 3600}, learners: {'*': {region: x}}}")
"""A second of an island costs 1."""


def records_of(folder: Path) -> RunFolder:
    records = RunFolder(folder, SPEC.settings, fragments=len(LAYOUT.fragments))
    write(folder, SPEC, PLAN)
    return records


def admitted(name: str, incarnation: str = "1.1") -> Admitted:
    return Admitted(name, Role.LEARNER, incarnation)


def seconds(folder: Path) -> dict[str, float]:
    return {line.name: line.cost for line in bill_of_run(folder, PRICES).lines}


def test_a_learner_is_paid_while_it_is_a_member(tmp_path: Path) -> None:
    records = records_of(tmp_path)
    records.write(10.0, "supervisor", admitted("a"))
    records.write(12.0, "supervisor", StatusChanged("a", Status.SUSPECT))
    records.write(20.0, "supervisor", Evicted("a", "1.1", "silent"))
    records.write(50.0, "supervisor", admitted("a", "1.2"))
    records.write(55.0, "supervisor", admitted("b"))
    records.write(60.0, "supervisor", Left("b", "1.1", "drained"))
    records.keep(100.0)
    records.close()
    assert seconds(tmp_path) == pytest.approx({"a": 60.0, "b": 5.0})


def test_the_hours_of_earlier_starts_count(tmp_path: Path) -> None:
    records = records_of(tmp_path)
    for name in ("alive", "gone", "anew"):
        records.write(0.0, "supervisor", admitted(name))
    records.keep(100.0)
    records.close()
    path = tmp_path / FIGURES_FILE
    kept = msgspec.json.decode(read_sealed(path) or b"")
    kept["kept_s"] -= 3600.0  # as if the hub had been away for an hour
    write_sealed(path, msgspec.json.encode(kept))
    again = records_of(tmp_path)
    again.write(2.0, "supervisor", Recognised("alive", "1.1"))
    again.write(10.0, "supervisor", admitted("anew", "2.1"))
    again.keep(50.0)
    again.close()
    paid = seconds(tmp_path)
    assert paid["gone"] == pytest.approx(100.0)
    assert paid["anew"] == pytest.approx(140.0)
    assert 3600.0 + 150.0 <= paid["alive"] < 3600.0 + 150.0 + 60.0


def test_merged_tokens_are_those_of_each_island(tmp_path: Path) -> None:
    figures = RunFigures(
        {"a": LearnerFigures(tokens=30), "b": LearnerFigures(tokens=30)}, merged_tokens=80
    )
    figures.count_merge({"a": 0, "b": 0}, {"a": 30, "b": 10}, {})
    stays = stays_of(figures, 10.0, 2, None, {})
    assert [stay.merged for stay in stays] == [30.0, 10.0]
    make_run(tmp_path)
    path = tmp_path / FIGURES_FILE
    kept = msgspec.json.decode(read_sealed(path) or b"") | {"settled_yield": 0.5, "booked": 2000}
    write_sealed(path, msgspec.json.encode(kept))
    assert bill_of_run(tmp_path, None).whole.merged == pytest.approx(1000.0)


def test_an_engine_tells_the_place_and_the_time_before_a_first_step() -> None:
    figures = RunFigures({"a-0": LearnerFigures(present_s=50.0)})
    placed = {"a-0": Placed(Machines("x"), 10.0), "a-1": Placed(Machines("x", hosts=2), 30.0)}
    first, second = stays_of(figures, 99.0, 1, prices_of("{learners: {'*': {region: y}}}"), placed)
    assert (first.paid_s, first.machines) == (50.0, Machines("x"))
    assert (second.name, second.paid_s, second.machines) == ("a-1", 30.0, Machines("x", hosts=2))


def test_an_engines_records_tell_places(tmp_path: Path) -> None:
    placements = {
        "a-0": Placement("a", "7", JobState.RUNNING, since_s=100.0),
        "a-1": Placement("a", "8", JobState.WAITING, since_s=100.0),
        "a-2": Placement("a", "9", JobState.ENDED, since_s=100.0, ended="exit code 3", ran_s=25.0),
        "b-0": Placement("b", "1", JobState.RUNNING, since_s=100.0),
    }
    needs = Needs("slurm", hosts=2, accelerators="H100:8", region="x", preemptible=True)
    content = msgspec.json.encode(Records(placements, {"a": needs}))
    write_sealed(tmp_path / RECORDS_FILE, content)
    placed = placed_by_engines(tmp_path, 160.0)
    assert {name: each.running_s for name, each in placed.items()} == {
        "a-0": 60.0,
        "a-1": 0.0,
        "a-2": 25.0,
    }
    assert placed["a-0"].machines == Machines("x", "H100:8", preemptible=True, hosts=2)
    assert placed_by_engines(tmp_path / "none", 160.0) == {}


def test_a_job_that_dies_before_it_joins_is_paid_for() -> None:
    placements = Placements({"a": "slurm"})
    for job, from_s in (("7", 100.0), ("8", 200.0)):
        placements.start("a-0")
        placements.on_placed("a-0", job, from_s - 5.0)
        placements.on_listed("a", [Job("a-0", job, JobState.RUNNING)], from_s)
        placements.on_listed("a", [Job("a-0", job, JobState.ENDED, code=1)], from_s + 30.0)
    assert placements.islands["a-0"].ran_s == 60.0


@virtual
async def test_a_launcher_keeps_what_its_islands_need(tmp_path: Path) -> None:
    needs = Needs("slurm", count=0, region="x", env={"KEY": "secret"}, setup=("echo",))
    host = Host(lambda *_: None, lambda _: None, lambda _: InlineWorker(lambda: 0.0))
    path = tmp_path / RECORDS_FILE
    for entry in ("a", "b"):
        launcher = EngineLauncher({}, Placements({}), Unplaced(), path, host, {entry: needs})
        launcher.kill("nobody")
        await asyncio.sleep(60.0)
        assert records_in(path).needs["a"] == Needs("slurm", region="x")
        launcher.close()
    assert list(records_in(path).needs) == ["a", "b"]


class Unplaced:
    """Is asked for no island."""

    def __call__(self, name: str) -> Island:
        raise AssertionError(name)


def test_learners_that_are_counted_together_have_a_line() -> None:
    figures = RunFigures({"a": LearnerFigures(present_s=1.0)})
    figures.gone.add(LearnerFigures(present_s=7.0, merged_tokens=3))
    figures.gone.add(LearnerFigures(present_s=8.0))
    stays = stays_of(figures, 99.0, 1, PRICES, {})
    assert [(stay.name, stay.paid_s) for stay in stays] == [("a", 1.0), ("(others)", 15.0)]


def test_traffic_is_that_of_all_processes(tmp_path: Path) -> None:
    records = records_of(tmp_path)
    records.write(0.0, "supervisor", admitted("a"))
    for process in ("p", "q"):
        told = StepFigures(process, 1, 8, 1.0, 0.1, 2.0, 0.0, 0.0, ((0, 1),), 1.0, 5, 6)
        records.on_figures("a", 1.0, told)
    records.keep(2.0)
    records.close()
    (line,) = bill_of_run(tmp_path, None).lines
    assert [line.sent_gb, line.received_gb] == pytest.approx([10e-9, 12e-9])


def test_an_hour_of_a_plan_is_its_price() -> None:
    prices = prices_of("{host_hour: {x: 2}, traffic_gb: {x: {other: 1}, other: {other: 0}}}")
    bill = hour_of({"a": Machines("x"), "b": Machines("x")}, prices)
    assert (bill.whole.cost, bill.whole.cost_per_million) == (4.0, None)
    bill = hour_of({"a": Machines("x")}, prices, Pace(1e9 / 3600, 0.0, 1e6 / 3600))
    assert bill.whole.cost_per_million == pytest.approx(3.0)


def test_a_folder_without_records_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not the folder of a run: it has no figures.json"):
        bill_of_run(tmp_path, None)
    with pytest.raises(UserError, match="there is no folder"):
        bill_of_run(tmp_path / "none", None)
    make_run(tmp_path)
    (tmp_path / FIGURES_FILE).write_text("{}")
    with pytest.raises(UserError, match=r"figures.json is damaged"):
        bill_of_run(tmp_path, None)
