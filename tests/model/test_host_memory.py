"""What a host has for processes: the machine's memory, or a container's share of it."""

from pathlib import Path

import pytest

from islands.model.memory_faults import PeakMemory, host_memory_bytes


@pytest.mark.parametrize(
    ("limit", "found"), [("max", 2048), ("1000", 1000), ("9223372036854771712", 2048), (None, 2048)]
)
def test_the_smaller_of_machine_and_group_counts(
    limit: str | None, found: int, tmp_path: Path
) -> None:
    """A group without a limit, or with one beyond the machine, takes nothing away."""
    machine, group = tmp_path / "meminfo", tmp_path / "max"
    machine.write_text("MemFree: 1 kB\nMemTotal:       2 kB\n")
    if limit is not None:
        group.write_text(limit + "\n")
    assert host_memory_bytes(machine, (group,)) == found


def test_a_system_that_does_not_say_is_not_guessed_at(tmp_path: Path) -> None:
    """Nothing is refused for its memory then."""
    assert host_memory_bytes(tmp_path / "none", ()) is None


def test_a_peak_is_measured_though_it_has_passed() -> None:
    """What was taken and given back within the block counts; what came before does not."""
    with PeakMemory() as peak:
        block = bytearray(64 << 20)
        del block
    with PeakMemory() as nothing:
        pass
    assert peak.grown_bytes is None or peak.grown_bytes > 48 << 20
    assert nothing.grown_bytes is None or nothing.grown_bytes < 16 << 20


def test_where_the_system_tells_no_peak_nothing_is_known(tmp_path: Path) -> None:
    """Nothing is added to what is promised then."""
    with PeakMemory(tmp_path / "status") as peak:
        pass
    assert peak.grown_bytes is None
