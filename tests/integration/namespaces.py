"""Two network namespaces with a router of their own between them: no other traffic is touched.

    with open_pair(near=Shape(rate="20mbit", queue="100ms")) as (near, far):
        server = far.popen([sys.executable, "-m", "...", "--host", far.address])
        near.run([sys.executable, "-m", "...", "--to", far.address])
        far.drop(Drop.INCOMING)   # a one-way cut, seen from `far`

Needs root, `ip`, `tc` and `iptables`; `unavailable` says what is missing. A `Shape` limits what
comes from a namespace, in the router: before a queue on its own host TCP holds back ("small
queues"), before one elsewhere it does not. The kernel may lack `netem`: latency and damage come
from the fault proxy.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

TOOLS = ("ip", "tc", "iptables")
CABLE = "cable"  # the interface of each namespace
ADDRESSES = ("10.77.1.2", "10.77.2.2")
GATEWAYS = ("10.77.1.1", "10.77.2.1")  # the router's own
TO_NEAR, TO_FAR = "to-near", "to-far"  # those of the router
COMMAND_LIMIT_S = 30.0
_END_LIMIT_S = 5.0
_CONTROLS = Path("/proc/sys/net/ipv4")


@dataclass(frozen=True, slots=True)
class Shape:
    """The traffic that the router lets through from one side, in the words of `tc`.

    Attributes:
        rate: Such as `20mbit`.
        burst: What may leave at once.
        queue: How long a packet may wait (`100ms`) before packets are dropped.
    """

    rate: str
    burst: str = "32kb"
    queue: str = "100ms"


class Drop(StrEnum):
    """Which packets of a namespace are dropped; the loopback's are not."""

    INCOMING = "INPUT"
    OUTGOING = "OUTPUT"


@dataclass(slots=True)
class Namespace:
    """One of the two.

    Attributes:
        name: As `ip netns` knows it.
        address: Where it is reached.
        router: The namespace between the two.
        ahead: The router's interface towards the other one.
    """

    name: str
    address: str
    router: str
    ahead: str
    _children: list[subprocess.Popen[Any]] = field(default_factory=list)

    def run(
        self, command: Sequence[str], *, check: bool = True, timeout_s: float = COMMAND_LIMIT_S
    ) -> str:
        """Run a command inside to its end and return its output."""
        return _inside(self.name, *command, check=check, timeout_s=timeout_s)

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:  # noqa: ANN401 (those of Popen)
        """Start a command inside; it is killed when the pair is closed, if it still runs."""
        child = subprocess.Popen(self.inside(command), **options)
        self._children.append(child)
        return child

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs a command inside; such processes too end with the pair."""
        return ["ip", "netns", "exec", self.name, *command]

    def shape(self, shape: Shape | None) -> None:
        """Limit what comes from here from now on; None: no limit."""
        queueing = ["tc", "qdisc", "replace", "dev", self.ahead, "root"]
        if shape is None:
            _inside(self.router, *queueing, "pfifo")
            return
        bucket = ["tbf", "rate", shape.rate, "burst", shape.burst, "latency", shape.queue]
        _inside(self.router, *queueing, *bucket)

    def drop(self, *drops: Drop) -> None:
        """Drop the packets of these directions; by default of both."""
        for one in drops or tuple(Drop):
            side = "-i" if one is Drop.INCOMING else "-o"
            self.run(["iptables", "--wait", "-A", one.value, side, CABLE, "-j", "DROP"])

    def heal(self) -> None:
        self.run(["iptables", "--wait", "-F"])

    def close(self) -> None:
        """End whatever still runs inside, and remove the namespace."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
        inside = _run(["ip", "netns", "pids", self.name], check=False).split()
        for pid in inside:  # what the children started
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(pid), signal.SIGKILL)
        for child in self._children:
            child.wait(_END_LIMIT_S)
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream is not None:
                    stream.close()
        _run(["ip", "netns", "del", self.name], check=False)


@contextlib.contextmanager
def open_pair(
    *,
    near: Shape | None = None,
    far: Shape | None = None,
    addresses: tuple[str, str] = ADDRESSES,
) -> Iterator[tuple[Namespace, Namespace]]:
    """Make two joined namespaces; whatever happens, they and what runs in them are removed."""
    tag = f"islands-{os.getpid()}-{secrets.token_hex(3)}"
    router = f"{tag}-router"
    pair = (
        Namespace(f"{tag}-near", addresses[0], router, TO_FAR),
        Namespace(f"{tag}-far", addresses[1], router, TO_NEAR),
    )
    with contextlib.ExitStack() as stack:
        stack.callback(_run, ["ip", "netns", "del", router], check=False)
        for namespace in pair:
            stack.callback(namespace.close)
        _run(["ip", "netns", "add", router])
        _inside(router, "sh", "-c", f"echo 1 > {_CONTROLS / 'ip_forward'}")
        for namespace, port, gateway in zip(pair, (TO_NEAR, TO_FAR), GATEWAYS, strict=True):
            _join(namespace, port, gateway)
        for namespace, shape in zip(pair, (near, far), strict=True):
            namespace.shape(shape)
        yield pair


def unavailable() -> str | None:
    """Return why namespaces cannot be had here; None if they can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "network namespaces need root"
    for tool in TOOLS:
        if shutil.which(tool) is None:
            return f"network namespaces need {tool!r}, which is not installed"
    try:
        with open_pair(near=Shape("1gbit")) as (near, _):
            near.drop()
    except (RuntimeError, subprocess.SubprocessError) as error:
        return f"network namespaces do not work here: {error}"
    return None


def _join(namespace: Namespace, port: str, gateway: str) -> None:
    name, router = namespace.name, namespace.router
    _run(["ip", "netns", "add", name])
    ends = ["name", CABLE, "netns", name, "type", "veth", "peer", "name", port, "netns", router]
    _run(["ip", "link", "add", *ends])
    for owner, interface, address in ((name, CABLE, namespace.address), (router, port, gateway)):
        _inside(owner, "ip", "addr", "add", f"{address}/32", "dev", interface)
        for one in ("lo", interface):
            _inside(owner, "ip", "link", "set", one, "up")
    _inside(router, "ip", "route", "add", f"{namespace.address}/32", "dev", port)
    _inside(name, "ip", "route", "add", f"{gateway}/32", "dev", CABLE)
    _inside(name, "ip", "route", "add", "default", "via", gateway)


def _inside(
    name: str, *command: str, check: bool = True, timeout_s: float = COMMAND_LIMIT_S
) -> str:
    return _run(["ip", "netns", "exec", name, *command], check=check, timeout_s=timeout_s)


def _run(command: Sequence[str], *, check: bool = True, timeout_s: float = COMMAND_LIMIT_S) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if check and result.returncode != 0:
        said = (result.stderr or result.stdout).strip()
        raise RuntimeError(f"{' '.join(command)}: {said or f'ended with {result.returncode}'}")
    return result.stdout
