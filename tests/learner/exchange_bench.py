"""A bench of exchanges: learners' state machines, and the messages between them, by hand."""

from collections import deque
from dataclasses import dataclass, field, replace

from islands.protocol.gossip.actions import Mix, Payload, TakeShare, ToNeighbour
from islands.protocol.gossip.events import ShareArrived, ShareTaken
from islands.protocol.gossip.exchanges import Exchanges
from islands.protocol.identities import FragmentIndex, Incarnation
from islands.protocol.messages.gossip import Share, ShareDeclined
from islands.protocol.settings.choices import MergeRule, Neighbours, Weighting
from islands.protocol.settings.gossip import GossipSettings
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.entry import Entry, Record

PAIRS = GossipSettings(Neighbours.RANDOM_PAIRS)
RING = GossipSettings(Neighbours.RING)
NO_BYTES: Payload = (memoryview(b""), memoryview(b""))


def settings_of(
    gossip: GossipSettings, interval_steps: int = 10, fragments: int = 1
) -> RunSettings:
    average = RunSettings(merge=MergeRule.AVERAGE, weighting=Weighting.UNIFORM, gossip=gossip)
    return replace(average, interval_steps=interval_steps, fragments=fragments)


def incarnation(index: int) -> Incarnation:
    return Incarnation(1, index + 1)


@dataclass
class Bench:
    """Learners a, b, c, …; each at its own total of steps, and all at one time."""

    settings: RunSettings
    count: int = 2
    now_s: float = 0.0
    takes: deque[tuple[str, TakeShare]] = field(default_factory=deque)
    mails: deque[tuple[str, str, Share | ShareDeclined]] = field(default_factory=deque)
    mixes: list[tuple[str, Mix]] = field(default_factory=list)
    told: list[tuple[str, Entry]] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = [chr(ord("a") + index) for index in range(self.count)]
        self.roster = {name: incarnation(index) for index, name in enumerate(self.names)}
        fragments = self.settings.fragments
        self.of = {name: Exchanges(self.settings, name, fragments) for name in self.names}
        for name in self.names:
            self.steps[name] = 0
            self.of[name].on_roster(self.roster, 0.0)
            self.of[name].begin(self.roster[name], 0)

    def collect(self, name: str) -> None:
        for action in self.of[name].drain():
            match action:
                case TakeShare():
                    self.takes.append((name, action))
                case ToNeighbour(peer, message):
                    assert isinstance(message, Share | ShareDeclined)
                    self.mails.append((name, peer, message))
                case Mix():
                    self.mixes.append((name, action))
                case Record(entry):
                    self.told.append((name, entry))

    def step(self, name: str, steps: int = 1) -> None:
        """Step; at the boundary after it, shares that were asked for are taken."""
        self.steps[name] += steps
        self.of[name].stepped(self.steps[name], self.now_s)
        self.collect(name)
        self.take(name)

    def take(self, name: str) -> None:
        for _ in range(len(self.takes)):
            who, take = self.takes.popleft()
            if who != name:
                self.takes.append((who, take))
                continue
            taken = ShareTaken(
                take.fragment, take.round, self.steps[name], f"{name}{take.round}", NO_BYTES
            )
            self.of[name].on_own_share(taken, self.now_s)
            self.collect(name)

    def deliver(self, problem: str | None = None) -> int:
        """Deliver all messages until none is under way; returns how many there were."""
        count = 0
        while self.mails:
            sender, receiver, message = self.mails.popleft()
            self.hear(receiver, sender, message, problem)
            count += 1
        return count

    def hear(
        self,
        receiver: str,
        sender: str,
        message: Share | ShareDeclined,
        problem: str | None = None,
    ) -> None:
        if isinstance(message, Share):
            event = ShareArrived(sender, message, problem, NO_BYTES)
            self.of[receiver].on_share(event, self.now_s)
        else:
            self.of[receiver].on_decline(sender, message, self.now_s)
        self.collect(receiver)

    def mix(self) -> list[tuple[str, tuple[str, ...]]]:
        """Complete all gossip steps; returns who mixed with whom."""
        done = [(name, tuple(mix.shares)) for name, mix in self.mixes]
        for name, mix in self.mixes:
            self.of[name].on_mixed(mix.fragment, mix.steps_total)
        self.mixes.clear()
        return done

    def pass_s(self, seconds: float) -> None:
        """Let time pass, and all learners look at it."""
        self.now_s += seconds
        for name in self.names:
            self.of[name].tick(self.now_s)
            self.collect(name)

    def share(self, sender: str, round_: int, *, wanted: bool = True) -> Share:
        fragment = FragmentIndex(round_ % self.settings.fragments)
        return Share(round_, fragment, self.roster[sender], 10, wanted, "digest")
