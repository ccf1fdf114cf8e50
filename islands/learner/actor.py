"""The learner's actor performs what `state.py` decides, and turns what happens into events.

It dials the supervisor and the syncer. The device belongs to `compute`; the worker checks and
encodes values off the event loop.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import assert_never

from islands.actors.ports import Worker
from islands.actors.published_values import PublishedValues, Taken
from islands.actors.role_actor import Context, MemberActor
from islands.learner.compute import (
    CheckpointWritten,
    Compute,
    ComputeEvent,
    ComputeFailed,
    StepReport,
)
from islands.learner.gossip import GossipPort
from islands.learner.moments import CheckpointFile
from islands.numerics.error_feedback import ErrorFeedback
from islands.protocol import sessions
from islands.protocol.gossip.actions import GossipAction
from islands.protocol.gossip.gossip import Gossip
from islands.protocol.identities import LearnerName, Phase, Ticket
from islands.protocol.learner import actions, events
from islands.protocol.learner.memory import FROM_SUPERVISOR, FROM_SYNCER
from islands.protocol.learner.state import Figures, LearnerState, Narrator, reported
from islands.protocol.messages import training
from islands.protocol.messages.membership import Leave
from islands.protocol.messages.training import StateOffer, StateRequest
from islands.protocol.settings.choices import Precision
from islands.protocol.tape import learner_entries, process_entries
from islands.protocol.tape.entry import Record
from messaging.codec.tensors import digest
from messaging.envelope import Envelope
from messaging.links.dialer import Dialer
from messaging.links.link import Lane, Link

Item = events.Event | ComputeEvent


class LearnerActor(MemberActor[Item]):
    """The actor of one learner, whose name is unique in the run.

    `say` receives sentences for the person at the terminal; `kept` is the checkpoint in which an
    earlier process of this name left its moments. `rng` draws the jitter between attempts to dial.
    """

    def __init__(
        self,
        name: str,
        context: Context,
        compute: Compute,
        worker: Worker,
        rng: random.Random,
        say: Callable[[str], object] | None = None,
        kept: CheckpointFile | None = None,
    ) -> None:
        super().__init__(name, context)
        settings, layout = context.settings, context.layout
        who, fragments = LearnerName(name), len(layout.fragments)
        checkpoint = None if kept is None else kept.find()
        self.state = LearnerState(settings, who, layout.fingerprint, fragments, checkpoint)
        self._compute = compute
        self._worker = worker
        self._rng = rng
        self._say = say
        self._kept = kept
        self._narrator = Narrator()
        self._greeted: Link | None = None
        schedule = self.state.schedule
        self._gossip: GossipPort | None = None
        if isinstance(schedule, Gossip):
            self._gossip = GossipPort(self, compute.command, worker, rng, schedule)
        self._feedback = ErrorFeedback(
            settings.precision,
            keeps=settings.keeps_residuals,
            exact=[fragment.averages for fragment in layout.fragments],
            share=settings.top_k_share,
        )
        self._published = PublishedValues(layout, settings.update_precision)
        self._figures = Figures(f"{rng.getrandbits(64):016x}")
        self._contributed, self._figures_sent = 0, (0, 0)
        self._queued: dict[int, Ticket] = {}
        self._sessions: list[Dialer] = []

    @property
    def bytes_up(self) -> int:
        others = 0 if self._gossip is None else self._gossip.links.bytes_sent
        return others + sum(session.bytes_sent for session in self._sessions)

    @property
    def bytes_down(self) -> int:
        others = 0 if self._gossip is None else self._gossip.links.bytes_received
        return others + sum(session.bytes_received for session in self._sessions)

    async def on_start(self) -> None:
        self._session(
            self.context.supervisor, self._from_supervisor, sessions.SupervisorLinkChanged
        )
        if self._gossip is not None:
            self._gossip.listen()
        self._compute.start(self.post)
        self._tick_later()

    async def on_message(self, message: Item) -> None:
        match message:
            case StepReport(event):
                waits_s = message.gap_s, message.data_wait_s
                self._figures.stepped(event, message.loss, *waits_s, message.metrics)
                self._handle(event)
            case events.TrainerMade():
                self._figures.hardware = message.hardware
                self._handle(message)
            case ComputeFailed(error):
                raise error
            case CheckpointWritten():
                self.record(learner_entries.MomentsKept(message.error))
            case events.ValueAdopted():
                self._on_adopted(message)
            case events.SnapshotTaken(round=int(round_)) if self._gossip is not None:
                self._gossip.take_snapshot(message, round_)
            case events.Ticked():
                self._tick_later()
                self._handle(events.Ticked(self._compute.compiling))
                self._send_figures()
            case _:
                self._handle(message)

    def release(self) -> None:
        self._compute.stop()
        self._worker.close()
        if self._gossip is not None:
            self._gossip.links.close()

    def leave(self, reason: str) -> None:
        self.post(events.LeaveRequested(reason))

    def _tick_later(self) -> None:
        timing = self.context.settings.timing
        self.ref.tell_later(timing.scaled(timing.heartbeat_s), events.Ticked())

    def _handle(self, event: events.Event) -> None:
        for action in self.state.handle(event, now_s=self.now_s()):
            self._perform(action)
        self._send_last_figures()
        if self._say is not None:
            state = self.state
            steps = state.compute.steps
            for sentence in self._narrator.follow(state.incarnation, state.phase, steps):
                self._say(sentence)

    def _send_figures(self) -> bool:
        """Send the step figures for the run's folder on the hub; returns whether they were sent."""
        if not self.context.reports or not self._figures.steps:
            return False
        figures = self._figures.message(bytes_up=self.bytes_up, bytes_down=self.bytes_down)
        return self.send(self.supervisor_link, figures)

    def _send_last_figures(self) -> None:
        """Send new figures once finished: the hub may end before the next heartbeat."""
        done = self._figures.steps, self._contributed
        if (
            self.state.phase is Phase.FINISHED
            and done != self._figures_sent
            and self._send_figures()
        ):
            self._figures_sent = done

    def _on_adopted(self, event: events.ValueAdopted) -> None:
        before = self.state.accounts[event.fragment].version
        self._handle(event)
        account = self.state.accounts[event.fragment]
        if account.version == before:
            return
        adopted = learner_entries.Adopted(
            incarnation=str(self.state.incarnation),
            fragment=event.fragment,
            version=str(account.version),
            digest=account.digest,
            tokens=account.base_tokens,
        )
        self.record(adopted)

    # --- actions ------------------------------------------------------------------------------

    def _perform(self, action: actions.Action) -> None:
        if isinstance(action, GossipAction):
            assert self._gossip is not None, "the state gossips only if the run does"
            self._gossip.perform(action)
            return
        match action:
            case sessions.ToSupervisor(message):
                if isinstance(message, Leave):
                    self._send_figures()  # after Leave they would belong to no incarnation
                self.send(self.supervisor_link, message)
            case sessions.ToSyncer(message):
                if isinstance(message, training.Progress | training.Hello):
                    report = message.progress if isinstance(message, training.Hello) else message
                    self.record(reported(report))
                self._send_up(message)
            case sessions.DialSyncer(address):
                dial = partial(
                    self._session, receive=self._from_syncer, changed=sessions.SyncerLinkChanged
                )
                self.dial_syncer(address, dial)
            case sessions.DropSyncerLink(reason):
                self.drop_syncer_link(reason)
            case actions.Contribute():
                self._contribute(action)
            case actions.SettleFeedback() | actions.ResetFeedback():
                self._settle(action)
            case actions.OfferSeed():
                self._offer_seed(action)
            case (
                actions.AdoptValue()
                | actions.ResetMoments()
                | actions.PlanSnapshots()
                | actions.AllowSteps()
                | actions.ReadValue()
                | actions.ReadMoments()
                | actions.LoadMoments()
            ):
                self._command(action)
            case actions.SetTimer(after_s):
                self.ref.tell_later(after_s, events.TimerDue())
            case Record(entry):
                self.record(entry)
            case actions.ToPeer():
                self._send_to_peer(action)
            case actions.LoadCheckpoint():
                self._load_checkpoint()
            case sessions.Exit(reason, failed):
                self.exit = action
                self.record(process_entries.Exit(reason, failed))
                self._send_figures()
                self.ref.stop(reason)
            case _:
                assert_never(action)

    def _command(self, action: actions.EngineAction) -> None:
        if isinstance(action, actions.AdoptValue) and self._gossip is not None:
            self._gossip.adopts(action)
        self._compute.command(action)
        if isinstance(action, actions.ResetMoments):
            self.record(learner_entries.MomentsReset())

    def _session(
        self,
        address: str | tuple[str, ...],
        receive: Callable[[Envelope], None],
        changed: type[sessions.SupervisorLinkChanged | sessions.SyncerLinkChanged],
    ) -> Dialer:
        session = self.dial(
            address,
            self._rng,
            opened=lambda: self.post(changed(up=True)),
            received=receive,
            closed=lambda: self.post(changed(up=False)),
        )
        self._sessions.append(session)
        return session

    def _contribute(self, action: actions.Contribute) -> None:
        """Send the snapshot that the state chose; the worker encodes it and computes its digest."""
        message, link = action.message, self.syncer_link
        ticket, on_host = message.ticket, self.context.settings.precision.on_host
        precision = Precision(message.precision)

        def finish() -> tuple[memoryview, str]:
            payload = action.payload
            if on_host:
                number = ticket.epoch, ticket.round
                payload = self._feedback.encoded(message.fragment, number, payload, precision)
            return payload, digest(payload)

        def send(finished: tuple[memoryview, str]) -> None:
            payload, computed = finished
            complete = replace(message, digest=computed)
            if on_host:
                self.post(events.ContributionEncoded(ticket, message.fragment, precision, payload))
            same = link is self.syncer_link
            topic = f"contribution-{message.fragment}"
            before = self._queued.get(message.fragment)
            self._queued[message.fragment] = ticket
            if before is not None and link is not None and link.withdraw(topic):
                self.post(events.ContributionSkipped(before, message.fragment))
            if not (same and self._send_up(complete, (payload,), topic=topic)):
                self.post(events.ContributionSkipped(message.ticket, message.fragment))
                return
            self._contributed += 1
            self._send_last_figures()

        contributed = learner_entries.Contributed(
            ticket=str(message.ticket),
            fragment=message.fragment,
            base=str(message.base),
            steps=message.steps,
            tokens=message.tokens,
            processed=message.processed_tokens,
        )
        self.record(contributed)
        self._worker.submit(finish, send)

    def _settle(self, action: actions.SettleFeedback | actions.ResetFeedback) -> None:
        """Settle or reset the error feedback on the worker that encodes contributions."""
        settle = self._feedback.reset
        if isinstance(action, actions.SettleFeedback):
            merged, upto = action.merged, (action.epoch, action.round)
            applied = None if merged is None else (merged.epoch, merged.round)
            settle = partial(self._feedback.settle, action.fragment, upto, applied)
        self._worker.submit(settle, lambda _: None)

    def _offer_seed(self, action: actions.OfferSeed) -> None:
        message, payload = action.message, action.payload

        def send(computed: str) -> None:
            topic = f"seed-{message.fragment}"
            if not self._send_up(replace(message, digest=computed), (payload,), topic=topic):
                self.post(events.SeedSkipped(message.fragment))

        self._worker.submit(lambda: digest(payload), send)

    def _send_to_peer(self, action: actions.ToPeer) -> None:
        peer, message, piece = action.peer, action.message, action.payload
        if isinstance(message, StateRequest) or piece is None:
            self._send_up(message, recipient=peer)
            return

        def send(computed: str) -> None:
            if self._send_up(replace(message, digest=computed), (piece,), recipient=peer):
                self.record(learner_entries.MomentsGiven(peer, message.piece))

        self._worker.submit(lambda: digest(piece), send)

    def _load_checkpoint(self) -> None:
        """Load the moments on disk; one damaged piece makes all of them unusable."""
        assert self._kept is not None, "the state has heard of a checkpoint"

        def load(pieces: tuple[memoryview, ...] | None) -> None:
            if pieces is None:
                self.post(events.MomentsLoaded(taken=False))
            else:
                self._compute.command(actions.LoadMoments(pieces))

        self._worker.submit(self._kept.read, load)

    def _send_up(
        self,
        message: object,
        payload: tuple[memoryview, ...] = (),
        *,
        recipient: str | None = None,
        topic: str | None = None,
    ) -> bool:
        """Send to the syncer, or through it to a peer, on the bulk lane if there is a payload."""
        lane = Lane.BULK if payload else Lane.CONTROL
        link = self.syncer_link
        if isinstance(message, training.Hello):
            self._greeted = link
        elif link is not self._greeted:
            return False  # a new link opened, and the state has not handled that event yet
        return self.send(link, message, payload, lane, recipient=recipient, topic=topic)

    # --- events -------------------------------------------------------------------------------

    def _from_supervisor(self, envelope: Envelope) -> None:
        body = envelope.body
        if body in FROM_SUPERVISOR:
            self.post(events.FromSupervisor(body))

    def _from_syncer(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, training.FragmentUpdate):
            self._check_update(body, envelope.payload)
        elif isinstance(body, StateRequest):
            self.post(events.StateRequested(envelope.sender, body))
        elif isinstance(body, StateOffer):
            self._receive_piece(envelope, body)
        elif body in FROM_SYNCER:
            self.post(events.FromSyncer(body))

    def _receive_piece(self, envelope: Envelope, offer: StateOffer) -> None:
        """Check a peer's piece of moments; an offer without payload declines."""
        sender = envelope.sender
        if len(envelope.payload) != 1:
            none = replace(offer, pieces=0)
            self.post(events.PieceArrived(sender, none, memoryview(b""), intact=False))
            return
        payload = envelope.payload[0]

        def arrive(computed: str) -> None:
            intact = computed == offer.digest
            self.post(events.PieceArrived(sender, offer, payload, intact))

        self._worker.submit(lambda: digest(payload), arrive)

    def _check_update(
        self, update: training.FragmentUpdate, payload: tuple[memoryview, ...]
    ) -> None:
        def arrive(taken: Taken) -> None:
            self.post(sessions.UpdateArrived(update, taken.intact, taken.value))

        self._published.take_in(update, payload, self._worker, record=self.record, arrived=arrive)
