"""The syncer's actor: performs what `state.py` decides, and turns the world into events.

All heavy work (checks, merges, the journal) goes to one worker, in order, so that a journal record
is written before the next merge begins and the loop stays free for heartbeats.
"""

import asyncio
import random
from collections.abc import Callable
from typing import assert_never

from islands.credentials import Credentials
from islands.errors import JournalError, RefusedError
from islands.identities import Incarnation, Phase, Role
from islands.journal import Journal, Recovered, encode
from islands.messages import (
    PROTOCOL,
    Contribution,
    ContributionDeclined,
    Evicted,
    FragmentSeed,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Join,
    Joined,
    Leave,
    MembershipChanged,
    Progress,
    Refused,
    Stop,
)
from islands.numerics.check import Measured
from islands.numerics.outer import OuterOptimizer
from islands.ports import Disk, Worker
from islands.reception import Reception
from islands.role import RoleActor, Surroundings
from islands.syncer.actions import (
    Action,
    BeginMerge,
    Dismiss,
    DropContribution,
    FinishRun,
    InstallSeed,
    Record,
    Send,
    SendValue,
    WriteJournal,
)
from islands.syncer.core import Durable
from islands.syncer.events import (
    ContributionArrived,
    Event,
    JournalFinished,
    LeaveArrived,
    LinkClosed,
    LinkOpened,
    MembershipArrived,
    MergeFinished,
    ProgressArrived,
    PullDeclined,
    SeedArrived,
    StopRequested,
    Ticked,
)
from islands.syncer.fate import Check
from islands.syncer.state import SyncerState, fresh
from islands.syncer.vault import Vault
from messaging.dialer import Dialer
from messaging.envelope import Envelope
from messaging.link import Lane, Link
from messaging.tensors import as_buffer


class SyncerActor(RoleActor[Event]):
    """One start of the syncer.

    Args:
        name: its name in the run.
        around: where it lives.
        disk: where its journal lies.
        worker: for all heavy work.
        optimizer: the outer optimizer.
        credentials: to check learners' admissions.
        shards: virtual shards of one pass over the data.
        rng: jitter of its dialling.
        finished: called with the reason when the final cut is durable.
    """

    def __init__(
        self,
        name: str,
        around: Surroundings,
        *,
        disk: Disk,
        worker: Worker,
        optimizer: OuterOptimizer,
        credentials: Credentials,
        shards: int,
        rng: random.Random,
        finished: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare; `run` reads the journal and begins."""
        super().__init__(name, around)
        self.address = name
        self.vault = Vault(around.settings, around.layout, optimizer)
        self.waiting_bytes_most = 0
        self.state: SyncerState
        self._journal = Journal(disk, len(around.layout.fragments))
        self._worker = worker
        self._credentials = credentials
        self._shards = shards
        self._rng = rng
        self._finished = finished
        self._reception: Reception | None = None
        self._names: dict[int, str] = {}
        self._beating: asyncio.TimerHandle | None = None
        self._supervisor: Dialer | None = None
        self._incarnation: Incarnation | None = None
        self._credential = ""
        self._due_s = float("inf")

    async def on_start(self) -> None:
        """Take up the journal under a new epoch, then let others in."""
        recovered = self._journal.recover()
        self.state = self._restored(recovered)
        durable = self.state.durable
        taken_up = {"resumed": recovered is not None, "sequence": durable.sequence}
        self.record("started", {"epoch": durable.epoch, **taken_up})
        listener = self.around.network.listen(self.name)
        self.address = listener.address
        self._reception = Reception(listener, self.scope, receive=self._receive, lost=self._lost)
        self._supervisor = self.dial(
            self.around.supervisor,
            self._rng,
            opened=self._greet_supervisor,
            received=lambda envelope: self._from_supervisor(envelope.body),
            closed=lambda: None,
        )
        self._beat()
        self._handle(Ticked())

    def _restored(self, recovered: Recovered | None) -> SyncerState:
        around = self.around
        epoch = self._journal.begin_epoch(1 if recovered is None else recovered.durable.epoch + 1)
        if recovered is None:
            fragments = len(around.layout.fragments)
            durable = fresh(around.settings, fragments=fragments, shards=self._shards, epoch=epoch)
            durable.sequence = self._journal.sequence
            durable.run = around.settings.run
            durable.fingerprint = around.layout.fingerprint
        else:
            durable = recovered.durable
            durable.epoch = epoch
            self._check_owner(durable)
            for index, arrays in enumerate(recovered.fragments):
                published = durable.published[index]
                assert published is not None, "a recovered journal has a version of everything"
                self.vault.restore(index, published.version, arrays)
        fingerprint = around.layout.fingerprint
        return SyncerState(around.settings, fingerprint, durable, now_s=self.now_s())

    def _check_owner(self, durable: Durable) -> None:
        """Refuse the journal of another run."""
        settings = self.around.settings
        for what, held, wanted in (
            ("run", durable.run, settings.run),
            ("layout", durable.fingerprint, self.around.layout.fingerprint),
            ("token budget", durable.leases.budget_tokens, settings.budget_tokens),
        ):
            if held != wanted:
                raise JournalError(
                    f"the journal is of another run: its {what} is {held}, not {wanted}; "
                    "choose another folder"
                )

    async def on_message(self, message: Event) -> None:
        """Handle one event and perform what follows."""
        if isinstance(message, JournalFinished):
            self.record("journalled", {"sequence": message.sequence})
        self._handle(message)

    def release(self) -> None:
        """Let nobody in any more, close every link, end the worker."""
        if self._beating is not None:
            self._beating.cancel()
        if self._reception is not None:
            self._reception.close("the syncer ended")
        self._worker.close()

    def finish(self, reason: str) -> None:
        """Ask for a proper end of the run."""
        self.post(StopRequested(reason))

    # --- actions ------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        now_s = self.now_s()
        actions = self.state.handle(event, now_s=now_s)
        for action in actions:
            self._perform(action)
        for action in actions:  # after all else: a record holds everything that this event decided
            if isinstance(action, WriteJournal):
                fields = {"sequence": action.sequence, "fragment": action.fragment}
                self.record("journal", {**fields, "version": str(action.version)})
        self.waiting_bytes_most = max(self.waiting_bytes_most, self.vault.waiting_bytes)
        deadline_s = self.state.deadline_s(now_s)
        if deadline_s < self._due_s or self._due_s <= now_s:
            self._due_s = deadline_s
            self.ref.tell_later(max(0.0, deadline_s - now_s), Ticked())

    def _perform(self, action: Action) -> None:
        match action:
            case Send(connection, message):
                self.send(self._link(connection), message)
            case SendValue(connection, message):
                value = self.vault.value(message.fragment, message.version)
                link = self._link(connection)
                self.send(link, message, (as_buffer(value),), Lane.BULK)
            case Dismiss(connection, message):
                self.send(self._link(connection), message)
                self._drop(connection, "dismissed")
            case BeginMerge(fragment, number):
                self._worker.submit(
                    lambda: self.vault.merge(action),
                    lambda facts: self.post(MergeFinished(fragment, number, facts)),
                )
            case DropContribution(ticket):
                self.vault.drop(ticket)
            case InstallSeed(version, digests):
                self.vault.install_seed(version, digests)
            case WriteJournal():
                self._write_journal(action)
            case Record(kind, fields):
                self.record(kind, fields)
            case FinishRun(reason):
                self._finish(reason)
            case _:
                assert_never(action)

    def _write_journal(self, action: WriteJournal) -> None:
        """Metadata is taken now, with everything that this record promises."""
        metadata = encode(self.state.durable)
        sequence, fragment, version = action.sequence, action.fragment, action.version
        arrays = (
            {}
            if fragment is None or version is None
            else self.vault.journal_arrays(fragment, version)
        )
        self._worker.submit(
            lambda: self._journal.write(sequence, metadata, fragment, version, arrays),
            lambda _: self.post(JournalFinished(sequence)),
        )

    def _finish(self, reason: str) -> None:
        self.send(self._supervisor_link, Stop(reason))
        if self._finished is not None:
            self._finished(reason)
        self.ref.stop(reason)

    # --- the supervisor -----------------------------------------------------------------------

    @property
    def _supervisor_link(self) -> Link | None:
        return None if self._supervisor is None else self._supervisor.link

    def _greet_supervisor(self) -> None:
        if self._incarnation is not None:
            self._send_heartbeat()
            return
        around = self.around
        join = Join(
            protocol=PROTOCOL,
            run=around.settings.run,
            role=Role.SYNCER,
            name=self.name,
            fingerprint=around.layout.fingerprint,
            address=self.address,
        )
        self.send(self._supervisor_link, join)

    def _from_supervisor(self, body: object) -> None:
        match body:
            case Joined():
                self._incarnation, self._credential = body.incarnation, body.credential
                self._send_heartbeat()
            case MembershipChanged():
                self.post(MembershipArrived(body))
            case Stop(reason):
                self.post(StopRequested(reason))
            case Evicted(_, incarnation, reason):
                if incarnation == self._incarnation:
                    self._incarnation = None
                    self._greet_supervisor()
                    self.record("evicted", {"name": self.name, "reason": reason})
            case Refused(_, reason, retry):
                if not retry:
                    self.fail("supervisor", RefusedError(reason))
            case _:
                pass

    def _beat(self) -> None:
        """Every heartbeat: to the supervisor, and to every peer so that it can tell we live."""
        if self.ref.stopped:
            return
        if self._incarnation is None:
            if self._supervisor_link is not None:
                self._greet_supervisor()
        else:
            self._send_heartbeat()
        for connection in sorted(self._names):
            self.send(self._link(connection), HeartbeatAck(self.state.core.supervisor_epoch))
        timing = self.around.settings.timing
        loop = asyncio.get_running_loop()
        self._beating = loop.call_later(timing.scaled(timing.heartbeat_s), self._beat)

    def _send_heartbeat(self) -> None:
        assert self._incarnation is not None, "only an admitted syncer beats"
        beat = Heartbeat(
            role=Role.SYNCER,
            name=self.name,
            incarnation=self._incarnation,
            phase=Phase.STARVED,
            step=self.state.durable.merges,
            credential=self._credential,
            epoch=self.state.durable.epoch,
            address=self.address,
        )
        self.send(self._supervisor_link, beat)

    # --- links --------------------------------------------------------------------------------

    def _link(self, connection: int) -> Link | None:
        return None if self._reception is None else self._reception.link(connection)

    def _drop(self, connection: int, reason: str) -> None:
        if self._reception is not None:
            self._reception.drop(connection, reason)

    def _lost(self, connection: int) -> None:
        name = self._names.pop(connection, None)
        if name is not None and not self.ref.stopped:
            self.post(LinkClosed(name, connection))

    def _receive(self, connection: int, envelope: Envelope) -> None:
        body = envelope.body
        match body:
            case Hello():
                self._hello(connection, body)
            case _ if connection not in self._names:
                self._drop(connection, "said something before hello")
            case Progress():
                self.post(ProgressArrived(body, connection))
            case Contribution():
                self._inspect(connection, body, envelope.payload)
            case ContributionDeclined():
                self.post(PullDeclined(body))
            case FragmentSeed():
                self._take_seed(body, envelope.payload)
            case Leave():
                self.post(LeaveArrived(body))
            case _:
                self.record("unexpected", {"body": type(body).__name__})

    def _hello(self, connection: int, hello: Hello) -> None:
        """A new session of a peer replaces its earlier ones."""
        earlier = [c for c, name in self._names.items() if name == hello.name and c != connection]
        self._names[connection] = hello.name
        genuine = self._credentials.genuine(hello.name, hello.incarnation, hello.credential)
        self.post(LinkOpened(hello, connection, trusted=genuine))
        for old in earlier if genuine else []:
            self._drop(old, "replaced by a newer link")

    def _inspect(
        self, connection: int, message: Contribution, payload: tuple[memoryview, ...]
    ) -> None:
        def arrive(result: tuple[Check, Measured | None]) -> None:
            check, measured = result
            if measured is not None and check.finite:
                self.vault.hold(message.ticket, measured)
            self.post(ContributionArrived(message, check, connection))

        self._worker.submit(lambda: self.vault.inspect(message, payload), arrive)

    def _take_seed(self, seed: FragmentSeed, payload: tuple[memoryview, ...]) -> None:
        self._worker.submit(
            lambda: self.vault.take_seed(seed, payload),
            lambda intact: self.post(SeedArrived(seed, intact=intact)),
        )
