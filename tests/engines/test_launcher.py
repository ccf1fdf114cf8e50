"""Islands that an engine places: placed once, found again, ended, told of; on the virtual clock."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from islands.actors.ports import ProcessEnd
from islands.engines.engine import EngineAway, Island, Job, JobState, RunMark, Unplaceable
from islands.engines.hub import EnginesOfRun, Joining, island_of
from islands.engines.launcher import RECORDS_FILE, EngineLauncher, Host, records_in
from islands.engines.needs import Needs
from islands.engines.placing import ListJobs, Placements
from islands.protocol.errors import OF_NO_USE
from tests.engines.memory_engine import MemoryEngine
from tests.virtual import virtual

OF = RunMark("r", "01234567")
CALL_S = 0.1

T = TypeVar("T")


class Calls:
    """A worker on the virtual clock; a call that has begun ends, though it is closed meanwhile."""

    def submit(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        asyncio.get_running_loop().call_later(CALL_S, done, work())

    def close(self) -> None:
        """Let what has begun go on."""


class Desk:
    """A launcher over an engine in memory, and what it told."""

    def __init__(
        self, engine: MemoryEngine, records: Path | None = None, *, far: MemoryEngine | None = None
    ) -> None:
        self.engine = engine
        self.ends: list[tuple[str, ProcessEnd]] = []
        self.said: list[str] = []
        known = {} if records is None else records_in(records).islands
        host = Host(
            lambda name, end: self.ends.append((name, end)),
            self.said.append,
            lambda _: Calls(),
            lambda: 1e9 + asyncio.get_running_loop().time(),
        )
        engines = {"site": engine} if far is None else {"site": engine, "far": far}
        placements = Placements(dict(zip(engines, ("slurm", "ray"), strict=False)), known)
        self.launcher = EngineLauncher(engines, placements, self._island, records, host)

    def _island(self, name: str) -> Island:
        return island_of(name, Needs("slurm"), Joining(OF, "ws://hub:7070/supervisor"))

    async def place(self) -> None:
        """Start site-0, which its engine has a second later."""
        self.launcher.start("site-0")
        await asyncio.sleep(1.0)

    async def until(self, condition: Callable[[], bool]) -> float:
        """Wait for two minutes until something is so; returns after how long."""
        for tick in range(2400):
            if condition():
                return tick / 20
            await asyncio.sleep(1 / 20)
        pytest.fail("it did not come to be within two minutes")


@pytest.fixture
def desk() -> Desk:
    return Desk(MemoryEngine())


@virtual
async def test_an_island_is_placed_once(desk: Desk) -> None:
    desk.launcher.start("site-0")
    desk.launcher.start("site-0")
    await asyncio.sleep(30.0)
    desk.launcher.start("site-0")
    await asyncio.sleep(30.0)
    assert [island.name for island in desk.engine.given] == ["site-0"]
    assert desk.launcher.names() == ["site-0"]
    assert (desk.ends, desk.said) == ([], [])


@virtual
async def test_a_whole_fleet_is_placed_by_one_list(tmp_path: Path) -> None:
    """And written down in a few pieces, so that a fleet costs what it must."""
    desk, fleet = Desk(MemoryEngine(), tmp_path / "engines.json"), 1024
    for index in range(fleet):
        desk.launcher.start(f"site-{index}")
    await asyncio.sleep(fleet * CALL_S + 5.0)  # nothing but the placing itself
    assert len({island.name for island in desk.engine.given}) == len(desk.engine.given) == fleet
    desk.launcher.close()
    assert len(records_in(tmp_path / "engines.json").islands) == fleet


@virtual
async def test_an_engine_that_is_away_keeps_no_other_waiting() -> None:
    far = MemoryEngine()
    desk = Desk(MemoryEngine(), far=far)
    far.away = "connection refused"
    desk.launcher.start("far-0")
    await desk.place()
    assert [island.name for island in desk.engine.given] == ["site-0"]
    far.away = ""
    await desk.until(lambda: len(far.given) == 1)
    assert "ray (far) answers again" in desk.said
    assert desk.ends == []


@pytest.mark.parametrize("poll_s", [1.0, 5.0, 10.0, 60.0])
@virtual
async def test_an_island_whose_placing_was_cut_off_is_not_placed_twice(poll_s: float) -> None:
    engine = MemoryEngine()
    engine.poll_s = poll_s
    desk = Desk(engine)
    await desk.place()
    engine.cut = "connection reset after the request"
    desk.launcher.start("site-1")
    await asyncio.sleep(3 * poll_s + 60.0)
    assert [island.name for island in engine.given] == ["site-0", "site-1"]
    assert desk.launcher.names() == ["site-0", "site-1"]
    assert [job for job, _ in engine.ended] == []


@pytest.mark.parametrize(
    ("code", "why", "told"),
    [
        (0, "", (0, "")),
        (1, "no disk", (1, "exit code 1: no disk")),
        (2, "bad", (OF_NO_USE, "exit")),
    ],
)
@virtual
async def test_the_end_of_a_job_is_told_with_its_exit_code(
    desk: Desk, code: int, why: str, told: tuple[int, str]
) -> None:
    await desk.place()
    desk.engine.move("job-1", JobState.ENDED, code=code, why=why)
    assert await desk.until(lambda: bool(desk.ends)) < 2 * desk.engine.poll_s
    ((name, end),) = desk.ends
    assert (name, end.code) == ("site-0", told[0])
    assert end.told.startswith(told[1])
    assert bool(end.told) == bool(code)
    assert desk.launcher.names() == []
    await desk.place()
    assert len(desk.engine.given) == 2


@virtual
async def test_a_job_that_the_engine_forgot_has_ended(desk: Desk) -> None:
    await desk.place()
    desk.engine.jobs = []
    await asyncio.sleep(desk.engine.poll_s)
    assert desk.ends == []
    await asyncio.sleep(desk.engine.poll_s + 1.0)
    assert desk.ends == [("site-0", ProcessEnd())], "the supervisor knows whether it left"
    assert desk.said == ["slurm (site) has no job job-1 of site-0 any more"]


@virtual
async def test_an_engine_that_is_away_is_told_once_and_asked_again(desk: Desk) -> None:
    await desk.place()
    desk.engine.move("job-1", JobState.RUNNING)
    await asyncio.sleep(desk.engine.poll_s + 1.0)
    desk.engine.away = "slurm does not answer: connection refused"
    desk.launcher.start("site-1")
    await asyncio.sleep(7200.0)
    assert desk.launcher.names() == ["site-0", "site-1"]
    told = f"{desk.engine.away}; the run goes on, and slurm (site) is asked again"
    assert desk.said == [f"site-1 cannot be placed now: {told}", told]
    desk.engine.away = ""
    assert await desk.until(lambda: len(desk.engine.given) == 2) <= 60.5
    await asyncio.sleep(1.0)
    assert desk.said[2:] == ["slurm (site) answers again"]
    assert desk.ends == []


def test_an_engine_that_is_away_is_asked_ever_more_rarely() -> None:
    placements, waits_s = Placements({"site": "slurm"}), []
    placements.listed["site"].poll_s = 5.0
    for _ in range(5):
        placements.on_answer("site", ListJobs(), EngineAway("no route to host"), 100.0)
        waits_s.append(placements.wait_s("site", 100.0))
    assert waits_s == [10.0, 20.0, 40.0, 60.0, 60.0]


@virtual
async def test_a_refused_island_has_ended_with_an_error_of_its_user(desk: Desk) -> None:
    desk.engine.refused = "sbatch: error: invalid partition specified: gpux"
    desk.launcher.start("site-0")
    await asyncio.sleep(600.0)
    ((name, end),) = desk.ends
    assert (name, end.code, end.sentence) == ("site-0", OF_NO_USE, desk.engine.refused)
    assert desk.launcher.names() == []


@virtual
async def test_an_engine_that_is_not_installed_refuses_its_islands(desk: Desk) -> None:
    await desk.place()
    desk.engine.fault = Unplaceable("this host has no command squeue")
    desk.launcher.start("site-1")
    await asyncio.sleep(60.0)
    ((name, end),) = desk.ends
    assert (name, end.code, end.sentence) == ("site-1", OF_NO_USE, str(desk.engine.fault))
    assert desk.launcher.names() == ["site-0"], "what is placed goes on"


@virtual
async def test_a_restarted_hub_finds_what_was_placed(tmp_path: Path) -> None:
    engine, records = MemoryEngine(), tmp_path / "engines.json"
    first = Desk(engine, records)
    first.launcher.start("site-0")
    first.launcher.start("site-1")
    await asyncio.sleep(1.0)
    engine.move("job-2", JobState.ENDED, code=0)
    await asyncio.sleep(10.0)
    first.launcher.close()
    engine.jobs.append(Job("site-2", "job-3", JobState.RUNNING))  # it was not written down

    second = Desk(engine, records)
    assert second.launcher.adopt() == ["site-0"]
    assert second.launcher.placements.wanted({"site": 3}) == ["site-0", "site-2"]
    second.launcher.start("site-0")
    second.launcher.start("site-2")
    await asyncio.sleep(30.0)
    assert len(engine.given) == 2, "nothing is placed twice"
    assert second.launcher.names() == ["site-0", "site-2"]


@virtual
async def test_a_restarted_hub_goes_on_with_what_it_was_about_to_do(tmp_path: Path) -> None:
    engine, records = MemoryEngine(), tmp_path / "engines.json"
    first = Desk(engine, records)
    await first.place()
    engine.away = "no route to host"
    first.launcher.stop("site-0", 10.0)
    first.launcher.start("site-1")
    first.launcher.start("site-2")
    await asyncio.sleep(10.0)
    first.launcher.close()
    engine.away = ""
    engine.jobs.append(Job("site-1", "accepted", JobState.RUNNING))

    second = Desk(engine, records)
    second.launcher.adopt()
    await asyncio.sleep(10.0)
    assert [island.name for island in engine.given] == ["site-0", "site-2"]
    assert engine.ended == [("job-1", False)]
    assert second.launcher.names() == ["site-1", "site-2"]


@virtual
async def test_islands_that_run_and_whose_entry_is_gone_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(MemoryEngine(), tmp_path / RECORDS_FILE)
    desk.launcher.start("site-1")
    await desk.place()
    desk.engine.move("job-1", JobState.ENDED, code=0)
    await asyncio.sleep(10.0)
    desk.launcher.close()
    EnginesOfRun.of({"site": Needs("slurm")}, tmp_path)
    assert capsys.readouterr().err == ""
    EnginesOfRun.of({}, tmp_path)
    assert "no entry for site-0 (job job-2 of its engine) any" in capsys.readouterr().err


@virtual
async def test_a_fleet_that_is_being_placed_can_be_stopped(desk: Desk) -> None:
    for index in range(200):
        desk.launcher.start(f"site-{index}")
    await asyncio.sleep(20 * CALL_S)
    for name in desk.launcher.names():
        desk.launcher.stop(name, 10.0)
    assert await desk.until(lambda: not desk.launcher.names()) < 5.0
    assert len(desk.engine.given) < 25
    assert all(job.state is JobState.ENDED for job in desk.engine.jobs)
    assert len(desk.ends) == 200


@virtual
async def test_no_room_is_asked_for_ever_more_rarely_and_told_once(desk: Desk) -> None:
    desk.engine.full = "QOSMaxSubmitJobPerUserLimit"
    for index in range(10):
        desk.launcher.start(f"site-{index}")
    await asyncio.sleep(3600.0)
    told = "the run goes on, and slurm (site) is asked again"
    assert desk.said == [f"site-0 cannot be placed now: {desk.engine.full}; {told}"]
    assert desk.engine.asked < 10 * 20
    desk.engine.full = ""
    await asyncio.sleep(301.0)
    assert len(desk.engine.given) == 10


@virtual
async def test_an_engine_that_fails_in_its_own_way_ends_no_run(desk: Desk) -> None:
    desk.engine.fault = ValueError("embedded null byte")
    desk.launcher.start("site-0")
    await asyncio.sleep(30.0)
    assert any("embedded null byte" in sentence for sentence in desk.said)
    desk.engine.fault = None
    await asyncio.sleep(60.0)
    assert len(desk.engine.given) == 1


@virtual
async def test_what_was_cut_off_and_is_to_end_is_looked_for(desk: Desk) -> None:
    desk.engine.cut = "connection reset after the request"
    await desk.place()
    desk.launcher.stop("site-0", 10.0)
    assert await desk.until(lambda: bool(desk.ends)) < 5.0
    assert desk.engine.ended == [("job-1", False)]
    assert desk.launcher.names() == []


@virtual
async def test_a_job_that_nobody_remembers_is_taken_up_and_a_twin_is_ended(desk: Desk) -> None:
    await desk.place()
    desk.engine.jobs += [
        Job("site-0", "twin", JobState.RUNNING),
        Job("site-7", "lost", JobState.RUNNING, where="node-3"),
        Job("other-0", "alien", JobState.RUNNING),
    ]
    await asyncio.sleep(10.0)
    assert desk.engine.ended == [("twin", False)]
    assert desk.launcher.names() == ["site-0", "site-7"]
    assert desk.said == ["site-7 is job lost of slurm (site), and is taken up"]


@pytest.mark.parametrize("when", ["asked", "listing", "placing", "refusing", "placed", "away"])
@virtual
async def test_an_island_that_is_to_end_ends_whenever_that_is_said(desk: Desk, when: str) -> None:
    desk.engine.away = "away" if when == "away" else ""
    desk.engine.full = "no room" if when == "refusing" else ""
    desk.launcher.start("site-0")
    calls = {"asked": 0.0, "listing": 0.5, "placing": 1.5, "refusing": 1.5}.get(when, 10.0)
    await asyncio.sleep(calls * CALL_S)
    desk.launcher.stop("site-0", 10.0)
    took_s = await desk.until(lambda: bool(desk.ends))
    assert took_s < 3.0
    assert desk.ends == [("site-0", ProcessEnd())]
    assert desk.launcher.names() == []
    assert not [job for job in desk.engine.jobs if job.state is not JobState.ENDED]
    assert bool(desk.said) is (when == "away")


@virtual
async def test_an_island_that_is_to_end_is_looked_for_often_though_another_goes_on() -> None:
    engine = MemoryEngine()
    engine.poll_s = 60.0
    desk = Desk(engine)
    desk.launcher.start("site-1")
    await desk.place()
    desk.launcher.stop("site-1", 10.0)
    await asyncio.sleep(0.5)
    engine.move("job-1", JobState.ENDING)
    await asyncio.sleep(5.0)
    engine.move("job-1", JobState.ENDED)
    assert await desk.until(lambda: bool(desk.ends)) < 2.0


@virtual
async def test_an_end_that_fails_is_told_once_and_not_if_its_engine_is_known_to_be_away(
    desk: Desk,
) -> None:
    desk.launcher.start("site-1")
    await desk.place()
    desk.engine.away = "connection refused"
    desk.launcher.stop("site-0", 10.0)
    await asyncio.sleep(600.0)
    desk.launcher.stop("site-1", 10.0)
    await asyncio.sleep(600.0)
    assert desk.said == [
        "site-0 cannot be ended now: connection refused; it is tried again",
        "connection refused; the run goes on, and slurm (site) is asked again",
    ]


@virtual
async def test_what_an_engine_answers_after_the_close_is_told_to_nobody(desk: Desk) -> None:
    desk.engine.refused = "invalid partition"
    desk.launcher.start("site-0")
    await asyncio.sleep(1.5 * CALL_S)
    desk.launcher.close()
    await asyncio.sleep(10.0)
    assert desk.ends == []


@virtual
async def test_a_killed_island_may_be_placed_again(desk: Desk) -> None:
    await desk.place()
    desk.launcher.kill("site-0")
    await desk.until(lambda: bool(desk.ends))
    assert desk.ends[0][1].told == "killed by SIGKILL"
    assert desk.engine.ended == [("job-1", True)]
    await desk.place()
    (row,) = desk.launcher.placements.rows(1e9)
    assert (row["restarts_by_hub"], row["job"]) == (1, "job-2")


@virtual
async def test_an_island_that_is_killed_while_it_is_asked_to_end_is_killed(desk: Desk) -> None:
    await desk.place()
    desk.launcher.stop("site-0", 10.0)
    await asyncio.sleep(CALL_S / 2)
    desk.launcher.kill("site-0")
    await desk.until(lambda: bool(desk.ends))
    assert desk.engine.ended == [("job-1", False), ("job-1", True)]


@virtual
async def test_a_long_wait_in_a_queue_is_told_ever_more_rarely(desk: Desk) -> None:
    await desk.place()
    desk.engine.move("job-1", JobState.WAITING, why="Resources")
    await asyncio.sleep(599.0)
    assert desk.said == []
    await asyncio.sleep(12 * 3600.0)
    minutes = [int(sentence.split()[4]) for sentence in desk.said]
    assert minutes[:3] == [10, 20, 40]
    assert len(minutes) == 7, "half a day of waiting is seven sentences"
    assert desk.said[0] == "site-0 has waited for 10 min in the queue of slurm (site): Resources"


@virtual
async def test_what_its_engine_lets_wait_no_longer_is_placed_again_and_is_no_end(
    desk: Desk,
) -> None:
    desk.launcher.start("site-0")
    for placed in range(2, 5):
        await asyncio.sleep(60.0)
        desk.engine.move(f"job-{placed - 1}", JobState.ENDED, began=False, why="no room in 15 min")
        await desk.until(lambda: len(desk.engine.given) == placed)  # noqa: B023
    assert [island.attempt for island in desk.engine.given] == [1, 2, 3, 4]
    assert (desk.ends, desk.launcher.names()) == ([], ["site-0"])


@virtual
async def test_a_damaged_record_is_no_record(tmp_path: Path) -> None:
    records = tmp_path / "engines.json"
    records.write_text("{")
    engine = MemoryEngine()
    engine.jobs = [Job("site-0", "job-9", JobState.RUNNING)]
    desk = Desk(engine, records)
    assert desk.launcher.adopt() == []
    desk.launcher.start("site-0")
    await asyncio.sleep(10.0)
    assert (engine.given, desk.launcher.names()) == ([], ["site-0"])
