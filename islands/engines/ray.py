"""Ray as an engine: an island is a detached actor, or one for each of its hosts.

Ray itself runs in a process of its own (`ray_driver.py`), which this one starts, asks, and replaces
where it does not answer in time. `ray_actor.py` is what runs on the cluster's nodes.
"""

import atexit
import contextlib
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import msgspec
import yaml

from islands.engines.engine import EngineAway, Island, Job, JobState, RunMark, Unplaceable
from islands.engines.needs import Needs
from islands.engines.ray_driver import Call
from islands.engines.ray_jobs import KIND, Request
from islands.protocol.errors import SettingsError, not_installed
from messaging.clock import MonotonicClock

CONNECT_S = 45.0
"""Longest time until a driver is part of the cluster, its import of Ray included."""
CALL_S = 20.0
"""Longest time that the cluster may take for one call."""
CLOSE_S = 5.0

_REGION, _MARKET = "ray.io/region", "ray.io/market-type"


@dataclass(frozen=True, slots=True)
class RaySettings:
    """Where a cluster is, and what else an island needs of it.

    Args:
        address: host:port of its head, ray://host:port of its client server, or auto.
        namespace: the namespace of its actors.
        resources: further resources of each host, as name:number, separated by commas.
    """

    address: str = "auto"
    namespace: str = "islands"
    resources: str = ""


class Ray:
    """A cluster of Ray.

    Args:
        of: the run whose islands it places.
        settings: fields of `RaySettings`, as words.
    """

    poll_s = 1.0

    def __init__(self, of: RunMark, settings: Mapping[str, str]) -> None:
        if find_spec("ray") is None:
            raise Unplaceable(not_installed("the engine ray", "ray"))
        self._of = of
        self._settings = settings_of(settings)
        self._connection = _connection(self._settings.address, self._settings.namespace)
        self._connection.users += 1

    def place(self, island: Island) -> str:
        """Create the actors of an island, and return its job's name."""
        request = request_of(island)
        job = self._connection.call(
            Call("place", mark=self._of.label, name=island.name, request=request)
        )
        return msgspec.convert(job, str)

    def end(self, job: str, *, at_once: bool) -> None:
        """Have the actors of a job end its processes, or kill them."""
        self._connection.call(Call("end", name=job, at_once=at_once))

    def list(self) -> Sequence[Job]:
        told = self._connection.call(Call("list", mark=self._of.label))
        jobs = msgspec.convert(told, tuple[Job, ...])
        self._connection.ended = tuple(job.job for job in jobs if job.state is JobState.ENDED)
        return jobs

    def describe(self, island: Island) -> str:
        """Return what each host's actor is given, as YAML."""
        return shown_of(self._of, self._settings, island)

    def close(self) -> None:
        """Let go of the cluster, which forgets those jobs that have ended."""
        self._connection.users -= 1
        if not self._connection.users:
            self._connection.close()


# --- its driver -------------------------------------------------------------------------------


class _Connection:
    """One driver for all engines of this process on one cluster, which ask it one after the other.

    So no engine lists the jobs of a cluster while another one is just placing a job there.

    Attributes:
        users: engines that use it.
        ended: jobs of which this process knows that they have ended.
    """

    def __init__(self, settings: RaySettings) -> None:
        self.users = 0
        self.ended: tuple[str, ...] = ()
        self._settings = settings
        self._lock = threading.Lock()
        self._driver: _Driver | None = None

    def call(self, call: Call) -> object:
        """Return what the driver answers; one that failed is replaced before the next call."""
        with self._lock:
            if self._driver is None:
                self._driver = _Driver()
                where = self._settings
                connect = Call("connect", address=where.address, namespace=where.namespace)
                self._ask(self._driver, connect, CONNECT_S)
            return self._ask(self._driver, call, CALL_S)

    def _ask(self, driver: "_Driver", call: Call, limit_s: float) -> object:
        told = driver.ask(call, limit_s)
        if "result" in told:
            return told["result"]
        driver.close()
        self._driver = None
        where = f"Ray at {self._settings.address}"
        if "refused" in told:
            raise Unplaceable(f"{where} refuses: {told['refused']}")
        raise EngineAway(f"{where} does not answer: {told['away']}")

    def close(self) -> None:
        """Have the cluster forget what has ended, and end the driver; another call starts one."""
        if self._driver is None:
            return
        if self.ended:
            with contextlib.suppress(EngineAway, Unplaceable):
                self.call(Call("forget", jobs=self.ended))
        with self._lock:
            if self._driver is not None:
                self._driver.close()
            self._driver = None


@cache
def _connection(address: str, namespace: str) -> _Connection:
    connection = _Connection(RaySettings(address, namespace))
    atexit.register(connection.close)  # a hub may end while its engines are asked
    return connection


class _Driver:
    """A process of `ray_driver`, which ends when its standard input is closed."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "islands.engines.ray_driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            bufsize=0,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
            start_new_session=True,  # Ctrl-C is the hub's to handle
        )

    def ask(self, call: Call, limit_s: float) -> dict[str, object]:
        """Return its answer; one that it does not give is told as away."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(call) + b"\n")
            line = self._line(limit_s)
        except BrokenPipeError:
            line = b""
        if line is None:
            return {"away": f"no answer within {limit_s:.0f} s"}
        if not line:
            return {"away": f"its driver has ended: {self._last_words()}"}
        return msgspec.json.decode(line, type=dict[str, object])

    def _line(self, limit_s: float) -> bytes | None:
        """Return the next line; None if there is none in time, and no bytes if it has ended."""
        assert self._process.stdout is not None
        clock, line = MonotonicClock(), b""
        until_s = clock.now_s() + limit_s
        while not line.endswith(b"\n"):
            left_s = until_s - clock.now_s()
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, left_s))
            if not ready:
                return None
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                return b""
            line += piece
        return line

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "without a word")

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()


# --- what is asked of Ray ---------------------------------------------------------------------


def settings_of(told: Mapping[str, str]) -> RaySettings:
    """Return the settings of a cluster."""
    known = RaySettings.__slots__
    strange = [key for key in told if key not in known]
    if strange:
        raise SettingsError(f"settings.{strange[0]} is not known to ray; it has {', '.join(known)}")
    settings = RaySettings(**told)
    more_resources(settings)
    return settings


def more_resources(settings: RaySettings) -> dict[str, float]:
    """Return the further resources that are set."""
    found: dict[str, float] = {}
    for word in filter(None, (each.strip() for each in settings.resources.split(","))):
        name, _, number = word.rpartition(":")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            name = ""
        if not name or found[name] <= 0:
            raise SettingsError(
                f"settings.resources is {settings.resources!r}; it must be names and numbers above "
                "0, as fast_link:1,site_a:0.5"
            )
    return found


def request_of(island: Island) -> Request:
    """Return what Ray is asked to give each host of an island."""
    needs = island.needs
    if needs.image is not None:
        raise Unplaceable(
            f"image of {island.name} is {needs.image!r}, but an actor of Ray runs where its node "
            "runs; start the cluster's nodes from that image"
        )
    resources = {"CPU": 1.0 if needs.cpus is None else needs.cpus, **_accelerators(needs)}
    if needs.memory_gib is not None:
        resources["memory"] = needs.memory_gib * 2**30
    resources |= more_resources(settings_of(needs.settings))
    labels = {} if needs.region is None else {_REGION: needs.region}
    if not needs.preemptible:
        labels[_MARKET] = "!spot"
    return Request(needs.hosts, resources, labels, island.script(), dict(island.environment))


def shown_of(of: RunMark, settings: RaySettings, island: Island) -> str:
    """Return what each host's actor is given, as YAML without secrets."""
    request = request_of(island)
    environment = {k: v for k, v in request.environment.items() if k not in island.secrets}
    shown = {
        "address": settings.address,
        "namespace": settings.namespace,
        "actor": f"{of.label}/{island.name}",
        "hosts": request.hosts,
        "resources": request.resources,
        **({"label_selector": request.labels} if request.labels else {}),
        "environment": environment,
        "script": request.script,
    }
    return yaml.safe_dump(shown, sort_keys=False)


def _accelerators(needs: Needs) -> dict[str, float]:
    """Return Ray's resources for a kind of accelerator; its kind is GPU where any will do."""
    if needs.accelerator is None:
        return {}
    kind, number = needs.accelerator
    unit = "TPU" if kind.startswith("TPU") else "GPU"
    any_kind = {} if kind == unit else {f"{KIND}{kind}": 0.001}
    return {unit: float(number), **any_kind}
