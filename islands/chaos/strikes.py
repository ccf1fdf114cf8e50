"""How each kind of fault is done to real processes, to the links of learners, and to a host."""

import asyncio
import signal
from dataclasses import dataclass
from urllib.parse import urlsplit

from islands.chaos.fleet import LOOK_S, START, Fleet
from islands.chaos.namespaces import Drop, Namespace, Shape
from islands.chaos.paths import Paths
from islands.chaos.schedule import Strike
from islands.hosting.hub_address import read_place
from islands.identities import SUPERVISOR
from islands.settings.chaos import Direction, FaultKind, PlannedFault
from islands.settings.run import Timing

NOBODY = "nobody of that name runs"
DUTY_S = 0.1
"""How long a straggler and its pauses take together."""
GONE_S = 60.0
"""How long a process may take to end that was asked to, to join, or to be killed once it is seen to
hang."""
SECOND = "second"
"""Folder, in the run's, of second learners of a name."""


@dataclass(frozen=True, slots=True)
class Means:
    """What faults are injected with: processes, the links of learners, and the remote host."""

    fleet: Fleet
    paths: Paths | None = None
    host: Namespace | None = None


class PromiseBroken(Exception):  # noqa: N818  no error: what a strike has shown
    """What a strike itself has seen broken, as a sentence."""


async def carry_out(means: Means, strike: Strike) -> str:
    """Carry a strike out, to its end; returns why that was not possible, or nothing.

    Raises:
        PromiseBroken: it was carried out, and showed that a promise is not kept.
    """
    if means.paths is not None and strike.kind.of_links:
        return await means.paths.break_for(strike.fault, strike.victims)
    if means.host is not None and strike.kind.of_hosts:
        await _break_host(means.host, strike.fault)
        return ""
    return await STRIKES[strike.kind](means.fleet, strike)


async def _break_host(host: Namespace, fault: PlannedFault) -> None:
    """Drop packets of the remote host, or let few of those that leave it pass, for a while."""
    drops = {Direction.UP: (Drop.OUTGOING,), Direction.DOWN: (Drop.INCOMING,)}
    try:
        if fault.fault is FaultKind.SHAPE:
            await asyncio.to_thread(host.shape, Shape(rate=fault.rate))
        else:
            dropped = drops.get(fault.way, tuple(Drop))
            await asyncio.to_thread(host.drop, *dropped, every=fault.every)
        await asyncio.sleep(fault.for_s)
    finally:
        host.heal()
        host.shape(None)


async def _signal(fleet: Fleet, strike: Strike, number: signal.Signals) -> str:
    """Signal the victims; a hub that ends is started again once the fault is over."""
    sent = [name for name in strike.victims if fleet.signal(name, number)]
    if SUPERVISOR in sent:
        await fleet.restart_hub(strike.fault.for_s)
    return "" if sent else NOBODY


async def _kill(fleet: Fleet, strike: Strike) -> str:
    return await _signal(fleet, strike, signal.SIGKILL)


async def _terminate(fleet: Fleet, strike: Strike) -> str:
    """Let the victim leave in order; nobody restarts who left, so start it again after a while."""
    (name,) = strike.victims
    if name == SUPERVISOR:
        return await _signal(fleet, strike, signal.SIGTERM)
    if not fleet.signal(name, signal.SIGTERM):
        return NOBODY
    await fleet.wait(lambda: fleet.identity(name) is None, GONE_S)
    await asyncio.sleep(strike.fault.for_s)
    fleet.order(SUPERVISOR, f"{START} {name}")
    return ""


async def _freeze(fleet: Fleet, strike: Strike) -> str:
    (name,) = strike.victims
    if not fleet.signal(name, signal.SIGSTOP):
        return NOBODY
    await asyncio.sleep(strike.fault.for_s)
    fleet.signal(name, signal.SIGCONT)
    return ""


async def _straggle(fleet: Fleet, strike: Strike) -> str:
    """Let the victim run for a share of each tenth of a second."""
    (name,) = strike.victims
    runs_s = DUTY_S / strike.fault.factor
    end_s = _now_s() + strike.fault.for_s
    while _now_s() < end_s:
        if not fleet.signal(name, signal.SIGSTOP):
            return NOBODY
        await asyncio.sleep(DUTY_S - runs_s)
        fleet.signal(name, signal.SIGCONT)
        await asyncio.sleep(runs_s)
    return ""


async def _order(fleet: Fleet, strike: Strike, line: str) -> str:
    (name,) = strike.victims
    if not fleet.order(name, line):
        return "nobody of that name reads orders"
    if strike.kind.ends_process:
        if name == SUPERVISOR:
            await fleet.restart_hub(strike.fault.for_s)
        return ""
    await asyncio.sleep(strike.fault.for_s)
    return ""


async def _tell(fleet: Fleet, strike: Strike) -> str:
    return await _order(fleet, strike, f"{strike.kind} {strike.fault.for_s:g}")


async def _hang(fleet: Fleet, strike: Strike) -> str:
    """Let the victim's next step take for ever, until the supervisor has killed it for that."""
    (name,) = strike.victims
    before = fleet.identity(name)
    if before is None or not fleet.order(name, f"{strike.kind}"):
        return NOBODY
    await fleet.wait(lambda: fleet.identity(name) != before, hangs_most_s(fleet.timing))
    return ""


def hangs_most_s(timing: Timing) -> float:
    """Return how long a process that hangs may take to be seen to, and to be gone."""
    return timing.scaled(timing.stalled_s) + GONE_S


async def _second(fleet: Fleet, strike: Strike) -> str:
    """Start another learner of the victim's name, and end it after a while."""
    (name,) = strike.victims
    words = fleet.command(name)
    if words is None:
        return NOBODY
    folder = fleet.folder / SECOND
    folder.mkdir(exist_ok=True)
    words = [f"{word}-{SECOND}" if word.endswith(f"/orders/{name}") else word for word in words]
    words[words.index("--folder") + 1] = str(folder)
    path = folder / f"{name}.log"
    path.unlink(missing_ok=True)
    with path.open("ab") as log:
        other = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        await fleet.wait(lambda: path.stat().st_size > 0, GONE_S)  # it says that it joins
        await asyncio.sleep(strike.fault.for_s)
    finally:
        other.kill()
        await other.wait()
    return ""


async def _half_open(fleet: Fleet, strike: Strike) -> str:
    """Open connections to the hub that never end their request; it must close them by itself."""
    url = urlsplit(read_place(fleet.folder).supervisor)
    opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        for _ in range(strike.fault.count):
            reader, writer = await asyncio.open_connection(url.hostname, url.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n")
            opened.append((reader, writer))
        await asyncio.sleep(strike.fault.for_s)
    except OSError as error:
        if not opened:
            return f"the hub cannot be reached: {error.strerror or error}"
    finally:
        closed = await asyncio.gather(*(_is_closed(reader) for reader, _ in opened))
        for _, writer in opened:
            writer.transport.abort()
    if not all(closed):
        told = f"{closed.count(False)} of {len(opened)} half-open connections were open after"
        raise PromiseBroken(f"{told} {strike.fault.for_s:g} s")
    return ""


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the other end has closed or reset a connection, maybe after an answer."""
    try:
        async with asyncio.timeout(LOOK_S):
            await reader.read()
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


STRIKES = {
    FaultKind.KILL: _kill,
    FaultKind.SEGFAULT: _tell,
    FaultKind.EXIT: _tell,
    FaultKind.CRASH: _tell,
    FaultKind.TERMINATE: _terminate,
    FaultKind.FREEZE: _freeze,
    FaultKind.HOLD_GIL: _tell,
    FaultKind.BLOCK_LOOP: _tell,
    FaultKind.STRAGGLE: _straggle,
    FaultKind.HANG: _hang,
    FaultKind.SECOND: _second,
    FaultKind.HALF_OPEN: _half_open,
}
"""How each kind of fault is carried out."""


def _now_s() -> float:
    return asyncio.get_running_loop().time()
