"""The observer's decisions: hold the newest version of every fragment, and evaluate at intervals.

An evaluation stands at the tokens of the values that it judges, however long it takes: those that
were merged into them, or discarded on the way (`Published.tokens`), mean over fragments. So initial
values stand at 0, and those of the end at all that the run has processed.

An evaluation begins when all fragments are held, the previous evaluation is finished, at least
`interval_s` have passed since that one began, and something new has arrived. The last versions of a
run are evaluated by whoever drives the run, without the observer, when it is over.
"""

from typing import assert_never

from islands.protocol.identities import Incarnation, LearnerName, Phase, Role, Version
from islands.protocol.membership import EpochOrder, HeartbeatContent, MembershipState
from islands.protocol.messages.membership import (
    RUN_OVER,
    Evicted,
    HeartbeatAck,
    Joined,
    Refused,
    Stop,
)
from islands.protocol.messages.training import FragmentProgress, Progress, Welcome
from islands.protocol.observer.actions import Action, Evaluate, Keep
from islands.protocol.observer.events import EvaluationFinished, Event, MessageArrived, Ticked
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
from islands.protocol.settings.run import RunSettings


class ObserverState:
    """The state of one observer process.

    Args:
        settings: settings of the run, the same for all its members.
        name: the observer's name, unique in the run.
        fingerprint: digest of the model's layout, which the supervisor compares with its own.
        fragments: P, the number of fragments in the plan.
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
        """Start without an admission and without any published value."""
        self.membership = MembershipState(
            settings.run, Role.OBSERVER, LearnerName(name), fingerprint
        )
        self.held: list[Version | None] = [None] * fragments
        self._digests = [""] * fragments
        self._tokens = [0] * fragments
        self._interval_s = interval_s
        self._clock = 0.0
        self._news = False
        self._evaluating = False
        self._began_s = float("-inf")
        self._actions: list[Action] = []

    @property
    def whole(self) -> bool:
        """Whether a version of every fragment is held."""
        return None not in self.held

    @property
    def phase(self) -> Phase:
        if self.membership.incarnation is None:
            return Phase.JOINING
        return Phase.OBSERVING if self.whole else Phase.HEALING

    def handle(self, event: Event, *, now_s: float) -> list[Action]:
        """Handle one event; returns the actions to perform, in order."""
        self._actions = []
        match event:
            case SupervisorLinkChanged(up):
                self.membership.supervisor_up = up
                self._show_life(now_s)
            case SyncerLinkChanged(up):
                self.membership.syncer_up = up
                self._hello()
            case MessageArrived(message):
                self._on_message(message, now_s)
            case UpdateArrived():
                self._on_update(event)
            case EvaluationFinished():
                self._evaluating = False
            case Ticked():
                self._show_life(now_s)
                self._report()
            case _:
                assert_never(event)
        self._evaluate(now_s)
        return self._actions

    def _show_life(self, now_s: float) -> None:
        word = self.membership.say(HeartbeatContent(self.phase), now_s)
        if word is not None:
            self._actions.append(ToSupervisor(word))

    def _on_message(self, message: object, now_s: float) -> None:
        match message:
            case Joined(syncers=syncers):
                if self.membership.on_joined(message):
                    self._actions.extend(map(DialSyncer, syncers))
                    self._hello()
            case HeartbeatAck():
                self._actions.extend(map(DialSyncer, self.membership.on_ack(message)))
            case Refused(_, reason, retry):
                if not retry:
                    failed = not reason.startswith(RUN_OVER)
                    self._actions.append(Exit(f"refused: {reason}", failed))
            case Evicted():
                if self.membership.on_evicted(message):
                    self._show_life(now_s)
                if message.unknown:  # versions of another beginning are no older than those of this
                    self.held, self._digests = [None] * len(self.held), [""] * len(self.held)
            case Welcome():
                seen = self.membership.epoch_seen
                if self.membership.on_welcome(message) is EpochOrder.OLDER:
                    told = f"epoch {message.epoch} is older than {seen}"
                    self._actions.append(DropSyncerLink(told))
            case Stop(reason):
                self._actions.append(Exit(reason, failed=False))
            case _:
                pass  # it is for learners alone

    def _hello(self) -> None:
        incarnation = self.membership.incarnation
        if incarnation is not None and self.membership.syncer_up:
            progress = self._progress(incarnation)
            hello = self.membership.hello(progress, tuple(self._digests))
            self._actions.append(ToSyncer(hello))

    def _on_update(self, event: UpdateArrived) -> None:
        update = event.message
        held = self.held[update.fragment]
        if not event.intact or update.epoch < self.membership.epoch_seen:
            return
        if held is not None and held >= update.version:
            return
        self.held[update.fragment] = update.version
        self._digests[update.fragment] = update.digest
        self._tokens[update.fragment] = update.tokens
        self._clock = max(self._clock, update.clock)
        self._news = True
        self._actions.append(Keep(update, event.payload))

    def _report(self) -> None:
        incarnation = self.membership.incarnation
        if incarnation is not None and self.membership.syncer_up:
            self._actions.append(ToSyncer(self._progress(incarnation)))

    def _progress(self, incarnation: Incarnation) -> Progress:
        return Progress(
            name=self.membership.name,
            incarnation=incarnation,
            phase=self.phase,
            steps=0,
            tokens=0,
            step_time_s=0.0,
            batch_tokens=0,
            quota_tokens=0,
            fragments=tuple(FragmentProgress(held) for held in self.held),
            leases=(),
        )

    def _evaluate(self, now_s: float) -> None:
        if not self.whole or not self._news or self._evaluating:
            return
        if now_s < self._began_s + self._interval_s:
            return
        self._began_s, self._news, self._evaluating = now_s, False, True
        tokens = sum(self._tokens) // len(self._tokens)
        self._actions.append(Evaluate(self._clock, tokens))
