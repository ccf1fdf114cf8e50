"""Namespaces are joined, shaped, cut and healed, and nothing of them stays behind."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.integration.namespaces import Drop, Namespace, Shape, open_pair, unavailable

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif((REASON := unavailable()) is not None, reason=REASON or ""),
]

# Answers each line with itself, on one connection after the other.
ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 7070))
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    with connection, connection.makefile("rwb", buffering=0) as stream:
        for line in stream:
            stream.write(line)
"""
# Prints what it gets back for a line, or what went wrong.
ASK = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 7070), timeout=float(sys.argv[2])) as connection:
        connection.sendall(b"x" * int(sys.argv[3]) + b"\\n")
        print(len(connection.makefile("rb").readline()))
except OSError as error:
    print(type(error).__name__)
"""

Pair = tuple[Namespace, Namespace]


@pytest.fixture(name="pair")
def _pair() -> Iterator[Pair]:
    """Two joined namespaces; in the second one somebody echoes."""
    with open_pair() as (near, far):
        server = far.popen(
            [sys.executable, "-c", ECHO, far.address], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield near, far


def ask(pair: Pair, *, patience_s: float = 10.0, size: int = 9) -> str:
    """Send a line from the first namespace to the second; return what came of it."""
    near, far = pair
    return near.run([sys.executable, "-c", ASK, far.address, f"{patience_s}", f"{size}"]).strip()


def test_the_two_reach_each_other(pair: Pair) -> None:
    assert ask(pair) == "10"


@pytest.mark.parametrize("side", [0, 1], ids=["near", "far"])
@pytest.mark.parametrize(
    "drops", [(Drop.INCOMING,), (Drop.OUTGOING,), ()], ids=["incoming", "outgoing", "both"]
)
def test_a_cut_is_a_silence_until_healed(pair: Pair, side: int, drops: tuple[Drop, ...]) -> None:
    pair[side].drop(*drops)
    assert ask(pair, patience_s=0.2) == "TimeoutError"
    pair[side].heal()
    assert ask(pair) == "10"


def test_loss_is_survived(pair: Pair) -> None:
    """With every seventh packet dropped TCP still brings everything.

    The line leaves in at least seven packets, whatever the host's cards join: the connection's
    first two, four of at most 64 KiB, and its last one.
    """
    pair[0].drop(Drop.OUTGOING, every=7)
    assert ask(pair, size=200_000) == "200001"
    assert pair[0].dropped(Drop.OUTGOING) >= 1


def test_a_shape_queues_and_drops(pair: Pair) -> None:
    near, _ = pair
    near.shape(Shape(rate="8mbit", burst="16kb", queue="20ms"))
    near.congestion_control("reno")
    assert ask(pair, size=500_000) == "500001"
    said = near.queueing()
    assert "rate 8Mbit" in said
    assert "overlimits 0 " not in said
    assert "dropped 0," not in said
    near.shape(None)
    assert "tbf" not in near.queueing()


def test_pairs_are_apart() -> None:
    with open_pair() as (one, _), open_pair() as (other, far):
        assert one.name != other.name
        far.popen([sys.executable, "-c", ECHO, far.address], stdout=subprocess.DEVNULL)
        assert ask((one, far), patience_s=0.2) == "ConnectionRefusedError"


def test_nothing_stays_behind_after_a_failure() -> None:
    sleeper = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    names = []
    with pytest.raises(RuntimeError, match="not today"), open_pair() as pair:  # noqa: PT012 (the block is what fails)
        names = [namespace.name for namespace in pair]
        child = pair[0].popen([sys.executable, "-c", sleeper], stdin=subprocess.PIPE)
        raise RuntimeError("not today")
    assert child.poll() is not None
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)  # noqa: S607 (the pair found it there as well)
    assert all(name not in listed.stdout for name in names)


def test_what_fails_inside_says_why() -> None:
    with open_pair() as (near, _), pytest.raises(RuntimeError, match=r"nonsense.*nknown"):
        near.run(["ip", "nonsense"])
