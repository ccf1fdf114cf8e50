"""A `Trainer` that trains a `Task` with JAX, on one device or on a mesh (`placement.py`).

What a boundary does with the leaves and the bases alone is in `jax_model.py`. Here are the steps,
and the state of the inner optimizer.

Donation: the parameters, the optimizer's state and the task's state are donated to every step, and
the leaves of a fragment to every adoption, so a learner holds its model once.

Trainers of equal tasks in one process share their compiled functions (`compiled_steps.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import jax
import numpy as np
from jax.stages import Compiled
from jaxtyping import Array, PyTree
from numpy.typing import NDArray

from islands.layout.fragments import MIN_PIECE_BYTES
from islands.layout.leaves import Layout
from islands.model.compiled_steps import CompiledSteps, compiled_steps_for, copied_words
from islands.model.device_transfer import Leaves, PieceShape, cut_of, read_rows, shape_of
from islands.model.evaluation import evaluated
from islands.model.interfaces import MomentsCopy, PendingStep, Snapshot, Trainer, first_pass
from islands.model.jax_model import JaxModel
from islands.model.jax_settings import compiling
from islands.model.moment_pieces import MomentSnapshot, is_key
from islands.model.moment_plan import Part, joined
from islands.model.placement import LearnerPlacement, placed
from islands.model.second_moments import advance, rows_beside
from islands.protocol.errors import InvariantError
from islands.protocol.ranges import Ranges
from islands.protocol.settings.choices import Adoption, Pattern, SnapshotPrecision
from islands.tasks.data.shards import ShardKey
from islands.tasks.task import Task

_Call = tuple[Callable[..., PyTree], tuple[PyTree, ...]]  # a compiled function, its arguments


@dataclass(frozen=True, slots=True)
class JaxStep:
    """A dispatched step."""

    array: Array
    told: Mapping[str, Array]

    def loss(self) -> float:
        return float(self.array)

    def metrics(self) -> dict[str, float]:
        return {name: float(value) for name, value in jax.device_get(dict(self.told)).items()}

    def ready(self) -> bool:
        """Whether the device has computed the loss."""
        return bool(self.array.is_ready())  # type: ignore[attr-defined]  # untyped in JAX


@dataclass(slots=True)
class _Learner:
    """The arrays of a learner on its devices."""

    model: JaxModel
    optimizer_state: PyTree
    carried: Leaves
    frozen: Leaves


class JaxTrainer:
    """One learner's arithmetic.

    Args:
        task: The task to train.
        fragments: P, the number of fragments asked for.
        pattern: How leaves are spread over fragments.
        seed: Seed of the run, for the initial parameters.
        learner_seed: Seed of this learner, for the randomness inside its losses.
        devices: The devices it computes on; None: JAX's first.
        model_parallel: Number of devices over which the parameters are cut; it divides the number
            of all. The rest share the rows of each batch.
        precision: Precision on the wire, so that `setup` compiles the snapshots needed later.
        adoption: How values will be adopted, so that `setup` compiles it.
        merges_moments: Whether the optimizer's moments are merged like parameters.
        interval_steps: H, or its first value; see `second_moments.py`.
        min_piece_bytes: Least size of a fragment's largest piece.

    Raises:
        TaskError: The task's parameters cannot be trained; the sentence says which and why.
        SettingsError: `model_parallel` does not divide the number of devices.
    """

    def __init__(
        self,
        task: Task[PyTree],
        fragments: int = 24,
        *,
        pattern: Pattern = Pattern.BALANCED,
        seed: int = 0,
        learner_seed: int = 0,
        devices: Sequence[jax.Device] | None = None,
        model_parallel: int = 1,
        precision: SnapshotPrecision = "float32",
        adoption: Adoption = Adoption.OVERWRITE,
        merges_moments: bool = False,
        interval_steps: int = 1,
        min_piece_bytes: int = MIN_PIECE_BYTES,
    ) -> None:
        self._task = task
        self._program: CompiledSteps = compiled_steps_for(
            task, fragments, pattern, min_piece_bytes, merges_moments=merges_moments
        )
        self.layout: Layout = self._program.layout
        self.shards: int = task.shards
        self._place: LearnerPlacement = placed(devices, model_parallel)
        self._compile = partial(self._program.functions.compile, self._place)
        shapes = [leaf.shape for leaf in self.layout.leaves]
        cuts = {n: cut_of(self._place.tensor(x), len(x)) for n, x in enumerate(shapes)}
        self._shapes = [
            shape_of(self.layout, each, cuts, self._place) for each in self.layout.fragments
        ]
        self._beside = [
            rows_beside(self._program.second_moments, self.layout, each, cuts)
            for each in self.layout.fragments
        ]
        self._interval_steps = interval_steps
        self._based: list[int | None] = [None] * len(self.layout.fragments)
        self._seed = seed
        self._learner_seed = learner_seed
        self._precision = precision
        self._adoption = adoption
        self._learner: _Learner | None = None
        self._frozen: Leaves | None = None
        self._moment_likes: list[jax.ShapeDtypeStruct] = []
        self._steps = 0

    def setup(self) -> None:
        """Initialise the model and compile all functions that steps and boundaries need."""
        batch = next(first_pass(self), None)
        if batch is not None:
            self._place.check_batch(batch)
        learner = self._initialised()
        duties: list[Callable[[], object]] = [
            partial(self._prepare_step, learner, batch),
            learner.model.mark,
            self._first_carried,  # a reset of the moments will call what this compiles
            *(partial(self._prepare_fragment, learner, each) for each in range(len(self._based))),
        ]
        # Each learner of a host begins elsewhere, so that what they compile together is divided.
        first = self._learner_seed % len(duties)
        for duty in (*duties[first:], *duties[:first]):
            duty()
        self._moment_likes = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)  # type: ignore[no-untyped-call]
            for x in jax.tree.leaves((learner.optimizer_state, learner.carried))
        ]

    def _prepare_step(self, learner: _Learner, batch: object) -> None:
        if batch is not None:
            self._step(learner, batch, 0.0)

    def _prepare_fragment(self, learner: _Learner, fragment: int) -> None:
        learner.model.prepare_fragment(fragment, self._precision, self._adoption)
        if self._beside[fragment].places:
            base = learner.model.base[fragment]
            learner.model.prepare_contributed(fragment)
            self._advance(learner, fragment, (base, base, base), 1, 1)

    @property
    def hardware(self) -> str:
        return self._place.named

    @property
    def compiling(self) -> bool:
        return self._program.functions.compiling

    def prepare_giving(self) -> None:
        for parts in self._program.moments.pieces:
            for part in parts:
                self._copy(self._moment_likes[part.leaf], part)

    def batches(self, shard: ShardKey, position: int) -> Iterator[tuple[object, int]]:
        return self._task.batches(shard, position)

    def tokens(self, batch: object) -> int:
        return self._task.tokens(batch)

    def step(self, batch: object, learning_rate: float) -> PendingStep:
        learner = self._ready()
        compiled, arguments = self._step(learner, batch, learning_rate)
        local, learner.optimizer_state, learner.carried, loss, metrics = compiled(*arguments)
        learner.model.local = local
        self._steps += 1
        return JaxStep(loss, metrics)

    def compiled_step(self, batch: object) -> Compiled | None:
        """Return the compiled step for a batch of these shapes, or None if there is none yet."""
        return self._program.functions.compiled(self._place, self._step_name(batch))

    def share(self, fragment: int) -> Ranges:
        return self._place.held(self.layout.fragments[fragment].size)

    def shares(self, fragment: int) -> tuple[Ranges, ...]:
        return self._place.shares(self.layout.fragments[fragment].size)

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> Snapshot:
        return self._ready().model.snapshot(fragment, precision)

    def value(self, fragment: int) -> NDArray[np.float32]:
        return self._ready().model.value(fragment)

    def base_of(self, fragment: int) -> NDArray[np.float32]:
        return self._ready().model.base_of(fragment)

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        model = self._ready().model
        before, mine = model.base[fragment], self._contributed(fragment, None)
        model.adopt(fragment, value)
        self._advance_second_moments(fragment, before, mine)

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        model = self._ready().model
        before, mine = model.base[fragment], self._contributed(fragment, sent)
        model.carry_on(fragment, value, sent)
        self._advance_second_moments(fragment, before, mine)

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        model = self._ready().model
        before, mine = model.base[fragment], self._contributed(fragment, None)
        model.mix(fragment, value, share)
        self._advance_second_moments(fragment, before, mine)

    def _contributed(self, fragment: int, sent: NDArray[np.float32] | None) -> Array | None:
        """Return a fragment's value of this learner alone, if it tells second moments."""
        rows, model = self._beside[fragment], self._ready().model
        return model.contributed(fragment, sent) if rows.places else None

    def _advance_second_moments(self, fragment: int, before: Array, mine: Array | None) -> None:
        """Advance the second moments beside a fragment by its first ones, the base against before.

        Args:
            fragment: index of the fragment.
            before: the base before.
            mine: the learner's own value that it was compared with; None: nothing is to be told.

        The first base says nothing: what was before it is the learner's own initial value. One that
        is slower than the others, or stood still, takes what they did in an interval for its own.
        """
        learner = self._ready()
        based, self._based[fragment] = self._based[fragment], self._steps
        stepped = based is not None and based < self._steps
        taken = self._steps - (based or 0) if stepped else 0
        steps = max(self._interval_steps, taken) if stepped else 0
        rows = self._beside[fragment]
        if mine is None:
            return
        values = (before, learner.model.base[fragment], mine)
        compiled, arguments = self._advance(learner, fragment, values, steps, taken)
        state = list(learner.optimizer_state)
        for place, array in zip(rows.places, compiled(*arguments), strict=True):
            state[place] = array
        learner.optimizer_state = tuple(state)

    def _fit_second_moments(self, learner: _Learner) -> None:
        """Begin to count anew, with second moments that are fit for the first ones of the base."""
        self._based = [None] * len(self._based)
        for fragment, base in enumerate(learner.model.base):
            mine = base if self._beside[fragment].places else None
            self._advance_second_moments(fragment, base, mine)

    def finite(self) -> bool:
        learner = self._ready()
        return learner.model.finite((learner.optimizer_state, learner.carried))

    def reset_moments(self) -> None:
        """Dispatch a fresh optimizer state and fresh carried leaves: both may be broken by then."""
        learner = self._ready()
        learner.optimizer_state = self._fresh_moments(learner.model.local)
        learner.carried = self._first_carried()
        self._fit_second_moments(learner)

    @property
    def moments_schema(self) -> str:
        return self._program.moments.schema

    @property
    def moment_pieces(self) -> int:
        return len(self._program.moments.pieces)

    def read_moments(self, piece: int) -> MomentsCopy:
        learner = self._ready()
        leaves = jax.tree.leaves((learner.optimizer_state, learner.carried))
        parts = self._program.moments.pieces[piece]
        calls = [self._copy(leaves[part.leaf], part) for part in parts]
        arrays = tuple(compiled(*arguments) for compiled, arguments in calls)
        for array in arrays:
            array.copy_to_host_async()
        return MomentSnapshot(arrays)

    def load_moments(self, pieces: Sequence[memoryview]) -> None:
        """Dispatch the replacement of the whole inner optimizer's state by these pieces."""
        learner = self._ready()
        leaves, tree = jax.tree.flatten((learner.optimizer_state, learner.carried))
        arrays = []
        for old, values in zip(leaves, joined(self._program.moments, pieces), strict=True):
            new = self._place.put(values, old.sharding)
            if is_key(old):
                new = jax.random.wrap_key_data(new, impl=jax.random.key_impl(old))
            arrays.append(new)
        learner.optimizer_state, learner.carried = jax.tree.unflatten(tree, arrays)
        self._fit_second_moments(learner)

    def evaluate(self, values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        """Return the task's figures of merit for a whole model; this needs no `setup`."""
        return evaluated(self._task.evaluate, *self._trees(values))

    def params_of(self, values: Sequence[NDArray[np.float32]]) -> PyTree:
        """Return the task's tree of parameters for a whole model, one flat value per fragment."""
        return self._trees(values)[0]

    def state_of(self, values: Sequence[NDArray[np.float32]]) -> PyTree:
        """Return the task's state for a whole model; unmerged leaves have their initial values."""
        return self._trees(values)[1]

    def _trees(self, values: Sequence[NDArray[np.float32]]) -> tuple[PyTree, PyTree]:
        if self._learner is not None:
            frozen, carried = self._learner.frozen, self._learner.carried
        else:  # an observer: it needs neither moments nor a base
            if self._frozen is None:  # initial values are computed only for what is frozen
                self._frozen = self._start()[1] if self._program.freezes else ()
            frozen, carried = self._frozen, self._first_carried()
        arrays = self.layout.assemble(values).values()
        pairs = zip(arrays, self.layout.leaves, strict=True)
        local = [self._place.put_tree(x.astype(leaf.dtype)) for x, leaf in pairs]
        return self._program.tree(local, frozen), self._program.state_tree(local, carried)

    def _first_carried(self) -> Leaves:
        """Compute the initial values of the carried leaves, if there are any."""
        if not self._program.carries:
            return ()
        key = self._place.put(jax.random.key(self._seed), self._place.whole)
        carried: Leaves = self._compile("carried", self._program.carried, (key,))(key)
        return carried

    def _ready(self) -> _Learner:
        if self._learner is None:
            raise InvariantError("a trainer was used before its setup")
        return self._learner

    def _initialised(self) -> _Learner:
        if self._learner is None:
            local, frozen, carried = self._start()
            self._key = self._place.put(jax.random.key(self._learner_seed), self._place.whole)
            moments = self._fresh_moments(local)
            model = JaxModel(self.layout, local, self._place, self._program.functions)
            self._learner = _Learner(model, moments, carried, frozen)
        return self._learner

    def _start(self) -> tuple[Leaves, Leaves, Leaves]:
        """Compute the initial local, frozen and carried leaves, each on its own devices."""
        with jax.default_device(self._place.birthplace), compiling("init"):
            start = self._program.init(jax.random.key(self._seed))
        local, frozen, carried = self._place.put_tree(start)
        return local, frozen, carried

    def _fresh_moments(self, local: Leaves) -> PyTree:
        return self._compile("moments", self._program.optimizer_state, (local,))(local)

    def _step(self, learner: _Learner, batch: object, learning_rate: float) -> _Call:
        count, rate = np.uint32(self._steps), np.float32(learning_rate)
        held = (learner.model.local, learner.optimizer_state, learner.carried, learner.frozen)
        arguments = (*held, batch, self._key, count, rate)
        name, function = self._step_name(batch), self._program.step
        return self._compile(name, function, arguments, donate=(0, 1, 2), batch=4), arguments

    @staticmethod
    def _step_name(batch: object) -> tuple[object, ...]:
        return "step", tuple((x.shape, str(x.dtype)) for x in jax.tree.leaves(batch))

    def _advance(
        self,
        learner: _Learner,
        fragment: int,
        values: tuple[Array, Array, Array],
        steps: int,
        taken: int,
    ) -> _Call:
        rows, model = self._beside[fragment], learner.model
        state = tuple(learner.optimizer_state[place] for place in rows.places)
        first = tuple(model.local[leaf] for leaf in rows.first)
        ages = tuple(
            np.float32(inf) if place is None else learner.optimizer_state[place]
            for place in rows.counts
        )
        numbers = (np.float32(steps), np.float32(taken))
        arguments = (state, first, rows.starts, values, ages, *numbers)
        dtypes = tuple(str(x.dtype) for x in (*state, *first, *ages))
        name = (self._shapes[fragment], rows.beside, dtypes)
        to, function = tuple(x.sharding for x in state), partial(advance, *name[:2])
        compiled = self._compile(("advance", name), function, arguments, donate=(0,), parts_to=to)
        return compiled, arguments

    def _copy(self, leaf: Array | jax.ShapeDtypeStruct, part: Part) -> _Call:
        """Return the call that copies a part of the optimizer's state into a new buffer."""
        name = (part.rows, part.leaf_rows, leaf.shape, str(leaf.dtype))
        if part.whole:
            return self._compile(("copy", name), copied_words, (leaf,), read_here=True), (leaf,)
        cut = cut_of(leaf.sharding, leaf.ndim)
        function = partial(read_rows, PieceShape(0, leaf.shape, part.leaf_rows, part.rows, cut))
        arguments = (leaf, np.int32(part.row_start))
        key = ("rows", name)
        return self._compile(key, function, arguments, parts_to=self._place.whole), arguments


def _keeps_the_contract(trainer: JaxTrainer) -> Trainer:
    """Let mypy prove that a `JaxTrainer` is a `Trainer`."""
    return trainer
