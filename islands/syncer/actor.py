"""The syncer's actor: it performs what `state.py` decides, and turns what happens into events.

All heavy work (checks, merges, the journal) runs on workers (`islands.syncer.workers`), so that the
loop stays free for heartbeats.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from islands.actors.role_actor import Context, LinkAcceptor, RoleActor
from islands.files.disk import Disk
from islands.numerics.codecs import largest_bytes
from islands.numerics.outer import OuterOptimizer
from islands.protocol.errors import IslandsError, JournalError, OutdatedError, RefusedError
from islands.protocol.identities import FinalVersions, LearnerName, Phase, Role, Version
from islands.protocol.membership import Credentials, HeartbeatContent, MembershipState
from islands.protocol.messages import training
from islands.protocol.messages.control import RunEnded, Save
from islands.protocol.messages.membership import (
    Evicted,
    HeartbeatAck,
    Joined,
    MembershipChanged,
    Refused,
    Stop,
)
from islands.protocol.messages.standby import Follow, PieceHeld
from islands.protocol.messages.training import StateOffer, StateRequest
from islands.protocol.sessions import Received, claimed_name
from islands.protocol.syncer import actions, events
from islands.protocol.syncer.journalling import (
    APART,
    fresh,
    goes_on_from_a_copy,
    resume_run,
)
from islands.protocol.syncer.memory import HANDLERS
from islands.protocol.syncer.pulls import levels_of
from islands.protocol.syncer.sessions import route
from islands.protocol.syncer.state import SyncerState
from islands.protocol.tape import process_entries, round_entries
from islands.protocol.tape.entry import Record
from islands.syncer.journal import Follower, Journal, JournalWriter, Peers, Recovered, encode
from islands.syncer.value_store import InspectionQueue, ValueStore
from islands.syncer.workers import Hooks, SyncerWorkers, attempt
from messaging.envelope import Envelope
from messaging.links.link import Lane, Link

BEGUN_ANEW = (
    "the supervisor does not know this process's credential: it has begun the run anew, in another "
    "folder, so this process ends; started again, it goes on under the new beginning"
)


class SyncerActor(RoleActor[events.Event]):
    """One start of the syncer; it closes its disk and its workers as it ends.

    `shards` are those of one pass over the data. `initial` reads version 0 on the worker if there
    is no journal; None: a learner sends it. The syncer waits for `returns_s` for members that
    outlived a lost journal; None: not at all.
    """

    def __init__(
        self,
        name: str,
        context: Context,
        *,
        disk: Disk,
        workers: SyncerWorkers,
        optimizer: OuterOptimizer,
        credentials: Credentials,
        shards: int,
        rng: random.Random,
        initial: Callable[[], Sequence[NDArray[np.float32]]] | None = None,
        returns_s: float | None = None,
        hooks: Hooks | None = None,
        follower: Follower | None = None,
    ) -> None:
        super().__init__(name, context)
        self.address = name
        self._hooks = hooks or Hooks()
        self.store = ValueStore(context.settings, context.layout, optimizer)
        self.waiting_bytes_most = 0
        self.state: SyncerState
        self._disk = disk
        self._journal = Journal(disk, len(context.layout.fragments))
        self._writer = JournalWriter(
            self._journal,
            workers.writing,
            written=lambda sequence: self.post(events.JournalFinished(sequence)),
            delayed=lambda error: self.record(process_entries.Disk(str(error))),
            failed=lambda error: self.fail("the journal", error),
            damaged=lambda files: self.record(process_entries.Damaged(files)),
            follower=follower,
        )
        self._follower = follower
        self._workers = workers
        self._credentials = credentials
        self._shards = shards
        self._rng = rng
        self._initial, self._returns_s = initial, returns_s
        self._acceptor: LinkAcceptor | None = None
        self._callers: dict[int, LearnerName] = {}
        self._undelivered: dict[int, None] = {}
        self._inspections = InspectionQueue(self.store, workers.inspecting, self.now_s, self.post)
        self._sent: dict[int, dict[int, Version]] = {}
        self._beating: asyncio.TimerHandle | None = None
        self._membership = MembershipState(
            context.settings.run,
            Role.SYNCER,
            LearnerName(name),
            context.layout.fingerprint,
            proof=credentials.prove(LearnerName(name)),
        )
        self._end: tuple[RunEnded, bytes] | None = None
        self.begun = False
        self._early: list[events.Event] = []
        self._taken_up: int | None = None
        self._due_s = float("inf")

    async def on_start(self) -> None:
        """Recover the journal under a new epoch; meanwhile heartbeats report *healing*."""
        self.dial(
            self.context.supervisor,
            self._rng,
            opened=lambda: self._on_supervisor_link(up=True),
            received=lambda envelope: self._on_supervisor_message(envelope.body),
            closed=lambda: self._on_supervisor_link(up=False),
        )
        self._beat()
        if self._follower is not None:
            self._follower.attach(
                Peers(self._send_copy, self.drop, self._writer.copy, self._writer.confirm)
            )
        self._writer.take_over(self._recovered)

    def _recovered(self, recovered: Recovered | None) -> None:
        """Begin with what was recovered, unless the actor was stopped meanwhile."""
        if self.ref.stopped:
            return
        try:
            self._begin(recovered)
        except IslandsError as error:
            self.fail("the journal", error)

    def _begin(self, recovered: Recovered | None) -> None:
        """Restore the state, accept links, and post the events buffered during recovery."""
        begins = recovered is None and self._initial is not None
        self.state = self._restored(recovered, initial=begins)
        self.begun = True
        durable = self.state.durable
        self.record(process_entries.Started(durable.epoch, recovered is not None, durable.sequence))
        listener = self.context.network.listen(self.name, guests=True)
        self.address = listener.address
        self._acceptor = LinkAcceptor(
            listener,
            self.scope,
            room=self.mailbox.wait_room,
            receive=self._on_envelope,
            lost=self._on_lost,
        )
        if self._membership.supervisor_up:
            self.post(events.SupervisorLinkChanged(up=True))
        for event in self._early:
            self.post(event)
        self._early.clear()
        if self._membership.incarnation is not None:
            self._send_heartbeat()  # which names the address to dial
        if recovered is not None and self._follower is not None:
            self.state.core.journal.records.want()  # which tells this epoch to whoever has copies
        self._handle(events.Ticked())
        if begins and self._initial is not None:
            initial = self._initial
            attempt(
                self._workers.merging,
                lambda: self.store.keep_initial(initial()),
                done=lambda digests: self.post(events.InitialRead(digests)),
                failed=lambda error: self.fail("the initial value", error),
            )
        if self._hooks.ready is not None:
            self._hooks.ready()

    def _restored(self, recovered: Recovered | None, *, initial: bool) -> SyncerState:
        context, epoch = self.context, self._journal.epoch
        if recovered is None:
            fragments = len(context.layout.fragments)
            durable = fresh(context.settings, fragments=fragments, shards=self._shards, epoch=epoch)
            durable.sequence = self._journal.sequence
            durable.run, durable.fingerprint = context.settings.run, context.layout.fingerprint
            durable.begun = self._credentials.begun
        else:
            durable = recovered.durable
            durable.epoch, self._taken_up = epoch, durable.sequence
            begun = self._credentials.begun
            extended = resume_run(durable, context.settings, context.layout.fingerprint, begun)
            if extended is not None:
                self.record(extended)
            for index, arrays in enumerate(recovered.fragments):
                published = durable.published[index]
                assert published is not None, "a recovered journal has a version of everything"
                self.store.restore(index, published.version, arrays)
        return SyncerState(
            context.settings,
            context.layout.fingerprint,
            durable,
            now_s=self.now_s(),
            initial=initial,
            returns_s=None if recovered else self._returns_s,
            epoch_proof=self._credentials.prove_epoch(epoch, f"{self._rng.getrandbits(64):016x}"),
            levels=levels_of(context.settings, partial(largest_bytes, context.layout)),
        )

    async def on_message(self, message: events.Event) -> None:
        if not self.begun:
            self._early.append(message)  # of the supervisor, which alone is linked
            return
        if isinstance(message, events.JournalFinished):
            self.record(round_entries.Journalled(message.sequence))
        self._handle(message)

    def release(self) -> None:
        """Stop accepting links, and close every link, the workers and the disk."""
        if self._beating is not None:
            self._beating.cancel()
        if self._acceptor is not None:
            self._acceptor.close("the syncer ended")
        self._writer.close()
        self._workers.close()
        self._disk.close()

    def finish(self, reason: str) -> None:
        self.post(events.StopRequested(reason))

    # --- actions ------------------------------------------------------------------------------

    def _handle(self, event: events.Event) -> None:
        now_s = self.now_s()
        decided = self.state.handle(event, now_s=now_s)
        for action in decided:
            self._perform(action)
        for action in decided:  # last, since a record holds everything that this event decided
            if isinstance(action, actions.WriteJournal):
                entry = round_entries.Journal(action.sequence, action.fragment, str(action.version))
                self.record(entry)
        self.waiting_bytes_most = max(self.waiting_bytes_most, self.store.waiting_bytes)
        deadline_s = self.state.deadline_s(now_s)
        if deadline_s < self._due_s or self._due_s <= now_s:
            self._due_s = deadline_s
            self.ref.tell_later(max(0.0, deadline_s - now_s), events.Ticked())

    def _perform(self, action: actions.Action) -> None:
        match action:
            case actions.Send(connection, message):
                self.send(self.link(connection), message)
            case actions.SendValue(connection, message):
                self._send_value(connection, message)
            case actions.Dismiss(connection, message):
                self.send(self.link(connection), message)
                self.drop(connection, "dismissed")
            case actions.BeginMerge(fragment, number):
                self._workers.merging.submit(
                    lambda: self.store.merge(action),
                    lambda facts: self.post(events.MergeFinished(fragment, number, facts)),
                )
            case actions.DropContribution(ticket, connection):
                self.store.drop(ticket, connection)
            case actions.InstallSeed(version, digests):
                self.store.install_seed(version, digests)
            case actions.ReleaseValues(fragment, version):
                self.store.release(fragment, version)
            case actions.WriteJournal():
                self._write_journal(action)
            case Record(entry):
                self.record(self._inspections.note(entry))
            case actions.FinishRun(reason):
                self._finish(reason)
            case actions.Exit(reason):
                self.ref.stop(reason)
            case _:
                assert_never(action)

    def _send_value(self, connection: int, message: training.FragmentUpdate) -> None:
        """Send a version, unless it is still being sent: that may outlast a resend interval."""
        link, fragment = self.link(connection), message.fragment
        if link is None:
            return
        topic, sent = f"update-{fragment}", self._sent.setdefault(connection, {})
        if sent.get(fragment) == message.version and link.holds(topic):
            return
        sent[fragment] = message.version
        self.send(link, message, self.store.payload(message), Lane.BULK, topic=topic)

    def _write_journal(self, action: actions.WriteJournal) -> None:
        """Queue a record; its metadata is encoded now, with all that the record promises."""
        metadata = encode(self.state.durable)
        held, fragment, version = self.store.journal_arrays, action.fragment, action.version
        arrays = {} if fragment is None or version is None else held(fragment, version)
        self._writer.write((action.sequence, metadata, fragment, version, arrays))

    def _finish(self, reason: str) -> None:
        """Export the durable final cut, then report the end with every heartbeat until heard.

        A run that has no values yet leaves none.
        """
        export, held = self._hooks.export, self._published(reason)
        if export is None or held is None:
            self._report_finished(reason)
            return

        def conclude() -> None:
            export(*held)
            self._writer.copy_last(f"the run ended: {reason}")

        self._writer.attempt(conclude, lambda _: self._report_finished(reason))

    def _published(self, reason: str) -> tuple[list[NDArray[np.float32]], FinalVersions] | None:
        cut = self.state.cut(reason) if self.begun else None
        return None if cut is None else (self.store.published(list(cut.versions)), cut)

    async def on_stop(self, reason: str) -> None:
        """End; before the end of the run, the hook `stopped` is given what is published."""
        held = self._published(f"stopped: {reason}") if self._end is None else None
        await super().on_stop(reason)
        if self._follower is not None:
            await self._workers.at_end(self._follower.close)
            self._tell_news(self._follower)
        if held is not None and self._hooks.stopped is not None:
            await asyncio.to_thread(self._hooks.stopped, *held)

    def _report_finished(self, reason: str) -> None:
        summary = b"" if self._hooks.report is None else self._hooks.report(self.state)
        self._end = RunEnded(reason), summary
        self._report_end()

    def _report_end(self) -> None:
        if self._end is not None:
            message, summary = self._end
            self._report(message, (memoryview(summary),) if summary else ())

    # --- the supervisor -----------------------------------------------------------------------

    def _heartbeat_content(self) -> HeartbeatContent:
        """Return what heartbeats carry: until the journal is read, only the phase *healing*."""
        if not self.begun:
            return HeartbeatContent(Phase.HEALING)
        return self.state.heartbeat_content(self.address)

    def _report(self, body: object, payload: tuple[memoryview, ...] = ()) -> None:
        lane = Lane.BULK if payload else Lane.CONTROL
        self.send(self.supervisor_link, body, payload, lane)

    def _send_heartbeat(self) -> None:
        """Send a heartbeat, or ask for admission, if one is due or its content changed."""
        word = self._membership.say(self._heartbeat_content(), self.now_s())
        if word is not None:
            self._report(word)

    def _on_supervisor_link(self, *, up: bool) -> None:
        self._membership.supervisor_up = up
        self._send_heartbeat()
        if self.begun and not self.ref.stopped:
            self.post(events.SupervisorLinkChanged(up))

    def _on_supervisor_message(self, body: object) -> None:
        match body:
            case Joined():
                if self._membership.on_joined(body):
                    self._send_heartbeat()
            case Evicted():
                if self._membership.on_evicted(body) and not body.unknown:
                    self._send_heartbeat()
                if body.unknown:
                    self.fail("supervisor", OutdatedError(BEGUN_ANEW))
            case HeartbeatAck():
                self._membership.on_ack(body)
            case MembershipChanged():
                if body.revoked and self._hooks.revoked is not None:
                    self._hooks.revoked(body.revoked)
                self.post(body)
            case Save(reason):
                self._writer.copy(reason)
            case Stop(reason):
                over = self._end is not None
                if over:
                    self._writer.end()
                self.post(events.EndHeard() if over else events.StopRequested(reason))
            case Refused(_, reason, retry) if not retry:
                self.fail("supervisor", RefusedError(reason))

    def _beat(self) -> None:
        """Send a heartbeat to the supervisor and, so that they see we are alive, to all peers."""
        if self.ref.stopped:
            return
        self._writer.look()
        self._send_heartbeat()
        self._report_end()
        if self._follower is not None:
            self._writer.copy()
            self._tell_news(self._follower)
        for connection in sorted(self._callers):
            self.send(self.link(connection), HeartbeatAck(self.state.core.members.view.epoch))
        timing, loop = self.context.settings.timing, asyncio.get_running_loop()
        self._beating = loop.call_later(timing.scaled(timing.heartbeat_s), self._beat)

    def _tell_news(self, follower: Follower) -> None:
        for entry in follower.news():
            self.record(entry)

    # --- links --------------------------------------------------------------------------------

    def link(self, connection: int) -> Link | None:
        """Return the link of a connection; None once it is closed."""
        return None if self._acceptor is None else self._acceptor.link(connection)

    def drop(self, connection: int, reason: str) -> None:
        if self._acceptor is not None:
            self._acceptor.drop(connection, reason)

    def _on_lost(self, connection: int) -> None:
        self._undelivered.pop(connection, None)
        self._sent.pop(connection, None)
        if self._follower is not None:
            self._follower.lost(connection)
        name = self._callers.pop(connection, None)
        if name is not None and not self.ref.stopped:
            self.post(events.LinkClosed(name, connection))

    def _on_envelope(self, connection: int, envelope: Envelope) -> None:
        body, name = envelope.body, self._callers.get(connection)
        match body:
            case training.Hello():
                self._on_hello(connection, body)
            case Follow():
                self._on_follow(connection, body)
            case _ if name is None:
                self.drop(connection, "said something before hello")
            case PieceHeld() if self._follower is not None:
                self._follower.receive(connection, body)
            case _ if claimed_name(body) not in (None, name):
                reason = "spoke in another's name"
                self.record(process_entries.KeptOut(name, type(body).__name__, reason))
                self.drop(connection, reason)
            case training.Contribution():
                self._inspections.inspect(connection, body, envelope.payload)
            case training.FragmentSeed():
                self._on_seed(body, envelope.payload)
            case _ if body in HANDLERS:
                self.post(Received(body, connection))
            case StateRequest() | StateOffer():
                self._relay(connection, envelope, body)
            case _:
                what = type(body).__name__
                self.record(process_entries.KeptOut(name, what, "nobody here expects it"))

    def _relay(self, connection: int, envelope: Envelope, body: StateRequest | StateOffer) -> None:
        """Forward a message between peers, under the name that its link said hello with."""
        sender, recipient = self._callers[connection], envelope.recipient
        target = route(self.state.core, connection, sender, recipient, body, self.now_s())
        link = None if target is None else self.link(target)
        if link is not None:
            self._envelopes += 1  # ids are counted per sender, and on this link we are the sender
            passed = replace(envelope, sender=sender, id=self._envelopes)
            link.send(passed, Lane.BULK if envelope.payload else Lane.CONTROL)
        elif connection not in self._undelivered:
            self._undelivered[connection] = None
            what = f"{type(body).__name__} for {recipient}"
            self.record(process_entries.KeptOut(sender, what, "it cannot be reached"))

    def _on_hello(self, connection: int, hello: training.Hello) -> None:
        """Handle a peer's hello; its new session replaces the earlier one.

        Nobody hears of what this start has read before the copies have it, too.
        """
        if self._taken_up is not None and not self._writer.held(self._taken_up):
            self.drop(connection, "what was read is not copied yet")
            return
        if self._taken_up is not None:
            self.record(round_entries.Journalled(self._taken_up))
            self._taken_up = None
        genuine = self._credentials.genuine(
            hello.name, hello.incarnation, hello.credential, hello.role
        )
        core, seen = self.state.core, (hello.epoch_seen, hello.epoch_proof)
        own = core.durable.epoch, core.epoch_proof
        fenced = genuine and self._credentials.another_start(seen, own)
        self.post(events.LinkOpened(hello, connection, trusted=genuine, fenced=fenced))
        if fenced and not goes_on_from_a_copy(hello.epoch_seen, core.durable.epoch):
            # The next start then gets a higher epoch; if this fails, it is fenced again.
            with suppress(JournalError):
                self._journal.begin_epoch(hello.epoch_seen + APART)
        if not genuine:
            return  # it is dismissed, and no message of it is accepted until then
        if (link := self.link(connection)) is not None:
            link.admit()
        earlier = [each for each, name in self._callers.items() if name == hello.name]
        self._callers[connection] = hello.name
        for each in earlier:
            if each != connection:
                self.drop(each, "replaced by a newer link")

    def _on_follow(self, connection: int, follow: Follow) -> None:
        """Let a standby that the supervisor has admitted follow the journal."""
        link, who = self.link(connection), (follow.name, follow.incarnation, follow.credential)
        if self._follower is None or not self._credentials.genuine(*who, Role.STANDBY):
            reason = "its credential is no standby's of this run"
            self.record(process_entries.Refused(follow.name, reason))
            self.drop(connection, reason)
        elif link is not None:
            link.admit()
            self._callers[connection] = LearnerName(follow.name)
            self._follower.receive(connection, follow)

    def _send_copy(self, connection: int, message: object, payload: tuple[memoryview, ...]) -> bool:
        return self.send(self.link(connection), message, payload, Lane.BULK)

    def _on_seed(self, seed: training.FragmentSeed, payload: tuple[memoryview, ...]) -> None:
        asked, who = self.state.core.versions.seeding, (seed.name, seed.incarnation)
        if asked is not None and (asked.name, asked.incarnation) == who:
            self._inspections.inspect_seed(seed, payload, len(self.context.layout.fragments))
