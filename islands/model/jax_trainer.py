"""A `Trainer` that trains a `Task` with JAX, on one device or on a mesh (`placement.py`).

What a boundary does with the leaves and the bases alone is in `jax_model.py`. Here are the steps,
and the state of the inner optimizer.

Donation: the parameters, the optimizer's state and the task's state are donated to every step, and
the leaves of a fragment to every adoption, so a learner holds its model once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from islands.model.device_transfer import Leaves, PieceShape, cut_of, read_rows
from islands.model.evaluation import evaluated
from islands.model.interfaces import MomentsCopy, PendingStep, Snapshot, first_pass
from islands.model.jax_model import JaxModel
from islands.model.jax_settings import compiling
from islands.model.moment_pieces import MomentSnapshot, is_key
from islands.model.moment_plan import Part, joined
from islands.model.placement import LearnerPlacement, placed
from islands.model.second_moments import RowsBeside, advance, rows_beside
from islands.protocol.errors import InvariantError
from islands.protocol.ranges import Ranges
from islands.protocol.settings.choices import Adoption, Pattern, SnapshotPrecision
from islands.tasks.data.shards import ShardKey
from islands.tasks.task import Task

_Call = tuple[Compiled, tuple[PyTree, ...]]  # a compiled function, its arguments


@dataclass(frozen=True, slots=True)
class JaxStep:
    """A dispatched step."""

    array: Array
    reported: Mapping[str, Array]

    def loss(self) -> float:
        return float(self.array)

    def metrics(self) -> dict[str, float]:
        return {name: float(value) for name, value in jax.device_get(dict(self.reported)).items()}

    def ready(self) -> bool:
        return bool(self.array.is_ready())  # type: ignore[attr-defined]  # untyped in JAX


@dataclass(slots=True)
class _Learner:
    """The arrays of a learner on its devices, and of each fragment the rows of second moments."""

    model: JaxModel
    optimizer_state: PyTree
    carried: Leaves
    frozen: Leaves
    beside: list[RowsBeside]


class JaxTrainer:
    """One learner's arithmetic.

    P `fragments` are asked for, none with a largest piece below `min_piece_bytes`. The run's `seed`
    gives the initial parameters, `learner_seed` the randomness inside losses. The parameters are
    cut over `model_parallel` of the `devices` (None: JAX's first); the rest share the rows of each
    batch. `setup` compiles snapshots of this `precision`, and adoptions of this kind.
    `interval_steps` is H, or its first value (`second_moments.py`).
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
        self._placement: LearnerPlacement = placed(devices, model_parallel)
        self._compile = partial(self._program.functions.compile, self._placement)
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
        batch = next(first_pass(self), None)
        if batch is not None:
            self._placement.check_batch(batch)
        learner = self._initialised()
        compiling: list[Callable[[], object]] = [
            learner.model.mark,
            self._first_carried,  # a reset of the moments will call what this compiles
            *(partial(self._prepare_fragment, learner, each) for each in range(len(self._based))),
        ]
        if batch is not None:
            compiling.insert(0, partial(self._step, learner, batch, 0.0))
        # Each learner of a host begins elsewhere, so that what they compile together is divided.
        first = self._learner_seed % len(compiling)
        for compile_ in (*compiling[first:], *compiling[:first]):
            compile_()
        self._moment_likes = [
            jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)  # type: ignore[no-untyped-call]
            for x in jax.tree.leaves((learner.optimizer_state, learner.carried))
        ]

    def _prepare_fragment(self, learner: _Learner, fragment: int) -> None:
        learner.model.prepare_fragment(fragment, self._precision, self._adoption)
        if learner.beside[fragment].seconds:
            base = learner.model.base[fragment]
            learner.model.prepare_contributed(fragment)
            self._advance(learner, fragment, (base, base, base), 1, 1)

    @property
    def hardware(self) -> str:
        return self._placement.named

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

    def share(self, fragment: int) -> Ranges:
        return self._placement.held(self.layout.fragments[fragment].size)

    def shares(self, fragment: int) -> tuple[Ranges, ...]:
        return self._placement.shares(self.layout.fragments[fragment].size)

    def snapshot(self, fragment: int, precision: SnapshotPrecision) -> Snapshot:
        return self._ready().model.snapshot(fragment, precision)

    def value(self, fragment: int) -> NDArray[np.float32]:
        return self._ready().model.value(fragment)

    def base_of(self, fragment: int) -> NDArray[np.float32]:
        return self._ready().model.base_of(fragment)

    def adopt(self, fragment: int, value: NDArray[np.float32]) -> None:
        with self._second_moments(fragment, None) as model:
            model.adopt(fragment, value)

    def carry_on(
        self, fragment: int, value: NDArray[np.float32], sent: NDArray[np.float32] | None
    ) -> None:
        with self._second_moments(fragment, sent) as model:
            model.carry_on(fragment, value, sent)

    def mix(self, fragment: int, value: NDArray[np.float32], share: float) -> None:
        with self._second_moments(fragment, None) as model:
            model.mix(fragment, value, share)

    @contextmanager
    def _second_moments(
        self, fragment: int, sent: NDArray[np.float32] | None
    ) -> Iterator[JaxModel]:
        """Advance the second moments beside a fragment by what becomes of its base within this."""
        learner = self._ready()
        model = learner.model
        before, estimates = model.base[fragment], learner.beside[fragment].seconds
        mine = model.contributed(fragment, sent) if estimates else before
        yield model
        self._advance_second_moments(learner, fragment, before, mine)

    def _advance_second_moments(
        self, learner: _Learner, fragment: int, before: Array, mine: Array
    ) -> None:
        """Advance them by the base against that before, and the learner's own value against both.

        The first base says nothing: what was before it is the learner's own initial value. One that
        is slower than the others, or stood still, takes what they did in an interval for its own.
        """
        based, self._based[fragment] = self._based[fragment], self._steps
        seconds = learner.beside[fragment].seconds
        if not seconds:
            return
        stepped = based is not None and based < self._steps
        taken = self._steps - (based or 0) if stepped else 0
        steps = max(self._interval_steps, taken) if stepped else 0
        values = (before, learner.model.base[fragment], mine)
        compiled, arguments = self._advance(learner, fragment, values, steps, taken)
        state = list(learner.optimizer_state)
        for index, array in zip(seconds, compiled(*arguments), strict=True):
            state[index] = array
        learner.optimizer_state = tuple(state)

    def _fit_second_moments(self, learner: _Learner) -> None:
        """Begin to count anew, with second moments that are fit for the first ones of the base."""
        self._based = [None] * len(self._based)
        for fragment, base in enumerate(learner.model.base):
            self._advance_second_moments(learner, fragment, base, base)

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
        learner = self._ready()
        leaves, tree = jax.tree.flatten((learner.optimizer_state, learner.carried))
        arrays = []
        for old, values in zip(leaves, joined(self._program.moments, pieces), strict=True):
            new = self._placement.put(values, old.sharding)
            if is_key(old):
                new = jax.random.wrap_key_data(new, impl=jax.random.key_impl(old))
            arrays.append(new)
        learner.optimizer_state, learner.carried = jax.tree.unflatten(tree, arrays)
        self._fit_second_moments(learner)

    def evaluate(self, values: Sequence[NDArray[np.float32]]) -> dict[str, float]:
        return evaluated(self._task.evaluate, *self._trees(values))

    def params_of(self, values: Sequence[NDArray[np.float32]]) -> PyTree:
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
        local = [self._placement.put_tree(x.astype(leaf.dtype)) for x, leaf in pairs]
        return self._program.tree(local, frozen), self._program.state_tree(local, carried)

    def _first_carried(self) -> Leaves:
        """Compute the initial values of the carried leaves, if there are any."""
        if not self._program.carries:
            return ()
        key = self._placement.put(jax.random.key(self._seed), self._placement.whole)
        carried: Leaves = self._compile("carried", self._program.carried, (key,))(key)
        return carried

    def _ready(self) -> _Learner:
        if self._learner is None:
            raise InvariantError("a trainer was used before its setup")
        return self._learner

    def _initialised(self) -> _Learner:
        if self._learner is None:
            local, frozen, carried = self._start()
            self._key = self._placement.put(
                jax.random.key(self._learner_seed), self._placement.whole
            )
            moments = self._fresh_moments(local)
            model = JaxModel(self.layout, local, self._placement, self._program.functions)
            cuts = {n: cut_of(x.sharding, x.ndim) for n, x in enumerate(local)}
            beside = [
                rows_beside(self._program.second_moments, self.layout, each, cuts)
                for each in self.layout.fragments
            ]
            self._learner = _Learner(model, moments, carried, frozen, beside)
        return self._learner

    def _start(self) -> tuple[Leaves, Leaves, Leaves]:
        """Compute the initial local, frozen and carried leaves, each on its own devices."""
        with jax.default_device(self._placement.birthplace), compiling("init"):
            start = self._program.init(jax.random.key(self._seed))
        local, frozen, carried = self._placement.put_tree(start)
        return local, frozen, carried

    def _fresh_moments(self, local: Leaves) -> PyTree:
        return self._compile("moments", self._program.optimizer_state, (local,))(local)

    def _step(self, learner: _Learner, batch: object, learning_rate: float) -> _Call:
        count, rate = np.uint32(self._steps), np.float32(learning_rate)
        held = (learner.model.local, learner.optimizer_state, learner.carried, learner.frozen)
        arguments = (*held, batch, self._key, count, rate)
        return self._compile(
            step_name(batch), self._program.step, arguments, donate=(0, 1, 2), batch=4
        ), arguments

    def _advance(
        self,
        learner: _Learner,
        fragment: int,
        values: tuple[Array, Array, Array],
        steps: int,
        taken: int,
    ) -> _Call:
        rows, model = learner.beside[fragment], learner.model
        state = tuple(learner.optimizer_state[index] for index in rows.seconds)
        first = tuple(model.local[leaf] for leaf in rows.first)
        ages = tuple(
            np.float32(inf) if index is None else learner.optimizer_state[index]
            for index in rows.counts
        )
        numbers = (np.float32(steps), np.float32(taken))
        arguments = (state, first, rows.starts, values, ages, *numbers)
        dtypes = tuple(str(x.dtype) for x in (*state, *first, *ages))
        name = (model.shape(fragment), rows.beside, dtypes)
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
        return self._compile(key, function, arguments, parts_to=self._placement.whole), arguments


def step_name(batch: object) -> tuple[object, ...]:
    """Name the compiled step for batches of these shapes."""
    return "step", tuple((x.shape, str(x.dtype)) for x in jax.tree.leaves(batch))
