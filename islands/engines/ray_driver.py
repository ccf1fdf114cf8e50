"""The process that talks to a cluster of Ray, for the engine in `ray.py`: `python -m …ray_driver`.

Ray's library does not belong into a hub's process: a driver dies with its node, and a minute after
the cluster's head; it handles SIGTERM, prints, and waits for minutes. So it runs here. It reads one
call from each line of its standard input, and answers each by one line of JSON:

========================  ========================================================
answer                    the engine raises
========================  ========================================================
`{"result": …}`           nothing
`{"away": "words"}`       `EngineAway`, and starts another such process
`{"refused": "words"}`    `Unplaceable`
========================  ========================================================

An island is an actor of Ray for each of its hosts, named <mark>/<island>/<number>/<rank>, and, with
several hosts, a placement group. What the cluster's store of keys says of them beside the list of
living actors is all that is known here, so that another hub finds the same:

=======================================  ===============================================
key                                      written by
=======================================  ===============================================
<mark>/<island>/<number>/placed          this process, before there is an actor
<mark>/<island>/<number>/asked           this process, once the job is to end
<mark>/<island>/<number>/<rank>/began    the actor
<mark>/<island>/<number>/<rank>/ended    the actor; this process, if the actor is gone
=======================================  ===============================================
"""

import contextlib
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from islands.engines.engine import ADDRESS, RANK, Job, JobState
from islands.engines.ray_actor import STORE, IslandHost
from islands.engines.ray_jobs import (
    Began,
    Ended,
    Node,
    Rank,
    Request,
    job_of,
    options_of,
    words_of,
)
from islands.protocol.errors import DONE

PATIENCE_S = 3.0
"""Longest wait for one actor, or for a head that may not be there."""

Handle = Any
"""Ray's handle of an actor."""


# --- the cluster ------------------------------------------------------------------------------


class Cluster:
    """A cluster of Ray, as one driver of it sees it."""

    def __init__(self, address: str, namespace: str) -> None:
        import ray
        from ray.experimental import internal_kv

        from islands.engines import ray_actor

        self._ray = ray
        self._store = internal_kv
        _knock(address)
        ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            configure_logging=False,
        )
        ray.cloudpickle.register_pickle_by_value(ray_actor)
        self._handles: dict[str, Handle] = {}
        self._known: dict[str, bytes] = {}
        self._cleared: dict[str, bool] = {}

    # --- calls --------------------------------------------------------------------------------

    def place(self, mark: str, island: str, request: Request) -> str:
        """Create the actors of an island; return the job's name."""
        before = self._jobs(f"{mark}/{island}/")
        job = f"{mark}/{island}/{1 + max(map(_number, before), default=0)}"
        shown = Request(request.hosts, request.resources, request.labels)
        self._put(f"{job}/placed", msgspec.json.encode(shown))
        try:
            self._create(job, request)
        except Exception:
            self._clear(job, self._living(f"{job}/"))
            self.forget([job])
            raise
        return job

    def end(self, job: str, *, at_once: bool) -> None:
        """End the actors of a job; those whose command has begun are asked to end it."""
        living = self._living(f"{job}/")
        if not living:
            return
        self._put(f"{job}/asked", b"1")
        if at_once:
            self._clear(job, living)
            return
        asked = []
        for name in living:
            handle = self._handle(name)
            if handle is None:
                continue
            if self._get(f"{name}/began") is None:
                self._ray.kill(handle)
            else:
                asked.append(handle.end.remote())
        if asked:  # what was sent must leave this process, which may end next
            self._ray.wait(asked, num_returns=len(asked), timeout=PATIENCE_S)

    def jobs(self, mark: str) -> list[Job]:
        """Return the run's jobs; of each island, of those that have ended, the last one."""
        living = self._living(f"{mark}/")  # first: an actor writes how it ended before it goes
        nodes = {node["NodeID"]: _node(node) for node in self._ray.nodes() if node["Alive"]}
        jobs, newest = [], {}
        for name in self._jobs(f"{mark}/"):
            job = self._look(name, living, nodes)
            newest[job.name] = name
            jobs.append(job)
        for job in jobs:
            if job.state is JobState.ENDED:
                self._clear(job.job, [name for name in living if name.startswith(f"{job.job}/")])
                if newest[job.name] != job.job:
                    self.forget([job.job])
        return [j for j in jobs if j.state is not JobState.ENDED or newest[j.name] == j.job]

    def forget(self, jobs: Sequence[str]) -> None:
        """Remove what the store holds of some jobs."""
        for job in jobs:
            self._store._internal_kv_del(f"{job}/", del_by_prefix=True, namespace=STORE)  # noqa: SLF001
            self._known = {k: v for k, v in self._known.items() if not k.startswith(f"{job}/")}
            self._cleared.pop(job, None)

    # --- actors -------------------------------------------------------------------------------

    def _create(self, job: str, request: Request) -> None:
        options, group = options_of(request), None
        labels = [request.labels] * request.hosts
        if request.hosts > 1:
            group = self._ray.util.placement_group(
                [dict(request.resources)] * request.hosts,
                strategy="STRICT_SPREAD",
                name=job,
                lifetime="detached",
                bundle_label_selector=labels if request.labels else None,
            )
        elif request.labels:
            options["label_selector"] = request.labels
        kind = self._ray.remote(IslandHost)
        for rank in range(request.hosts):
            name = f"{job}/{rank}"
            if group is not None:
                place = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
                options["scheduling_strategy"] = place(group, rank)
            self._handles[name] = kind.options(name=name, **options).remote(
                *(name, None if group is None else f"{job}/0", rank),
                *(request.script, request.environment, (RANK, ADDRESS)),
            )

    def _living(self, prefix: str) -> list[str]:
        names = self._ray.util.list_named_actors()
        return sorted(name for name in names if name.startswith(prefix))

    def _handle(self, name: str) -> Handle | None:
        if name not in self._handles:
            try:
                self._handles[name] = self._ray.get_actor(name)
            except ValueError:  # it has just ended
                return None
        return self._handles[name]

    def _look(self, job: str, living: Sequence[str], nodes: Mapping[str, Node]) -> Job:
        island = job.rpartition("/")[0].rpartition("/")[2]
        placed = msgspec.json.decode(self._get(f"{job}/placed") or b"", type=Request)
        ranks = [self._rank(f"{job}/{rank}", living) for rank in range(placed.hosts)]
        asked = self._get(f"{job}/asked") is not None
        return job_of(island, job, placed, ranks, nodes, asked=asked)

    def _rank(self, name: str, living: Sequence[str]) -> Rank:
        began, ended = self._get(f"{name}/began"), self._get(f"{name}/ended")
        if ended is None and name not in living:
            ended = msgspec.json.encode(Ended(None, self._why_gone(name)))
            self._put(f"{name}/ended", ended)
        elif ended is None:
            self._handle(name)  # by which Ray tells later why the actor is gone
        return Rank(
            None if began is None else msgspec.json.decode(began, type=Began),
            None if ended is None else msgspec.json.decode(ended, type=Ended),
        )

    def _why_gone(self, name: str) -> str:
        handle = self._handles.pop(name, None)
        if handle is None:
            return "its actor is gone"
        try:
            self._ray.get(handle.answer.remote(), timeout=PATIENCE_S)
        except self._ray.exceptions.RayError as error:
            return words_of(error)
        return "its actor is gone from Ray's list, and answered all the same"

    def _clear(self, job: str, living: Sequence[str]) -> None:
        """Kill what lives of a job, and give back its placement group."""
        for name in living:
            handle = self._handle(name)
            if handle is not None:
                self._ray.kill(handle)
        if self._cleared.get(job):
            return
        with contextlib.suppress(ValueError):  # it has none
            self._ray.util.remove_placement_group(self._ray.util.get_placement_group(job))
        self._cleared[job] = True

    # --- the store ----------------------------------------------------------------------------

    def _jobs(self, prefix: str) -> list[str]:
        keys = self._store._internal_kv_list(prefix, namespace=STORE)  # noqa: SLF001
        names = [key.decode().removesuffix("/placed") for key in keys if key.endswith(b"/placed")]
        return sorted(names, key=_number)

    def _get(self, key: str) -> bytes | None:
        """Return what is written there, which never changes."""
        if key not in self._known:
            found = self._store._internal_kv_get(key, namespace=STORE)  # noqa: SLF001
            if not found:
                return None
            self._known[key] = found
        return self._known[key]

    def _put(self, key: str, value: bytes) -> None:
        self._store._internal_kv_put(key, value, overwrite=False, namespace=STORE)  # noqa: SLF001


def _number(job: str) -> int:
    return int(job.rpartition("/")[2])


def _node(told: Mapping[str, Any]) -> Node:
    return Node(told["NodeName"], told["Resources"], told.get("Labels", {}))


def _knock(address: str) -> None:
    """Connect to the head and hang up, as Ray tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S).close()


# --- the process ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the engine."""

    what: str
    address: str = ""
    namespace: str = ""
    mark: str = ""
    name: str = ""
    jobs: tuple[str, ...] = ()
    at_once: bool = False
    request: Request | None = None


def perform(cluster: Cluster, call: Call) -> object:
    match call.what:
        case "place":
            assert call.request is not None
            return cluster.place(call.mark, call.name, call.request)
        case "end":
            cluster.end(call.name, at_once=call.at_once)
        case "list":
            return cluster.jobs(call.mark)
        case _:
            cluster.forget(call.jobs)
    return None


def answer(act: Callable[[], object]) -> dict[str, object]:
    """Return what is answered after a call, whatever Ray raised."""
    try:
        return {"result": act()}
    except (ImportError, TypeError, ValueError) as error:
        return {"refused": words_of(error)}
    except Exception as error:  # noqa: BLE001  each is told in Ray's words
        told = words_of(error)
        return {"refused" if "Version mismatch" in told else "away": told}


def main() -> None:
    """Answer calls until the standard input is closed."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # Ray prints
    calls: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        for line in sys.stdin.buffer:
            calls.put(line)
        os._exit(DONE)  # the hub has closed it or is gone; what Ray waits for does not matter

    threading.Thread(target=read, daemon=True).start()
    clusters: list[Cluster] = []
    while True:
        call = msgspec.json.decode(calls.get(), type=Call)
        if call.what == "connect":
            told = answer(lambda: clusters.append(Cluster(call.address, call.namespace)))  # noqa: B023
        else:
            told = answer(lambda: perform(clusters[0], call))  # noqa: B023
        answers.write(msgspec.json.encode(told) + b"\n")


if __name__ == "__main__":
    main()
