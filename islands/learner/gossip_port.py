"""The effects of gossip: arithmetic off the loop, and messages to neighbours."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, assert_never

from islands.actors.ports import Worker
from islands.actors.role_actor import RoleActor
from islands.learner.gossip_values import Floats, GossipValues, digest_of
from islands.learner.peer_links import PeerLinks
from islands.protocol.gossip.actions import (
    AdoptMixed,
    FollowNeighbours,
    Gather,
    GiveValue,
    GossipAction,
    GossipEngineAction,
    HoldValue,
    Mix,
    ReturnToOrigin,
    SendShare,
    TakeOver,
    TakeShare,
    ToNeighbour,
)
from islands.protocol.gossip.events import (
    GossipEvent,
    Mixed,
    NeighbourSaid,
    ShareArrived,
    ShareTaken,
    ValueArrived,
)
from islands.protocol.gossip.gossip import Gossip
from islands.protocol.identities import FragmentIndex
from islands.protocol.learner.actions import AdoptValue
from islands.protocol.learner.events import SnapshotTaken
from islands.protocol.messages.gossip import Share, ShareDeclined, ValueGiven, ValueWanted
from messaging.codec.tensors import digest
from messaging.envelope import Envelope


class GossipPort:
    """The effects of gossip for one learner's actor.

    Args:
        actor: the learner's actor.
        command: commands compute.
        worker: does arithmetic off the loop, in order.
        rng: source of the jitter between attempts to dial.
        roster: the learners that are known.
    """

    def __init__(
        self,
        actor: RoleActor[Any],
        *,
        command: Callable[[GossipEngineAction], object],
        worker: Worker,
        rng: random.Random,
        roster: Gossip,
    ) -> None:
        """Keep the ports; `listen` begins."""
        context = actor.context
        self._values = GossipValues(context.settings.gossip, context.layout, actor.name)
        self._roster = roster
        self._command = command
        self._worker = worker
        self._post: Callable[[GossipEvent], object] = actor.post
        self.links = PeerLinks(
            actor, rng, known=roster.neighbour, listed=roster.listed, receive=self._receive
        )

    def listen(self) -> None:
        """Let others dial this learner, and have the supervisor hear where."""
        self._roster.listens(self.links.listen())

    def adopts(self, action: AdoptValue) -> None:
        """Begin with a published value that compute is about to adopt."""
        self._values.begin(action.fragment, action.payload)

    def take_snapshot(self, taken: SnapshotTaken, round_: int) -> None:
        """Make a snapshot a share, with its digest."""
        payload = self._values.share(taken.fragment, taken.payload)

        def tell(computed: str) -> None:
            self._post(ShareTaken(taken.fragment, round_, taken.steps, computed, payload))

        self._worker.submit(lambda: digest_of(payload), tell)

    def perform(self, action: GossipAction) -> None:
        """Perform an action that the state decided."""
        match action:
            case SendShare(peer, message, payload):
                self.links.send(peer, message, payload)
            case ToNeighbour(peer, message):
                self.links.send(peer, message)
            case GiveValue(peer, message):
                self._give(peer, message)
            case Mix():
                self._mix(action)
            case Gather(fragment):
                self._command(ReturnToOrigin(fragment, *self._values.gather(fragment)))
            case FollowNeighbours(incarnation):
                self.links.follow(incarnation)
            case TakeOver(fragment, _, value):
                self._values.take_over(fragment, value)
                self._command(action)
            case TakeShare() | AdoptMixed() | HoldValue() | ReturnToOrigin():
                self._command(action)
            case _:
                assert_never(action)

    def _mix(self, action: Mix) -> None:
        fragment = action.fragment
        work = self._values.mixing(fragment, action.own, action.shares)
        gradient = action.own[1]

        def tell(step: tuple[Floats, Floats]) -> None:
            value = self._values.mixed(fragment, step)
            self._post(Mixed(fragment, action.steps_total, value, gradient))

        self._worker.submit(work, tell)

    def _give(self, peer: str, message: ValueGiven) -> None:
        (value, _) = self._values.share(message.fragment, memoryview(b""))

        def send(computed: str) -> None:
            self.links.send(peer, replace(message, digest=computed), (value,))

        self._worker.submit(lambda: digest(value), send)

    def _receive(self, sender: str, envelope: Envelope) -> None:
        """Check what a neighbour says off the loop, then pass it to the state."""
        body, payload = envelope.body, envelope.payload
        match body:
            case Share():
                self._take_share(sender, body, payload)
            case ValueGiven():
                self._take_value(sender, body, payload)
            case ShareDeclined() | ValueWanted():
                self._post(NeighbourSaid(sender, body))
            case _:
                return

    def _take_share(self, sender: str, share: Share, payload: tuple[memoryview, ...]) -> None:
        self._worker.submit(
            self._values.checking(share, payload),
            lambda checked: self._post(ShareArrived(sender, share, checked, payload)),
        )

    def _take_value(self, sender: str, given: ValueGiven, payload: tuple[memoryview, ...]) -> None:
        fragment = FragmentIndex(given.fragment)
        value = payload[0] if payload else memoryview(b"")
        self._worker.submit(
            self._values.checking_value(fragment, given.digest, payload),
            lambda checked: self._post(ValueArrived(sender, given, checked, value)),
        )
