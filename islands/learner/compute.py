"""The interface of compute, through which a learner's actor drives a device, and its events."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Protocol, Self

from islands.learner.boundary import EngineEvent, Running
from islands.model.interfaces import Model
from islands.protocol.learner import events
from islands.protocol.learner.actions import EngineAction

FIRST_STEPS_COMPILE = 1
"""First steps whose time is not reported, because it may contain compilation."""

STARVED_AFTER_S = 1.0
"""A device that has waited for data for so long is reported to be without work."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """A finished step with the figures that only the metrics need.

    `gap_s` is an upper bound of the device's idle time before the next step was dispatched, but for
    `data_wait_s`, in which no batch had been read yet. `loss` is None where it is not known.
    """

    event: events.StepFinished
    loss: float | None
    gap_s: float
    data_wait_s: float
    metrics: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, running: Running, loss: float | None, took_s: float, gap_s: float, data_wait_s: float
    ) -> Self:
        finite = loss is None or isfinite(loss)
        steps, tokens, leases = running.steps, running.tokens, running.leases
        event = events.StepFinished(steps, tokens, took_s, finite, leases)
        return cls(event, loss, gap_s, data_wait_s, running.step.metrics())


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """A write of moments to this host's disk has ended; `error` is empty if it succeeded."""

    error: str


@dataclass(frozen=True, slots=True)
class ComputeFailed:
    """The trainer raised an error that ends the learner."""

    error: Exception


ComputeEvent = events.ComputeReport | EngineEvent | StepReport | CheckpointWritten | ComputeFailed
Post = Callable[[ComputeEvent], object]


class Compute(Protocol):
    """The interface through which a learner's actor drives its device."""

    @property
    def compiling(self) -> bool:
        """Whether the device's thread compiles at this moment, which makes a step take long."""

    def start(self, post: Post) -> None:
        """Build and compile, then obey commands; report through `post` on the actor's loop."""

    def command(self, command: EngineAction) -> None:
        """Queue a command for the next step boundary; never waits for the device."""

    def stop(self) -> None:
        """Stop at the next boundary, without another report."""


class Outlet:
    """Posts events from any thread to the actor, on the loop on which it was opened."""

    def __init__(self) -> None:
        self._post: Post = nobody
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, post: Post) -> None:
        self._post, self._loop = post, asyncio.get_running_loop()

    def close(self) -> None:
        self._loop = None

    def report(self, event: ComputeEvent) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # the loop closed between the check and the call
                loop.call_soon_threadsafe(self._post, event)


def made(model: Model) -> events.TrainerMade:
    return events.TrainerMade(model.moments_schema, model.moment_pieces, model.hardware)


def nobody(_: ComputeEvent) -> None:
    """Discard an event of a compute that no actor has started."""
