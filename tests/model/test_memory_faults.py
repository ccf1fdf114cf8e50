"""What a host has for processes, and what a user is told where a model does not fit."""

from pathlib import Path

import pytest

from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.model import memory
from islands.protocol.errors import TaskError, TaskFailedError
from islands.protocol.settings.run import RunSettings

LAYOUT = plan([Leaf("w", (1_000_000, 1000))], count=4)
FULL = RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nBuffers: ...")


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (FULL, True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError("Unable to allocate 8.00 TiB for an array"), True),
        (RuntimeError("shapes differ"), False),
        (OSError("out of memory"), False),
    ],
)
def test_errors_of_memory_are_known(error: Exception, *, lacks: bool) -> None:
    assert memory.lacks_memory(error) is lacks


def test_a_learner_is_told_what_it_holds() -> None:
    told = memory.compute_failure(FULL, LAYOUT)
    assert type(told) is TaskFailedError
    assert str(told).startswith("RuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8 ")
    assert "1,000,000,000 parameters in 1 tensors" in str(told)
    assert "3.73 GiB over all devices" in str(told)
    assert "this model on the devices" in str(memory.compute_failure(MemoryError(), None))
    other = ValueError("no number")
    assert memory.compute_failure(other, LAYOUT) is other


def test_a_loop_of_ones_own_is_told_by_the_same_words() -> None:
    with (
        pytest.raises(TaskError, match="holds the published values once"),
        memory.memory_told(LAYOUT),
    ):
        raise FULL
    with pytest.raises(RuntimeError, match="shapes differ"), memory.memory_told(LAYOUT):
        raise RuntimeError("shapes differ")


def test_a_hub_that_is_too_small_says_so_before_it_is_killed() -> None:
    told = memory.hub_lacks(LAYOUT, RunSettings(fragments=4), 8 * 10**9)
    assert "but this host has 7.45 GiB" in told
    assert "3.73 GiB in float32" in told
    assert memory.hub_lacks(LAYOUT, RunSettings(fragments=4), 10**12) == ""
    assert memory.hub_lacks(LAYOUT, RunSettings(fragments=4), None) == ""


@pytest.mark.parametrize(
    ("limit", "found"), [("max", 2048), ("1000", 1000), ("9223372036854771712", 2048), (None, 2048)]
)
@pytest.mark.parametrize(
    ("own", "file"),
    [
        ("0::/\n", "memory.max"),
        ("0::/a/b/c\n", "a/memory.max"),
        ("4:cpu:/x\n9:memory:/a/b\n", "memory/a/b/memory.limit_in_bytes"),
        ("9:cpuset,memory:/a/b\n0::/\n", "memory/memory.limit_in_bytes"),
        (None, "memory.max"),
    ],
)
def test_the_smallest_of_machine_and_groups_counts(
    limit: str | None, found: int, own: str | None, file: str, tmp_path: Path
) -> None:
    machine, groups, told = tmp_path / "meminfo", tmp_path / "groups", tmp_path / "own"
    machine.write_text("MemFree: 1 kB\nMemTotal:       2 kB\n")
    (groups / file).parent.mkdir(parents=True)
    if own is not None:
        told.write_text(own)
    if limit is not None:
        (groups / file).write_text(limit + "\n")
    assert memory.host_memory_bytes(machine, told, groups) == found


def test_a_system_that_does_not_say_is_not_guessed_at(tmp_path: Path) -> None:
    none = tmp_path / "none"
    assert memory.host_memory_bytes(none, none, none) is None
