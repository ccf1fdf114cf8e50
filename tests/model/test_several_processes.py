"""A learner on the devices of several processes is the one of a process that has all of them.

Each process gives its share of every flat value; put together, they are the values of the one
process. What no step has rounded is equal to the bit. The sums over rows that a step makes are
added in another order by another network, and agree but for rounding.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from socket import socket

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.compiling import QUICKLY_COMPILED

Found = dict[str, NDArray[np.generic]]

LIMIT_S = 220.0  # for 20 s of compilation, on a machine that may have much else to do
ROUNDING, HALF_ROUNDING = 1e-5, 2.0**-7  # of a number; half of the bits have been cut off
LEAST = 2e-6  # of a difference that counts
UNROUNDED = ("initial", "adopted", "broken", "finite", "fresh moments", "own/")
"""Parts of the names of what is equal to the bit."""


class Group:
    """Processes that are one learner; they write into `folder` what they got."""

    def __init__(self, folder: Path, count: int, *cases: str) -> None:
        with closing(socket()) as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        self._until_s = time.monotonic() + LIMIT_S  # noqa: TID251  real processes
        self._files = [folder / f"{index}.npz" for index in range(count)]
        self._logs = [folder / f"{index}.log" for index in range(count)]
        self._processes = []
        for index, (file, log) in enumerate(zip(self._files, self._logs, strict=True)):
            words = [*map(str, (count, index, port, file)), *cases]
            with log.open("wb") as output:
                self._processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "tests.several_processes", *words],
                        env=os.environ
                        | QUICKLY_COMPILED
                        | {"PYTHONPATH": os.pathsep.join(sys.path)},
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )

    def found(self) -> list[Found]:
        """Wait until all have ended, and read what each got."""
        codes = [each.wait(max(0.0, self._until_s - time.monotonic())) for each in self._processes]  # noqa: TID251  real processes
        assert not any(codes), "\n".join(log.read_text() for log in self._logs)
        return [dict(np.load(file)) for file in self._files]

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Group, Group]]:
    """A plain model in one process with eight devices, and beside it in two with four each."""
    one = Group(tmp_path_factory.mktemp("one"), 1, "line")
    two = Group(tmp_path_factory.mktemp("two"), 2, "apart", "line")
    yield one, two
    one.kill()
    two.kill()


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Group, Group]]:
    """Stacked and scattered leaves, merged moments and a loop of one's own."""
    one = Group(tmp_path_factory.mktemp("one"), 1, "stacks", "merged", "own")
    two = Group(tmp_path_factory.mktemp("two"), 2, "stacks", "merged", "own", "refused")
    yield one, two
    one.kill()
    two.kill()


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Group, Group]]:
    one = Group(tmp_path_factory.mktemp("one"), 1, "line", "own")
    several = Group(tmp_path_factory.mktemp("four"), 4, "line", "own")
    yield one, several
    one.kill()
    several.kill()


@pytest.mark.timeout(2 * LIMIT_S + 20)
@pytest.mark.quick("line")
@pytest.mark.parametrize("several", ["line", "stacks", "four"])
def test_processes_are_together_what_one_is(several: str, request: pytest.FixtureRequest) -> None:
    one, group = request.getfixturevalue(several)
    parts, (whole,) = group.found(), one.found()
    names = [name for name in parts[0] if name in whole and "/ranges/" not in name]
    assert len(names) > 10
    for name in names:
        found = assembled(name, parts, whole[name]) if "/share/" in name else same(name, parts)
        if any(part in name for part in UNROUNDED):
            np.testing.assert_array_equal(found, whole[name], err_msg=name)
        else:
            mine, theirs = found.astype(np.float64), whole[name].astype(np.float64)
            relative = HALF_ROUNDING if "half" in name else ROUNDING
            np.testing.assert_allclose(mine, theirs, rtol=relative, atol=LEAST, err_msg=name)


@pytest.mark.timeout(LIMIT_S + 20)
def test_to_fill_and_read_a_share_is_no_collective(line: tuple[Group, Group]) -> None:
    held = [part["apart/held"].tolist() for part in line[1].found()]
    assert held == [
        [[0, 126], [252, 378], [504, 630], [756, 882]],
        [[126, 252], [378, 504], [630, 756], [882, 1003]],
    ]


@pytest.mark.timeout(LIMIT_S + 20)
@pytest.mark.long("test_to_fill_and_read_a_share_is_no_collective")
def test_what_processes_cannot_do_together_is_refused(stacks: tuple[Group, Group]) -> None:
    said = {name: str(text) for name, text in stacks[1].found()[0].items() if "/" not in name}
    assert "'0-3', but the learner has the devices of 2 processes" in said["some devices"]
    assert "process 0 has none" in said["no device of this process"]
    assert "like b is on devices of this process alone, but w on" in said["a leaf here alone"]
    assert "w is on devices of this process alone" in said["the first leaf here alone"]
    assert "hand in its mean" in said["a loss in parts"]


def assembled(name: str, parts: Sequence[Found], like: NDArray[np.generic]) -> NDArray[np.generic]:
    """Put the shares of a flat value together; every element is in one of them."""
    case, _, fragment, _ = name.split("/")
    value, times = np.zeros_like(like), np.zeros(like.shape, int)
    for part in parts:
        at = 0
        for start, stop in part[f"{case}/ranges/{fragment}"]:
            value[start:stop] = part[name][at : at + stop - start]
            times[start:stop] += 1
            at += stop - start
        assert at == part[name].size
    assert (times == 1).all()
    return value


def same(name: str, parts: Sequence[Found]) -> NDArray[np.generic]:
    for part in parts[1:]:
        np.testing.assert_array_equal(part[name], parts[0][name], err_msg=name)
    return parts[0][name]
