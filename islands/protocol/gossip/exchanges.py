"""Exchanges of values between neighbours: a state machine without clock, network or arrays.

    resting ──H/P steps, or a neighbour's offer──▶ sharing ──own share taken──▶ waiting for others
       ▲                                                                            │
       ├──◀── widowed: nobody's share came ──◀──────────────────────────────────────┤
       └──◀── mixed ──◀── mixing ──◀── all shares came, or those that came in time ──┘

1. Round r is on fragment r mod P, and `clock` is the newest round that a learner came to. It comes
   to the next one after H/P steps of its own, or when a neighbour offers its share of it: so the
   fastest learner sets the pace, and nobody waits.
2. A share is a snapshot at a step boundary. Both sides step on while it travels, and that work is
   kept on top of the new value (delay correction).
3. Whoever has not answered by the deadline is left out; rounds that come meanwhile pass. With at
   least one share the learner makes its gossip step, else it is *widowed* and keeps its work.
4. An exchange is not atomic: where an answer is lost, one of two has stepped with the other's
   share, and the other has not. Each learner's values change by its own steps alone, so nothing is
   lost or counted twice.
5. A neighbour is known by name and incarnation from the roster. A share that no honest learner
   sends is refused.
6. Who is a neighbour in a round follows from seed, round and roster alone. While two rosters
   differ, an offer may reach a learner that has another partner in that round, and declines it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import assert_never

from islands.protocol.gossip.actions import Mix, Payload, TakeShare, ToNeighbour
from islands.protocol.gossip.events import ShareArrived, ShareTaken
from islands.protocol.identities import FragmentIndex, Incarnation
from islands.protocol.messages.gossip import Share, ShareDeclined
from islands.protocol.settings.choices import Neighbours
from islands.protocol.settings.gossip import GossipSettings
from islands.protocol.settings.run import RunSettings
from islands.protocol.tape.entry import Record
from islands.protocol.tape.gossip_entries import Exchanged, Widowed
from islands.protocol.tape.process_entries import KeptOut

JUMP_MAX = 1024
"""Rounds by which a neighbour may be ahead: learners without neighbours count rounds too."""

REPEATS = 4
"""In so many parts of its time an exchange asks again for a share that has not come."""

INTERVALS = 2
"""An exchange may take so many intervals of a fragment, where that is long."""

ExchangeAction = TakeShare | ToNeighbour | Mix | Record


@dataclass(slots=True)
class Exchange:
    """One round of a fragment that is under way.

    `awaited` are the neighbours whose shares may come yet, `shares` those that came, and `missing`
    the reasons of the others. `own` is the own share, taken at the total of `steps_total`.
    """

    round: int
    began_s: float
    deadline_s: float
    repeat_s: float
    awaited: dict[str, Incarnation]
    shares: dict[str, Payload] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    own: Payload | None = None
    steps_total: int = 0
    mixing: bool = False


class Exchanges:
    """All exchanges of one learner in a run of P `fragments`; none before `begin`."""

    def __init__(self, settings: RunSettings, name: str, fragments: int) -> None:
        self.clock = -1
        self.open: dict[int, Exchange] = {}
        self._settings = settings
        self._name = name
        self._fragments = fragments
        self._roster: dict[str, Incarnation] = {}
        self._incarnation: Incarnation | None = None
        self._steps = 0
        self._interval_s = 0.0
        self._due_steps = 0.0
        self._mixed_steps = [0] * fragments
        self._last: dict[int, tuple[Share, Payload]] = {}
        self._actions: list[ExchangeAction] = []

    @property
    def _interval_steps(self) -> float:
        return self._settings.round_interval_steps(self._fragments)

    def drain(self) -> list[ExchangeAction]:
        actions, self._actions = self._actions, []
        return actions

    # --- when exchanges are allowed -------------------------------------------------------------

    def begin(self, incarnation: Incarnation, steps: int, clock: int | None = None) -> None:
        """Take part from here on, under this incarnation; `clock` is a peer's newest round."""
        self._incarnation = incarnation
        self.clock = max(self.clock, -1 if clock is None else clock)
        self._steps = steps
        self._due_steps = steps + self._interval_steps
        self._mixed_steps = [steps] * self._fragments

    def end(self) -> None:
        """Take part no more; what is being mixed is still finished."""
        self._incarnation = None
        self.open = {fragment: one for fragment, one in self.open.items() if one.mixing}
        self._last.clear()

    @property
    def active(self) -> bool:
        return self._incarnation is not None

    def on_roster(self, roster: Mapping[str, Incarnation], now_s: float) -> None:
        """Await no more who has gone, or come back as another."""
        self._roster = {name: roster[name] for name in sorted(roster) if name != self._name}
        for fragment in sorted(self.open):
            exchange = self.open[fragment]
            for name in list(exchange.awaited):
                if self._roster.get(name) != exchange.awaited[name]:
                    self._miss(exchange, name, "gone")
            self._close(fragment, now_s)

    # --- rounds ---------------------------------------------------------------------------------

    def stepped(self, steps: int, now_s: float, step_s: float = 0.0) -> None:
        """Come to every round that is due after so many steps; the last one took `step_s`."""
        self._steps, self._interval_s = steps, self._settings.interval_steps * step_s
        while self.active and steps >= self._due_steps:
            self._due_steps += self._interval_steps
            self._come_to(self.clock + 1, now_s)

    def tick(self, now_s: float) -> None:
        """End exchanges whose deadline has passed; ask again for shares that may be lost."""
        for fragment in sorted(self.open):
            exchange = self.open[fragment]
            if exchange.mixing:
                continue
            if now_s >= exchange.deadline_s:
                self._give_up(fragment, now_s)
            elif exchange.own is not None and now_s >= exchange.repeat_s:
                exchange.repeat_s = now_s + self._limit_s / REPEATS
                for name in list(exchange.awaited):
                    self._send(fragment, name)

    @property
    def _limit_s(self) -> float:
        """The longest time of an exchange: far links and large models need more than a round."""
        timing = self._settings.timing
        return max(timing.scaled(timing.round_s), INTERVALS * self._interval_s)

    def _come_to(self, round_: int, now_s: float) -> None:
        """Begin an exchange, unless one of the fragment goes on, or there is no neighbour."""
        self.clock = round_
        fragment = round_ % self._fragments
        if fragment in self.open:
            return
        group = self._group(round_)
        if not group:
            return
        ends_s, repeat_s = now_s + self._limit_s, now_s + self._limit_s / REPEATS
        self.open[fragment] = Exchange(round_, now_s, ends_s, repeat_s, group)
        clock = (round_ + 1) * self._interval_steps
        self._actions.append(TakeShare(FragmentIndex(fragment), round_, clock))

    def _group(self, round_: int) -> dict[str, Incarnation]:
        names = neighbours_of(
            self._name,
            self._settings.gossip,
            seed=self._settings.seed,
            round_=round_,
            cycle=round_ // self._fragments,
            roster=self._roster,
        )
        return {name: self._roster[name] for name in names}

    # --- shares ---------------------------------------------------------------------------------

    def on_own_share(self, taken: ShareTaken, now_s: float) -> None:
        fragment = taken.fragment
        exchange = self.open.get(fragment)
        if exchange is None or exchange.round != taken.round or self._incarnation is None:
            return
        exchange.own, exchange.steps_total = taken.payload, taken.steps
        share = Share(
            round=taken.round,
            fragment=fragment,
            incarnation=self._incarnation,
            steps=taken.steps - self._mixed_steps[fragment],
            wanted=False,
            digest=taken.digest,
        )
        self._last[fragment] = share, taken.payload
        for name in sorted({*exchange.awaited, *exchange.shares}):
            self._send(fragment, name)
        self._close(fragment, now_s)

    def on_share(self, arrived: ShareArrived, now_s: float) -> None:
        """Receive a share, which may be an offer, an answer, a copy, late, or a lie."""
        sender, share = arrived.sender, arrived.message
        if self._roster.get(sender) != share.incarnation or not self.active:
            self._decline(sender, share, "not known here, or not taking part")
            return
        problem = arrived.problem or self._problem(share)
        if problem is not None:
            self._refuse(sender, share, problem, now_s)
            return
        if share.round > self.clock:
            if sender not in self._group(share.round):
                self._decline(sender, share, "another neighbour in this round")
                return
            ahead = (share.round - self.clock) * self._interval_steps
            self._due_steps = min(self._due_steps + ahead, self._steps + self._interval_steps)
            self._come_to(share.round, now_s)
        self._admit(sender, share, arrived.payload, now_s)

    def _admit(self, sender: str, share: Share, payload: Payload, now_s: float) -> None:
        fragment = share.fragment
        exchange = self.open.get(fragment)
        current = exchange is not None and exchange.round == share.round
        if exchange is not None and current and sender in exchange.awaited:
            del exchange.awaited[sender]
            exchange.shares[sender] = payload
            if share.wanted and exchange.own is not None:
                self._send(fragment, sender)
            self._close(fragment, now_s)
        elif share.wanted:
            last = self._last.get(fragment)
            if last is not None and last[0].round == share.round:
                self._send(fragment, sender)  # ours may be lost; theirs is here, or came too late
            elif not current:
                self._decline(sender, share, "that round is over here")

    def on_decline(self, sender: str, declined: ShareDeclined, now_s: float) -> None:
        exchange = self.open.get(declined.fragment)
        if exchange is None or exchange.round != declined.round:
            return
        if exchange.awaited.get(sender) == declined.incarnation:
            self._miss(exchange, sender, declined.reason)
            self._close(declined.fragment, now_s)

    def on_mixed(self, fragment: int, steps_total: int) -> None:
        """End an exchange, since its gossip step was computed and is about to be adopted."""
        self.open.pop(fragment, None)
        self._mixed_steps[fragment] = steps_total

    def _problem(self, share: Share) -> str | None:
        """Return why no honest learner sends such a share, if none does."""
        if share.round < 0 or share.fragment != share.round % self._fragments:
            return f"round {share.round} is not on fragment {share.fragment}"
        if share.round > self.clock + JUMP_MAX:
            return f"round {share.round} is far ahead of {self.clock}"
        return None

    def _refuse(self, sender: str, share: Share, reason: str, now_s: float) -> None:
        self._actions.append(Record(KeptOut(sender, f"values of round {share.round}", reason)))
        self._decline(sender, share, f"refused: {reason}")
        for fragment in sorted(self.open):
            exchange = self.open[fragment]
            if exchange.round == share.round and sender in exchange.awaited:
                self._miss(exchange, sender, f"refused: {reason}")
                self._close(fragment, now_s)

    # --- the end of an exchange -----------------------------------------------------------------

    def _give_up(self, fragment: int, now_s: float) -> None:
        """Go on with the shares that came; without the own one nothing can be mixed."""
        exchange = self.open[fragment]
        for name in list(exchange.awaited):
            self._miss(exchange, name, "no answer in time")
        if exchange.own is None:
            exchange.missing |= dict.fromkeys(exchange.shares, "no snapshot in time")
            exchange.shares.clear()
        self._close(fragment, now_s)

    @staticmethod
    def _miss(exchange: Exchange, name: str, reason: str) -> None:
        exchange.awaited.pop(name, None)
        exchange.missing[name] = reason

    def _close(self, fragment: int, now_s: float) -> None:
        """Mix what came, once nothing more is awaited; without any share step on."""
        exchange = self.open[fragment]
        if exchange.mixing or exchange.awaited:
            return
        if not exchange.shares:
            del self.open[fragment]
            self._actions.append(Record(Widowed(exchange.round, fragment, exchange.missing)))
        elif exchange.own is not None:
            exchange.mixing = True
            entry = Exchanged(
                round=exchange.round,
                fragment=fragment,
                partners=sorted(exchange.shares),
                missing=exchange.missing,
                steps=self._last[fragment][0].steps,
                after_s=round(now_s - exchange.began_s, 6),
            )
            self._actions.append(Record(entry))
            index = FragmentIndex(fragment)
            self._actions.append(Mix(index, exchange.steps_total, exchange.own, exchange.shares))

    def _send(self, fragment: int, name: str) -> None:
        message, payload = self._last[fragment]
        exchange = self.open.get(fragment)
        wanted = exchange is not None and name in exchange.awaited
        self._actions.append(ToNeighbour(name, replace(message, wanted=wanted), payload))

    def _decline(self, peer: str, share: Share, reason: str) -> None:
        if self._incarnation is not None and share.wanted:
            declined = ShareDeclined(share.round, share.fragment, self._incarnation, reason)
            self._actions.append(ToNeighbour(peer, declined))


def neighbours_of(
    name: str,
    settings: GossipSettings,
    *,
    seed: int,
    round_: int,
    cycle: int,
    roster: Iterable[str],
) -> tuple[str, ...]:
    """Return the names of a learner's neighbours in a round, in order; empty if it rests.

    `cycle` counts the rounds of this fragment before it. The learner itself takes part whether it
    is in the roster or not.
    """
    names = sorted({*roster, name})
    every = settings.everyone_every
    if settings.on and every is not None and cycle % (every + 1) == every:
        return tuple(other for other in names if other != name)
    match settings.neighbours:
        case Neighbours.NOBODY:
            return ()
        case Neighbours.RANDOM_PAIRS:
            pairs = random_pairs(names, seed=seed, round_=round_)
            return tuple(other for pair in pairs if name in pair for other in pair if other != name)
        case Neighbours.RING:
            return ring(name, names)
        case Neighbours.GRAPH:
            present = dict.fromkeys(names)
            return tuple(one for one in settings.lines.get(name, ()) if one in present)
        case _:
            assert_never(settings.neighbours)


def random_pairs(names: Iterable[str], *, seed: int, round_: int) -> tuple[tuple[str, str], ...]:
    """Pair all names at random, by the order of keyed digests; of an odd number one rests."""

    def drawn(name: str) -> bytes:
        return blake2b(f"{seed}/{round_}/{name}".encode(), digest_size=16).digest()

    order = sorted(names, key=lambda name: (drawn(name), name))
    return tuple(zip(order[::2], order[1::2], strict=False))


def ring(name: str, names: list[str]) -> tuple[str, ...]:
    """Return those before and after a name in a ring of sorted names; one of two, none alone."""
    index, size = names.index(name), len(names)
    return tuple(sorted({names[index - 1], names[(index + 1) % size]} - {name}))
