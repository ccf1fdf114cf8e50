"""The syncer's pure state machine: `handle(event, now_s)` returns actions and performs none.

After each event the rules run to a fixed point: once a round has closed, the next one may open.
Time enters only as `now_s`, seconds on any monotonic clock. `deadline_s` returns the time by which
the state needs its next `Ticked`; ticking earlier, or more often, is harmless.
"""

from collections.abc import Sequence

from islands.protocol.errors import UNFORESEEN, InvariantError
from islands.protocol.identities import FinalVersions, Phase, Version
from islands.protocol.membership import HeartbeatContent
from islands.protocol.settings.choices import LearnerWaits, Trigger
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer import events, scheduling
from islands.protocol.syncer.accounts import grant
from islands.protocol.syncer.actions import Action
from islands.protocol.syncer.closing import advance_closing, count_time, resume_end
from islands.protocol.syncer.commits import request_seed
from islands.protocol.syncer.journalling import Durable, Journalling
from islands.protocol.syncer.members import Members
from islands.protocol.syncer.memory import EVENTS, SyncerMemory
from islands.protocol.syncer.plausibility import NormGauge
from islands.protocol.syncer.pulls import EXACT, Level
from islands.protocol.syncer.rounds import Pace, Rounds, Stage
from islands.protocol.syncer.sessions import end_peer
from islands.protocol.syncer.sweep import next_sweep_s
from islands.protocol.syncer.timeouts import Health
from islands.protocol.syncer.versions import Versions
from islands.protocol.tape.round_entries import Row

FIXED_POINT_LIMIT = 1000


class SyncerState:
    """One start of the syncer; `core` is its memory, which `sessions.route` writes, too.

    `durable` is what the journal held, under a higher epoch, or what `fresh` returns. With
    `initial`, version 0 is being read from a file if there is none. Peers may show `epoch_proof` to
    another start of the syncer (`Credentials`). For `returns_s`, version 0 waits for members
    that outlived the journal; None: their values are not taken back.
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
        interval_steps, ahead_steps = settings.round_interval_steps(fragments), 0.0
        if settings.learner_waits is LearnerWaits.AT_TAU:
            ahead_steps = interval_steps + settings.overlap_steps_max
        returns_until_s = None if returns_s is None else now_s + returns_s
        self.core = SyncerMemory(
            settings=settings,
            fingerprint=fingerprint,
            epoch_proof=epoch_proof,
            durable=durable,
            rounds=Rounds(
                pace=Pace(settings.pace_by, interval_steps, ahead_steps),
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
            resume_end(self.core, now_s)

    @property
    def durable(self) -> Durable:
        return self.core.durable

    @property
    def phase(self) -> Phase:
        if self.durable.finished is not None:
            return Phase.FINISHED
        if self.core.journal.blocked:
            return Phase.BLOCKED
        if self.durable.paused:
            return Phase.PAUSED
        return Phase.MERGING if self.core.seeded else Phase.HEALING

    def heartbeat_content(self, address: str) -> HeartbeatContent:
        durable = self.durable
        return HeartbeatContent(self.phase, durable.merges, durable.epoch, address)

    def ledger_rows(self) -> list[Row]:
        return [self.durable.ledger.row(index) for index in range(self.core.fragments)]

    def version(self, fragment: int) -> Version | None:
        published = self.core.versions.published[fragment]
        return None if published is None else published.version

    @property
    def published_tokens(self) -> int:
        """Tokens that the published values account for, mean over fragments."""
        published = [each for each in self.core.versions.published if each is not None]
        return sum(each.tokens for each in published) // self.core.fragments

    def cut(self, reason: str) -> FinalVersions | None:
        """Return the versions that are published now; None before every fragment has one."""
        published = [each for each in self.core.versions.published if each is not None]
        if len(published) < self.core.fragments:
            return None
        versions = tuple(each.version for each in published)
        return FinalVersions(reason, self.durable.ledger.processed, versions)

    def handle(self, event: events.Event, *, now_s: float) -> list[Action]:
        """Handle one event and return the actions that follow from it.

        Rules check a peer's message before they admit it. Where a check was forgotten, an
        unforeseen error ends that peer's incarnation, and the tape says why; an `InvariantError` or
        a failed assertion is a bug of this syncer, and ends it.
        """
        core = self.core
        core.actions = []
        core.members.begin_event()
        count_time(core, now_s)
        if not core.over or isinstance(event, events.LateEvent):
            try:
                EVENTS.handle(core, event, now_s)
            except UNFORESEEN as error:
                if not isinstance(event, events.PeerEvent):
                    raise
                end_peer(core, event, repr(error), now_s)
        self._advance(now_s)
        if core.closing is None and len(core.rounds.open) > core.settings.open_rounds_max(
            core.fragments
        ):
            raise InvariantError(f"{len(core.rounds.open)} rounds are open")
        return core.actions

    def _advance(self, now_s: float) -> None:
        """Apply the rules until none of them changes any part of the memory more."""
        core = self.core
        for _ in range(FIXED_POINT_LIMIT):
            before = core.changes
            request_seed(core, now_s)
            scheduling.close_rounds(core, now_s)
            advance_closing(core, now_s)
            if core.closing is None and core.seeded and not core.durable.paused:
                if core.settings.trigger is Trigger.LEARNER:
                    scheduling.open_turns(core, now_s)
                else:
                    scheduling.open_rounds(core, now_s)
                grant(core, now_s)
            core.write_due(now_s)
            if core.changes == before:
                return
        raise InvariantError("the syncer's rules do not come to rest")

    def deadline_s(self, now_s: float) -> float:
        """Return by when to send `Ticked`; only the sweep can be overdue after an event."""
        core, timing = self.core, self.core.settings.timing
        if core.closing is not None and core.over:
            due = [core.closing.deadline_s, core.next_record_s() or 0.0]
            later_s = now_s + timing.scaled(timing.final_s)
            return min((at_s for at_s in due if at_s > now_s), default=later_s)
        sweep_s = next_sweep_s(core, now_s)
        due = [core.next_record_s() or 0.0]
        waited_s = scheduling.current_grace_s(core)
        for round_ in core.rounds.open.values():
            if round_.stage is Stage.COLLECTING:
                due += [round_.opened_s + round_.timeout_s, round_.patient_until_s]
                if round_.quorum_s is not None:
                    due.append(round_.quorum_s + waited_s)
        if core.closing is not None:
            due.append(core.closing.deadline_s)
        return min([sweep_s, *(at_s for at_s in due if at_s > now_s)])
