"""The links of learners through proxies that can break them, each learner's apart.

Learners dial two proxies of the process that injects the faults: one before the hub, one before the
syncer. A connection's port shows its learner: the kernel knows which process has it.
"""

import asyncio
import os
import random
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from islands.lab.faults.fault import Fault, FaultKind, Peer
from islands.lab.faults.proxy import Connection, FaultProxy, Faults, free_port, now_s
from islands.run.hosting.process_identity import Identity

RESETS_S = 0.2
"""How often it is looked for new connections that are to be reset."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports at which the hub, the syncer and the proxies before them listen."""

    hub: int
    hub_proxy: int
    syncer: int
    syncer_proxy: int


class Paths:
    """The proxies of one run; `identity` returns the process of a learner's name."""

    def __init__(
        self, seed: int, identity: Callable[[str], Identity | None], names: Iterable[str]
    ) -> None:
        self.ports: Ports
        self._chance = random.Random(f"{seed} paths")
        self._seed = seed
        self._identity = identity
        self._names = tuple(names)
        self._proxies: dict[Peer, FaultProxy] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        hub, syncer = free_port(), free_port()
        for peer, port in ((Peer.SUPERVISOR, hub), (Peer.SYNCER, syncer)):
            proxy = FaultProxy(port, seed=self._seed, client_of=self._client_of)
            self._proxies[peer] = await self._stack.enter_async_context(proxy)
        proxies = (self._proxies[Peer.SUPERVISOR].port, self._proxies[Peer.SYNCER].port)
        self.ports = Ports(hub, proxies[0], syncer, proxies[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def break_for(self, fault: Fault, victims: Iterable[str]) -> str:
        """Let the links of some learners suffer a fault for as long as it lasts.

        Returns a sentence if it met no connection of some victim, or reset none, else "".
        """
        names = tuple(victims)
        before = self._resets(fault, names)
        met = self._connected(fault)
        try:
            if fault.kind is FaultKind.FLAP:
                await self._flap(fault, names)
            elif fault.kind is FaultKind.RESET:
                await self._reset(fault, names)
            else:
                self._inject(fault, names, stream_faults_of(fault))
                await asyncio.sleep(fault.for_s)
            met |= self._connected(fault)
        finally:
            for proxy in self._broken(fault):
                for name in names:
                    proxy.heal_client(name)
        unmet = [name for name in names if name not in met]
        if unmet:
            return f"no connection of {', '.join(unmet)} passed the proxy"
        if fault.kind is FaultKind.RESET and self._resets(fault, names) == before:
            return f"it reset nothing in {fault.for_s:g} s"
        return ""

    def connections_of(self, name: str) -> list[Connection]:
        """Return all connections that a learner has had so far."""
        proxies = self._proxies.values()
        return [each for proxy in proxies for each in proxy.connections if each.client == name]

    def _connections(self, fault: Fault) -> list[Connection]:
        return [each for proxy in self._broken(fault) for each in proxy.connections]

    def _resets(self, fault: Fault, names: tuple[str, ...]) -> int:
        """Return how many connections of these learners faults have reset so far."""
        return sum(each.was_reset for each in self._connections(fault) if each.client in names)

    def _connected(self, fault: Fault) -> set[str]:
        """Return who has a connection now that a fault would hit."""
        return {each.client for each in self._connections(fault) if not each.ended}

    async def _flap(self, fault: Fault, names: tuple[str, ...]) -> None:
        end_s, cut = now_s() + fault.for_s, True
        while now_s() < end_s:
            self._inject(fault, names, Faults(cut=cut))
            cut = not cut
            await asyncio.sleep(min(fault.turn_s, max(0.0, end_s - now_s())))

    async def _reset(self, fault: Fault, names: tuple[str, ...]) -> None:
        """Reset every connection, and all that follow, after some bytes; each after others."""
        end_s = now_s() + fault.for_s
        seen: dict[int, None] = {}
        while now_s() < end_s:
            for connection in self._connections(fault):
                if connection.client in names and id(connection) not in seen:
                    seen[id(connection)] = None
                    for way in fault.way.ways:
                        more = 1 + int(self._chance.expovariate(1 / fault.mean_bytes))
                        after = connection.pump(way).delivered_bytes + more
                        connection.inject(Faults(reset_after_bytes=after), way)
            await asyncio.sleep(RESETS_S)

    def _inject(self, fault: Fault, names: tuple[str, ...], faults: Faults) -> None:
        for proxy in self._broken(fault):
            for name in names:
                proxy.inject_client(name, faults, fault.way)

    def _broken(self, fault: Fault) -> list[FaultProxy]:
        return [p for peer, p in self._proxies.items() if fault.link in (peer, Peer.BOTH)]

    def _client_of(self, port: int) -> str:
        inode = _inode_of(port)
        for name in self._names if inode else ():
            identity = self._identity(name)
            if identity is not None and _has_socket(identity.pid, inode):
                return name
        return ""


def stream_faults_of(fault: Fault) -> Faults:
    match fault.kind:
        case FaultKind.LATENCY:
            return Faults(latency_s=fault.latency_s, jitter_s=fault.jitter_s)
        case FaultKind.BANDWIDTH:
            return Faults(bandwidth_bytes_s=fault.bytes_s)
        case _:
            return Faults(cut=fault.kind is FaultKind.CUT)


def _inode_of(port: int) -> str:
    wanted = f"0100007F:{port:04X}"
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1] == wanted and fields[9] != "0":
            return fields[9]
    return ""


def _has_socket(pid: int, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208  links that may be gone at once
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            if os.readlink(f"/proc/{pid}/fd/{descriptor}") == wanted:  # noqa: PTH115  as above
                return True
        except OSError:
            continue
    return False
