"""Kills and rejoins of a simulated run, whose records are followed one by one.

`Followed` learners write down every record that a step trains on. What they wrote is compared with
the leases on the tape, by rules that know nothing of the lease book:

* A shard is leased from its start, and each later holder begins where the one before is known to
  have read to. All records before that place were trained on.
* A record that is trained on twice lies in the unreported tail: behind every position that the
  journal held, and behind every report that its first reader sent to this syncer in time.
* Shards are leased in order, and one that is given up was read to its end.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from islands.lab.checker.evidence import History
from islands.lab.faults.fault import Fault, FaultKind, Injection
from islands.lab.toys.toy import NumpyTrainer, ToyBatch
from islands.lab.world.scenario import Scenario, draw, kill
from islands.lab.world.trial import Outcome, play, trainers_of
from islands.lab.world.world import BATCHES_PER_SHARD, LearnerHost
from islands.model.interfaces import PendingStep
from islands.protocol.identities import SUPERVISOR, SYNCER
from islands.protocol.tape.learner_entries import Reported
from islands.protocol.tape.member_entries import ProcessStarted
from islands.protocol.tape.round_entries import BookClosed, Granted, LeaseReturned
from islands.protocol.tape.simulation_entries import ProcessKilled
from islands.tasks.data.shards import ShardKey

IN_TIME_S = 1.0
"""A report that was sent so long before its sender's end has arrived, unless a link was down."""

Record = tuple[int, int, int]
"""Pass, shard, and position in it."""


@dataclass(frozen=True, slots=True)
class FollowedBatch(ToyBatch):
    """A batch of one record, which says which it is."""

    record: Record = (0, 0, 0)


class FollowedTrainer(NumpyTrainer):
    """A learner that writes down the records it trains on."""

    read: list[Record]

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        for batch, after in super().batches(shard, position):
            assert isinstance(batch, ToyBatch)
            record = (shard.pass_index, shard.shard, after - 1)
            yield FollowedBatch(batch.seed, batch.tokens, record), after

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        assert isinstance(batch, FollowedBatch)
        self.read.append(batch.record)
        return super().step(batch, learning_rate)


@dataclass(slots=True)
class Followed:
    """What became of the records of one run."""

    outcome: Outcome
    read: list[Record]
    faults: list[str] = field(default_factory=list)

    @property
    def repeats(self) -> int:
        """How many of the steps were on a record that had been trained on before."""
        return len(self.read) - len(set(self.read))


def kills_and_rejoins(seed: int) -> Scenario:
    """Draw a run whose learners, syncer and supervisor are killed again and again, and return."""
    scenario, rng = draw(seed), random.Random(f"records {seed}")
    learners = tuple(scenario.hosts)
    injections: list[Injection] = []
    for _ in range(rng.randrange(3, 10)):
        at_s, down_s = rng.uniform(0.2, scenario.heal_s), rng.choice((0.0, 0.3, 1.5, 4.0))
        name = rng.choice((*learners, *learners, SYNCER, SUPERVISOR))
        if name in learners and rng.random() < 0.2:
            injections.append(Injection(Fault(FaultKind.TERMINATE, for_s=down_s), (name,), at_s))
        else:
            both = name == SYNCER and rng.random() < 0.5
            names = (rng.choice(learners), name) if both else (name,)
            silent, in_write = rng.random() < 0.3, rng.random() < 0.5 and SYNCER in names
            down = (down_s,) * len(names)
            injections.append(kill(at_s, names, down, silent=silent, in_write=in_write))
    return replace(
        scenario, injections=tuple(sorted(injections, key=lambda injection: injection.at_s))
    )


def follow(seed: int) -> Followed:
    """Play the run of a seed, and find what its records say against it."""
    scenario = kills_and_rejoins(seed)
    read: list[Record] = []
    plain = replace(trainers_of(scenario), kind=FollowedTrainer)

    def trainers(name: str, host: LearnerHost) -> NumpyTrainer:
        trainer = plain(name, host)
        assert isinstance(trainer, FollowedTrainer)
        trainer.read = read
        return trainer

    followed = Followed(play(scenario, trainers), read)
    history = History.of(followed.outcome.lines)
    followed.faults += _Shards(set(read), scenario.shards).judge(history)
    followed.faults += reports_count(history)
    return followed


@dataclass(slots=True)
class _Shards:
    """What the journal says of each shard: its holder, and the place it is known to be read to."""

    read: set[Record]
    shards: int
    known: dict[tuple[int, int], int] = field(default_factory=dict)
    holder: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)

    def judge(self, history: History) -> Iterator[str]:
        """Compare what was read with the leases that the journal preserved."""
        for _, _, entry in history.effective:
            if isinstance(entry, Granted):
                yield from self._granted(entry)
            elif isinstance(entry, LeaseReturned):
                returned = (entry.pass_index, entry.shard)
                yield from self._goes_on(returned, entry.position)
                self.holder.pop(returned, None)
        for (pass_index, shard), position in self.known.items():
            for place in range(position):
                if (pass_index, shard, place) not in self.read:
                    yield f"record {place} of shard {pass_index}/{shard} was never trained on"
        ordinals = sorted(pass_index * self.shards + shard for pass_index, shard in self.known)
        if ordinals != list(range(len(ordinals))):
            yield f"shards were left out: {ordinals}"

    def _granted(self, entry: Granted) -> Iterator[str]:
        who = (entry.name, entry.incarnation)
        held = {(pass_index, shard) for pass_index, shard, _ in entry.leases}
        for pass_index, shard, position in entry.leases:
            yield from self._goes_on((pass_index, shard), position)
            self.holder[pass_index, shard] = who
        for done in [s for s, holder in self.holder.items() if holder == who and s not in held]:
            self.known[done] = BATCHES_PER_SHARD
            del self.holder[done]

    def _goes_on(self, shard: tuple[int, int], position: int) -> Iterator[str]:
        before = self.known.get(shard, 0)
        if position < before:
            yield f"shard {shard} goes on at {position}, the journal held {before}"
        self.known[shard] = position


def reports_count(history: History) -> Iterator[str]:
    """A shard that goes back does so no earlier than where its holder had reported in time."""
    reports: dict[tuple[str, str, int, int], list[tuple[float, int]]] = {}
    ended: tuple[str, str] = ("", "")
    begun_s, killed_s = 0.0, dict[str, list[float]]()
    for at_s, actor, entry in history.lines:
        if isinstance(entry, ProcessStarted) and entry.name == SYNCER:
            begun_s = at_s
        elif isinstance(entry, ProcessKilled):
            killed_s.setdefault(entry.name, []).append(at_s)
        elif isinstance(entry, Reported):
            for pass_index, shard, position in entry.leases:
                key = (actor, entry.incarnation, pass_index, shard)
                reports.setdefault(key, []).append((at_s, position))
        elif isinstance(entry, BookClosed):
            ended = (entry.name, entry.incarnation)
        elif isinstance(entry, LeaseReturned):
            for sent_s, position in reports.get((*ended, entry.pass_index, entry.shard), []):
                kills_s = [each for each in killed_s.get(entry.name, ()) if each > sent_s]
                lived_s = min([at_s, *kills_s]) - sent_s
                heard = begun_s + IN_TIME_S < sent_s and lived_s > IN_TIME_S
                if heard and position > entry.position:
                    yield (
                        f"shard {entry.pass_index}/{entry.shard} goes back at {entry.position}, "
                        f"and {entry.name} had reported {position} at {sent_s:.2f} s"
                    )
