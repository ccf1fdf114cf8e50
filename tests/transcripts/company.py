"""The states of all roles together: a script says what happens, every event and action is noted.

Each state is the real one. Links deliver in order, the disk writes and the worker merges at once,
unless the script holds them; a device makes a step when the script says so.
"""

from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import cast

from islands.protocol import sessions
from islands.protocol.errors import IslandsError
from islands.protocol.identities import Incarnation, LearnerName, Phase, Role
from islands.protocol.learner import actions as learner_actions
from islands.protocol.learner import events as learner_events
from islands.protocol.learner.state import LearnerState
from islands.protocol.membership import Credentials, HeartbeatContent, MembershipState
from islands.protocol.messages.control import Command, CommandAnswer, Drain, Verb
from islands.protocol.messages.membership import (
    Evicted,
    Join,
    Joined,
    MembershipChanged,
    Refused,
    Stop,
)
from islands.protocol.messages.training import (
    FragmentUpdate,
    Hello,
    StateOffer,
    StateRequest,
    Welcome,
)
from islands.protocol.observer import state as observer
from islands.protocol.settings.run import RunSettings
from islands.protocol.supervisor import actions as supervisor_actions
from islands.protocol.supervisor import events as supervisor_events
from islands.protocol.supervisor.commands import Nonces
from islands.protocol.supervisor.memory import SupervisorMemory
from islands.protocol.supervisor.state import SupervisorState
from islands.protocol.syncer import actions as syncer_actions
from islands.protocol.syncer import events as syncer_events
from islands.protocol.syncer.journalling import Durable, fresh
from islands.protocol.syncer.state import SyncerState
from tests.rounds.model import BATCH_TOKENS, FakeCompute, for_peer
from tests.transcripts.people import (
    A,
    E_contra,
    Handle,
    Learner,
    Observer,
    Parcel,
    Syncer,
    ToSupervisor,
    ToSyncer,
    for_supervisor,
    for_syncer,
)
from tests.transcripts.words import action_words, event_words

FINGERPRINT = "layout"
SHARDS = 16
SCHEMA = "adam"
SUPERVISOR, SYNCER, OPERATOR = "supervisor", "syncer", "operator"
ROUNDS_MAX = 10_000
BYTES = memoryview(bytes(1000))
"""What stands for every payload."""


class Company:
    """All who are there, and the time; every inner optimizer has so many pieces of moments."""

    def __init__(self, settings: RunSettings, *, step_s: float = 0.1, pieces: int = 0) -> None:
        self.settings = settings
        self.now_s = 0.0
        self.lines: list[str] = []
        self.quiet = False
        self.supervisor: SupervisorState | None = None
        self.syncers: dict[str, Syncer] = {}
        self.peers: dict[str, Learner | Observer] = {}
        self.journal: Durable | None = None
        self.callers: dict[int, str] = {}
        self._doors: dict[str, int] = {}
        self._step_s, self._pieces = step_s, pieces
        self._parcels: deque[Parcel] = deque()
        self.held: dict[str, list[Parcel]] = {}
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self._credentials = Credentials(settings.run, b"a key for the transcripts alone")
        self._counts = {"link": 0, "admission": 0, "start": 0, "process": 0}

    # --- what is noted, what is under way, and the time ---------------------------------------

    def _note(self, who: str, event: object, actions: Sequence[object]) -> None:
        """One line for an event, if somebody said it or something follows, and one per action."""
        words, said = event_words(event, self.callers)
        if self.quiet or not (actions or said):
            return
        self.lines.append(f"  {self.now_s:6.3f}  {who}: {words}")
        self.lines += [f"            {action_words(one, self.callers)}" for one in actions]

    def take(self, who: str, handle: Handle[E_contra, A], event: E_contra) -> list[A]:
        actions = handle(event, now_s=self.now_s)
        self._note(who, event, actions)
        return actions

    def _next(self, what: str) -> int:
        self._counts[what] += 1
        return self._counts[what]

    def _post(self, route: str, arrive: Callable[[], None]) -> None:
        self._parcels.append(Parcel(route, arrive))

    def settle(self) -> None:
        """Let everything arrive that is not held."""
        for _ in range(ROUNDS_MAX):
            if not self._parcels:
                return
            parcel = self._parcels.popleft()
            if parcel.route in self.held:
                self.held[parcel.route].append(parcel)
            else:
                parcel.arrive()
        raise AssertionError("the company does not come to rest")

    def hold(self, route: str) -> None:
        """What takes this route waits, such as `ana to syncer` or `disk of syncer`."""
        self.held[route] = []

    def release(self, route: str) -> None:
        self._parcels.extend(self.held.pop(route))

    def wait(self, seconds: float) -> None:
        """Time passes; whoever wants to be asked again by then is asked when it does."""
        end_s = self.now_s + seconds
        for _ in range(ROUNDS_MAX):
            due_s = min(self._due_s(), end_s)
            self.now_s = due_s
            self._ring()
            if due_s >= end_s:
                return
        raise AssertionError("time does not pass")

    def _due_s(self) -> float:
        due = [one.state.deadline_s(self.now_s) for one in self.syncers.values()]
        due += [at_s for at_s, _ in self._timers]
        if self.supervisor is not None:
            due.append(self.supervisor.memory.ticked_s + self.settings.timing.heartbeat_s / 2)
        return min([at_s for at_s in due if at_s > self.now_s], default=float("inf"))

    def _ring(self) -> None:
        for one in list(self.syncers.values()):
            self._syncer(one, syncer_events.Ticked())
        if self.supervisor is not None:
            self._supervisor(supervisor_events.Ticked())
        due = [timer for timer in self._timers if timer[0] <= self.now_s]
        self._timers = [timer for timer in self._timers if timer[0] > self.now_s]
        for _, ring in due:
            ring()
        self.settle()

    # --- the supervisor -----------------------------------------------------------------------

    def start_supervisor(self) -> None:
        """There is a supervisor from now on; without one, whoever asks is admitted."""
        self.supervisor = SupervisorState(
            SupervisorMemory(
                *(self.settings, FINGERPRINT, 1, SUPERVISOR, (SYNCER,), {}, ()),
                self.now_s,
                Nonces(b"of this start"),
            )
        )

    def _supervisor(self, event: supervisor_events.Event) -> None:
        assert self.supervisor is not None, "there is a supervisor"
        for action in self.take(SUPERVISOR, self.supervisor.handle, event):
            if isinstance(action, supervisor_actions.Send):
                self._from_supervisor(self.callers[action.connection], action.message)
            elif isinstance(action, supervisor_actions.FinishRun):
                for one in self.syncers.values():
                    self._to(one, "", syncer_events.EndHeard())

    def _from_supervisor(self, name: str, message: object) -> None:
        def arrive() -> None:
            peer = self.peers.get(name)
            if isinstance(message, MembershipChanged | CommandAnswer) or peer is None:
                self._syncer_told(name, message)
            elif isinstance(peer, Learner):
                self._peer(peer, learner_events.FromSupervisor(message))
            elif not isinstance(message, Drain):
                self._peer(peer, observer.MessageArrived(message))

        self._post(f"supervisor to {name}", arrive)

    def _syncer_told(self, name: str, message: object) -> None:
        """A syncer keeps itself admitted, and hands on what is news for its rules."""
        one = self.syncers.get(name)
        if one is None:
            return
        match message:
            case Joined():
                if one.membership.on_joined(message):
                    self.beat(name)
            case MembershipChanged():
                self._syncer(one, message)
            case Stop(reason) if one.state.durable.finished is None:
                self._syncer(one, syncer_events.StopRequested(reason))
            case _:
                pass

    def _to_supervisor(self, name: str, message: ToSupervisor) -> None:
        """Whatever the supervisor is told; without one, joins are granted by a clerk."""
        if name not in self._doors:
            self._doors[name] = self._next("link")
            self.callers[self._doors[name]] = name
        connection = self._doors[name]

        def arrive() -> None:
            if self.supervisor is not None:
                self._supervisor(for_supervisor(message, connection))
            elif isinstance(message, Join):
                incarnation = Incarnation(1, self._next("admission"))
                where = (self._newest(),)
                self._from_supervisor(name, Joined(message.run, name, incarnation, "", 1, where))

        self._post(f"{name} to supervisor", arrive)

    def lose_supervisor(self, name: str) -> None:
        connection = self._doors.pop(name)
        if self.supervisor is not None:
            self._supervisor(supervisor_events.LinkClosed(connection))

    def command(self, verb: str, target: str = "") -> None:
        assert self.supervisor is not None, "who would answer?"
        nonce = self.supervisor.memory.nonces.issue(self.now_s)
        self._to_supervisor(OPERATOR, Command(Verb(verb), target, 1, nonce))

    def beat(self, name: str) -> None:
        peer = self.peers.get(name)
        if peer is not None:
            self._peer(peer, peer.tick)
        else:
            one = self.syncers[name]
            core, phase = one.state.core, Phase.MERGING
            content = HeartbeatContent(phase, 0, core.durable.epoch, name)
            word = one.membership.say(content, self.now_s)
            if word is not None:
                self._to_supervisor(name, word)

    # --- syncers ------------------------------------------------------------------------------

    def _newest(self) -> str:
        """Where the clerk sends whoever joins."""
        epochs = {name: one.state.durable.epoch for name, one in self.syncers.items()}
        return max(epochs, key=lambda name: epochs[name], default=SYNCER)

    def start_syncer(self, name: str) -> None:
        held, fragments = deepcopy(self.journal), self.settings.fragments
        epoch = 1 if held is None else held.epoch + 1
        held = held or fresh(self.settings, fragments=fragments, shards=SHARDS, epoch=epoch)
        held.epoch = epoch
        proof = self._credentials.prove_epoch(epoch, f"start{self._next('start')}")
        state = SyncerState(self.settings, FINGERPRINT, held, now_s=self.now_s, epoch_proof=proof)
        supervised = self.supervisor is not None
        membership = MembershipState(
            *(self.settings.run, Role.SYNCER, LearnerName(name), FINGERPRINT),
            supervisor_up=supervised,
        )
        one = self.syncers[name] = Syncer(name, state, membership)
        self._syncer(one, syncer_events.Ticked())
        if supervised:
            self.beat(name)
        for peer in self.peers.values():
            self._dial(peer)

    def end_syncer(self, name: str) -> None:
        """A syncer is gone: its links are down, and what was on its way to it is lost."""
        one = self.syncers.pop(name)
        for peer in [self.peers[peer] for peer in one.links.values() if peer in self.peers]:
            peer.link = None
            self._link_changed(peer, up=False)

    def stop(self, reason: str) -> None:
        """Somebody with the right to do so wants the run to end."""
        self._syncer(self.syncers[SYNCER], syncer_events.StopRequested(reason))

    def _syncer(self, one: Syncer, event: syncer_events.Event) -> None:
        if self.syncers.get(one.name) is not one:
            return
        try:
            actions = self.take(one.name, one.state.handle, event)
        except IslandsError as error:
            self._note(one.name, event, [error])
            self.end_syncer(one.name)
            return
        for action in actions:
            self._perform_for_syncer(one, action)

    def _perform_for_syncer(self, one: Syncer, action: syncer_actions.Action) -> None:
        match action:
            case syncer_actions.Send(connection, message):
                self._from_syncer(one, connection, message)
            case syncer_actions.SendValue(connection, update):
                self._from_syncer(one, connection, update)
            case syncer_actions.Dismiss(connection, word):
                self._from_syncer(one, connection, word)
                self._post("", lambda: self._dismissed(one, connection))
            case syncer_actions.BeginMerge():
                ones = (1.0,) * len(action.parts)
                facts = syncer_events.MergeFacts(f"digest-{action.target}", ones, ones, 1.0, 1.0)
                merged = syncer_events.MergeFinished(action.fragment, action.round, facts)
                self._to(one, f"worker of {one.name}", merged)
            case syncer_actions.WriteJournal(sequence):
                held = deepcopy(one.state.durable)
                self._post(f"disk of {one.name}", lambda: self._written(one, sequence, held))
            case syncer_actions.FinishRun(reason) if self.supervisor is not None:
                self._to_supervisor(one.name, Stop(reason))
            case syncer_actions.FinishRun():
                self._to(one, "", syncer_events.EndHeard())
            case syncer_actions.Exit():
                self._post("", lambda: self.end_syncer(one.name))
            case _:
                pass

    def _to(self, one: Syncer, route: str, event: syncer_events.Event) -> None:
        self._post(route, lambda: self._syncer(one, event))

    def _written(self, one: Syncer, sequence: int, held: Durable) -> None:
        if self.syncers.get(one.name) is one:
            self.journal = held
            self._syncer(one, syncer_events.JournalFinished(sequence))

    def _from_syncer(self, one: Syncer, connection: int, message: object) -> None:
        peer = self.peers.get(one.links.get(connection, ""))

        def arrive() -> None:
            if peer is not None and peer.link == (one.name, connection):
                self._hear_syncer(peer, message)

        if peer is not None:
            self._post(f"{one.name} to {peer.name}", arrive)

    def _hear_syncer(self, peer: Learner | Observer, message: object) -> None:
        if isinstance(message, FragmentUpdate):
            self._peer(peer, sessions.UpdateArrived(message, intact=True, payload=BYTES))
        elif isinstance(peer, Learner):
            self._peer(peer, learner_events.FromSyncer(message))
        elif isinstance(message, Welcome | Refused | Evicted | Stop):
            self._peer(peer, observer.MessageArrived(message))

    # --- links between processes and syncers --------------------------------------------------

    def _dial(self, peer: Learner | Observer) -> None:
        one = self.syncers.get(peer.address)
        if one is not None and peer.link is None and not peer.cut:
            connection = self._next("link")
            self.callers[connection] = one.links[connection] = peer.name
            peer.link = one.name, connection
            self._link_changed(peer, up=True)

    def _link_changed(self, peer: Learner | Observer, *, up: bool) -> None:
        def arrive() -> None:
            if up is (peer.link is not None):
                self._peer(peer, sessions.SyncerLinkChanged(up=up))

        self._post("", arrive)

    def _hang_up(self, peer: Learner | Observer) -> None:
        """Both ends of a link learn that it is gone."""
        if peer.link is not None:
            (name, connection), peer.link = peer.link, None
            one = self.syncers[name]
            del one.links[connection]
            self._link_changed(peer, up=False)
            self._to(one, "", syncer_events.LinkClosed(peer.name, connection))

    def _dismissed(self, one: Syncer, connection: int) -> None:
        """The syncer ends a link; whoever is still there dials anew."""
        peer = self.peers.get(one.links.pop(connection, ""))
        if peer is not None and peer.link == (one.name, connection):
            peer.link = None
            self._link_changed(peer, up=False)
            if f"{one.name} to {peer.name}" not in self.held:  # or it would never hear why
                self._post("", lambda: self._dial(peer))

    def cut(self, name: str) -> None:
        """A process loses its link to the syncer, and cannot open another."""
        peer = self.peers[name]
        peer.cut = True
        self._hang_up(peer)

    def heal(self, name: str) -> None:
        self.peers[name].cut = False
        self._dial(self.peers[name])

    def _dial_address(self, peer: Learner | Observer, address: str) -> None:
        if address != peer.address:
            self._hang_up(peer)
            peer.address = address
        self._dial(peer)

    def lead(self, name: str, address: str) -> None:
        """Somebody tells a process another address of the syncer."""
        self._dial_address(self.peers[name], address)

    # --- learners -----------------------------------------------------------------------------

    def start_learner(self, name: str) -> None:
        state = LearnerState(self.settings, LearnerName(name), FINGERPRINT, self.settings.fragments)
        compute = FakeCompute(self._next("process"), self._step_s, 0.0)
        peer = self.peers[name] = Learner(name, state=state, compute=compute)
        self._peer(peer, learner_events.TrainerMade(SCHEMA, self._pieces))
        self._peer(peer, sessions.SupervisorLinkChanged(up=True))

    def kill(self, name: str) -> None:
        self._hang_up(self.peers[name])
        del self.peers[name]
        if self.supervisor is not None:
            self.lose_supervisor(name)

    def compiled(self, name: str) -> None:
        self._peer(self.learner(name), learner_events.TrainerReady(BATCH_TOKENS))

    def learner(self, name: str) -> Learner:
        peer = self.peers[name]
        assert isinstance(peer, Learner), f"{name} is a learner"
        return peer

    def step(self, name: str, *, finite: bool = True) -> None:
        """A learner's device completes a step, and is at a boundary."""
        peer = self.learner(name)
        compute = peer.compute
        assert compute.running, f"{name} may not step"
        compute.steps, compute.tokens = compute.steps + 1, compute.tokens + BATCH_TOKENS
        compute.read()
        figures = compute.steps, compute.tokens, compute.step_s
        done = learner_events.StepFinished(*figures, finite=finite, leases=compute.leases)
        self._peer(peer, done)
        self._boundary(peer)

    def _peer(self, peer: Learner | Observer, event: object) -> None:
        if self.peers.get(peer.name) is not peer:
            return
        handle = cast("Handle[object, object]", peer.state.handle)
        for action in self.take(peer.name, handle, event):
            self._perform(peer, action)

    def _perform(self, peer: Learner | Observer, action: object) -> None:
        match action:
            case sessions.ToSupervisor(message):
                assert isinstance(message, ToSupervisor)
                self._to_supervisor(peer.name, message)
            case sessions.ToSyncer(word):
                assert isinstance(word, ToSyncer), "nobody here measures a link"
                fenced = isinstance(word, Hello) and self._fenced(peer, word)
                self._to_syncer(peer, lambda number: for_syncer(word, number, fenced=fenced))
            case sessions.DialSyncer(address):
                self._dial_address(peer, address)
            case sessions.DropSyncerLink():
                self._hang_up(peer)
            case sessions.Exit():
                self._post("", lambda: self._exit(peer))
            case _ if isinstance(peer, Learner):
                self._perform_for_learner(peer, cast("learner_actions.Action", action))

    def _perform_for_learner(self, peer: Learner, action: learner_actions.Action) -> None:
        match action:
            case learner_actions.Contribute(answer, _):
                check = peer.check
                self._to_syncer(peer, lambda c: syncer_events.ContributionArrived(answer, check, c))
            case learner_actions.OfferSeed(message):
                seed = replace(message, digest=f"seed-{message.fragment}")
                self._to_syncer(peer, lambda _: syncer_events.SeedArrived(seed, intact=True))
            case learner_actions.PlanSnapshots(fragments):
                peer.compute.plan = fragments
                self._at_rest(peer)
            case learner_actions.ToPeer(name, asked):
                self._to_peer(peer, name, asked)
            case learner_actions.SetTimer(after_s):
                reminded = learner_events.TimerDue()
                self._timers.append((self.now_s + after_s, lambda: self._peer(peer, reminded)))
            case _:
                peer.compute.commands.append(action)
                self._at_rest(peer)

    def _exit(self, peer: Learner | Observer) -> None:
        if self.peers.get(peer.name) is peer:
            self._hang_up(peer)
            del self.peers[peer.name]

    def _fenced(self, peer: Learner | Observer, hello: Hello) -> bool:
        """Whether a peer proves to a syncer that it follows another start of it."""
        if peer.link is None:
            return False
        core = self.syncers[peer.link[0]].state.core
        return self._credentials.another_start(
            (hello.epoch_seen, hello.epoch_proof), (core.durable.epoch, core.epoch_proof)
        )

    def _to_syncer(
        self, peer: Learner | Observer, make: Callable[[int], syncer_events.Event]
    ) -> None:
        if peer.link is None:
            return
        name, connection = peer.link
        one, event = self.syncers[name], make(connection)

        def arrive() -> None:
            if connection in one.links:
                self._syncer(one, event)

        self._post(f"{peer.name} to {name}", arrive)

    def _to_peer(
        self, peer: Learner | Observer, name: str, message: StateRequest | StateOffer
    ) -> None:
        """The hub passes on what learners say to one another."""
        event = for_peer(peer.name, message, BYTES)

        def arrive() -> None:
            receiver = self.peers.get(name)
            if isinstance(receiver, Learner):
                self._peer(receiver, event)

        self._post(f"{peer.name} to {name}", arrive)

    # --- a learner's device -------------------------------------------------------------------

    def _at_rest(self, peer: Learner) -> None:
        """Commands are obeyed at once while no step runs."""
        if not peer.compute.running:
            self._post("", lambda: None if peer.compute.running else self._boundary(peer))

    def _boundary(self, peer: Learner) -> None:
        """Between two steps: commands, snapshots, then the next step if it is allowed."""
        compute, allowed = peer.compute, False
        while compute.commands:
            command = compute.commands.pop(0)
            allowed |= isinstance(command, learner_actions.AllowSteps)
            obeyed = compute.obey(command, BYTES)
            if obeyed is not None:
                self._peer(peer, obeyed)
        done = compute.steps, compute.tokens
        for index in compute.plan:
            base = compute.bases.get(index)
            if base is None or compute.taken.get(index) == (base, compute.steps):
                continue
            if compute.marks[index] < compute.steps:
                compute.taken[index] = base, compute.steps
                self._peer(peer, learner_events.SnapshotTaken(index, base, *done, BYTES))
        was_running, compute.running = compute.running, compute.may_step()
        if not compute.running and (was_running or allowed):
            self._peer(peer, learner_events.Idled(*done, compute.leases, compute.order))

    # --- observers ----------------------------------------------------------------------------

    def start_observer(self, name: str) -> None:
        state = observer.ObserverState(
            *(self.settings, name, FINGERPRINT, self.settings.fragments), interval_s=10.0
        )
        peer = self.peers[name] = Observer(name, state=state)
        self._peer(peer, sessions.SupervisorLinkChanged(up=True))
