"""The observer's actor keeps the newest values, and has them evaluated beside the event loop."""

import random
from collections.abc import Callable
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from islands.actors.ports import Worker
from islands.actors.published_values import PublishedValues, Taken
from islands.actors.role_actor import Context, RoleActor
from islands.model.evaluation import EvaluateValues, Figures, Judged, attempt
from islands.protocol.errors import IslandsError, RefusedError
from islands.protocol.messages.training import FragmentUpdate
from islands.protocol.observer.actions import Action, Evaluate, Keep
from islands.protocol.observer.events import EvaluationFinished, Event, MessageArrived, Ticked
from islands.protocol.observer.state import ObserverState
from islands.protocol.sessions import (
    DialSyncer,
    DropSyncerLink,
    Exit,
    SupervisorLinkChanged,
    SyncerLinkChanged,
    ToSupervisor,
    ToSyncer,
    UpdateArrived,
)
from islands.protocol.tape.process_entries import Evaluation, EvaluationFailed
from messaging.envelope import Envelope
from messaging.links.dialer import Dialer
from messaging.links.link import Link


class ObserverActor(RoleActor[Event]):
    """The actor of one observer.

    Args:
        name: the observer's name, unique in the run.
        context: settings, layout, network and tape of the run.
        worker: takes in updates off the event loop.
        evaluator: runs evaluations. It is another worker, since an evaluation may take minutes in
            which values arrive: each is checked at once, and replaces the one before it.
        evaluate: computes a model's figures from one flat value per fragment.
        report: called with every evaluation: which values were judged, and their figures.
        failed: called with the error that the user has to mend, if an evaluation failed.
        interval_s: least time between the beginnings of two evaluations.
        rng: source of the jitter between attempts to dial.
    """

    def __init__(
        self,
        name: str,
        context: Context,
        *,
        worker: Worker,
        evaluator: Worker,
        evaluate: EvaluateValues,
        report: Callable[[Judged, Figures], object],
        failed: Callable[[IslandsError], object],
        interval_s: float,
        rng: random.Random,
    ) -> None:
        super().__init__(name, context)
        layout = context.layout
        self.state = ObserverState(
            context.settings,
            name,
            layout.fingerprint,
            len(layout.fragments),
            interval_s=interval_s,
        )
        self.exit: Exit | None = None
        self._worker = worker
        self._evaluator = evaluator
        self._evaluate = evaluate
        self._report = report
        self._failed = failed
        self._last_failure = ""
        self._rng = rng
        self._supervisor: Dialer | None = None
        self._syncer: Dialer | None = None
        self._syncer_address: str | None = None
        self._values: dict[int, NDArray[np.float32]] = {}
        self._published = PublishedValues(layout, context.settings.update_precision)

    async def on_start(self) -> None:
        """Dial the supervisor, and schedule the first heartbeat."""
        self._supervisor = self.dial(
            self.context.supervisor,
            self._rng,
            opened=lambda: self.post(SupervisorLinkChanged(up=True)),
            received=self._receive,
            closed=lambda: self.post(SupervisorLinkChanged(up=False)),
        )
        self._tick_later()

    async def on_message(self, message: Event) -> None:
        """Handle one event and perform the actions that follow from it."""
        if isinstance(message, Ticked):
            self._tick_later()
        for action in self.state.handle(message, now_s=self.now_s()):
            self._perform(action)

    async def on_stop(self, reason: str) -> None:
        await super().on_stop(reason)
        if self.exit is not None and self.exit.failed:
            raise RefusedError(self.exit.reason)

    def release(self) -> None:
        """Stop the workers' threads, and free the values: the hub that it was in lives on."""
        self._values.clear()
        self._published.forget()
        self._worker.close()
        self._evaluator.close()

    def _tick_later(self) -> None:
        timing = self.context.settings.timing
        self.ref.tell_later(timing.scaled(timing.heartbeat_s), Ticked())

    def _perform(self, action: Action) -> None:
        match action:
            case ToSupervisor(message):
                self.send(self._link(self._supervisor), message)
            case ToSyncer(message):
                self.send(self._link(self._syncer), message)
            case DropSyncerLink(reason):
                link = self._link(self._syncer)
                if link is not None:
                    link.close(reason)
            case DialSyncer(address):
                if address != self._syncer_address:
                    if self._syncer is not None:
                        self._syncer.stop("the syncer moved")
                    self._syncer_address = address
                    self._syncer = self.dial(
                        address,
                        self._rng,
                        opened=lambda: self.post(SyncerLinkChanged(up=True)),
                        received=self._receive,
                        closed=lambda: self.post(SyncerLinkChanged(up=False)),
                    )
            case Keep(message, payload):
                self._values[message.fragment] = np.frombuffer(payload, np.float32)
            case Evaluate(clock, tokens):
                values = [self._values[index] for index in sorted(self._values)]
                began_s = self.now_s()
                self._evaluator.submit(
                    lambda: attempt(self._evaluate, values),
                    lambda found: self._evaluated(
                        Judged(clock, tokens, self.now_s() - began_s), found
                    ),
                )
            case Exit(reason):
                self.exit = action
                self.ref.stop(reason)
            case _:
                assert_never(action)

    def _evaluated(self, judged: Judged, found: Figures | IslandsError) -> None:
        if isinstance(found, IslandsError):
            again = str(found) == self._last_failure  # then its detail is on the tape already
            detail = "" if again else found.detail
            self._last_failure = str(found)
            self.record(EvaluationFailed(str(found), detail))
            self._failed(found)
        else:
            self.record(Evaluation(judged.clock, judged.tokens, judged.took_s, found))
            self._report(judged, found)
        self.post(EvaluationFinished())

    @staticmethod
    def _link(dialer: Dialer | None) -> Link | None:
        return None if dialer is None else dialer.link

    def _receive(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, FragmentUpdate):
            self._check(body, envelope.payload)
        else:
            self.post(MessageArrived(body))

    def _check(self, update: FragmentUpdate, payload: tuple[memoryview, ...]) -> None:
        def arrive(taken: Taken) -> None:
            self.post(UpdateArrived(update, taken.intact, taken.value))

        self._published.take_in(update, payload, self._worker, record=self.record, arrived=arrive)
