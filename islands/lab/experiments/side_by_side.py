"""Runs side by side, each in a process of its own."""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Key = TypeVar("Key")
Job = TypeVar("Job")
Result = TypeVar("Result")


def side_by_side(
    play: Callable[[Job], Result], jobs: Mapping[Key, Job], workers: int
) -> Iterator[tuple[Key, Result]]:
    """Play all jobs; yields each result as its job ends.

    Args:
        play: plays one job; a function of a module, which other processes can import.
        jobs: by key, in the order in which they begin.
        workers: processes side by side.

    Raises:
        InvariantError: an actor failed.
        VirtualTimeError: a run stood still.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context) as pool:
        waiting = {pool.submit(play, job): key for key, job in jobs.items()}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
