"""Sealed files of a run tell whether they are whole."""

import errno
import json
from pathlib import Path

import pytest

from islands.files.whole_files import atomic_write, read_sealed, sealed, unsealed, write_sealed
from islands.protocol.errors import DamagedError, UserError

CONTENT = b'{\n  "run": "one",\n  "seed": 0,\n  "budget_tokens": null\n}\n'


def test_it_is_json_for_whoever_reads_it() -> None:
    assert json.loads(sealed(CONTENT)).keys() == {"run", "seed", "budget_tokens", "blake3"}
    assert json.loads(unsealed(sealed(CONTENT)) or b"") == json.loads(CONTENT)


def test_every_flipped_bit_and_every_cut_is_seen() -> None:
    whole = sealed(CONTENT)
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            assert unsealed(bytes(damaged)) is None, (place, bit)
        assert unsealed(whole[:place]) is None, place
    assert unsealed(whole + b"\n") is None


def test_an_error_leaves_the_old_file_and_no_part_of_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail() -> None:
        with atomic_write(path) as file:
            file.write(b"new")
            raise OSError(errno.ENOSPC, "no space left")

    with pytest.raises(OSError, match="no space left"):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_read_back_or_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert read_sealed(path) is None
    write_sealed(path, CONTENT)
    assert json.loads(read_sealed(path) or b"") == json.loads(CONTENT)
    path.write_bytes(path.read_bytes().replace(b"0", b"1"))
    with pytest.raises(DamagedError, match=r"run\.json is damaged"):
        read_sealed(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=r"run\.json cannot be read: Is a directory"):
        read_sealed(path)
