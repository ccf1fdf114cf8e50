"""Each kind of fault as it is done to real processes, and to the links of learners."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from islands.lab.faults.fault import LINKS, FaultKind, Injection
from islands.lab.faults.fleet import Fleet
from islands.lab.faults.paths import Paths
from islands.lab.faults.proxy import now_s
from islands.lab.faults.victim import HANG
from islands.protocol.identities import SUPERVISOR
from islands.protocol.settings.run import Timing
from islands.run.hosting.process_identity import lives, send_signal

DUTY_S = 0.1
"""How long a straggler and its pauses take together."""
GONE_S = 60.0
"""How long a process may take to end that was asked to, or to be killed once it is seen to hang."""

NOBODY = "nobody of that name runs"


@dataclass(frozen=True, slots=True)
class Targets:
    """The objects that faults are done to: processes, and links of learners."""

    fleet: Fleet
    paths: Paths | None = None


async def carry_out(targets: Targets, injection: Injection) -> str:
    """Return why an injection could not be carried out; "" if it was."""
    return await REAL[injection.kind](targets, injection)


# --- processes --------------------------------------------------------------------------------


async def _kill(targets: Targets, injection: Injection) -> str:
    return await _signal(targets.fleet, injection, signal.SIGKILL)


async def _signal(fleet: Fleet, injection: Injection, number: signal.Signals) -> str:
    """Signal the victims; a hub that ends is started again once the fault is over."""
    sent = [name for name in injection.victims if fleet.signal(name, number)]
    if SUPERVISOR in sent:
        await fleet.restart_hub(injection.fault.for_s)
    return "" if sent else NOBODY


async def _terminate(targets: Targets, injection: Injection) -> str:
    """Let the victim leave in order; nobody restarts who left, so start it again after a while."""
    fleet, (name,) = targets.fleet, injection.victims
    if name == SUPERVISOR:
        return await _signal(fleet, injection, signal.SIGTERM)
    if not fleet.signal(name, signal.SIGTERM):
        return NOBODY
    await fleet.wait(lambda: fleet.identity(name) is None, GONE_S)
    await asyncio.sleep(injection.fault.for_s)
    fleet.order_start(name)
    return ""


async def _freeze(targets: Targets, injection: Injection) -> str:
    (name,) = injection.victims
    if not targets.fleet.signal(name, signal.SIGSTOP):
        return NOBODY
    await asyncio.sleep(injection.fault.for_s)
    targets.fleet.signal(name, signal.SIGCONT)
    return ""


async def _straggle(targets: Targets, injection: Injection) -> str:
    """Let the victim run for a share of each tenth of a second."""
    (name,) = injection.victims
    runs_s = DUTY_S / injection.fault.factor
    end_s, victim = now_s() + injection.fault.for_s, targets.fleet.identity(name)
    while now_s() < end_s:
        if victim is None or not send_signal(victim, signal.SIGSTOP):
            return NOBODY
        await asyncio.sleep(DUTY_S - runs_s)
        send_signal(victim, signal.SIGCONT)
        await asyncio.sleep(runs_s)
        if not lives(victim):  # its successor straggles on; to look for it takes a moment
            victim = targets.fleet.identity(name)
    return ""


async def _hang(targets: Targets, injection: Injection) -> str:
    """Let the victim's next step take for ever, until the supervisor has killed it for that."""
    fleet, (name,) = targets.fleet, injection.victims
    before = fleet.identity(name)
    if not fleet.signal(name, HANG):
        return NOBODY
    await fleet.wait(lambda: fleet.identity(name) != before, hangs_most_s(fleet.timing))
    return ""


def hangs_most_s(timing: Timing) -> float:
    """Return how long a process that hangs may take to be noticed, and to be gone."""
    return timing.scaled(timing.stalled_s) + GONE_S


# --- links ------------------------------------------------------------------------------------


async def _break_links(targets: Targets, injection: Injection) -> str:
    assert targets.paths is not None, "a scenario with faults of links has proxies"
    return await targets.paths.break_for(injection.fault, injection.victims)


REAL: Mapping[FaultKind, Callable[[Targets, Injection], Awaitable[str]]] = {
    FaultKind.KILL: _kill,
    FaultKind.TERMINATE: _terminate,
    FaultKind.FREEZE: _freeze,
    FaultKind.STRAGGLE: _straggle,
    FaultKind.HANG: _hang,
    **dict.fromkeys(LINKS, _break_links),
}
"""The function that carries out each kind of fault on real processes and links."""
