"""Of namespaces nothing stays behind; that two of them reach each other `test_two_hosts` shows."""

import subprocess
import sys

import pytest

from tests.integration.namespaces import open_pair, unavailable

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif((REASON := unavailable()) is not None, reason=REASON or ""),
]


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
