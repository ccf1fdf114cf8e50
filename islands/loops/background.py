"""The thread on which a learner's actor lives beside its user's training loop.

The thread is a daemon, and all that it does is waiting and sending: nothing is dispatched to a
device here. Signals stay the user's.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from islands.layout.loop_layout import LoopLayout
from islands.learner.compute import Commands
from islands.learner.stepped_compute import SteppedCompute
from islands.run import learner_process


@dataclass(frozen=True, slots=True)
class Begun:
    """A loop's run, and where its commands wait for their boundary; None: on this host alone."""

    run: learner_process.FetchedRun
    commands: Commands | None = None


class Background:
    """The thread, from the first question to the hub until the learner has `ended`, and why.

    `together` says that several processes take part as one learner (`host_background.py`).
    """

    together = False

    def __init__(self, membership: learner_process.Membership) -> None:
        self.ended = ""
        self.error: BaseException | None = None
        self._membership = membership
        self._fetched: Future[Begun] = Future()
        self._entering: Future[SteppedCompute] = Future()
        self._compute: SteppedCompute | None = None
        self._process: learner_process.LearnerProcess | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._layout: Callable[[], LoopLayout] | None = None
        self._reason = ""  # to leave, once it was asked to
        name = f"islands-{membership.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # --- on the user's thread -----------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Whether processes that take part together cannot go on; never so for one alone."""
        return False

    def fetch(self, layout: Callable[[], LoopLayout] | None = None) -> Begun:
        """Start the thread, and wait for the hub's description of its run."""
        self._layout = layout
        self._thread.start()
        try:
            return self._fetched.result()
        finally:
            self._layout = None  # it holds the parameters that joined

    def enter(self, compute: SteppedCompute) -> None:
        self._entering.set_result(compute)

    def leave(self, reason: str) -> None:
        """Ask the learner to leave in order, or not to begin."""
        self._reason = reason
        loop, task = self._loop, self._task
        if loop is None or task is None:
            return
        with suppress(RuntimeError):  # the loop is closed, as the learner has ended by itself
            if self._entering.cancel():
                loop.call_soon_threadsafe(task.cancel)
            elif self._process is not None:
                loop.call_soon_threadsafe(self._process.learner.leave, reason)

    def ask(self, reason: str) -> None:
        """Ask that all processes leave in order, at a boundary; called on any one of them."""
        self.leave(reason)

    def not_begun(self, error: BaseException) -> None:
        """Leave, as the user's thread has failed before it held the run."""
        del error
        self.leave("it did not begin")

    def broken(self, error: BaseException) -> None:
        self.leave(f"its loop ended by {type(error).__name__}")

    def say(self, sentence: str) -> None:
        self._membership.report(sentence)

    def came(self) -> None:
        """Note that the user's thread is about to learn how the learner has ended."""

    def gone(self) -> None:
        """Note that the user's thread has left the run, whatever the learner still does."""

    def join(self, timeout_s: float) -> bool:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- on the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except asyncio.CancelledError:
            self.ended = "it was left before it began"
        except BaseException as error:  # noqa: BLE001  the user's thread raises it
            self.error, self.ended = error, f"it failed: {error}"
            if not self._fetched.done():
                self._fetched.set_exception(error)
        finally:
            if self._compute is not None:
                self._compute.stop()

    async def _live(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        async with learner_process.network_to_hub(self._membership) as network:
            run = await learner_process.fetch_run(self._membership, network, layout=self._layout)
            await self._take_part(run)

    async def _take_part(self, run: learner_process.FetchedRun) -> None:
        compute = await self._entered(Begun(run))
        await self._train(learner_process.LearnerProcess(run, compute))

    async def _entered(self, begun: Begun) -> SteppedCompute:
        """Give the run to the user's thread, and wait for the compute that it steps."""
        self._fetched.set_result(begun)
        compute = self._compute = await asyncio.wrap_future(self._entering)
        return compute

    async def _train(self, process: learner_process.LearnerProcess) -> None:
        self._process = process
        if self._reason:  # asked for while it was made
            process.learner.leave(self._reason)
        try:
            await process.run()
        finally:
            await process.close()
        self.ended = process.ended or self.ended
