"""How fast a disk writes."""

from pathlib import Path

from islands.files.disk import PIECE_BYTES, write_bytes_per_s


def test_a_speed_is_measured_and_nothing_left(tmp_path: Path) -> None:
    speed = write_bytes_per_s(tmp_path, PIECE_BYTES + 1)
    assert speed is not None
    assert speed > 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_has_no_speed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert write_bytes_per_s(file, 1) is None
