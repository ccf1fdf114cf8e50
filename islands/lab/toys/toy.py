"""Trainers without JAX: cheap arithmetic for simulations, and steps that only sleep.

`NumpyTrainer` minimises `½‖w − (target + noise)‖²`, where the noise belongs to the batch, by SGD
with momentum. Its optimum is the target, the same for all learners; a step costs microseconds
and repeats to the bit. So thousands of simulated learners run real rounds with real arithmetic.

On a `SleepingDevice`, `toy_workload.py` has a trainer without arithmetic for models of any size.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypedDict, Unpack

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from islands.layout.fragments import plan
from islands.layout.leaves import MOMENTS_PREFIX, Layout, Leaf, Role, default_role
from islands.model.interfaces import MOMENT_PIECE_BYTES, MomentsCopy, PendingStep, Snapshot
from islands.protocol.errors import InvariantError
from islands.protocol.ranges import Ranges
from islands.protocol.settings.choices import SnapshotPrecision
from islands.tasks.data.shards import ShardKey, ShardPlan
from messaging.clock import Clock, MonotonicClock
from messaging.codec.tensors import digest

NOISES = 61  # different noise vectors; a prime, so that shards differ whatever their number
BATCH_TOKENS = 8  # that one step of a toy counts by default
BATCHES_PER_SHARD = 64

TOY_SHAPES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("embedding", (16, 8)),
    ("layers/0/weight", (8, 24)),
    ("layers/0/bias", (24,)),
    ("layers/1/weight", (24, 8)),
    ("layers/1/bias", (8,)),
    ("scale", ()),
)


@dataclass(frozen=True, slots=True)
class ToyBatch:
    """One batch; its seed selects the noise."""

    seed: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ToyStep:
    """A step that finished when it was dispatched."""

    value: float

    def loss(self) -> float:
        return self.value

    def metrics(self) -> dict[str, float]:
        return {}

    def ready(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class ToySnapshot:
    """A copy that is on the host already."""

    array: NDArray[np.generic]

    def buffer(self) -> memoryview:
        return self.array.view(np.uint8).data.toreadonly()

    def ready(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class ToyMoments(ToySnapshot):
    """A piece of the momentum, and whether the whole momentum is finite."""

    sound: bool

    def finite(self) -> bool:
        """Whether the whole momentum was finite at the copy: a piece may be cut within a number."""
        return self.sound


class ToyOptions(TypedDict, total=False):
    """Options of a toy, whatever computes on it: its leaves, and virtual shards per pass.

    The seed decides the order of batches; of a `NumpyTrainer` also initial value, target and noise.
    With `merges_moments` a leaf lies beside each, which is trained like the others, and
    travels as moments do.
    """

    seed: int
    shapes: Sequence[tuple[str, tuple[int, ...]]]
    batch_tokens: int
    shards: int
    batches_per_shard: int
    merges_moments: bool


class ToyTask:
    """Fragments, shards and batches of a toy, whatever computes on them."""

    def __init__(self, fragments: int = 4, **options: Unpack[ToyOptions]) -> None:
        seed, shards = options.get("seed", 0), options.get("shards", 64)
        shapes = options.get("shapes", TOY_SHAPES)
        batches_per_shard = options.get("batches_per_shard", BATCHES_PER_SHARD)
        leaves = [Leaf(path, shape, "float32", default_role(path)) for path, shape in shapes]
        moments = {
            path: Leaf(MOMENTS_PREFIX + path, shape, "float32", Role.STATE)
            for path, shape in shapes
            if options.get("merges_moments", False)
        }
        self.layout: Layout = plan(
            [*leaves, *moments.values()],
            count=fragments,
            min_piece_bytes=4,
            labels={"task": "toy", "seed": str(seed)},
            beside={leaf.path: path for path, leaf in moments.items()},
        )
        self.shards: int = shards
        self._plan = ShardPlan(shards * batches_per_shard, shards, seed)
        self._batch_tokens = options.get("batch_tokens", BATCH_TOKENS)

    def setup(self) -> None:
        """There is nothing to compile."""

    @property
    def hardware(self) -> str:
        return ""

    @property
    def compiling(self) -> bool:
        return False

    def share(self, fragment: int) -> Ranges:
        return ((0, self.layout.fragments[fragment].size),)

    def shares(self, fragment: int) -> tuple[Ranges, ...]:
        return (self.share(fragment),)

    def prepare_giving(self) -> None:
        """There is nothing to compile."""

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        for record, after in self._plan.groups(shard, position, 1):
            yield ToyBatch(int(record[0]), self._batch_tokens), after

    def tokens(self, batch: object) -> int:
        return _toy(batch).tokens


class NumpyTrainer(ToyTask):
    """A learner of a noisy quadratic, deterministic and without JAX.

    Batches have `noises` different targets, with a standard deviation of `noise` around the true
    one. With `momentum` 0 there are no moments to keep or lose.
    """

    def __init__(
        self,
        fragments: int = 4,
        *,
        noise: float = 0.1,
        momentum: float = 0.5,
        noises: int = NOISES,
        moment_piece_bytes: int = MOMENT_PIECE_BYTES,
        **options: Unpack[ToyOptions],
    ) -> None:
        super().__init__(fragments, **options)
        self._momentum = np.float32(momentum)
        self._moment_piece_bytes = moment_piece_bytes
        rng = np.random.default_rng(options.get("seed", 0))
        size = self.layout.size
        self._initial = rng.standard_normal(size, np.float32)
        self._target = rng.standard_normal(size, np.float32)
        self._noise = rng.standard_normal((noises, size), np.float32) * np.float32(noise)
        ends = accumulate((fragment.size for fragment in self.layout.fragments), initial=0)
        self._ranges = [slice(*each) for each in pairwise(ends)]
        self._local = self._initial.copy()
        self._base = self._initial.copy()
        self._moment = np.zeros_like(self._initial)

    @np.errstate(invalid="ignore", over="ignore")  # a broken learner is a case to simulate
    def step(self, batch: object, learning_rate: float) -> PendingStep:
        """Take one step of SGD with momentum: m ← μm + g; w ← w − ηm."""
        noise = self._noise[_toy(batch).seed % len(self._noise)]
        gradient = self._local - self._target - noise
        self._moment = self._momentum * self._moment + gradient
        self._local = self._local - np.float32(learning_rate) * self._moment
        return ToyStep(0.5 * float(gradient @ gradient))

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> Snapshot:
        where = self._ranges[fragment]
        difference = self._base[where] - self._local[where]
        wire = ml_dtypes.bfloat16 if precision == "bfloat16" else np.float32
        return ToySnapshot(difference.astype(wire, copy=False))

    def value(self, fragment: int) -> NDArray[np.float32]:
        return self._local[self._ranges[fragment]].copy()

    def base_of(self, fragment: int) -> NDArray[np.float32]:
        return self._base[self._ranges[fragment]].copy()

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        where = self._ranges[fragment]
        self._base[where] = self._local[where] = value

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        where = self._ranges[fragment]
        known = self._base[where] if sent is None else self._base[where] - sent
        self._local[where] += value - known
        self._base[where] = value

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        where = self._ranges[fragment]
        self._local[where] = share * self._local[where] + (1 - share) * value
        self._base[where] = value

    def inflate(self, factor: float) -> None:
        self._local *= np.float32(factor)

    def finite(self) -> bool:
        return bool(np.isfinite(self._local).all() and np.isfinite(self._moment).all())

    def reset_moments(self) -> None:
        self._moment = np.zeros_like(self._local)

    @property
    def moments_schema(self) -> str:
        """Digest of the momentum's description; "" without momentum."""
        if not self._momentum:
            return ""
        words = f"momentum {self._moment.dtype} {self._moment.shape}"
        return digest(memoryview(words.encode()))

    @property
    def moment_pieces(self) -> int:
        return -(-self._moment.nbytes // self._moment_piece_bytes) if self._momentum else 0

    def read_moments(self, piece: int) -> MomentsCopy:
        piece_bytes = np.array(self._moment.view(np.uint8)[self._moment_range(piece)])
        return ToyMoments(piece_bytes, bool(np.isfinite(self._moment).all()))

    def load_moments(self, pieces: Sequence[memoryview]) -> None:
        ranges = [self._moment_range(piece) for piece in range(self.moment_pieces)]
        wanted = [where.stop - where.start for where in ranges]
        check_pieces(pieces, wanted)
        moment = np.empty_like(self._moment)
        for where, buffer in zip(ranges, pieces, strict=True):
            moment.view(np.uint8)[where] = np.frombuffer(buffer, np.uint8)
        self._moment = moment

    def _moment_range(self, piece: int) -> slice:
        start = piece * self._moment_piece_bytes
        return slice(start, min(start + self._moment_piece_bytes, self._moment.nbytes))

    def evaluate(self, values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        """Return the noiseless loss of a whole model."""
        error = np.concatenate(list(values)) - self._target
        return {"loss": 0.5 * float(error @ error)}


@dataclass(frozen=True, slots=True)
class SleepingStep(ToyStep):
    """A step whose end was known when it was dispatched."""

    done_s: float
    clock: Clock

    def loss(self) -> float:
        while (left_s := self.done_s - self.clock.now_s()) > 0:  # a sleep may end early
            time.sleep(left_s)  # noqa: TID251  a step that sleeps
        return self.value

    def ready(self) -> bool:
        return self.clock.now_s() >= self.done_s


class SleepingDevice:
    """A device that only sleeps, one step after the other, and is idle if a dispatch comes late.

    All dispatched steps will be done at `free_s` on `MonotonicClock`.
    """

    def __init__(self, step_s: float) -> None:
        self.free_s = 0.0
        self.step_s = step_s
        self._clock = MonotonicClock()

    def occupy(self, loss: float, longer_s: float = 0.0) -> PendingStep:
        """Queue one more step with this loss, which may take `longer_s` more than others."""
        self.free_s = max(self.free_s, self._clock.now_s()) + self.step_s + longer_s
        return SleepingStep(loss, self.free_s, self._clock)


def check_pieces(pieces: Sequence[memoryview], wanted: Sequence[int]) -> None:
    given = [buffer.nbytes for buffer in pieces]
    if given != wanted:
        raise InvariantError(f"moments are pieces of {wanted} bytes, not {given}")


def _toy(batch: object) -> ToyBatch:
    if not isinstance(batch, ToyBatch):
        raise InvariantError(f"a toy trainer was given a {type(batch).__name__}")
    return batch
