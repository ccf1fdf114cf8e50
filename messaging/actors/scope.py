"""Tasks with one owner, which cancels them in a fixed order.

A scope cancels its tasks in the reverse order of their start and waits for each to end before it
cancels the next. `asyncio.TaskGroup` keeps its tasks in a set, so its order changes from run to
run, and a seeded simulation would change with it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from messaging.errors import LocalFault

T = TypeVar("T")


class Scope:
    """Owner of tasks, as an async context manager or until `close`.

    A task that fails does not end the others. `on_failure` is called with its name, which begins
    with that of the scope, and its exception; without it, `close` raises the first failure.
    """

    def __init__(
        self,
        name: str = "scope",
        on_failure: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        self.name = name
        self._failure: BaseException | None = None
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in the order of their start
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the scope refuses to start tasks."""
        return self._closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the scope; an error of the body has precedence over a failure of a task."""
        await self._cancel_all()
        if error is None:
            self._raise_failure()

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task that this scope owns."""
        if self._closed:
            work.close()
            raise LocalFault(f"scope {self.name!r} is closed and starts nothing")
        task = asyncio.get_running_loop().create_task(work, name=f"{self.name}/{name}")
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)
        return task

    async def close(self) -> None:
        """Cancel every task, newest first, and wait for each to end before the next."""
        await self._cancel_all()
        self._raise_failure()

    async def _cancel_all(self) -> None:
        self._closed = True
        interrupted = False
        current = asyncio.current_task()
        while self._tasks:  # ends: nothing can be spawned any more
            task = next(reversed(self._tasks))
            if task is current:
                del self._tasks[task]
                continue
            try:
                await _cancel(task)
            except asyncio.CancelledError:
                interrupted = True  # the owner was cancelled meanwhile: still cancel the rest
        if interrupted:
            raise asyncio.CancelledError

    def _raise_failure(self) -> None:
        if self._failure is not None and self._on_failure is None:
            raise self._failure

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if self._failure is None:
            self._failure = error
        if self._on_failure is not None:
            self._on_failure(task.get_name(), error)


async def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, whatever that is."""
    ended = asyncio.Event()
    task.add_done_callback(lambda _: ended.set())
    task.cancel()
    await ended.wait()
