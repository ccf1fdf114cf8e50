"""The data of steps: the user's own, or the batches of the leases."""

from collections.abc import Sequence

from islands.model.interfaces import Trainer
from islands.protocol.identities import Lease
from islands.tasks.data.batch_source import BatchSource, key_of
from islands.tasks.data.shards import ShardKey


class StepData:
    """The data of steps, of so many tokens each; only subclasses read the leases.

    `leases` are those that are held, with the positions of the steps that were counted.
    """

    def __init__(self, tokens: int) -> None:
        self.leases: tuple[Lease, ...] = ()
        self._tokens = tokens

    def follow(self, leases: Sequence[Lease]) -> None:
        """Replace the leases; positions reached here outrank older ones that come back."""
        self.leases = tuple(leases)

    def next_tokens(self) -> int | None:
        """Return the tokens of the next step, or the least of one whose batch may yet come.

        None: the leases have no data for a step.
        """
        return self._tokens

    def ready(self) -> bool:
        """Read the next batch unless it was read; return whether there is one."""
        return True

    @property
    def expecting(self) -> bool:
        """Whether there is no batch, and one may come without another lease."""
        return False

    def booked(self) -> None:
        """Count what was taken for the last step."""


class TrainerData(StepData):
    """The batches of the leases, as a trainer reads them; by default when they are needed."""

    def __init__(self, trainer: Trainer, source: BatchSource | None = None) -> None:
        super().__init__(1)
        self._tokens_of = trainer.tokens
        self._source = source or BatchSource(trainer.batches)
        self._reading: ShardKey | None = None
        self._batch: object | None = None
        self._position = 0

    def follow(self, leases: Sequence[Lease]) -> None:
        reached = {key_of(lease): lease for lease in self.leases}
        self.leases = tuple(max(lease, reached.get(key_of(lease), lease)) for lease in leases)
        if not any(
            key_of(lease) == self._reading and lease.position < self._position
            for lease in self.leases
        ):
            self._batch = None
        self._source.follow([lease for lease in self.leases if not lease.done])

    def next_tokens(self) -> int | None:
        if self._batch is None:
            self._fetch()
        if self._batch is None:
            return super().next_tokens() if self.expecting else None
        return self._tokens_of(self._batch)

    def ready(self) -> bool:
        return self._batch is not None

    @property
    def expecting(self) -> bool:
        return self._batch is None and self._source.expecting

    def take(self) -> object:
        batch, self._batch = self._batch, None
        assert batch is not None, "the boundary was not asked"
        return batch

    def booked(self) -> None:
        self._reached(done=False)

    def _fetch(self) -> None:
        while (taken := self._source.take()) is not None:  # each turn ends a lease, or returns
            self._reading, self._position = taken.shard, taken.position
            if taken.batch is not None:
                self._batch = taken.batch
                return
            self._reached(done=True)

    def _reached(self, *, done: bool) -> None:
        self.leases = tuple(
            Lease(lease.pass_index, lease.shard, self._position, done)
            if key_of(lease) == self._reading
            else lease
            for lease in self.leases
        )
