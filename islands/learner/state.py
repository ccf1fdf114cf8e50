"""The learner's decisions.

It steps as long as it has tokens and data, whatever happens to its links; everything else is done
at step boundaries, by commands to compute, or between, by messages.

    joining ─▶ compiling ─▶ healing ─▶ stepping ⇄ starved ─▶ finished
       ▲                       ▲          │
       └──── evicted ──────────┴──────────┘   (memory kept, new incarnation, everything re-adopted)

Totals of compute run over the life of the process; those of an incarnation are relative to its
`origin`. What an ended incarnation did is never reported by the next one: the origin moves along
until the new one is allowed its first step, past a step that was still running at the end.
"""

from typing import assert_never

from islands.config import RunSettings
from islands.learner.account import Account
from islands.learner.actions import (
    Action,
    AdoptValue,
    AllowSteps,
    Contribute,
    DialSyncer,
    DropSyncerLink,
    Exit,
    OfferSeed,
    PlanSnapshots,
    ResetMoments,
    ToSupervisor,
    ToSyncer,
)
from islands.learner.events import (
    Event,
    FromSupervisor,
    FromSyncer,
    Idled,
    LeaveRequested,
    SnapshotTaken,
    StepFinished,
    SupervisorLinkChanged,
    SyncerLinkChanged,
    SyncerMessage,
    Ticked,
    TrainerReady,
    UpdateArrived,
    ValueAdopted,
)
from islands.learner.pulls import Pulls
from islands.messages import (
    PROTOCOL,
    Contribution,
    ContributionDeclined,
    ContributionFate,
    Evicted,
    FinalRound,
    FragmentIndex,
    FragmentRequest,
    FragmentUpdate,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Incarnation,
    Join,
    Joined,
    LearnerName,
    Lease,
    LeaseGranted,
    Leave,
    Phase,
    Progress,
    PullFragment,
    Quarantined,
    Refused,
    Role,
    Stop,
    Version,
    Welcome,
)

ADOPTING_MAX = 4
"""Updates per fragment that wait for a boundary; compute adopts the newest of them."""


class LearnerState:
    """One process of a learner.

    Args:
        settings: of the run.
        name: of the learner, unique in the run.
        fingerprint: of its layout.
        fragments: P of the plan.
    """

    def __init__(
        self, settings: RunSettings, name: LearnerName, fingerprint: str, fragments: int
    ) -> None:
        """Nothing is known yet, nobody has admitted it."""
        self.settings = settings
        self.name = name
        self.incarnation: Incarnation | None = None
        self.previous: Incarnation | None = None
        self.epoch_seen = 0
        self.supervisor_epoch = 0
        self.steps = 0
        self.tokens = 0
        self.accounts = [Account() for _ in range(fragments)]
        self._missing = fragments
        self._fingerprint = fingerprint
        self._credential = ""
        self._origin_steps = 0
        self._origin_tokens = 0
        self._allowed = False
        self._batch_tokens = 0
        self._quota = 0
        self._leases: tuple[Lease, ...] = ()
        self._step_time_s = 0.0
        self._reported_steps = 0
        self._reported_s = 0.0
        self._report_due = False
        self._ready = False
        self._idle = True
        self._closing = False
        self._syncer_up = False
        self._supervisor_up = False
        self._adopting: dict[int, list[FragmentUpdate]] = {}
        self._pulls = Pulls(fragments, settings.open_rounds_max(fragments))
        self._planned: tuple[FragmentIndex, ...] = ()
        self._actions: list[Action] = []

    @property
    def phase(self) -> Phase:
        """What this learner is doing."""
        if self.incarnation is None:
            return Phase.JOINING
        if not self._ready:
            return Phase.COMPILING
        if self._missing:
            return Phase.HEALING
        if not self._idle:
            return Phase.STEPPING
        return Phase.FINISHED if self._closing else Phase.STARVED

    def handle(self, event: Event, *, now_s: float) -> list[Action]:
        """Take in one event; returns what is to be done, in order."""
        self._actions = []
        before = self.phase
        match event:
            case FromSupervisor(message):
                self._from_supervisor(message)
            case FromSyncer(message):
                self._from_syncer(message)
            case UpdateArrived(message, intact):
                self._take_update(message, intact=intact)
            case SupervisorLinkChanged(up) | SyncerLinkChanged(up):
                self._link_changed(event, up=up)
            case Ticked():
                self._tick(now_s)
            case LeaveRequested(reason):
                self._leave(reason)
            case _:
                self._from_compute(event)
        self._move_origin()
        self._report_due |= before is not self.phase
        self._answer_pulls()
        self._report(now_s)
        return self._actions

    def _from_compute(
        self, event: TrainerReady | StepFinished | Idled | SnapshotTaken | ValueAdopted
    ) -> None:
        match event:
            case TrainerReady(batch_tokens):
                self._ready, self._batch_tokens = True, batch_tokens
            case StepFinished():
                self._take_step(event)
            case Idled(steps, tokens, leases):
                self.steps, self.tokens = steps, tokens
                self._take_positions(leases)
                self._idle = True
                self._report_due = True
            case SnapshotTaken():
                self._pulls.taken(event)
            case ValueAdopted():
                self._take_adoption(event)
            case _:
                assert_never(event)

    # --- compute ------------------------------------------------------------------------------

    def _take_step(self, event: StepFinished) -> None:
        self.steps, self.tokens = event.steps, event.tokens
        self._idle = False
        self._step_time_s = event.step_time_s
        self._pulls.stepped()
        self._take_positions(event.leases)
        interval = self.settings.report_interval_steps(len(self.accounts))
        self._report_due |= self.steps - self._reported_steps >= interval
        if not event.finite and self.incarnation is not None:
            self._actions.append(ResetMoments())
            self._rejoin()

    def _take_positions(self, leases: tuple[Lease, ...]) -> None:
        """Positions only grow; leases of an earlier incarnation are not ours any more."""
        told = {(lease.pass_index, lease.shard): lease for lease in leases}
        self._leases = tuple(
            max(lease, told.get((lease.pass_index, lease.shard), lease)) for lease in self._leases
        )

    def _take_adoption(self, event: ValueAdopted) -> None:
        self.steps, self.tokens = event.steps, event.tokens
        if event.incarnation != self.incarnation:
            return  # what was adopted for an incarnation that has ended is adopted again
        queue = self._adopting.get(event.fragment, [])
        adopted = [update for update in queue if update.version == event.version]
        self._adopting[event.fragment] = [u for u in queue if u.version > event.version]
        if not adopted:
            return
        whole = self.phase is not Phase.HEALING
        self._missing -= self.accounts[event.fragment].version is None
        self._move_origin()
        self.accounts[event.fragment].adopt(
            adopted[0],
            steps=event.steps - self._origin_steps,
            tokens=event.tokens - self._origin_tokens,
        )
        self._report_due = True
        if not whole:
            self._allow()

    def _move_origin(self) -> None:
        if not self._allowed:
            self._origin_steps, self._origin_tokens = self.steps, self.tokens

    # --- the supervisor -----------------------------------------------------------------------

    def _from_supervisor(self, message: Joined | Refused | Evicted | HeartbeatAck | Stop) -> None:
        match message:
            case Joined():
                self._admitted(message)
            case Refused(_, reason, retry):
                if not retry:
                    self._actions.append(Exit(f"the supervisor refused: {reason}", failed=True))
            case Evicted():
                self._evicted(message)
            case HeartbeatAck(epoch, syncers):
                if epoch >= self.supervisor_epoch:
                    self.supervisor_epoch = epoch
                    self._actions.extend(DialSyncer(syncer.address) for syncer in syncers)
            case Stop(reason):
                self._actions.append(Exit(reason, failed=False))
            case _:
                assert_never(message)

    def _admitted(self, message: Joined) -> None:
        if message.supervisor_epoch < self.supervisor_epoch or self.incarnation is not None:
            return
        if self.previous is not None and message.incarnation <= self.previous:
            return
        self.supervisor_epoch = message.supervisor_epoch
        self.incarnation = message.incarnation
        self._credential = message.credential
        self._reported_steps = self.steps
        self._quota = 0
        self._actions.extend(DialSyncer(syncer.address) for syncer in message.syncers)
        if self._syncer_up:
            self._hello()

    def _evicted(self, message: Evicted) -> None:
        if message.incarnation == self.incarnation:
            self._rejoin()

    def _rejoin(self) -> None:
        """This incarnation is over: keep the moments, drop the rest, ask for a new one."""
        self.previous, self.incarnation = self.incarnation, None
        self._leases, self._quota, self._allowed = (), 0, False
        self._actions.append(AllowSteps(0, ()))
        self.accounts = [Account() for _ in self.accounts]
        self._missing = len(self.accounts)
        self._adopting.clear()
        self._pulls.forget()
        self._join()

    def _join(self) -> None:
        if self._supervisor_up:
            join = Join(
                protocol=PROTOCOL,
                run=self.settings.run,
                role=Role.LEARNER,
                name=self.name,
                fingerprint=self._fingerprint,
                previous=self.previous,
            )
            self._actions.append(ToSupervisor(join))

    # --- the syncer ---------------------------------------------------------------------------

    def _link_changed(self, event: SupervisorLinkChanged | SyncerLinkChanged, *, up: bool) -> None:
        if isinstance(event, SupervisorLinkChanged):
            self._supervisor_up = up
            if up and self.incarnation is None:
                self._join()
            elif up:
                self._heartbeat()
            return
        self._syncer_up = up
        self._pulls.link_changed()
        if up and self.incarnation is not None:
            self._hello()

    def _hello(self) -> None:
        assert self.incarnation is not None, "only an admitted learner says hello"
        hello = Hello(
            protocol=PROTOCOL,
            run=self.settings.run,
            role=Role.LEARNER,
            name=self.name,
            incarnation=self.incarnation,
            credential=self._credential,
            fingerprint=self._fingerprint,
            progress=self._progress(self.incarnation),
            digests=tuple(account.digest for account in self.accounts),
            epoch_seen=self.epoch_seen,
        )
        self._actions.append(ToSyncer(hello))

    def _from_syncer(self, message: SyncerMessage) -> None:
        match message:
            case Welcome(epoch, versions):
                self._welcomed(epoch, versions)
            case Refused(_, reason, retry):
                if not retry:
                    self._actions.append(Exit(f"the syncer refused: {reason}", failed=True))
            case Evicted():
                self._evicted(message)
            case LeaseGranted():
                self._take_grant(message)
            case PullFragment():
                self._take_pull(message)
            case FragmentRequest(epoch, _):
                if self._ready and self.incarnation is not None and epoch >= self.epoch_seen:
                    self._actions.append(OfferSeed(message, self.incarnation))
            case FinalRound(epoch, _):
                if epoch >= self.epoch_seen:
                    self._closing = True
                    self._actions.append(AllowSteps(0, self._leases))
            case Stop(reason):
                self._actions.append(Exit(reason, failed=False))
            case ContributionFate() | Quarantined():
                pass  # for the log; the account learns the fate from the next update
            case _:
                assert_never(message)

    def _welcomed(self, epoch: int, versions: tuple[Version | None, ...]) -> None:
        if epoch < self.epoch_seen:
            self._actions.append(DropSyncerLink(f"epoch {epoch} is older than {self.epoch_seen}"))
        elif epoch > self.epoch_seen:
            self.epoch_seen = epoch
            self._pulls.link_changed()
            for account, version in zip(self.accounts, versions, strict=False):
                account.welcomed(epoch, version)
            self._report_due = True
            if self._closing:  # a new syncer says itself whether the run is still closing
                self._closing = False
                self._allow()

    def _take_grant(self, message: LeaseGranted) -> None:
        if message.epoch < self.epoch_seen or message.incarnation != self.incarnation:
            return
        self._quota = max(self._quota, message.quota_tokens)
        before = self._leases
        self._leases = message.leases
        self._take_positions(before)
        self._allow()

    def _allow(self) -> None:
        """Let compute step, once every fragment is adopted and until the run closes."""
        whole = self.phase in (Phase.STEPPING, Phase.STARVED)
        if whole and not self._closing:
            self._allowed = self._allowed or self._quota > 0
            until_tokens = self._origin_tokens + self._quota
            self._actions.append(AllowSteps(until_tokens, self._leases))
            self._idle = self._idle and until_tokens - self.tokens < self._batch_tokens

    def _take_update(self, update: FragmentUpdate, *, intact: bool) -> None:
        held = self.accounts[update.fragment].version
        queue = self._adopting.setdefault(update.fragment, [])
        known = [held] if held is not None else []
        known += [queued.version for queued in queue]
        old = any(version >= update.version for version in known)
        if not intact or old or update.epoch < self.epoch_seen or self.incarnation is None:
            return
        self._adopting[update.fragment] = [*queue[1 - ADOPTING_MAX :], update]
        adopt = AdoptValue(update.fragment, update.version, update.clock, self.incarnation)
        self._actions.append(adopt)

    def _take_pull(self, pull: PullFragment) -> None:
        ticket = pull.ticket
        if ticket.incarnation != self.incarnation or ticket.epoch < self.epoch_seen:
            return
        if self.accounts[pull.fragment].version is None:
            declined = ContributionDeclined(ticket, pull.fragment, "no base adopted yet")
            self._actions.append(ToSyncer(declined))
            return
        self._pulls.asked(pull)

    def _answer_pulls(self) -> None:
        for fragment in sorted(self._pulls.wanted):
            self._answer(self._pulls.wanted[fragment])
        plan = self._pulls.plan()
        if plan != self._planned:
            self._planned = plan
            self._actions.append(PlanSnapshots(plan))

    def _answer(self, pull: PullFragment) -> None:
        account = self.accounts[pull.fragment]
        base_steps = self._origin_steps + account.base_steps
        if self._idle and self.steps == base_steps:
            del self._pulls.wanted[pull.fragment]
            declined = ContributionDeclined(pull.ticket, pull.fragment, "no step since its base")
            self._actions.append(ToSyncer(declined))
            return
        snapshot = self._pulls.answerable(
            pull.fragment, base=account.version, base_steps=base_steps, steps=self.steps
        )
        if snapshot is None:
            return
        self._pulls.closed(pull.fragment)
        processed = snapshot.tokens - self._origin_tokens
        contribution = Contribution(
            ticket=pull.ticket,
            fragment=pull.fragment,
            base=snapshot.base,
            steps=snapshot.steps - base_steps,
            tokens=processed - account.base_tokens,
            processed_tokens=processed,
            precision=self.settings.precision.value,
            digest="",
        )
        account.answered(pull.ticket.epoch, pull.ticket.round, contribution.tokens)
        self._actions.append(Contribute(contribution))

    # --- reports ------------------------------------------------------------------------------

    def _tick(self, now_s: float) -> None:
        if self.incarnation is None:
            self._join()
            return
        self._heartbeat()
        timing = self.settings.timing
        if now_s - self._reported_s >= timing.scaled(timing.heartbeat_s):
            self._report_due = True

    def _heartbeat(self) -> None:
        if self._supervisor_up and self.incarnation is not None:
            beat = Heartbeat(
                role=Role.LEARNER,
                name=self.name,
                incarnation=self.incarnation,
                phase=self.phase,
                step=self.steps - self._origin_steps,
                credential=self._credential,
            )
            self._actions.append(ToSupervisor(beat))

    def _report(self, now_s: float) -> None:
        if not self._report_due or not self._syncer_up or self.incarnation is None:
            return
        self._report_due = False
        self._reported_steps, self._reported_s = self.steps, now_s
        self._actions.append(ToSyncer(self._progress(self.incarnation)))

    def _progress(self, incarnation: Incarnation) -> Progress:
        steps = self.steps - self._origin_steps
        tokens = self.tokens - self._origin_tokens
        return Progress(
            name=self.name,
            incarnation=incarnation,
            phase=self.phase,
            steps=steps,
            tokens=tokens,
            step_time_s=self._step_time_s,
            batch_tokens=self._batch_tokens if self._ready else 0,
            quota_tokens=self._quota,
            fragments=tuple(a.progress(steps=steps, tokens=tokens) for a in self.accounts),
            leases=self._leases,
        )

    def _leave(self, reason: str) -> None:
        if self.incarnation is not None:
            if self._syncer_up:
                self._actions.append(ToSyncer(self._progress(self.incarnation)))
                self._actions.append(ToSyncer(Leave(self.name, self.incarnation, reason)))
            if self._supervisor_up:
                leave = Leave(self.name, self.incarnation, reason)
                self._actions.append(ToSupervisor(leave))
        self._actions.append(Exit(reason, failed=False))
