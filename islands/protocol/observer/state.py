"""The observer's decisions: hold the newest version of every fragment, and evaluate at intervals.

Each value that is kept is reported at once: the next one is then an increment to it, and the end of
the run waits for it no longer than it must.

An evaluation counts as of the tokens of the values that it judges, however long it takes: those
that were merged into them, or discarded on the way, mean over fragments. It begins when all
fragments are held, the previous one is finished, at least `interval_s` have passed since that one
began, and something new has arrived. Whoever drives the run evaluates the last versions when it is
over.
"""

from dataclasses import dataclass, field
from typing import assert_never

from islands.protocol import sessions
from islands.protocol.identities import LearnerName, Phase, Role, Version
from islands.protocol.membership import EpochOrder, HeartbeatContent, MembershipState
from islands.protocol.messages import membership as messages
from islands.protocol.messages.training import FragmentProgress, FragmentUpdate, Progress, Welcome
from islands.protocol.settings.run import RunSettings


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """A control message from the supervisor or the syncer."""

    message: object


@dataclass(frozen=True, slots=True)
class EvaluationFinished:
    """The last evaluation has ended, whether it gave figures or failed."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """A heartbeat is due."""


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The process is to end: whoever does not say so is evicted as silent, which wakes people."""

    reason: str


Event = (
    sessions.SupervisorLinkChanged
    | sessions.SyncerLinkChanged
    | MessageArrived
    | sessions.UpdateArrived
    | EvaluationFinished
    | Ticked
    | LeaveRequested
)


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the value of this update in place of the fragment's older one."""

    message: FragmentUpdate
    payload: memoryview = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Evaluate the values held; `clock` is the highest learning-rate clock seen, in steps.

    `tokens` are those that these values account for, mean over fragments.
    """

    clock: float
    tokens: int
    versions: tuple[Version, ...]


Action = (
    sessions.ToSupervisor
    | sessions.ToSyncer
    | sessions.DialSyncer
    | sessions.DropSyncerLink
    | Keep
    | Evaluate
    | sessions.Exit
)


class ObserverState:
    """The state of one observer process, in a run whose plan has so many fragments."""

    def __init__(
        self,
        settings: RunSettings,
        name: str,
        fingerprint: str,
        fragments: int,
        *,
        interval_s: float,
    ) -> None:
        role = Role.OBSERVER
        self.membership = MembershipState(settings.run, role, LearnerName(name), fingerprint)
        self.held: list[Version | None] = [None] * fragments
        self._digests = [""] * fragments
        self._tokens = [0] * fragments
        self._interval_s = interval_s
        self._clock = 0.0
        self._news = False
        self._evaluating = False
        self._began_s = float("-inf")
        self._left = False
        self._actions: list[Action] = []

    @property
    def whole(self) -> bool:
        return None not in self.held

    @property
    def phase(self) -> Phase:
        if self.membership.incarnation is None:
            return Phase.JOINING
        return Phase.OBSERVING if self.whole else Phase.HEALING

    def handle(self, event: Event, *, now_s: float) -> list[Action]:
        """Handle one event; returns the actions to perform, in order."""
        self._actions = []
        if self._left:
            return self._actions
        match event:
            case sessions.SupervisorLinkChanged(up):
                self.membership.supervisor_up = up
                self._show_life(now_s)
            case sessions.SyncerLinkChanged(up):
                self.membership.syncer_up = up
                self._report(hello=True)
            case MessageArrived(message):
                self._on_message(message, now_s)
            case sessions.UpdateArrived():
                self._on_update(event)
            case EvaluationFinished():
                self._evaluating = False
            case Ticked():
                self._show_life(now_s)
                self._report()
            case LeaveRequested(reason):
                self._leave(reason, reason)
            case _:
                assert_never(event)
        if not self._left:
            self._evaluate(now_s)
        return self._actions

    def _show_life(self, now_s: float) -> None:
        word = self.membership.say(HeartbeatContent(self.phase), now_s)
        if word is not None:
            self._actions.append(sessions.ToSupervisor(word))

    def _on_message(self, message: object, now_s: float) -> None:
        match message:
            case messages.Joined(syncers=syncers):
                if self.membership.on_joined(message):
                    self._actions.extend(map(sessions.DialSyncer, syncers))
                    self._report(hello=True)
            case messages.HeartbeatAck():
                self._actions.extend(map(sessions.DialSyncer, self.membership.on_ack(message)))
            case messages.Refused(_, reason, retry=False):
                failed = not reason.startswith(messages.RUN_OVER)
                self._actions.append(sessions.Exit(f"refused: {reason}", failed))
            case messages.Evicted():
                if self.membership.on_evicted(message):
                    self._show_life(now_s)
                if message.unknown:  # versions of another beginning are no older than those of this
                    self.held, self._digests = [None] * len(self.held), [""] * len(self.held)
            case Welcome():
                seen = self.membership.epoch_seen
                if self.membership.on_welcome(message) is EpochOrder.OLDER:
                    reason = f"epoch {message.epoch} is older than {seen}"
                    self._actions.append(sessions.DropSyncerLink(reason))
            case messages.Stop(reason):
                self._leave(f"the run is over: {reason}", reason)
            case _:
                pass  # it is for learners alone

    def _leave(self, told: str, reason: str) -> None:
        """Say goodbye to whoever can be reached, and exit."""
        self._left = True
        farewell = self.membership.farewell(told)
        if farewell is not None and self.membership.syncer_up:
            self._actions.append(sessions.ToSyncer(farewell))
        if farewell is not None and self.membership.supervisor_up:
            self._actions.append(sessions.ToSupervisor(farewell))
        self._actions.append(sessions.Exit(reason, failed=False))

    def _on_update(self, event: sessions.UpdateArrived) -> None:
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
        self._report()

    def _report(self, *, hello: bool = False) -> None:
        incarnation = self.membership.incarnation
        if incarnation is None or not self.membership.syncer_up:
            return
        progress = Progress(
            name=self.membership.name,
            incarnation=incarnation,
            phase=self.phase,
            steps=0,
            tokens=0,
            step_time_s=0.0,
            batch_tokens=0,
            quota_tokens=0,
            fragments=tuple(map(FragmentProgress, self.held)),
            leases=(),
        )
        word = self.membership.hello(progress, tuple(self._digests)) if hello else progress
        self._actions.append(sessions.ToSyncer(word))

    def _evaluate(self, now_s: float) -> None:
        due = self.whole and self._news and not self._evaluating
        if not due or now_s < self._began_s + self._interval_s:
            return
        self._began_s, self._news, self._evaluating = now_s, False, True
        tokens = sum(self._tokens) // len(self._tokens)
        versions = tuple(version for version in self.held if version is not None)
        self._actions.append(Evaluate(self._clock, tokens, versions))
