"""The syncer's pure state machine: `handle(event, now_s)` returns actions and performs none.

The rules live in the modules that the package's docstring lists; this one applies them. After each
event the rules run to a fixed point: closing a round frees a place in which the next one may open.

Time enters only as `now_s`, seconds on any monotonic clock. `deadline_s` returns the time by which
the state needs its next `Ticked`; ticking earlier, or more often, is harmless.
"""

from collections.abc import Sequence
from typing import assert_never

from islands.protocol.errors import UNFORESEEN, InvariantError
from islands.protocol.handlers import Received
from islands.protocol.identities import FinalVersions, LearnerName, Phase, Version
from islands.protocol.membership import HeartbeatContent
from islands.protocol.messages.membership import RUN_OVER, MembershipChanged, Refused, Stop
from islands.protocol.settings.choices import LearnerWaits, Trigger
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer import events
from islands.protocol.syncer.actions import Action, Dismiss
from islands.protocol.syncer.closing import (
    advance_closing,
    begin_closing,
    on_end_heard,
    on_supervisor_link,
    resume_end,
)
from islands.protocol.syncer.commits import on_journalled, on_merged
from islands.protocol.syncer.contribution_admission import on_contribution
from islands.protocol.syncer.core import HANDLERS, ClosingStage, Core
from islands.protocol.syncer.grace import Pace
from islands.protocol.syncer.granting import grant
from islands.protocol.syncer.health import Health
from islands.protocol.syncer.journalling import Journalling
from islands.protocol.syncer.members import Members
from islands.protocol.syncer.pausing import count_time
from islands.protocol.syncer.plausibility import NormGauge
from islands.protocol.syncer.precision import EXACT, Level
from islands.protocol.syncer.recovery import Durable
from islands.protocol.syncer.reports import count_wrong, end_peer
from islands.protocol.syncer.retries import next_sweep_s, on_ticked
from islands.protocol.syncer.rounds import Rounds, Stage
from islands.protocol.syncer.scheduling import (
    close_rounds,
    current_grace_s,
    open_rounds,
    open_turns,
)
from islands.protocol.syncer.seeding import on_seed, request_seed
from islands.protocol.syncer.sessions import on_link_closed, on_link_opened, on_membership
from islands.protocol.syncer.versions import Versions
from islands.protocol.tape.round_entries import Row

FIXED_POINT_LIMIT = 1000


class SyncerState:
    """One start of the syncer.

    Args:
        settings: the run's settings.
        fingerprint: the layout's; a peer with another one is refused.
        durable: the state recovered from the journal, under a higher epoch, or that of `fresh`.
        now_s: the time of the start.
        initial: whether version 0, if there is none yet, is being read from a file; no learner is
            asked for it then.
        epoch_proof: proof of this start's epoch, which peers may show to another start of the
            syncer (`credentials.py`).
        returns_s: for how long to wait for members that outlived the journal, before version 0 is
            made; None: what they have is not taken back.
        levels: the precisions that pulls may name (`precision.py`).
    """

    def __init__(
        self,
        settings: RunSettings,
        fingerprint: str,
        durable: Durable,
        *,
        now_s: float,
        initial: bool = False,
        epoch_proof: str = "",
        returns_s: float | None = None,
        levels: Sequence[Level] = EXACT,
    ) -> None:
        fragments = len(durable.published)
        returns_until_s = None if returns_s is None else now_s + returns_s
        self._core = Core(
            settings=settings,
            fingerprint=fingerprint,
            epoch_proof=epoch_proof,
            durable=durable,
            rounds=Rounds(
                pace=_pace(settings, fragments),
                gauges=[NormGauge(settings.norm_limit) for _ in range(fragments)],
            ),
            versions=Versions.of(
                settings, durable.published, initial=initial, returns_until_s=returns_until_s
            ),
            journal=Journalling(now_s),
            health=Health(now_s),
            members=Members(levels),
        )
        if durable.finished is not None:
            resume_end(self._core, now_s)

    @property
    def core(self) -> Core:
        """The state's memory; the actor, the tests and the summary read it and never write it."""
        return self._core

    @property
    def durable(self) -> Durable:
        """The metadata of a journal record: what it holds besides a fragment's value."""
        return self._core.durable

    @property
    def phase(self) -> Phase:
        if self.durable.finished is not None:
            return Phase.FINISHED
        if self._core.journal.blocked:
            return Phase.BLOCKED
        if self.durable.paused:
            return Phase.PAUSED
        return Phase.MERGING if self._core.seeded else Phase.HEALING

    def heartbeat_content(self, address: str) -> HeartbeatContent:
        """Return the content of a heartbeat to the supervisor; peers may dial `address`."""
        durable = self.durable
        return HeartbeatContent(self.phase, durable.merges, durable.epoch, address)

    def ledger_rows(self) -> list[Row]:
        """Return the token account of every fragment."""
        return [self.durable.ledger.row(index) for index in range(self._core.fragments)]

    def version(self, fragment: int) -> Version | None:
        published = self._core.versions.published[fragment]
        return None if published is None else published.version

    @property
    def published_tokens(self) -> int:
        """Tokens that the published values account for, mean over fragments."""
        published = [each for each in self._core.versions.published if each is not None]
        return sum(each.tokens for each in published) // len(self._core.versions.published)

    def cut(self, reason: str) -> FinalVersions | None:
        """Return the versions that are published now; None before every fragment has one."""
        versions = [each.version for each in self._core.versions.published if each is not None]
        whole = len(versions) == len(self._core.versions.published)
        return (
            FinalVersions(reason, self.durable.ledger.processed, tuple(versions)) if whole else None
        )

    def handle(self, event: events.Event, *, now_s: float) -> list[Action]:
        """Handle one event and return the actions that follow from it."""
        core = self._core
        core.actions = []
        core.members.begin_event()
        count_time(core, now_s)
        if self._over:
            self._handle_late(event, now_s)
        elif isinstance(event, events.PeerEvent):
            self._handle_from_peer(event, now_s)
        else:
            self._handle(event, now_s)
        self._advance(now_s)
        core.journal.look(now_s)
        self._assert_invariants()
        return core.actions

    @property
    def _over(self) -> bool:
        closing = self._core.closing
        return closing is not None and closing.stage in (ClosingStage.FINISHED, ClosingStage.ENDED)

    def _handle_late(self, event: events.Event, now_s: float) -> None:
        """Handle an event after the run is over: the ledger is closed, new peers are dismissed."""
        core = self._core
        match event:
            case events.LinkOpened(_, connection, trusted):
                if trusted:
                    notice: Stop | Refused = Stop(core.durable.finished or "")
                else:
                    notice = Refused(event.hello.name, RUN_OVER, retry=False)
                core.actions.append(Dismiss(connection, notice))
            case events.JournalFinished(sequence):
                on_journalled(core, sequence, now_s)
            case events.SupervisorLinkChanged(up):
                on_supervisor_link(core, up=up, now_s=now_s)
            case events.EndHeard():
                on_end_heard(core)
            case _:
                pass

    def _handle_from_peer(self, event: events.PeerEvent, now_s: float) -> None:
        """Handle a peer's event; an unforeseen error ends that peer's session, not this syncer.

        Rules check a message before they take it in. Where a check was forgotten, the sender is
        ended and the tape says why; an `InvariantError` or a failed assertion is a bug of this
        syncer, and ends it.
        """
        try:
            self._handle(event, now_s)
        except UNFORESEEN as error:
            end_peer(self._core, event, repr(error), now_s)

    def _handle(self, event: events.Event, now_s: float) -> None:
        core = self._core
        match event:
            case events.LinkOpened():
                on_link_opened(core, event, now_s)
            case events.LinkClosed(name, connection):
                on_link_closed(core, LearnerName(name), connection, now_s)
            case MembershipChanged():
                on_membership(core, event, now_s)
            case Received(message, connection):
                HANDLERS.handle(core, message, connection, now_s)
            case events.ContributionArrived(contribution, check, connection, inspected_s):
                wrong = on_contribution(core, contribution, check, connection, now_s, inspected_s)
                if wrong is not None:
                    count_wrong(core, contribution.name, wrong, now_s)
            case events.SeedArrived(seed, intact):
                on_seed(core, seed, intact=intact)
            case events.MergeFinished(fragment, number, facts):
                on_merged(core, fragment, number, facts)
            case events.InitialRead(digests):
                core.versions.keep_initial(digests)
            case events.JournalFinished(sequence):
                on_journalled(core, sequence, now_s)
            case events.Ticked():
                on_ticked(core, now_s)
            case events.StopRequested(reason):
                if core.closing is None and core.seeded:
                    begin_closing(core, reason, now_s)
            case events.SupervisorLinkChanged(up):
                on_supervisor_link(core, up=up, now_s=now_s)
            case events.EndHeard():
                pass  # the supervisor is told once the run is over, not before
            case _:
                assert_never(event)

    def _advance(self, now_s: float) -> None:
        """Apply the rules until none of them changes any part of the memory more."""
        core = self._core
        for _ in range(FIXED_POINT_LIMIT):
            before = core.changes
            request_seed(core, now_s)
            close_rounds(core, now_s)
            advance_closing(core, now_s)
            if core.closing is None and core.seeded and not core.durable.paused:
                if core.settings.trigger is Trigger.LEARNER:
                    open_turns(core, now_s)
                else:
                    open_rounds(core, now_s)
                grant(core, now_s)
            core.write_due(now_s)
            if core.changes == before:
                return
        message = "the syncer's rules do not come to rest"
        raise InvariantError(message)

    def deadline_s(self, now_s: float) -> float:
        """Return by when to send `Ticked`: the end of a grace, a timeout, or the next sweep.

        The last event acted upon every deadline before it, so only the sweep can be overdue.
        """
        core = self._core
        timing = core.settings.timing
        if core.closing is not None and self._over:
            due = [core.closing.deadline_s, core.next_record_s() or 0.0]
            later_s = now_s + timing.scaled(timing.final_s)
            return min((at_s for at_s in due if at_s > now_s), default=later_s)
        sweep_s = next_sweep_s(core, now_s)
        due = [core.next_record_s() or 0.0]
        waited_s = current_grace_s(core)
        for round_ in core.rounds.open.values():
            if round_.stage is Stage.COLLECTING:
                due += [round_.opened_s + round_.timeout_s, round_.patient_until_s]
                if round_.quorum_s is not None:
                    due.append(round_.quorum_s + waited_s)
        if core.closing is not None:
            due.append(core.closing.deadline_s)
        return min([sweep_s, *(at_s for at_s in due if at_s > now_s)])

    def _assert_invariants(self) -> None:
        """Check invariants that are cheap enough to be checked after every event."""
        core = self._core
        if core.closing is None and len(core.rounds.open) > core.settings.open_rounds_max(
            core.fragments
        ):
            message = f"{len(core.rounds.open)} rounds are open"
            raise InvariantError(message)


def _pace(settings: RunSettings, fragments: int) -> Pace:
    """Return the credits of a run before anybody has reported steps."""
    interval_steps, ahead_steps = settings.round_interval_steps(fragments), 0.0
    if settings.learner_waits is LearnerWaits.AT_TAU:
        ahead_steps = interval_steps + settings.overlap_steps_max
    return Pace(settings.pace_by, interval_steps, ahead_steps)
