"""The observer's decisions: hold the newest version of everything, evaluate it now and then.

An evaluation begins when all fragments are held, the last one is finished, at least `interval_s`
have passed since it began, and something new has arrived. The last versions of a run are always
evaluated: whoever drives the observer asks for that when the run is over.
"""

from typing import assert_never

from islands.identities import Incarnation, LearnerName, Phase, Role, Version
from islands.messages.membership import (
    Evicted,
    Heartbeat,
    HeartbeatAck,
    Join,
    Joined,
    Refused,
    Stop,
)
from islands.messages.protocol import PROTOCOL
from islands.messages.training import FragmentProgress, FragmentUpdate, Hello, Progress, Welcome
from islands.observer.actions import (
    Action,
    DialSyncer,
    Evaluate,
    Exit,
    Keep,
    ToSupervisor,
    ToSyncer,
)
from islands.observer.events import (
    EvaluationFinished,
    Event,
    SupervisorLinkOpened,
    SyncerLinkChanged,
    Ticked,
    Told,
    UpdateArrived,
)
from islands.settings.run import RunSettings


class ObserverState:
    """One process of an observer.

    Args:
        settings: of the run.
        name: of the observer.
        fingerprint: of its layout.
        fragments: P of the plan.
        interval_s: least time between the beginnings of two evaluations.
    """

    def __init__(
        self,
        settings: RunSettings,
        name: str,
        fingerprint: str,
        fragments: int,
        *,
        interval_s: float,
    ) -> None:
        """Hold nothing."""
        self.settings = settings
        self.name = LearnerName(name)
        self.held: list[Version | None] = [None] * fragments
        self._digests = [""] * fragments
        self._fingerprint = fingerprint
        self._interval_s = interval_s
        self._incarnation: Incarnation | None = None
        self._credential = ""
        self._epoch_seen, self._epoch_proof = 0, ""
        self._syncer_up = False
        self._clock = 0.0
        self._news = False
        self._evaluating = False
        self._began_s = float("-inf")
        self._actions: list[Action] = []

    def handle(self, event: Event, *, now_s: float) -> list[Action]:
        """Take in one event; returns what is to be done, in order."""
        self._actions = []
        match event:
            case SupervisorLinkOpened():
                self._greet()
            case SyncerLinkChanged(up):
                self._syncer_up = up
                self._hello()
            case Told(message):
                self._told(message)
            case UpdateArrived(message, intact):
                self._take(message, intact=intact)
            case EvaluationFinished():
                self._evaluating = False
            case Ticked():
                self._greet()
                self._report()
            case _:
                assert_never(event)
        self._evaluate(now_s)
        return self._actions

    def _greet(self) -> None:
        if self._incarnation is None:
            self._actions.append(
                ToSupervisor(
                    Join(
                        protocol=PROTOCOL,
                        run=self.settings.run,
                        role=Role.OBSERVER,
                        name=self.name,
                        fingerprint=self._fingerprint,
                    )
                )
            )
            return
        beat = Heartbeat(
            role=Role.OBSERVER,
            name=self.name,
            incarnation=self._incarnation,
            phase=Phase.OBSERVING,
            step=0,
            credential=self._credential,
        )
        self._actions.append(ToSupervisor(beat))

    def _told(self, message: Joined | Refused | Evicted | HeartbeatAck | Stop | Welcome) -> None:
        match message:
            case Joined():
                self._incarnation, self._credential = message.incarnation, message.credential
                self._actions.extend(DialSyncer(syncer.address) for syncer in message.syncers)
                self._hello()
            case HeartbeatAck(_, syncers):
                self._actions.extend(DialSyncer(syncer.address) for syncer in syncers)
            case Refused(_, reason, retry):
                if not retry:
                    self._actions.append(Exit(f"refused: {reason}", failed=True))
            case Evicted(_, incarnation, _):
                if incarnation == self._incarnation:
                    self._incarnation = None
                    self._greet()
            case Welcome(epoch, _):
                if epoch > self._epoch_seen:
                    self._epoch_seen, self._epoch_proof = epoch, message.proof
            case Stop(reason):
                self._actions.append(Exit(reason, failed=False))
            case _:
                assert_never(message)

    def _hello(self) -> None:
        if self._incarnation is None or not self._syncer_up:
            return
        hello = Hello(
            protocol=PROTOCOL,
            run=self.settings.run,
            role=Role.OBSERVER,
            name=self.name,
            incarnation=self._incarnation,
            credential=self._credential,
            fingerprint=self._fingerprint,
            progress=self._progress(self._incarnation),
            digests=tuple(self._digests),
            epoch_seen=self._epoch_seen,
            epoch_proof=self._epoch_proof,
        )
        self._actions.append(ToSyncer(hello))

    def _take(self, update: FragmentUpdate, *, intact: bool) -> None:
        held = self.held[update.fragment]
        if not intact or update.epoch < self._epoch_seen:
            return
        if held is not None and held >= update.version:
            return
        self.held[update.fragment] = update.version
        self._digests[update.fragment] = update.digest
        self._clock = max(self._clock, update.clock)
        self._news = True
        self._actions.append(Keep(update))

    def _report(self) -> None:
        if self._syncer_up and self._incarnation is not None:
            self._actions.append(ToSyncer(self._progress(self._incarnation)))

    def _progress(self, incarnation: Incarnation) -> Progress:
        return Progress(
            name=self.name,
            incarnation=incarnation,
            phase=Phase.OBSERVING,
            steps=0,
            tokens=0,
            step_time_s=0.0,
            batch_tokens=0,
            quota_tokens=0,
            fragments=tuple(FragmentProgress(held) for held in self.held),
            leases=(),
        )

    def _evaluate(self, now_s: float) -> None:
        versions = [version for version in self.held if version is not None]
        whole = len(versions) == len(self.held)
        if not whole or not self._news or self._evaluating:
            return
        if now_s < self._began_s + self._interval_s:
            return
        self._began_s, self._news, self._evaluating = now_s, False, True
        self._actions.append(Evaluate(tuple(versions), self._clock))
