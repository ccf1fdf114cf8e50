"""The effects of gossip: slow values and momenta on the host, and messages to neighbours.

The device holds the local value θ, and the slow value φ as the base that snapshots are measured
from. Gossip steps are computed here, off the event loop, and their results adopted by the device.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from islands.actors.ports import Worker
from islands.actors.role_actor import RoleActor
from islands.layout.leaves import Layout
from islands.learner.peer_links import PeerLinks
from islands.numerics.gossip import Values, average_step, noloco_step
from islands.protocol.gossip import actions, events
from islands.protocol.gossip.gossip import Gossip
from islands.protocol.learner.actions import AdoptValue
from islands.protocol.learner.events import SnapshotTaken
from islands.protocol.messages.gossip import Share, ShareDeclined, ValueGiven, ValueWanted
from islands.protocol.settings.choices import GossipRule
from islands.protocol.settings.gossip import GossipSettings
from messaging.codec.tensors import as_buffer, digest
from messaging.envelope import Envelope

Floats = NDArray[np.float32]


class GossipPort:
    """The effects of gossip for one learner's actor; the worker does arithmetic in order."""

    def __init__(
        self,
        actor: RoleActor[Any],
        command: Callable[[actions.GossipEngineAction], object],
        worker: Worker,
        rng: random.Random,
        roster: Gossip,
    ) -> None:
        context = actor.context
        self._values = GossipValues(context.settings.gossip, context.layout, actor.name)
        self._roster = roster
        self._command = command
        self._worker = worker
        self._post: Callable[[events.GossipEvent], object] = actor.post
        self.links = PeerLinks(
            actor, rng, known=roster.neighbour, listed=roster.listed, receive=self._receive
        )

    def listen(self) -> None:
        self._roster.listens(self.links.listen())

    def adopts(self, action: AdoptValue) -> None:
        self._values.begin(action.fragment, action.payload)

    def take_snapshot(self, taken: SnapshotTaken, round_: int) -> None:
        payload = as_buffer(self._values.slow[taken.fragment].value), taken.payload

        def post(computed: str) -> None:
            self._post(events.ShareTaken(taken.fragment, round_, taken.steps, computed, payload))

        self._worker.submit(lambda: digest_of(payload), post)

    def perform(self, action: actions.GossipAction) -> None:
        match action:
            case actions.ToNeighbour(peer, message, payload):
                self.links.send(peer, message, payload)
            case actions.GiveValue(peer, message):
                self._give(peer, message)
            case actions.Mix():
                self._mix(action)
            case actions.Gather(fragment):
                self._command(actions.ReturnToOrigin(fragment, *self._values.gather(fragment)))
            case actions.FollowNeighbours(incarnation):
                self.links.follow(incarnation)
            case actions.TakeOver(fragment, _, value):
                self._values.take_over(fragment, value)
                self._command(action)
            case (
                actions.TakeShare()
                | actions.AdoptMixed()
                | actions.HoldValue()
                | actions.ReturnToOrigin()
            ):
                self._command(action)
            case _:
                assert_never(action)

    def _mix(self, action: actions.Mix) -> None:
        fragment = action.fragment
        work = self._values.mixing(fragment, action.own, action.shares)
        gradient = action.own[1]

        def post(step: tuple[Floats, Floats]) -> None:
            value = self._values.mixed(fragment, step)
            self._post(events.Mixed(fragment, action.steps_total, value, gradient))

        self._worker.submit(work, post)

    def _give(self, peer: str, message: ValueGiven) -> None:
        value = as_buffer(self._values.slow[message.fragment].value)

        def send(computed: str) -> None:
            self.links.send(peer, replace(message, digest=computed), (value,))

        self._worker.submit(lambda: digest(value), send)

    def _receive(self, sender: str, envelope: Envelope) -> None:
        """Check a neighbour's message off the loop, then pass it to the state."""
        body, payload = envelope.body, envelope.payload
        match body:
            case Share() as share:
                self._worker.submit(
                    self._values.checking(share.fragment, 2, share.digest, payload),
                    lambda problem: self._post(
                        events.ShareArrived(sender, share, problem, payload)
                    ),
                )
            case ValueGiven() as given:
                value = payload[0] if payload else memoryview(b"")
                self._worker.submit(
                    self._values.checking(given.fragment, 1, given.digest, payload),
                    lambda problem: self._post(events.ValueArrived(sender, given, problem, value)),
                )
            case ShareDeclined() | ValueWanted():
                self._post(events.NeighbourSaid(sender, body))
            case _:
                return


@dataclass(slots=True)
class Slow:
    """The slow value φ of a fragment, its momentum, and version 0, from which the run began."""

    value: Floats
    momentum: Floats
    origin: Floats


class GossipValues:
    """The slow values of all fragments of a learner of this name."""

    def __init__(self, settings: GossipSettings, layout: Layout, name: str) -> None:
        self.slow: dict[int, Slow] = {}
        self._settings = settings
        self._layout = layout
        self._name = name

    def begin(self, fragment: int, value: memoryview) -> None:
        origin = np.frombuffer(value, np.float32)
        self.slow[fragment] = Slow(origin, np.zeros_like(origin), origin)

    def take_over(self, fragment: int, value: memoryview) -> None:
        """Go on from another learner's slow value, at rest."""
        slow = self.slow[fragment]
        slow.value = np.frombuffer(value, np.float32)
        slow.momentum = np.zeros_like(slow.value)

    def mixing(
        self,
        fragment: int,
        own: Sequence[memoryview],
        shares: Mapping[str, Sequence[memoryview]],
    ) -> Callable[[], tuple[Floats, Floats]]:
        """Return the computation of a gossip step, for the worker: the new φ and momentum."""
        return partial(self._step, self.slow[fragment].momentum, own, dict(shares))

    def _step(
        self,
        momentum: Floats,
        own: Sequence[memoryview],
        shares: dict[str, Sequence[memoryview]],
    ) -> tuple[Floats, Floats]:
        everyone = {**shares, self._name: own}
        group = [_values(everyone[name]) for name in sorted(everyone)]
        settings = self._settings
        if settings.rule is GossipRule.AVERAGE:
            return average_step(group), momentum
        return noloco_step(
            _values(own),
            momentum,
            group,
            decay=settings.momentum,
            rate=settings.rate,
            pull=settings.pull,
        )

    def mixed(self, fragment: int, step: tuple[Floats, Floats]) -> memoryview:
        slow = self.slow[fragment]
        slow.value, slow.momentum = step
        return as_buffer(slow.value)

    def gather(self, fragment: int) -> tuple[memoryview, memoryview]:
        """Version 0, and φ minus it; from then on φ is version 0."""
        slow = self.slow[fragment]
        moved = as_buffer(slow.value - slow.origin)
        slow.value = slow.origin
        return as_buffer(slow.origin), moved

    def checking(
        self, fragment: int, parts: int, expected: str, payload: Sequence[memoryview]
    ) -> Callable[[], str | None]:
        """Return the check of a neighbour's values, for the worker: why they are refused, if so."""
        slow = self.slow.get(fragment)
        if slow is None:
            return lambda: f"there is no fragment {fragment}"
        sizes = [slow.value.nbytes] * parts
        return lambda: _problem(sizes, expected, tuple(payload))


def digest_of(payload: Sequence[memoryview]) -> str:
    """The digest of a share: those of its parts, in order."""
    return " ".join(digest(part) for part in payload)


def _problem(sizes: list[int], expected: str, payload: tuple[memoryview, ...]) -> str | None:
    if [part.nbytes for part in payload] != sizes:
        return "its values have another size"
    if digest_of(payload) != expected:
        return "its digest differs"
    values = (np.frombuffer(part, np.float32) for part in payload)
    return None if all(np.isfinite(each).all() for each in values) else "its values are not finite"


def _values(payload: Sequence[memoryview]) -> Values:
    value, gradient = (np.frombuffer(part, np.float32) for part in payload)
    return Values(value, gradient)
