"""Each kind of fault as it is done to real processes, and to the links of learners."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from islands.lab.faults.fault import LINKS, FaultKind, Strike
from islands.lab.faults.fleet import START, Fleet
from islands.lab.faults.paths import Paths
from islands.protocol.identities import SUPERVISOR
from islands.protocol.settings.run import Timing

DUTY_S = 0.1
"""How long a straggler and its pauses take together."""
GONE_S = 60.0
"""How long a process may take to end that was asked to, to join, or to be killed once it is seen to
hang."""
SECOND = "second"
"""Folder, in the run's, of second learners of a name."""


@dataclass(frozen=True, slots=True)
class Means:
    """The objects that faults are done to: processes, and links of learners."""

    fleet: Fleet
    paths: Paths | None = None


class Effect(NamedTuple):
    """The effect of a strike.

    Attributes:
        missed: why it could not be carried out; empty if it was.
        number: how many single effects it had; None where that is not counted.
    """

    missed: str = ""
    number: int | None = None


NOBODY = Effect("nobody of that name runs")


async def carry_out(means: Means, strike: Strike) -> Effect:
    return await REAL[strike.kind](means, strike)


# --- processes --------------------------------------------------------------------------------


async def _kill(means: Means, strike: Strike) -> Effect:
    return await _signal(means.fleet, strike, signal.SIGKILL)


async def _signal(fleet: Fleet, strike: Strike, number: signal.Signals) -> Effect:
    """Signal the victims; a hub that ends is started again once the fault is over."""
    sent = [name for name in strike.victims if fleet.signal(name, number)]
    if SUPERVISOR in sent:
        await fleet.restart_hub(strike.fault.for_s)
    return Effect() if sent else NOBODY


async def _terminate(means: Means, strike: Strike) -> Effect:
    """Let the victim leave in order; nobody restarts who left, so start it again after a while."""
    fleet, (name,) = means.fleet, strike.victims
    if name == SUPERVISOR:
        return await _signal(fleet, strike, signal.SIGTERM)
    if not fleet.signal(name, signal.SIGTERM):
        return NOBODY
    await fleet.wait(lambda: fleet.identity(name) is None, GONE_S)
    await asyncio.sleep(strike.fault.for_s)
    fleet.order(SUPERVISOR, f"{START} {name}")
    return Effect()


async def _freeze(means: Means, strike: Strike) -> Effect:
    (name,) = strike.victims
    if not means.fleet.signal(name, signal.SIGSTOP):
        return NOBODY
    await asyncio.sleep(strike.fault.for_s)
    means.fleet.signal(name, signal.SIGCONT)
    return Effect()


async def _straggle(means: Means, strike: Strike) -> Effect:
    """Let the victim run for a share of each tenth of a second."""
    (name,) = strike.victims
    runs_s = DUTY_S / strike.fault.factor
    end_s = _now_s() + strike.fault.for_s
    while _now_s() < end_s:
        if not means.fleet.signal(name, signal.SIGSTOP):
            return NOBODY
        await asyncio.sleep(DUTY_S - runs_s)
        means.fleet.signal(name, signal.SIGCONT)
        await asyncio.sleep(runs_s)
    return Effect()


async def _order(means: Means, strike: Strike) -> Effect:
    (name,) = strike.victims
    if not means.fleet.order(name, f"{strike.kind}"):
        return Effect("nobody of that name reads orders")
    if name == SUPERVISOR:
        await means.fleet.restart_hub(strike.fault.for_s)
    return Effect()


async def _hang(means: Means, strike: Strike) -> Effect:
    """Let the victim's next step take for ever, until the supervisor has killed it for that."""
    fleet, (name,) = means.fleet, strike.victims
    before = fleet.identity(name)
    if before is None or not fleet.order(name, f"{strike.kind}"):
        return NOBODY
    await fleet.wait(lambda: fleet.identity(name) != before, hangs_most_s(fleet.timing))
    return Effect()


def hangs_most_s(timing: Timing) -> float:
    """Return how long a process that hangs may take to be noticed, and to be gone."""
    return timing.scaled(timing.stalled_s) + GONE_S


async def _second(means: Means, strike: Strike) -> Effect:
    """Start another learner of the victim's name, and end it after a while."""
    fleet, (name,) = means.fleet, strike.victims
    words = fleet.command(name)
    if words is None:
        return NOBODY
    folder = fleet.folder / SECOND
    folder.mkdir(exist_ok=True)
    words = [f"{word}-{SECOND}" if word.endswith(f"/orders/{name}") else word for word in words]
    words[words.index("--folder") + 1] = str(folder)
    path = folder / f"{name}.log"
    path.unlink(missing_ok=True)
    async with _started(words, path):
        await fleet.wait(lambda: path.stat().st_size > 0, GONE_S)  # it says that it joins
        await asyncio.sleep(strike.fault.for_s)
    return Effect()


@asynccontextmanager
async def _started(words: list[str], log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Have a process run whose output goes to a file; it is killed at the end."""
    with log.open("ab") as stream:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=stream, stderr=stream
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


# --- links ------------------------------------------------------------------------------------


async def _break_links(means: Means, strike: Strike) -> Effect:
    assert means.paths is not None, "a scenario with faults of links has proxies"
    return Effect(*await means.paths.break_for(strike.fault, strike.victims))


REAL: Mapping[FaultKind, Callable[[Means, Strike], Awaitable[Effect]]] = {
    FaultKind.KILL: _kill,
    FaultKind.TERMINATE: _terminate,
    FaultKind.FREEZE: _freeze,
    FaultKind.STRAGGLE: _straggle,
    FaultKind.HANG: _hang,
    FaultKind.SECOND: _second,
    **dict.fromkeys((FaultKind.SEGFAULT, FaultKind.EXIT, FaultKind.CRASH), _order),
    **dict.fromkeys(LINKS, _break_links),
}
"""The function that carries out each kind of fault on real processes and links."""


def _now_s() -> float:
    return asyncio.get_running_loop().time()
