"""Rank 0 finds which host is lost or stuck, and names it."""

import pytest

from islands.island.health import SILENT_TICKS, STALLED_STEPS, Health
from islands.learner.compute import STEPPING
from islands.tasks.data.batch_source import ARRIVING, READING

STALLED_S, COMPILE_S = 30, 600


class Hosts:
    """Hosts that tell how they are once a second."""

    def __init__(self, count: int = 3) -> None:
        self.health = Health(
            {rank: f"host-{rank}" for rank in range(count)},
            stalled_s=STALLED_S,
            compile_s=COMPILE_S,
        )
        self.boundary = self.steps = 0

    def second(
        self,
        *,
        silent: int | None = None,
        behind: int | None = None,
        steps: int = 1,
        idle: bool = False,
        doing: str = STEPPING,
    ) -> str | None:
        """A second passes, in which all step, or all but one that is behind stand still."""
        self.boundary += max(steps, idle)
        self.steps += steps
        for rank, record in self.health.hosts.items():
            if rank == silent:
                continue
            late = behind == rank
            place = self.boundary - late, self.steps - late
            said = doing if late or behind is None else STEPPING
            record.on_state(*place, said, idle=idle, compiling=False)
        return self.health.tick()


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


def test_hosts_that_step_are_well(hosts: Hosts) -> None:
    assert not any(hosts.second() for _ in range(2000))


def test_a_host_that_is_silent_is_lost(hosts: Hosts) -> None:
    hosts.second()
    told = [hosts.second(silent=2, steps=0) for _ in range(SILENT_TICKS - 1)]
    assert told[:-1] == [None] * (SILENT_TICKS - 2)
    assert told[-1] == f"rank 2 (host-2) has been silent for {SILENT_TICKS} s"
    assert hosts.health.blamed == 2


def test_the_host_that_is_behind_is_the_one_that_is_stuck(hosts: Hosts) -> None:
    for _ in range(10):
        hosts.second()
    hosts.second(behind=1)
    told = [hosts.second(behind=1, steps=0, doing=READING) for _ in range(STALLED_S)]
    first = next(filter(None, told))
    assert told.index(first) >= STALLED_S - 3
    assert first == (
        f"rank 1 (host-1) has come to no boundary for {STALLED_S} s after boundary 10: "
        f"it is {READING}"
    )
    assert hosts.health.blamed == 1


def test_devices_that_all_hosts_wait_for_are_nobody_s_fault(hosts: Hosts) -> None:
    for _ in range(10):
        hosts.second()
    told = [hosts.second(steps=0) for _ in range(STALLED_S + 1)]
    assert "all hosts have waited for their devices" in str(told[-1])
    assert hosts.health.blamed is None


def test_long_steps_are_no_stall(hosts: Hosts) -> None:
    for second in range(2000):
        assert hosts.second(steps=int(second % 100 == 0)) is None
    told = [hosts.second(steps=0) for _ in range(STALLED_STEPS * 100)]
    assert any(told)
    assert not any(told[: STALLED_STEPS * 99 - 100])


def test_the_first_step_has_the_time_of_a_compilation(hosts: Hosts) -> None:
    told = [hosts.second(steps=0) for _ in range(COMPILE_S)]
    assert told[:-1] == [None] * (COMPILE_S - 1)
    assert told[-1] is not None


def test_rests_before_the_first_step_do_not_shorten_its_time(hosts: Hosts) -> None:
    for _ in range(30):
        hosts.second(steps=0, idle=True)
    told = [hosts.second(steps=0) for _ in range(COMPILE_S - 2)]
    assert not any(told)
    assert hosts.second(steps=0)


def test_a_long_pause_does_not_make_long_steps_a_stall(hosts: Hosts) -> None:
    for second in range(2000):
        hosts.second(steps=int(second % 100 == 0))
    for _ in range(500):
        hosts.second(steps=0, idle=True)
    assert not any(hosts.second(steps=0) for _ in range(STALLED_STEPS * 99 - 1))


def test_data_that_has_not_arrived_makes_nobody_stuck(hosts: Hosts) -> None:
    for _ in range(10):
        hosts.second()
    hosts.second(behind=1)
    assert not any(hosts.second(behind=1, steps=0, doing=ARRIVING) for _ in range(3000))
    told = [hosts.second(behind=1, steps=0, doing=READING) for _ in range(STALLED_S)]
    assert any(told), "now its reader hangs"


def test_readers_that_all_hosts_wait_for_are_told_as_such(hosts: Hosts) -> None:
    for _ in range(10):
        hosts.second()
    told = [hosts.second(steps=0, doing=READING) for _ in range(STALLED_S + 1)]
    assert "all hosts have waited for their readers" in str(told[-1])


def test_hosts_that_may_not_step_wait_for_as_long_as_it_takes(hosts: Hosts) -> None:
    hosts.second()
    assert not any(hosts.second(steps=0, idle=True) for _ in range(5000))
