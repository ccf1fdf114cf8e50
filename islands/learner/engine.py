"""The steps of a trainer, whether a device's thread or the virtual clock drives them.

The engine owns the trainer. At each boundary (`boundary.py`) commands are carried out; then the
engine reads the next batch of the leases, and dispatches a step on it if quota and data allow.
"""

from collections.abc import Callable
from dataclasses import dataclass

from islands.learner.boundary import Boundary, Copier, EngineEvent
from islands.model.interfaces import PendingStep, Trainer, first_pass
from islands.protocol.identities import Lease
from islands.protocol.settings.run import RunSettings
from islands.tasks.data.batch_source import BatchSource, key_of
from islands.tasks.data.shards import ShardKey


@dataclass(frozen=True, slots=True)
class Running:
    """A dispatched step, with the totals and the lease positions after it."""

    pending: PendingStep
    steps: int
    tokens: int
    leases: tuple[Lease, ...]
    batch_tokens: int


class Engine:
    """Dispatches the steps of a trainer between boundaries.

    After `has_work` found none, `waiting` says that only a pending merge keeps it from stepping,
    and `late` that only a batch does that has not been read yet.

    Args:
        trainer: does the arithmetic.
        settings: settings of the run.
        report: receives an event for every command that has a result.
        copier: waits for copies to the host.
        source: reads the batches; by default each is read when it is needed.
    """

    def __init__(
        self,
        trainer: Trainer,
        settings: RunSettings,
        *,
        report: Callable[[EngineEvent], None],
        copier: Copier,
        source: BatchSource | None = None,
    ) -> None:
        self.trainer = trainer
        self.boundary = Boundary(
            trainer, settings, report=report, copier=copier, follow=self._follow
        )
        self.waiting = False
        self.late = False
        self._settings = settings
        self._leases: tuple[Lease, ...] = ()
        self._source = source or BatchSource(trainer.batches)
        self._reading: ShardKey | None = None
        self._next_batch: object | None = None
        self._next_position = 0

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The leases held, with the positions reached by the steps dispatched so far."""
        return self._leases

    def probe_batch(self) -> object:
        """A batch like those to come, for compiling and for counting its tokens."""
        return next(first_pass(self.trainer))

    def _follow(self, leases: tuple[Lease, ...]) -> None:
        """Replace the leases; positions reached here outrank older ones that come back."""
        reached = {(lease.pass_index, lease.shard): lease for lease in self._leases}
        self._leases = tuple(
            max(lease, reached.get((lease.pass_index, lease.shard), lease)) for lease in leases
        )
        if not any(
            key_of(lease) == self._reading and lease.position < self._next_position
            for lease in self._leases
        ):
            self._next_batch = None
        self._source.follow([lease for lease in self._leases if not lease.done])

    def has_work(self) -> bool:
        """Fetch the next batch; returns whether quota, data and pending merges allow a step on it.

        Without quota or leases, the values that were to be adopted later are adopted now.
        """
        if self._next_batch is None:
            self._next_batch = self._fetch()
        batch = self._next_batch
        needed = 1 if batch is None else self.trainer.tokens(batch)
        unused = self.boundary.granted(needed)
        late = batch is None and unused and self.awaits_data
        able = unused and (batch is not None or late)
        self.waiting = able and self.boundary.awaits_merge
        self.late = late and not self.waiting
        if not able or self.late:
            self.boundary.stood_still()
        if not able:
            self.boundary.adopt_now()
        return able and not (self.late or self.waiting)

    def _fetch(self) -> object | None:
        """The next batch of the leases; None if there is none at the moment."""
        while (taken := self._source.take()) is not None:  # each turn ends a lease, or returns
            self._reading, self._next_position = taken.shard, taken.position
            if taken.batch is not None:
                return taken.batch
            self._reached(done=True)
        return None

    @property
    def awaits_data(self) -> bool:
        """Whether there is no batch, and one may come without another lease."""
        return self._next_batch is None and self._source.expecting

    def _reached(self, *, done: bool) -> None:
        self._leases = tuple(
            Lease(lease.pass_index, lease.shard, self._next_position, done)
            if key_of(lease) == self._reading
            else lease
            for lease in self._leases
        )

    def dispatch(self) -> Running:
        """Dispatch the next step; `has_work` must have returned True."""
        batch = self._next_batch
        assert batch is not None, "has_work() was not asked"
        self._next_batch = None
        batch_tokens = self.trainer.tokens(batch)
        rate = self._settings.learning_rate_at(self.boundary.clock)
        pending = self.trainer.step(batch, rate)
        self.boundary.stepped(batch_tokens)
        self._reached(done=False)
        return Running(
            pending, self.boundary.steps, self.boundary.tokens, self._leases, batch_tokens
        )
