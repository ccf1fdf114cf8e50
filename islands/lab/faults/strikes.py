"""Each kind of fault as it is done to real processes, to the links of learners, and to a host."""

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from islands.files.folder_lock import IN_USE
from islands.lab.faults.fault import HOSTS, LINKS, STRANGERS, Direction, FaultKind, Strike
from islands.lab.faults.fleet import HUB_LOG, START, Fleet
from islands.lab.faults.namespaces import Drop, Namespace, Shape
from islands.lab.faults.paths import Paths
from islands.lab.faults.peak_memory import PeakMemory
from islands.protocol.errors import OF_NO_USE
from islands.protocol.identities import SUPERVISOR
from islands.protocol.settings.run import Timing
from islands.run.hosting.hub_address import read_hub_address
from islands.run.hosting.process_output import last_line
from islands.run.hosting.process_runtime import TOKEN_FILE
from messaging.websocket.door import NAME_HEADER, PROTOCOL, PROTOCOL_HEADER
from messaging.websocket.security import Secret

DUTY_S = 0.1
"""How long a straggler and its pauses take together."""
GONE_S = 60.0
"""How long a process may take to end that was asked to, to join, or to be killed once it is seen to
hang."""
SECOND = "second"
"""Folder, in the run's, of second learners of a name."""
MIB = 1 << 20
STRANGERS_MOST_BYTES = 50 * MIB
"""By how much more memory a hub may take for what strangers send it."""
GARBAGE_MOST_BYTES = 4096
READ_BYTES = 1 << 16
HALF_A_REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n"
UPGRADED = b"HTTP/1.1 101 "
BINARY_FRAME, MASKED, LONG = 0x82, 0x80, 126
"""Bytes of a websocket frame's header (RFC 6455, 5.2)."""


@dataclass(frozen=True, slots=True)
class Means:
    """The objects that faults are done to: processes, links of learners, and the remote host."""

    fleet: Fleet
    paths: Paths | None = None
    host: Namespace | None = None


class Effect(NamedTuple):
    """The effect of a strike.

    Attributes:
        missed: why it could not be carried out; empty if it was.
        number: how many single effects it had; None where that is not counted.
    """

    missed: str = ""
    number: int | None = None


NOBODY = Effect("nobody of that name runs")


class PromiseBroken(Exception):  # noqa: N818  no error: what a strike has shown
    """A promise that a strike itself has seen broken, as a sentence."""


async def carry_out(means: Means, strike: Strike) -> Effect:
    """Carry a strike out, to its end.

    Raises:
        PromiseBroken: it was carried out, and showed that a promise is not kept.
    """
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
    if not means.fleet.order(name, f"{strike.kind} {strike.fault.for_s:g}"):
        return Effect("nobody of that name reads orders")
    if not strike.kind.ends_process:
        await asyncio.sleep(strike.fault.for_s)
    elif name == SUPERVISOR:
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
    """Start another learner of the victim's name, and end it after a while; or another hub."""
    fleet, (name,) = means.fleet, strike.victims
    if name == SUPERVISOR:
        await _second_hub(fleet)
        return Effect()
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


async def _second_hub(fleet: Fleet) -> None:
    path = fleet.folder / f"{SECOND}-{HUB_LOG}"
    async with _started(fleet.hub_command, path) as other:
        try:
            await asyncio.wait_for(other.wait(), GONE_S)
        except TimeoutError:
            raise PromiseBroken(f"a second hub of the run was there for {GONE_S:g} s") from None
    sentence = last_line(path)
    if other.returncode != OF_NO_USE or IN_USE not in sentence:
        raise PromiseBroken(f"a second hub of the run was not refused: {sentence}")


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


async def _clock(means: Means, strike: Strike) -> Effect:
    """Set the wall clocks of the victims ahead, or back, and right again after a while."""
    fleet, order = means.fleet, f"clock {strike.fault.jump_s}"
    deaf = [name for name in strike.victims if not fleet.order(name, order)]
    try:
        await asyncio.sleep(strike.fault.for_s)
    finally:
        for name in strike.victims:
            fleet.order(name, "clock 0")
    return Effect(f"no clock of {', '.join(deaf)} could be set" if deaf else "")


# --- links and hosts --------------------------------------------------------------------------


async def _break_links(means: Means, strike: Strike) -> Effect:
    assert means.paths is not None, "a scenario with faults of links has proxies"
    return Effect(*await means.paths.break_for(strike.fault, strike.victims))


async def _break_host(means: Means, strike: Strike) -> Effect:
    """Drop packets of the remote host, or let few of those that leave it pass, for a while."""
    host, fault = means.host, strike.fault
    assert host is not None, "without one such strikes are left out"
    drops = {Direction.UP: (Drop.OUTGOING,), Direction.DOWN: (Drop.INCOMING,)}
    try:
        if fault.kind is FaultKind.SHAPE:
            await asyncio.to_thread(host.shape, Shape(rate=fault.rate))
        else:
            dropped = drops.get(fault.way, tuple(Drop))
            await asyncio.to_thread(host.drop, *dropped, every=fault.every)
        await asyncio.sleep(fault.for_s)
    finally:
        host.heal()
        host.shape(None)
    return Effect()


# --- strangers --------------------------------------------------------------------------------


async def _strangers(means: Means, strike: Strike) -> Effect:
    """Open connections to the hub that never become sessions; it must close them by itself.

    Raises:
        PromiseBroken: it left some open, upgraded none that asked for it, or took much memory.
    """
    fleet, count, for_s = means.fleet, strike.fault.count, strike.fault.for_s
    url = urlsplit(read_hub_address(fleet.folder).supervisor)
    token = fleet.folder / TOKEN_FILE
    secret = Secret.read(token) if token.exists() else None
    chance = random.Random(strike.name)
    opened: list[asyncio.StreamWriter] = []
    answers: list[asyncio.Task[bytes]] = []
    missed = ""
    try:
        with PeakMemory(fleet.hub_status) as memory:
            try:
                for number in range(count):
                    reader, writer = await asyncio.open_connection(url.hostname, url.port)
                    opened.append(writer)
                    answers.append(asyncio.create_task(_answer(reader)))
                    half_open = strike.kind is FaultKind.HALF_OPEN
                    writer.write(HALF_A_REQUEST if half_open else garbage(number, chance, secret))
            except OSError as error:
                missed = f"{len(opened)} of {count} connections could be opened"
                missed += f": {error.strerror or error}"
            if opened:
                await asyncio.sleep(for_s)
        left = sum(not answer.done() for answer in answers)
    finally:
        for writer in opened:
            writer.transport.abort()
        replies = await asyncio.gather(*answers)
    if left:
        raise PromiseBroken(
            f"{left} of {len(opened)} connections of strangers were open after {for_s:g} s"
        )
    if missed:
        return Effect(missed)
    if strike.kind is FaultKind.GARBAGE and not any(
        reply.startswith(UPGRADED) for reply in replies
    ):
        return Effect("the hub upgraded no connection")
    if memory.grown_bytes is None:
        return Effect("it cannot be measured how much memory the hub takes")
    if memory.grown_bytes > STRANGERS_MOST_BYTES:
        raise PromiseBroken(
            f"{len(opened)} strangers had the hub take {memory.grown_bytes / MIB:.0f} MiB more; "
            f"allowed are {STRANGERS_MOST_BYTES // MIB}"
        )
    return Effect()


def garbage(number: int, chance: random.Random, secret: Secret | None) -> bytes:
    """Return bytes that are no session: noise, or a request for one with noise behind it.

    Of three connections one makes no request, one shows no secret, and one shows the run's.
    """
    noise = chance.randbytes(chance.randrange(1, GARBAGE_MOST_BYTES))
    if number % 3 == 0:
        return noise
    if number % 3 == 1:
        return upgrade(None) + noise
    masked = bytes((BINARY_FRAME, MASKED | LONG)) + len(noise).to_bytes(2) + bytes(4) + noise
    return upgrade(secret) + (masked if number % 2 else noise)


def upgrade(secret: Secret | None) -> bytes:
    """Return the request with which a session begins."""
    lines = (
        f"GET /{SUPERVISOR} HTTP/1.1",
        "Host: a",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        f"{PROTOCOL_HEADER}: {PROTOCOL}",
        f"{NAME_HEADER}: stranger",
        *([] if secret is None else [f"Authorization: {secret.header()}"]),
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    reply = b""
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            reply += data
    return reply


REAL: Mapping[FaultKind, Callable[[Means, Strike], Awaitable[Effect]]] = {
    FaultKind.KILL: _kill,
    FaultKind.TERMINATE: _terminate,
    FaultKind.FREEZE: _freeze,
    FaultKind.STRAGGLE: _straggle,
    FaultKind.HANG: _hang,
    FaultKind.SECOND: _second,
    FaultKind.CLOCK: _clock,
    **dict.fromkeys((FaultKind.SEGFAULT, FaultKind.EXIT, FaultKind.CRASH), _order),
    **dict.fromkeys((FaultKind.HOLD_GIL, FaultKind.BLOCK_LOOP), _order),
    **dict.fromkeys(LINKS, _break_links),
    **dict.fromkeys(HOSTS, _break_host),
    **dict.fromkeys(STRANGERS, _strangers),
}
"""The function that carries out each kind of fault on real processes, links and hosts."""


def _now_s() -> float:
    return asyncio.get_running_loop().time()
