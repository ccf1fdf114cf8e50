"""What a change of form must leave as it is: histories, bytes on the wire, and what commands say.

    git worktree add /tmp/old COMMIT                # with a virtual environment of its own
    (cd /tmp/old && python -m tests.benchmarks.frozen /tmp/old.json)
    python -m tests.benchmarks.frozen /tmp/new.json --against /tmp/old.json

Digests of the tapes of seeds on the virtual clock (every decision of all roles, and every value),
of encoded messages of every type, and of `--help` and `--print_config` of every command.
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from islands.cli.commands import COMMANDS
from islands.lab.world.scenario import draw
from islands.lab.world.trial import play
from islands.protocol.messages.registry import MESSAGE_TYPES, MULTIHOST_TYPES
from messaging.codec.frames import Codec
from messaging.codec.limits import Limits
from messaging.envelope import Envelope
from messaging.errors import EncodeError
from tests.benchmarks.drawn_messages import drawn

SEEDS = 500
VALUES_OF_A_MESSAGE = 50
ROOMY = Limits(header_bytes=1 << 24, items=1 << 20)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def tape_of(seed: int) -> tuple[str, str]:
    """Play a seed; returns its name and the digest of its tape."""
    return f"seed {seed}", _digest(b"\n".join(play(draw(seed)).lines))


def messages() -> Iterator[tuple[str, str]]:
    """Yield the name of each message, and the digest of fixed values of it as bytes."""
    codec = Codec((*MESSAGE_TYPES, *MULTIHOST_TYPES), ROOMY)
    for kind in sorted((*MESSAGE_TYPES, *MULTIHOST_TYPES), key=lambda one: one.__name__):
        chance = random.Random(kind.__name__)
        data = []
        for _ in range(VALUES_OF_A_MESSAGE):
            try:
                data.append(codec.encode(Envelope("a", "b", 1, drawn(kind, chance, {}))))
            except EncodeError as error:
                data.append(type(error).__name__.encode())
        yield f"message {kind.__name__}", _digest(b"".join(data))


def said(words: Sequence[str]) -> tuple[str, str]:
    """Run a command; returns its words and the digest of all that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "islands.cli", *words],
        capture_output=True,
        check=False,
        env={"COLUMNS": "100", "PATH": "/usr/bin:/bin"},
    )
    return "islands " + " ".join(words), _digest(done.stdout + done.stderr)


def differences(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    return [name for name in sorted({*new, *old}) if new.get(name) != old.get(name)]


def main(arguments: list[str]) -> int:
    """Write the digests; returns 1 if they differ from those of another tree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args(arguments)
    told = [(*name.split(), option) for name in COMMANDS for option in ("--help", "--print_config")]
    with ProcessPoolExecutor(chosen.processes) as pool:
        digests = dict(messages())
        digests |= pool.map(said, told)
        digests |= pool.map(tape_of, range(chosen.seeds), chunksize=5)
    chosen.file.write_text(json.dumps(digests, indent=1), encoding="utf-8")
    if chosen.against is None:
        return 0
    other = differences(digests, json.loads(chosen.against.read_text(encoding="utf-8")))
    print("\n".join(other) or f"all {len(digests)} are equal")
    return 1 if other else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
