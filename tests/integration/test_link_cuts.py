"""Links between two processes whose packets are dropped or queue up.

Times are those of the diallers in `link_end`: a silence of 1 s ends a session.
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.namespaces import Drop, Namespace, Shape, open_pair, unavailable

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif((REASON := unavailable()) is not None, reason=REASON or ""),
]

LIMIT_S = 60.0


class Caller:
    """A dialler in a process of its own, and what it has told."""

    def __init__(self, process: Process, near: Namespace, far: Namespace) -> None:
        self.near, self.far = near, far
        self.counts: Counter[str] = Counter()
        self.reasons: list[str] = []
        self._process = process

    async def wait(self, event: str, count: int = 1) -> None:
        """Wait until something has happened so many times more."""
        wanted = self.counts[event] + count
        async with asyncio.timeout(LIMIT_S):
            while self.counts[event] < wanted:
                await self._read()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the dialler ended"
        told = json.loads(line)
        self.counts[told["event"]] += 1
        if told["event"] == "lost":
            self.reasons.append(told["reason"])


@asynccontextmanager
async def open_caller(
    envelopes: int = 0, *, payload_bytes: int = 10_000, shape: Shape | None = None
) -> AsyncIterator[Caller]:
    """Start a hub and a dialler in namespaces, joined; they end with the namespaces."""
    program = [sys.executable, "-m", "tests.integration.link_end"]
    with open_pair(near=shape, far=shape) as (near, far):
        hub = await asyncio.create_subprocess_exec(
            *far.inside([*program, "--listen", far.address]), stdout=PIPE
        )
        assert hub.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            assert json.loads(await hub.stdout.readline()) == {"event": "ready"}
        sent = ["--envelopes", f"{envelopes}", "--payload-bytes", f"{payload_bytes}"]
        dialler = await asyncio.create_subprocess_exec(
            *near.inside([*program, "--dial", far.address, *sent]), stdout=PIPE
        )
        try:
            yield Caller(dialler, near, far)
        finally:
            for process in (dialler, hub):
                process.kill()
                await process.wait()


@pytest.mark.quick("near")
@pytest.mark.parametrize("side", ["near", "far"])
async def test_silence_ends_the_session_and_healing_brings_it_back(side: str) -> None:
    async with open_caller() as caller:
        namespace: Namespace = getattr(caller, side)
        for drops in ((Drop.INCOMING,), (Drop.OUTGOING,), tuple(Drop)):
            await caller.wait("beat", 3)
            namespace.drop(*drops)
            await caller.wait("lost")
            assert "nothing heard" in caller.reasons[-1]
            namespace.heal()
            await caller.wait("opened")
        await caller.wait("beat", 3)
        assert caller.counts["opened"] == 4


async def test_no_session_is_lost_on_a_narrow_way() -> None:
    async with open_caller(8, payload_bytes=100_000, shape=Shape("2mbit", queue="2s")) as caller:
        await caller.wait("complete")
        assert caller.counts["lost"] == 0
        assert caller.counts["wrong"] == 0
