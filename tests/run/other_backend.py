"""A backend of somebody else, in one file: it needs nothing of this project but the port.

It runs each role as a task of its own, and has no process table: whoever has a cluster (Ray,
Kubernetes) asks it for a pod where this one makes a task, and hears of its end where this one is
told.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

from islands.actors.ports import KILLED, ProcessEnd, ended_by

Told = Callable[[str, ProcessEnd], None]


class OtherBackend:
    """Tasks by name.

    Args:
        work: what a name does until it ends.
        told: how one ended.
    """

    def __init__(self, work: Callable[[str], Coroutine[None, None, None]], told: Told) -> None:
        self._work = work
        self.told = told
        self._pods: dict[str, asyncio.Task[None]] = {}
        self.starts: list[str] = []

    def start(self, name: str) -> None:
        self.starts.append(name)
        self._pods[name] = asyncio.get_running_loop().create_task(self._work(name))
        self._pods[name].add_done_callback(partial(self._ended, name))

    def kill(self, name: str) -> None:
        if name in self._pods:
            self._pods[name].cancel()

    def stop(self, name: str, grace_s: float) -> None:
        if name in self._pods:
            asyncio.get_running_loop().call_later(grace_s, self._pods[name].cancel)

    def names(self) -> list[str]:
        return list(self._pods)

    def adopt(self) -> list[str]:
        return []

    def close(self) -> None:
        for name in self.names():
            self.kill(name)

    def _ended(self, name: str, pod: asyncio.Task[None]) -> None:
        del self._pods[name]
        self.told(name, KILLED if pod.cancelled() else ended_by(pod.exception()))
