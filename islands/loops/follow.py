"""The published values of a run that goes on, merge after merge, for who serves or watches a model.

    supervisor, syncer ──▶ observer, on a thread ──newest values──▶ `next`, `anext`, on the user's

The thread keeps the newest values alone: those that nobody took are replaced, never queued. So is
what waits at the syncer for this process's link, of which at most one value of each fragment waits.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from islands.files.tape_writing import MemoryTape
from islands.layout.leaves import MOMENTS_PREFIX, Layout
from islands.loops.join import membership
from islands.model.evaluation import Judged
from islands.protocol.errors import IslandsError, UnreachableError
from islands.protocol.identities import Role
from islands.run.hosting.process_runtime import say as say_on_terminal
from islands.run.learner_process import Membership, fetch_run, network_to_hub
from islands.run.roles import make_observer
from islands.settings.groups import ConnectOptions

T = TypeVar("T")
Arrays = dict[str, NDArray[np.float32]]
VALUES_S = 300.0
"""Longest wait for the first values of a run: a large model takes its time on a slow link."""
CLOSE_S, LEAVE_S = 10.0, 2.0
"""Longest wait of `close` for its thread, and of that for its farewell."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest published values of a run.

    Attributes:
        values: float32 arrays by path, without moments.
        versions: the version of each fragment, as `described` tells those of a file.
        tokens: the tokens that these values account for, mean over fragments.
        clock: the clock of the learning rate, in steps.
    """

    values: Arrays = field(repr=False)
    versions: tuple[str, ...]
    tokens: int
    clock: float


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What was published last: one flat value for each fragment, to which nobody writes."""

    layout: Layout
    values: Sequence[NDArray[np.float32]]
    judged: Judged

    def newest(self) -> Newest:
        """Build the arrays, which are copies; heavy for a large model."""
        arrays = self.layout.assembled(self.values)
        shown = {leaf.path: x for leaf, x in arrays if not leaf.path.startswith(MOMENTS_PREFIX)}
        versions = tuple(map(str, self.judged.versions))
        return Newest(shown, versions, self.judged.tokens, self.judged.clock)


Source = Callable[[Callable[[Held], object]], Coroutine[object, object, None]]
"""Gives every published value to a function, up to the end of the run."""


def follow(
    address: str | Sequence[str],
    *,
    token_file: Path | str | None = None,
    connecting: ConnectOptions | None = None,
    wait_s: float = VALUES_S,
    say: Callable[[str], object] = say_on_terminal,
) -> "FollowedRun":
    """Follow a run: iterate over its newest published values, up to those that it ends with.

    Each iteration waits for a merge that has arrived since the last one, and gives the newest
    values: a consumer or a link that does not keep up skips versions. A merge publishes one
    fragment, so the fragments of what is given may be of different versions, as the parameters of a
    learner are. Each fragment is verified by the digest of its version. Restarts of the hub are
    outlived: where no hub comes back, as after an end that a broken link hid, the iteration waits
    until `close`. It ends with the run, after its last values, unless the link is down then or
    needs more than `timing.final_s` for these. A run whose learners gossip publishes its first
    values, and merges fragment by fragment at its end: only the last of them are a trained model.

    Args:
        address: see `islands.join`, as are `token_file`, `connecting` and `say`.
        wait_s: how long to wait for the first values, once the hub has answered.

    Returns:
        An iterator for `for` and for `async for`, which follows from now on, on a thread. Leave it
        by `close` or `with` where it is not to be followed to its end.

    Raises:
        SettingsError: an argument cannot work.
        UnreachableError: from the iteration, as those below: no hub answers, or it has no values in
            time.
        RefusedError: the hub refuses, as it does when the run is over (`RunOverError`).
    """
    who = membership(address, None, token_file, connecting, None, say)
    return FollowedRun(partial(_published, who, wait_s), who.name)


class FollowedRun:
    """The newest published values of a run that is followed, as an iterator for one consumer."""

    def __init__(self, source: Source, name: str = "follow") -> None:
        self._source = source
        self._lock = threading.RLock()  # the handler of a signal may close it
        self._held: Held | None = None  # what was not given yet
        self._waiting: list[Future[None]] = []
        self._ended = self._closed = False
        self._error: BaseException | None = None
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._thread = threading.Thread(target=self._run, name=f"islands-{name}", daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Newest:
        while (held := self._look(StopIteration)) is None:
            self._news().result()
        newest = held.newest()
        self._given(held)
        return newest

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Newest:
        while (held := self._look(StopAsyncIteration)) is None:
            await asyncio.wrap_future(self._news())
        newest = await asyncio.to_thread(held.newest)
        self._given(held)
        return newest

    def close(self) -> None:
        """Follow the run no longer; what has arrived can still be taken."""
        with self._lock:
            self._closed = True
            running = self._running
        if running is not None:
            with suppress(RuntimeError):  # the loop is closed, as the run has ended
                running[0].call_soon_threadsafe(running[1].cancel)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def _look(self, end: type[Exception]) -> Held | None:
        """Return what was not given yet; at the end raise why it came."""
        with self._lock:
            if self._held is None and self._ended:
                raise self._error or end
            return self._held

    def _news(self) -> Future[None]:
        """Return a future that is done once there is something to look at."""
        news: Future[None] = Future()
        with self._lock:
            if self._held is not None or self._ended:
                news.set_result(None)
            else:
                self._waiting = [*(one for one in self._waiting if not one.done()), news]
        return news

    def _given(self, held: Held) -> None:
        with self._lock:
            if self._held is held:
                self._held = None

    # --- on the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        error = None
        try:
            asyncio.run(self._live())
        except asyncio.CancelledError:
            pass  # it was closed
        except BaseException as failure:  # noqa: BLE001  whoever iterates raises it
            error = failure
        with self._lock:
            self._ended, self._error = True, error
            self._wake()

    async def _live(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        with self._lock:
            if self._closed or task is None:
                return
            self._running = loop, task
        await self._source(self._publish)

    def _publish(self, held: Held) -> None:
        with self._lock:
            self._held = held
            self._wake()

    def _wake(self) -> None:
        for news in self._waiting:
            if news.set_running_or_notify_cancel():
                news.set_result(None)
        self._waiting.clear()


class AtOnce:
    """Does the little that there is to do on the loop: so nothing is under way as the run ends."""

    def submit(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        done(work())

    def close(self) -> None:
        return


async def _published(who: Membership, wait_s: float, publish: Callable[[Held], object]) -> None:
    """Observe a run, and publish its newest values whenever one of them has arrived."""
    taken: list[Sequence[NDArray[np.float32]]] = [()]
    async with network_to_hub(who) as network:
        run = await fetch_run(who, network, role=Role.OBSERVER)

        def take(values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
            taken[0] = values
            return {}

        def report(judged: Judged, _: object) -> None:
            if limit.when() is not None:
                limit.reschedule(None)
            publish(Held(run.plan.layout, taken[0], judged))

        def failed(error: IslandsError) -> None:
            raise error

        observer = make_observer(
            who.name,
            run.context(MemoryTape(1)),
            evaluate=take,
            report=report,
            failed=failed,
            interval_s=0.0,
            evaluator=AtOnce(),
        )
        limit = asyncio.timeout(wait_s)
        living = asyncio.ensure_future(observer.run())
        try:
            async with limit:
                await asyncio.shield(living)
        except TimeoutError as error:
            if not limit.expired():
                raise
            told = f"the run {run.spec.settings.run!r} had no values within {wait_s:g} s"
            raise UnreachableError(told) from error
        finally:
            try:
                if not living.done():
                    observer.leave("it follows no longer")
                    with suppress(TimeoutError, IslandsError):
                        await asyncio.wait_for(living, LEAVE_S)
            finally:
                await observer.kill()
