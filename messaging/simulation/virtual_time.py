"""An asyncio event loop on a virtual clock.

When nothing is ready to run, the clock of a `VirtualTimeLoop` jumps to the next timer at once, so
an hour of a simulated cluster passes in the time its callbacks take. There is no selector, no
thread and no system clock, so each run depends on the program alone:

- Callbacks run in the order in which they became ready.
- Timers run in the order of their time, and timers of the same time in the order in which they
  were made (in an ordinary loop the shape of its heap decides the order of equal times).
- The loop raises errors that an ordinary loop would only log or not notice: an exception in a
  callback, a failed task that nobody awaited, a deadlock, callbacks without end.

Compute runs inline, at one instant of virtual time, and a timer stands for its cost.

Many simulated processes live on one loop. A callback belongs to the process in whose context it was
scheduled (`PROCESS`), as do those that it schedules in turn; so a process can be frozen, as SIGSTOP
does, while the others go on and the clock as well.
"""

import asyncio
import contextlib
import heapq
import threading
from asyncio import base_events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, TypeVar

from messaging import errors

T = TypeVar("T")

MAX_EVENTS_PER_INSTANT = 1_000_000
"""Callbacks that may run at one instant of the clock; the run is aborted after that."""

PROCESS: ContextVar[str] = ContextVar("PROCESS", default="")
"""Name of the simulated process that a callback belongs to; empty: to the world around them."""

_NAMED_IN_ERRORS = 12
_KEPT_CANCELLED_TIMERS = 512


def run_virtual(main: Coroutine[Any, Any, T], *, limit_s: float) -> T:
    """Run `main` on a virtual clock that starts at 0, and return its result.

    It may start tasks, set timers and call anything of asyncio except sockets, threads, processes
    and signals. After `limit_s` virtual seconds the run is aborted. Tasks that are left over when
    `main` ends are cancelled in the reverse order of their start.
    """
    loop = VirtualTimeLoop(limit_s=limit_s)
    try:
        try:
            result = loop.run_until_complete(main)
        finally:
            loop.cancel_all_tasks()
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    if loop.unhandled:
        raise loop.unhandled[0]
    return result


class VirtualTimeLoop(base_events.BaseEventLoop):
    """Event loop on a virtual clock, which counts the callbacks that have run as `events`.

    `unhandled` are errors that asyncio would have logged, as those of tasks that nobody awaited.
    """

    def __init__(self, *, limit_s: float = float("inf")) -> None:
        """Make a loop whose clock starts at 0; to pass the limit raises `VirtualTimeLimit`."""
        super().__init__()
        self.events = 0
        self.unhandled: list[BaseException] = []
        self._now_s = 0.0
        self._limit_s = limit_s
        self._made = 0  # timers made so far: breaks ties between equal times
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._cancelled_timers = 0
        self._events_at_instant = 0
        self._ready: deque[asyncio.Handle] = deque()
        self._living: dict[asyncio.Task[Any], None] = {}  # in the order of their start
        self._frozen: dict[str, list[asyncio.Handle]] = {}
        self.set_exception_handler(_collect)

    @property
    def pending_timers(self) -> int:
        return len(self._timers)

    def time(self) -> float:
        return self._now_s

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001
        self._made += 1
        heapq.heappush(self._timers, (when, self._made, timer))
        return timer

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        """Refuse other threads, whose timing cannot be repeated."""
        owner: int | None = self._thread_id  # type: ignore[attr-defined]
        if owner is not None and owner != threading.get_ident():
            raise errors.LocalFault("the virtual loop has one thread: run compute inline on it")
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(
        self, executor: object, func: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        raise errors.LocalFault("the virtual loop has one thread: run compute inline on it")

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = super().create_task(coro, name=name, context=context)
        self._living[task] = None
        task.add_done_callback(self._forget)
        return task

    def freeze(self, process: str) -> None:
        """Stop a process as SIGSTOP does: none of its callbacks runs until it is thawed."""
        self._frozen.setdefault(process, [])

    def thaw(self, process: str) -> None:
        """Let a process go on: what came due meanwhile runs now, its timers first.

        An ordinary loop runs overdue timers before the handlers of what waits in its sockets, too:
        bytes become messages only after a further turn of the loop.
        """
        waiting = self._frozen.pop(process, [])
        timers = [handle for handle in waiting if isinstance(handle, asyncio.TimerHandle)]
        others = [handle for handle in waiting if not isinstance(handle, asyncio.TimerHandle)]
        self._ready.extend(timers + others)

    def cancel_all_tasks(self) -> None:
        """Cancel every task, newest first, and wait for each to end before the next."""
        for process in tuple(self._frozen):
            self.thaw(process)
        for task in reversed(tuple(self._living)):
            if not task.done():
                task.cancel()
                ended = self.create_future()
                task.add_done_callback(lambda _, ended=ended: ended.set_result(None))
                self._events_at_instant = 0
                with contextlib.suppress(errors.VirtualTimeError):  # it ignores its cancellation
                    self.run_until_complete(ended)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._living.pop(task, None)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Count a cancelled timer, and purge the heap of many; asyncio's handles call this."""
        if not handle._scheduled:  # type: ignore[attr-defined]  # noqa: SLF001
            return
        self._cancelled_timers += 1
        if self._cancelled_timers > _KEPT_CANCELLED_TIMERS + len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def _run_once(self) -> None:
        """Run ready callbacks until the loop must stop; `run_forever` calls this."""
        ready = self._ready
        while not self._stopping:  # type: ignore[attr-defined]
            self._gather()
            count = len(ready)
            for _ in range(count):
                handle = ready.popleft()
                if self._frozen and self._postpones(handle):
                    continue
                if not handle._cancelled:  # noqa: SLF001
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # noqa: SLF001
            self.events += count
            self._events_at_instant += count

    def _postpones(self, handle: asyncio.Handle) -> bool:
        """Keep the callback of a frozen process for later."""
        context: Context = handle._context  # type: ignore[attr-defined]  # noqa: SLF001
        waiting = self._frozen.get(context.get(PROCESS, ""))
        if waiting is None:
            return False
        waiting.append(handle)
        return True

    def _gather(self) -> None:
        """Move due timers to the ready queue; advance the clock if nothing else is ready."""
        ready = self._ready
        if not ready:
            self._jump()
        elif self._events_at_instant > MAX_EVENTS_PER_INSTANT:
            raise errors.VirtualLivelock(
                f"{self._events_at_instant} callbacks at {self._now_s} s without end; "
                f"{self._who_waits()}"
            )
        while self._timers and self._timers[0][0] <= self._now_s:
            timer = heapq.heappop(self._timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001
            if timer.cancelled():
                self._cancelled_timers -= 1
            else:
                ready.append(timer)

    def _jump(self) -> None:
        """Move the clock to the next timer that is not cancelled."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
            self._cancelled_timers -= 1
        if not self._timers:
            raise errors.VirtualDeadlock(
                f"nothing is ready and no timer is set; {self._who_waits()}"
            )
        when = self._timers[0][0]
        if when > self._limit_s:
            raise errors.VirtualTimeLimit(f"not done after {self._limit_s} s; {self._who_waits()}")
        if when > self._now_s:
            self._now_s = when
            self._events_at_instant = 0

    def _who_waits(self) -> str:
        names = [task.get_name() for task in self._living if not task.done()]
        left_out = len(names) - _NAMED_IN_ERRORS
        more = f" and {left_out} more" if left_out > 0 else ""
        return f"waiting: {', '.join(names[:_NAMED_IN_ERRORS])}{more}"


def _collect(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Keep an error that asyncio would have logged (the loop's exception handler)."""
    assert isinstance(loop, VirtualTimeLoop)
    error = context.get("exception")
    if not isinstance(error, BaseException):
        error = errors.LocalFault(str(context.get("message", "asyncio reported a problem")))
    loop.unhandled.append(error)
