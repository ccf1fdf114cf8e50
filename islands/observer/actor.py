"""The observer's actor keeps the newest values, and has them evaluated beside the event loop."""

import random
from collections.abc import Callable
from functools import partial
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from islands.actors.ports import Worker
from islands.actors.published_values import PublishedValues
from islands.actors.role_actor import Context, MemberActor
from islands.model.evaluation import EvaluateValues, Figures, Judged, attempt
from islands.protocol import sessions
from islands.protocol.errors import IslandsError
from islands.protocol.messages.training import FragmentUpdate
from islands.protocol.observer import state as observer
from islands.protocol.tape.process_entries import Evaluation, EvaluationFailed
from messaging.envelope import Envelope
from messaging.links.dialer import Dialer


class ObserverActor(MemberActor[observer.Event]):
    """The actor of one observer, whose name is unique in the run.

    `worker` takes in updates, and `evaluator` runs `evaluate` on one flat value per fragment, which
    may take minutes in which values arrive; evaluations begin `interval_s` apart at least. `report`
    is called with the values that were judged and their figures, `failed` with the error that the
    user has to mend. `rng` draws the jitter between attempts to dial.
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
        self.state = observer.ObserverState(
            context.settings,
            name,
            layout.fingerprint,
            len(layout.fragments),
            interval_s=interval_s,
        )
        self._worker = worker
        self._evaluator = evaluator
        self._evaluate = evaluate
        self._report = report
        self._failed = failed
        self._last_failure = ""
        self._rng = rng
        self._values: dict[int, NDArray[np.float32]] = {}
        self._published = PublishedValues(layout, context.settings.update_precision)

    async def on_start(self) -> None:
        self._session(self.context.supervisor, sessions.SupervisorLinkChanged)
        self._tick_later()

    async def on_message(self, message: observer.Event) -> None:
        if isinstance(message, observer.Ticked):
            self._tick_later()
        for action in self.state.handle(message, now_s=self.now_s()):
            self._perform(action)

    def leave(self, reason: str) -> None:
        self.post(observer.LeaveRequested(reason))

    def release(self) -> None:
        """Stop the workers' threads, and free the values: the hub that it was in lives on."""
        self._values.clear()
        self._published.forget()
        self._worker.close()
        self._evaluator.close()

    def _tick_later(self) -> None:
        timing = self.context.settings.timing
        self.ref.tell_later(timing.scaled(timing.heartbeat_s), observer.Ticked())

    def _session(
        self,
        address: str | tuple[str, ...],
        changed: type[sessions.SupervisorLinkChanged | sessions.SyncerLinkChanged],
    ) -> Dialer:
        return self.dial(
            address,
            self._rng,
            opened=lambda: self.post(changed(up=True)),
            received=self._receive,
            closed=lambda: self.post(changed(up=False)),
        )

    def _perform(self, action: observer.Action) -> None:
        match action:
            case sessions.ToSupervisor(message):
                self.send(self.supervisor_link, message)
            case sessions.ToSyncer(message):
                self.send(self.syncer_link, message)
            case sessions.DropSyncerLink(reason):
                self.drop_syncer_link(reason)
            case sessions.DialSyncer(address):
                dial = partial(self._session, changed=sessions.SyncerLinkChanged)
                self.dial_syncer(address, dial)
            case observer.Keep(message, payload):
                self._values[message.fragment] = np.frombuffer(payload, np.float32)
            case observer.Evaluate(clock, tokens, versions):
                values = [self._values[index] for index in sorted(self._values)]
                began_s = self.now_s()
                self._evaluator.submit(
                    lambda: attempt(self._evaluate, values),
                    lambda result: self._evaluated(
                        Judged(clock, tokens, self.now_s() - began_s, versions), result
                    ),
                )
            case sessions.Exit(reason):
                self.exit = action
                self.ref.stop(reason)
            case _:
                assert_never(action)

    def _evaluated(self, judged: Judged, result: Figures | IslandsError) -> None:
        if isinstance(result, IslandsError):
            again = str(result) == self._last_failure  # then its detail is on the tape already
            detail = "" if again else result.detail
            self._last_failure = str(result)
            self.record(EvaluationFailed(str(result), detail))
            self._failed(result)
        else:
            if result:  # else it only takes the values
                self.record(Evaluation(judged.clock, judged.tokens, judged.took_s, result))
            self._report(judged, result)
        self.post(observer.EvaluationFinished())

    def _receive(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, FragmentUpdate):
            self._published.take_in(
                body,
                envelope.payload,
                self._worker,
                record=self.record,
                arrived=lambda taken: self.post(
                    sessions.UpdateArrived(body, taken.intact, taken.value)
                ),
            )
        else:
            self.post(observer.MessageArrived(body))
