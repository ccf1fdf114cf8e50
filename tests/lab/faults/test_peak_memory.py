"""The peak of a process's memory is measured where the system tells it."""

from pathlib import Path

from islands.lab.faults.peak_memory import PeakMemory


def test_a_peak_is_measured_though_it_has_passed() -> None:
    with PeakMemory() as peak:
        block = bytearray(64 << 20)
        del block
    with PeakMemory() as nothing:
        pass
    assert peak.grown_bytes is None or peak.grown_bytes > 48 << 20
    assert nothing.grown_bytes is None or nothing.grown_bytes < 16 << 20


def test_where_the_system_tells_no_peak_nothing_is_known(tmp_path: Path) -> None:
    with PeakMemory(tmp_path / "status") as peak:
        pass
    assert peak.grown_bytes is None
