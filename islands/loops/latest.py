"""The newest published values of a run that goes on, for an evaluation of one's own."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from islands.files.tape_writing import MemoryTape
from islands.layout.leaves import MOMENTS_PREFIX
from islands.loops.join import membership
from islands.protocol.errors import IslandsError, UnreachableError
from islands.protocol.identities import Role
from islands.run.hosting.process_runtime import say as say_on_terminal
from islands.run.learner_process import FetchedRun, Membership, fetch_run, network_to_hub
from islands.run.roles import make_observer
from islands.settings.groups import ConnectOptions

Arrays = dict[str, NDArray[np.float32]]
VALUES_S = 300.0
"""Longest wait for the values of a run: a large model takes its time on a slow link."""


def latest(
    address: str | Sequence[str],
    *,
    token_file: Path | str | None = None,
    connecting: ConnectOptions | None = None,
    wait_s: float = VALUES_S,
    say: Callable[[str], object] = say_on_terminal,
) -> Arrays:
    """Fetch the newest published values of a run, as an observer that stays for these alone.

    Args:
        address: see `islands.join`, as are `token_file`, `connecting` and `say`.
        wait_s: how long to wait for the values, once the hub has answered.

    Returns:
        float32 arrays by path; some may be a few steps newer than others.

    Raises:
        UnreachableError: no hub answers, or it has no values in time.
        RefusedError: the hub refuses.
    """
    who = membership(address, None, token_file, connecting, None, say)
    found: Future[Arrays] = Future()

    def fetch() -> None:
        try:
            found.set_result(asyncio.run(_fetched(who, wait_s)))
        except BaseException as error:  # noqa: BLE001  whoever waits raises it
            found.set_exception(error)

    threading.Thread(target=fetch, name="latest", daemon=True).start()  # the user may have a loop
    return found.result()


async def _fetched(who: Membership, wait_s: float) -> Arrays:
    async with network_to_hub(who) as network:
        return await _observed(await fetch_run(who, network, role=Role.OBSERVER), wait_s)


async def _observed(run: FetchedRun, wait_s: float) -> Arrays:
    found: list[Arrays] = []
    title = run.spec.settings.run

    def take(values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        found.append(run.plan.layout.assemble(values))
        return {}

    def failed(error: IslandsError) -> None:
        raise error

    observer = make_observer(
        run.who.name,
        run.context(MemoryTape(1)),
        evaluate=take,
        report=lambda *_: observer.ref.stop("the values are here"),
        failed=failed,
        interval_s=inf,
    )
    try:
        async with asyncio.timeout(wait_s):
            await observer.run()
    except TimeoutError as error:
        await observer.kill()
        raise UnreachableError(f"the run {title!r} had no values within {wait_s:g} s") from error
    if not found:
        raise UnreachableError(f"the run {title!r} is over")
    return {path: x for path, x in found[0].items() if not path.startswith(MOMENTS_PREFIX)}
