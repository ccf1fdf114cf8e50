"""Processes of one loop leave together, and none hangs once another one is lost."""

import threading

import numpy as np
import pytest

import islands
from islands.island.host import HostPlace
from islands.loops.host_background import EndOfProcess, host_of
from islands.protocol.errors import HostLostError, SettingsError
from tests.loops.test_joined_run import Alone, Loop

LIMIT_S = 30.0


class Together(Alone):
    """A background of several processes, of which the others do what a test says."""

    together = True

    def __init__(self) -> None:
        super().__init__()
        self.lost = False
        self.asked: list[str] = []
        self.causes: list[BaseException] = []
        self.notes: list[str] = []

    @property
    def failed(self) -> bool:
        return self.lost

    def lose(self) -> None:
        self.lost, self.error = True, HostLostError("rank 1 (far) was lost")

    def ask(self, reason: str) -> None:
        self.asked.append(reason)

    def broken(self, error: BaseException) -> None:
        self.causes.append(error)

    def came(self) -> None:
        self.notes.append("came")

    def gone(self) -> None:
        self.notes.append("gone")


def loop_of_several() -> tuple[Loop, Together]:
    """A loop on one of several processes, whose compute is that of one alone."""
    loop, background = Loop(), Together()
    background.leaving = loop.compute.stop
    loop.run._background = background  # noqa: SLF001
    return loop, background


def test_a_process_that_is_asked_to_leave_goes_on_until_all_do() -> None:
    loop, background = loop_of_several()
    with loop.run as run:
        params = run.boundary(run.params)
        loop.step()
        run.leave("SIGTERM")
        over = [run.over]
        assert background.asked == ["SIGTERM"]
        params = run.boundary(params)
        loop.step()
        run.boundary(params)
        loop.compute.stop()
        over.append(run.over)
    assert over == [False, True]
    assert loop.booked == 2
    assert background.causes == []
    assert background.notes[0] == "gone"


def test_the_next_boundary_tells_that_a_process_was_lost() -> None:
    loop, background = loop_of_several()
    params = loop.run.boundary(loop.run.params)
    loop.step()
    background.lose()
    with pytest.raises(HostLostError, match="rank 1"), loop.run as run:
        run.boundary(params)
    assert loop.booked == 0
    assert background.notes[0] == "came"


def test_an_error_of_this_process_is_its_own_and_ends_the_others() -> None:
    """It comes to no boundary on its way out, since the others are elsewhere."""
    loop, background = loop_of_several()
    error = KeyError("mine")
    loop.run.boundary(loop.run.params)
    with pytest.raises(KeyError, match="mine"), loop.run:
        raise error
    assert background.causes == [error]
    assert loop.run.over


def test_an_error_that_follows_from_a_loss_is_told_as_the_loss() -> None:
    loop, background = loop_of_several()
    loop.run.boundary(loop.run.params)
    background.lose()
    with pytest.raises(HostLostError, match="rank 1") as raised, loop.run:
        raise RuntimeError("connection closed by peer")
    assert isinstance(raised.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("hosts", "address", "name", "says"),
    [
        (1, "10.0.0.1:7171", "ana", "island_address is '10.0.0.1:7171', but this loop is one proc"),
        (2, None, "ana", "island_address is not set, but this loop runs as 2 processes"),
        (2, "10.0.0.1:7171", None, "name is not set, but this loop runs as 2 processes"),
        (2, "10.0.0.1:0", "ana", "its port must not be 0"),
        (2, "10.0.0.1:x", "ana", "it must be host:port"),
    ],
)
def test_arguments_that_cannot_work_are_told(
    hosts: int, address: str | None, name: str | None, says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        host_of(0, hosts, island_address=address, name=name)


def test_one_process_has_no_place_among_others() -> None:
    assert host_of(0, 1, island_address=None, name=None) is None
    place = host_of(1, 2, island_address="10.0.0.1:7171", name="ana")
    assert place == HostPlace(1, 2, "10.0.0.1:7171")


def test_join_asks_how_many_processes_there_are() -> None:
    with pytest.raises(SettingsError, match="this loop is one process"):
        islands.join(
            *("127.0.0.1:1", {"w": np.zeros(2)}), tokens_per_step=1, island_address="127.0.0.1:2"
        )


def test_a_process_whose_thread_hangs_is_ended() -> None:
    ended = threading.Event()
    end = EndOfProcess(0.0, ended.set)
    end.begin()
    assert ended.wait(LIMIT_S)


def test_a_process_that_hangs_on_its_way_out_is_ended() -> None:
    ended, release = threading.Event(), threading.Event()
    main = threading.Thread(target=release.wait)
    main.start()
    end = EndOfProcess(0.0, ended.set, main)
    end.thread_came()
    end.begin()
    assert not ended.is_set()
    release.set()
    assert ended.wait(LIMIT_S)
    end.thread.join(LIMIT_S)
