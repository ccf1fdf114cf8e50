"""I6: one seed is one history, to the byte, whatever process plays it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SEEDS = (0, 8, 57)  # with frozen processes, bad disks, a flipped bit and a second syncer


def tape_of(seed: int, hash_seed: int, folder: Path) -> list[bytes]:
    tape = folder / f"{seed}-{hash_seed}.jsonl"
    subprocess.run(
        [sys.executable, "-m", "islands.lab.world", str(seed), "--tape", str(tape)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        check=True,
        capture_output=True,
    )
    return tape.read_bytes().splitlines()


@pytest.mark.quick("8")
@pytest.mark.simulation
@pytest.mark.parametrize("seed_played", SEEDS)
def test_one_seed_is_one_history(seed_played: int, tmp_path: Path) -> None:
    one, other = (tape_of(seed_played, hash_seed, tmp_path) for hash_seed in (1, 2))
    assert one == other
    final = [json.loads(line) for line in one if b'"kind":"final"' in line]
    assert len(final[-1]["digests"]) > 0
