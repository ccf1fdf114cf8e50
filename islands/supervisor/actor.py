"""The supervisor's actor: it turns messages and timers into events, and performs the actions."""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import assert_never

from islands.actors.epochs import newest_epoch, take_epoch
from islands.actors.role_actor import Context, EntryLimit, LinkAcceptor, RoleActor, ignored
from islands.files.disk import Disk
from islands.files.slots import Slots
from islands.protocol.errors import JournalError
from islands.protocol.identities import Incarnation, Role
from islands.protocol.invitations import Invitation, is_signed, signing_secret
from islands.protocol.membership import Credentials
from islands.protocol.messages import control, membership
from islands.protocol.messages.control import CommandAnswer, Note, StepFigures
from islands.protocol.messages.membership import Heartbeat, HeartbeatAck, Join, Joined
from islands.protocol.sessions import Received
from islands.protocol.supervisor import actions, events
from islands.protocol.supervisor.commands import Nonces
from islands.protocol.supervisor.eviction import Restarts, tick_s
from islands.protocol.supervisor.membership import ends_the_run
from islands.protocol.supervisor.memory import MESSAGES, SupervisorMemory
from islands.protocol.supervisor.state import LEARNERS, SupervisorState
from islands.protocol.tape import process_entries
from islands.protocol.tape.entry import Record
from islands.protocol.tape.member_entries import Killed
from islands.protocol.tape.process_entries import Damaged, KeptOut, Started
from messaging.envelope import Envelope
from messaging.links.link import Lane


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of one supervisor into its host.

    Args:
        start: starts the process of a name after a delay in seconds.
        kill: kills the process of a name at once.
        noted: gets a member's name and role, and an entry of its tape for the run's folder; None if
            members write to the same tape.
        figures: gets a member's name and the step figures of its process.
        gave_up: gets the name of a process that is not restarted any more, and the reason.
        run_ended: gets the reason and the syncer's part of the summary.
        finished: gets the reason when the run is over.
        status: returns the run's status, for the answers to an operator's commands.
        revoke: ends all invitations of a name; returns all revocations, and why they cannot be
            kept, which is empty if they can.
        end_refused: closes the links of those whose invitation is not good any more.
    """

    start: Callable[[str, float], None] = ignored
    kill: Callable[[str], None] = ignored
    noted: Callable[[str, Role, Note], None] | None = None
    figures: Callable[[str, StepFigures], None] = ignored
    gave_up: Callable[[str, str], None] = ignored
    run_ended: Callable[[str, bytes], None] = ignored
    finished: Callable[[str], None] = ignored
    status: Callable[[], bytes] = bytes
    revoke: Callable[[str], tuple[Mapping[str, int], str]] = lambda _: ({}, "it invites nobody")
    end_refused: Callable[[], None] = ignored


PROMOTED = "promoted"
"""Name of the records of the standby that was made the syncer last; none if there was none."""

NOTES_EARLY_MAX = 64
NOTES_PER_S = 64
"""Of one member; a syncer, which has the run's key, may send more."""
NOTE_EARLY_CHARACTERS_MAX = 1024
"""Most notes that are buffered on a link before its member is known, and the longest of them."""


class SupervisorActor(RoleActor[events.Event]):
    """The actor of one start of the supervisor, which keeps its epoch on `disk`.

    Its host starts the processes `launched`, and an operator can add learners of these `kinds`, if
    any are launched. `syncers` are addresses that are known beforehand, `spec` is the run spec and
    the run plan as JSON; if None, requests for them are refused. `revoked` are the revocations of
    invitations by earlier starts. `own_syncer` says that its host has the run's syncer, too.
    """

    def __init__(
        self,
        name: str,
        context: Context,
        *,
        disk: Disk,
        credentials: Credentials,
        launched: tuple[str, ...] = (),
        kinds: tuple[str, ...] = (LEARNERS,),
        syncers: tuple[str, ...] = (),
        spec: tuple[str, memoryview] | None = None,
        revoked: Mapping[str, int] = MappingProxyType({}),
        own_syncer: bool = False,
        hooks: Hooks | None = None,
    ) -> None:
        super().__init__(name, context)
        self.state: SupervisorState
        self._disk = disk
        self._credentials = credentials
        self._launched, self._kinds = launched, kinds
        self._syncers = syncers
        self._spec = spec
        self._revoked, self._own_syncer = revoked, own_syncer
        self._hooks = hooks or Hooks()
        self._acceptor: LinkAcceptor
        self._names: dict[int, str] = {}
        self._asked: dict[int, str] = {}
        self._early: dict[int, deque[Note]] = {}
        self._summaries: dict[int, bytes] = {}
        self._note_limits: dict[int, EntryLimit] = {}
        self._proof = ""

    @property
    def memory(self) -> SupervisorMemory | None:
        """Its memory; None before `on_start`."""
        return self.state.memory if hasattr(self, "state") else None

    async def on_start(self) -> None:
        slots = Slots(self._disk)
        epoch, known = take_epoch(slots)
        promoted = max(slots.held(PROMOTED), key=lambda each: each.sequence, default=None)
        listener = self.context.network.listen(self.name, guests=True)
        memory = SupervisorMemory(
            self.context.settings,
            self.context.layout.fingerprint,
            epoch,
            listener.address,
            self._syncers,
            {name: Restarts() for name in self._launched},
            self._kinds,
            self.now_s(),
            Nonces(secrets.token_bytes(32)),
            self._revoked,
            own_syncer=self._own_syncer,
            promoted=None if promoted is None else promoted.metadata.decode(),
        )
        self.state = SupervisorState(memory)
        self._proof = self._credentials.prove_supervisor(epoch)
        self.record(Started(epoch))
        if known.damaged:
            self.record(Damaged(list(known.damaged)))
        self._acceptor = LinkAcceptor(
            listener,
            self.scope,
            room=self.mailbox.wait_room,
            receive=self._receive,
            lost=self._lost,
        )
        self._tick_later()

    async def on_message(self, message: events.Event) -> None:
        if isinstance(message, events.Ticked):
            self._tick_later()
        for action in self.state.handle(message, now_s=self.now_s()):
            self._perform(action)
        if isinstance(message, events.Revoked):
            self._hooks.end_refused()

    def release(self) -> None:
        if hasattr(self, "_acceptor"):
            self._acceptor.close("the supervisor ended")

    def process_ended(self, name: str, reason: str) -> None:
        """Report that a launched process has ended; `reason` is empty after an orderly end."""
        self.post(events.ProcessEnded(name, reason))

    def run_diverged(self) -> None:
        """Report that the run has diverged: it is paused as by an operator."""
        self.post(events.RunDiverged())

    def _tick_later(self) -> None:
        self.ref.tell_later(tick_s(self.context.settings.timing), events.Ticked())

    def _perform(self, action: actions.Action) -> None:
        match action:
            case actions.Send(connection, Joined() as joined):
                self._name(connection, joined.name)
                role = self.state.members[joined.name].role
                credential = self._credentials.sign(joined.name, joined.incarnation, role)
                signed = replace(joined, credential=credential, supervisor_proof=self._proof)
                self._reply(connection, signed)
            case actions.Send(connection, HeartbeatAck() as ack):
                self._reply(connection, replace(ack, supervisor_proof=self._proof))
            case actions.Send(connection, membership.MembershipChanged() as page):
                self._reply(connection, self._proven(connection, page))
            case actions.Send(connection, message):
                self._reply(connection, message, *self._status_with(message))
            case actions.Drop(connection, reason):
                self._acceptor.drop(connection, reason)
            case actions.SendRunSpec(connection, name):
                self._send_spec(connection, name)
            case actions.StartProcess(name, delay_s):
                self._hooks.start(name, delay_s)
            case actions.KillProcess(name, reason):
                self.record(Killed(name, reason))
                self._hooks.kill(name)
            case actions.GiveUp(name, reason):
                self._hooks.gave_up(name, reason)
            case actions.KeepPromoted(name):
                self._keep_promoted(name)
            case actions.Revoke(name, by, connection):
                self.post(events.Revoked(name, by, connection, *self._hooks.revoke(name)))
            case actions.CountFigures(name, figures):
                self._keep(name, partial(self._hooks.figures, name, figures))
            case Record(entry):
                self.record(entry)
            case actions.FinishRun(reason, connection, stay_s):
                if connection in self._summaries:  # it came with the syncer's RunEnded
                    self._hooks.run_ended(reason, self._summaries[connection])
                self._hooks.finished(reason)
                if stay_s:
                    asyncio.get_running_loop().call_later(stay_s, self.ref.stop, reason)
                else:
                    self.ref.stop(reason)
            case _:
                assert_never(action)

    def _proven(
        self, connection: int, page: membership.MembershipChanged
    ) -> membership.MembershipChanged:
        """Add the proofs that learners that gossip show when one dials the other."""
        receiver = self.state.members.get(self._names.get(connection, ""))
        if receiver is None or receiver.role is not Role.LEARNER:
            return page
        own = receiver.name, receiver.incarnation
        pair = self._credentials.prove_pair
        proven = [replace(m, proof=pair(own, (m.name, m.incarnation))) for m in page.members]
        return replace(page, members=tuple(proven))

    def _status_with(self, message: object) -> tuple[()] | tuple[tuple[memoryview, ...], Lane]:
        """Return the payload of an answer to a command that is done, and its lane."""
        done = isinstance(message, CommandAnswer) and message.done and not message.more
        status = self._hooks.status() if done else b""
        return ((memoryview(status),), Lane.BULK) if status else ()

    def _keep_promoted(self, name: str) -> None:
        """Keep a promotion twice, before it is answered; a disk that fails ends the supervisor."""
        slots = Slots(self._disk)
        newest = max(slots.sequence(PROMOTED), 0)
        for sequence in (newest + 1, newest + 2):
            slots.write(PROMOTED, sequence, name.encode())

    def _send_spec(self, connection: int, name: str) -> None:
        if self._spec is None:
            reason = "this supervisor cannot tell what its run is: start the process with settings"
            self._reply(connection, membership.Refused(name, reason, retry=False))
            return
        spec, plan = self._spec
        epoch = self.state.memory.epoch
        reply = membership.RunSpecReply(self.context.settings.run, spec, epoch, self._proof)
        self._reply(connection, reply, (plan,), Lane.BULK)

    def _reply(
        self,
        connection: int,
        message: object,
        payload: tuple[memoryview, ...] = (),
        lane: Lane = Lane.CONTROL,
    ) -> None:
        self.send(self._acceptor.link(connection), message, payload, lane)

    def _lost(self, connection: int) -> None:
        for by_connection in (
            self._names,
            self._asked,
            self._early,
            self._summaries,
            self._note_limits,
        ):
            by_connection.pop(connection, None)
        if not self.ref.stopped:
            self.post(events.LinkClosed(connection))

    def _receive(self, connection: int, envelope: Envelope) -> None:
        body = envelope.body
        name = self._names.get(connection)
        match body:
            case Join() | Heartbeat() if self._asked.setdefault(connection, body.name) != body.name:
                reason = "a link is of one name, and this one spoke for two"
                self.record(KeptOut(name, type(body).__name__, reason))
                self._acceptor.drop(connection, reason)
            case Join() | Heartbeat() if newer := self._newer_epoch(body):
                kept = self._outlive(newer)
                self.post(events.NewerSupervisorProven(body.name, newer, kept=kept))
            case Join():
                self._join(connection, body)
            case Heartbeat() if self._genuine(body):
                self._name(connection, body.name)
                link = self._acceptor.link(connection)
                host = None if link is None else link.host
                invitation = self._invitation(connection)
                self.post(events.HeartbeatArrived(body, connection, host, invitation))
            case Heartbeat():
                self._disown(connection, body.name, body.incarnation)
            case control.Command():
                invitation = self._invitation(connection)
                genuine = is_signed(body, signing_secret(self._credentials, invitation))
                self.post(events.CommandArrived(body, connection, genuine, invitation))
            case control.RunEnded(reason):
                if ends_the_run(
                    self.state.memory, connection
                ):  # else keep nothing: it is sent again
                    self._summaries[connection] = b"".join(envelope.payload)
                    self.post(Received(membership.Stop(reason), connection))
            case Note():
                self._note(connection, body)
            case membership.Leave() if body.name != name:
                self.record(KeptOut(name, type(body).__name__, "it speaks for another"))
            case _ if body in MESSAGES:
                self.post(Received(body, connection))
            case _:
                self.record(KeptOut(name, type(body).__name__, "nobody here expects it"))

    def _keep(self, name: str, keep: Callable[[], None]) -> None:
        """Call a hook that keeps what a member said; if it fails, close the member's links."""
        try:
            keep()
        except Exception as error:  # noqa: BLE001  whatever it is, one member must not end the run
            reason = f"what it said cannot be kept: {error!r}"
            self.record(process_entries.Refused(name, reason))
            for connection in [c for c, of in self._names.items() if of == name]:
                self._acceptor.drop(connection, reason)

    def _newer_epoch(self, body: Join | Heartbeat) -> int:
        """Return the epoch of a newer supervisor that a member proves to follow; 0 if none."""
        own, epoch = self.state.memory.epoch, body.supervisor_epoch
        if epoch > own and self._credentials.supervisor_proven(epoch, body.supervisor_proof):
            return epoch
        if isinstance(body, Heartbeat) and body.incarnation.epoch > own and self._genuine(body):
            return body.incarnation.epoch
        return 0

    def _genuine(self, beat: Heartbeat) -> bool:
        return self._credentials.genuine(beat.name, beat.incarnation, beat.credential, beat.role)

    def _outlive(self, epoch: int) -> bool:
        """Have the next start over this disk take an epoch above this one; True if one did."""
        slots = Slots(self._disk)
        with suppress(JournalError):  # if this fails, the next start hears of it once more
            if newest_epoch(slots) >= epoch:
                return True
            take_epoch(slots, epoch)
        return False

    def _join(self, connection: int, join: Join) -> None:
        proven = self._credentials.proven(join.name, join.proof)
        returns = join.previous is not None and self._credentials.genuine(
            join.name, join.previous, join.credential, join.role
        )
        if join.previous is not None and join.credential and not returns:
            self._disown(connection, join.name, join.previous)
        invitation = self._invitation(connection)
        self.post(events.JoinArrived(join, connection, proven, returns, invitation))

    def _invitation(self, connection: int) -> Invitation | None:
        """Return the invitation that the other end has shown; None if it was the run's token."""
        link = self._acceptor.link(connection)
        return link.holder if link is not None and isinstance(link.holder, Invitation) else None

    def _disown(self, connection: int, name: str, incarnation: Incarnation) -> None:
        """Have a process join anew whose credential this beginning of the run did not sign."""
        reason = "the credential is not of this beginning of the run"
        evicted = membership.Evicted(name, incarnation, reason, unknown=True)
        self._reply(connection, evicted)

    def _name(self, connection: int, name: str) -> None:
        """Note that a link is of this member, and keep the notes that it had sent before."""
        self._names[connection] = name
        link = self._acceptor.link(connection)
        if link is not None:
            link.admit()
        for note in self._early.pop(connection, ()):
            self._note(connection, note)

    def _note(self, connection: int, note: Note) -> None:
        name = self._names.get(connection)
        if self._hooks.noted is None:
            return
        member = None if name is None else self.state.members.get(name)
        if member is not None:
            limit = self._note_limits.setdefault(connection, EntryLimit(NOTES_PER_S))
            if member.role is Role.SYNCER or limit.left_out(self.now_s()) is not None:
                self._keep(member.name, partial(self._hooks.noted, member.name, member.role, note))
        elif len(note.kind) + len(note.fields) <= NOTE_EARLY_CHARACTERS_MAX:
            self._early.setdefault(connection, deque(maxlen=NOTES_EARLY_MAX)).append(note)
