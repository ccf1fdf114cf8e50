"""Check before a run whether a task keeps its contract: for `islands check` and the dry run.

=============  =================================================================================
checked        by
=============  =================================================================================
init           its shapes; whether two calls with one key agree; whether its values are finite
memory         the memory that a learner of these shapes takes, compared with this host's
batches        the first of a shard: their leaves, tokens and positions; a resume at each; whether
               the second pass has one
loss           a trace with the first batch: a scalar, and a next state like the one given
optimizer      a trace of a whole step
step           two steps that are taken, if `values`: their losses are finite
evaluate       the figures of the initial parameters; if not `values`, its trace as far as it goes
=============  =================================================================================

Each fault is one sentence that begins with the user's file and line. Checks that depend on a faulty
part are skipped; all others are still made.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Compiled
from jaxtyping import Array, PyTree

from islands.model.compiled_steps import CompiledSteps, compiled_steps_for
from islands.model.evaluation import evaluated
from islands.model.jax_trainer import JaxTrainer
from islands.model.moment_pieces import words_of
from islands.protocol.errors import IslandsError, TaskError, UserError
from islands.protocol.settings.choices import Pattern
from islands.settings.quantities import size
from islands.tasks.data.shards import ShardKey
from islands.tasks.source_location import (
    SourceLocation,
    location_of_return,
    location_of_yield,
    refused,
    task_error,
)
from islands.tasks.task import Task, path_of
from islands.tasks.task_trace import check_batch

BATCHES_READ = 3
STEPS_TAKEN = 2
VALUES_ELEMENTS_MAX = 1 << 24
"""Largest number of parameters for which a dry run computes values; a larger model is traced."""

NOT_TRACEABLE = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)
"""Errors of a traced evaluation that leaves JAX for NumPy or Python, as most do in the end."""

Batches = list[tuple[PyTree, PyTree, SourceLocation | None]]
"""The batch, the position after it (of whatever type the task gave), and the yielding line."""


@dataclass(slots=True)
class TaskReport:
    """The result of a check.

    Args:
        passed: parts without a fault, each with a remark.
        faults: errors that the user has to correct.
        skipped: parts that were not checked, each with the reason.
        ends: that the data ends after a pass, as a sentence; "" if it does not.
        temporaries: bytes that a step allocates and frees, from XLA's analysis; None if not known.
        tokens: of the first batch; None if there is none.
    """

    passed: list[tuple[str, str]] = field(default_factory=list)
    faults: list[IslandsError] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    ends: str = ""
    temporaries: int | None = None
    tokens: int | None = None


class TaskCheck:
    """One check of a task.

    Args:
        task: the task to check.
        fragments: number of fragments asked for.
        pattern: how tensors are spread over them.
        min_piece_bytes: least size of a fragment's largest piece.
        learning_rate: learning rate of the steps that are taken.
        values: whether steps and evaluation are computed, not only traced; None: if the model is
            small.
        room_bytes: memory of this host that a learner may take; None if that is not known.
        needed_bytes: returns the bytes that a learner takes; called after `init` passed.
        merges_moments: whether the run merges moments.
    """

    def __init__(
        self,
        task: Task[PyTree],
        *,
        fragments: int,
        pattern: Pattern,
        min_piece_bytes: int,
        learning_rate: float,
        values: bool | None,
        room_bytes: int | None,
        needed_bytes: Callable[[], int],
        merges_moments: bool,
    ) -> None:
        """Prepare the check, with an empty report."""
        self.report = TaskReport()
        self._task = task
        self._fragments = fragments
        self._pattern = pattern
        self._min_piece_bytes = min_piece_bytes
        self._learning_rate = learning_rate
        self._wanted = values
        self._values = False
        self._room_bytes = room_bytes
        self._needed_bytes = needed_bytes
        self._merges_moments = merges_moments
        self._program: CompiledSteps
        self._batch: PyTree = None

    def run(self) -> TaskReport:
        if self._part("init", self._check_init):
            fits = self._part("memory", self._check_memory)
            self._values = fits and self._computes
            self._values = self._values and self._part("values", self._check_values)
            readable = self._part("batches", self._check_batches)
            sound = readable and self._part("loss", self._check_loss)
            sound = sound and self._part("optimizer", self._check_optimizer)
            self._part("evaluate", self._check_evaluate if self._values else self._trace_evaluate)
            if sound and self._values:
                self._part("step", self._check_steps)
            elif sound:
                self.report.skipped.append(("step", "traced, not taken, nor an evaluation made"))
                if fits and self._room_bytes is not None:
                    self._part("memory of a step", self._compile_step)
        return self.report

    @property
    def _computes(self) -> bool:
        """Whether values are computed: as `values` says, or else if the model is small."""
        small = self._program.layout.size <= VALUES_ELEMENTS_MAX
        return small if self._wanted is None else self._wanted

    def _part(self, name: str, check: Callable[[], str]) -> bool:
        """Check a part; return whether it passed. Any error of the user's code is a fault."""
        try:
            remark = check()
        except UserError as error:
            if str(error) not in map(str, self.report.faults):  # two parts may need the same thing
                self.report.faults.append(error)
            return False
        except Exception as error:  # noqa: BLE001  the user's own code may raise anything
            self.report.faults.append(task_error(error, f"the task's {name} failed"))
            return False
        self.report.passed.append((name, remark))
        return True

    # --- init ---------------------------------------------------------------------------------

    def _check_init(self) -> str:
        self._program = program = compiled_steps_for(
            self._task, self._fragments, self._pattern, self._min_piece_bytes
        )
        refuse_chance(self._task)
        return program.layout.summary

    def _check_values(self) -> str:
        local, frozen, carried = self._program.init(_key())
        tree = {
            "params": self._program.tree(local, frozen),
            "state": self._program.state_tree(local, carried),
        }
        for keys, leaf in jax.tree_util.tree_leaves_with_path(tree):
            floating = jnp.issubdtype(leaf.dtype, jnp.inexact)
            if floating and not bool(jnp.isfinite(leaf).all()):
                path = path_of(keys)
                place = location_of_return(self._task.init)
                raise refused(place, f"{path} is not finite in the beginning")
        return "finite"

    def _check_memory(self) -> str:
        needed = self._needed_bytes()
        room = self._room_bytes
        if room is not None and needed > room:
            largest = max(self._program.layout.leaves, key=lambda leaf: leaf.size)
            raise refused(
                location_of_return(self._task.init),
                f"a learner of this model takes {size(needed)} beside its activations, and "
                f"this host has {size(room)}; its largest array is {largest.path}, "
                f"{largest.dtype}{list(largest.shape)}",
            )
        return f"{size(needed)} of a learner, beside activations"

    # --- batches ------------------------------------------------------------------------------

    def _check_batches(self) -> str:
        shard, found = self._first_batches()
        for index, (batch, _, place) in enumerate(found):
            check_batch(batch, place)
            self._check_position(found, index)
        if shard.shard < self._task.shards:
            self._check_resumes(shard, found)
        self._batch = found[0][0]
        if next(iter(self._task.batches(ShardKey(1, shard.shard), 0)), None) is None:
            self.report.ends = (
                f"the data ends after one pass: shard {shard.shard} has a batch in pass 0 and none "
                "in pass 1; a run with a larger budget waits there for ever, unless batches begins "
                "anew in each pass (shard.pass_index)"
            )
        self.report.tokens = self._task.tokens(self._batch)
        return f"{self.report.tokens:,} tokens each, positions resume"

    def _first_batches(self) -> tuple[ShardKey, Batches]:
        for index in range(self._task.shards):
            shard = ShardKey(0, index)
            found = self._read(shard, 0)
            if found:
                return shard, found
        place = location_of_return(self._task.batches)
        what = f"none of the {self._task.shards} shards has a batch at position 0"
        raise refused(place, what)

    def _read(self, shard: ShardKey, position: int) -> Batches:
        """Read a few batches from a position on, each with the line that yielded it."""
        iterator: Iterator[object] = iter(self._task.batches(shard, position))
        found: Batches = []
        for given in islice(iterator, BATCHES_READ):
            place = location_of_yield(iterator, self._task.batches)
            if not isinstance(given, tuple) or len(given) != 2:  # noqa: PLR2004  batch, position
                what = f"batches gave a {type(given).__name__}, not a batch and the position after"
                raise refused(place, what)
            if given[0] is None:  # nothing at the moment
                break
            found.append((*given, place))
        return found

    def _check_position(self, found: Batches, index: int) -> None:
        batch, position, place = found[index]
        before = found[index - 1][1] if index else 0
        tokens: object = self._task.tokens(batch)
        if not isinstance(tokens, int | np.integer) or tokens < 1:
            named = location_of_return(self._task.tokens)
            what = f"tokens is {tokens!r} for a batch; it must be a whole number, at least 1"
            raise refused(named, what)
        if not isinstance(position, int):
            what = f"the position after a batch is a {type(position).__name__}; it must be an int"
            raise refused(place, what)
        if position <= before:
            what = f"the position after a batch is {position} and before it {before}; it must grow"
            raise refused(place, what)
        if position - before > tokens:
            raise refused(
                place,
                f"the position goes from {before} to {position} with a batch of {tokens} "
                "tokens; it must grow by no more than these, or the rest is read twice",
            )

    def _check_resumes(self, shard: ShardKey, found: Batches) -> None:
        """Check that reading from the position after a batch begins with the batch that follows."""
        for start, position in enumerate([0, *(each[1] for each in found[:-1])]):
            again = self._read(shard, position)
            if not again or not _same(again[0], found[start]):
                what = "no batch" if not again else "another batch"
                raise refused(
                    found[start][2],
                    f"batches of shard {shard.shard} from position {position} begin with "
                    f"{what} than the one that follows when it is read from 0; a position "
                    "must always lead to the same data",
                )

    # --- loss, step, evaluation ---------------------------------------------------------------

    def _check_loss(self) -> str:
        loss, *_ = self._trace_step()
        return f"{loss.dtype}, traced"

    def _check_optimizer(self) -> str:
        before = jax.eval_shape(self._program.optimizer_state, self._shapes()[0])
        _, after, leaves = self._trace_step()
        place = location_of_return(self._task.optimizer)
        if jax.tree.structure(before) != jax.tree.structure(after):  # type: ignore[operator]  # untyped in JAX
            what = "the optimizer's state has another structure after an update"
            raise refused(place, what)
        for old, new in zip(self._shapes()[0], leaves, strict=True):
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                what = f"an update turns {old.dtype}{list(old.shape)} into {new.dtype}"
                raise refused(place, what)
        return "; ".join(("a step can be traced", *self._moments_told()))

    def _moments_told(self) -> Iterator[str]:
        """Yield what a run does not merge, or not well, of the optimizer's state."""
        if not self._merges_moments:
            return
        program = compiled_steps_for(
            self._task,
            self._fragments,
            self._pattern,
            self._min_piece_bytes,
            merges_moments=True,
        )
        if paths := program.unmeasured:
            yield (
                f"second moments are averaged at {len(paths)} paths of its state, as {paths[0]}, "
                "since it changes their decays with its steps, or hides them from a probe with "
                "arrays of two rows"
            )
        if paths := program.alone:
            yield (
                f"{len(paths)} arrays of its state stay each learner's own, as {paths[0]}, since "
                "their names are of no average of gradients"
            )

    def _shapes(self) -> tuple[PyTree, PyTree, PyTree]:
        shapes: tuple[PyTree, PyTree, PyTree] = jax.eval_shape(self._program.init, _key())
        return shapes

    def _compile_step(self) -> str:
        """Compile a step without running it and note its temporary memory; nothing is allocated."""
        compiled = jax.jit(self._program.step, donate_argnums=(0, 1, 2)).lower(*self._arguments())
        return self._note_temporaries(compiled.compile())

    def _note_temporaries(self, compiled: Compiled | None) -> str:
        analysis = None if compiled is None else compiled.memory_analysis()
        if analysis is None:
            return "not known"
        self.report.temporaries = int(analysis.temp_size_in_bytes)
        return size(self.report.temporaries)

    def _arguments(self) -> tuple[PyTree, ...]:
        """Return the arguments of a step, by their shapes where they are large."""
        local, frozen, carried = self._shapes()
        moments = jax.eval_shape(self._program.optimizer_state, local)
        held = (local, moments, carried, frozen)
        return (*held, self._batch, _key(), np.uint32(0), np.float32(self._learning_rate))

    def _trace_step(self) -> tuple[jax.ShapeDtypeStruct, PyTree, PyTree]:
        leaves, after, _, loss, _ = jax.eval_shape(self._program.step, *self._arguments())
        return loss, after, leaves

    def _check_steps(self) -> str:
        trainer = JaxTrainer(
            self._task,
            self._fragments,
            pattern=self._pattern,
            min_piece_bytes=self._min_piece_bytes,
        )
        trainer.setup()
        losses = [trainer.step(self._batch, self._learning_rate).loss() for _ in range(STEPS_TAKEN)]
        wrong = next((index for index, loss in enumerate(losses) if not isfinite(loss)), None)
        if wrong is not None:
            after = f" after a step at learning rate {self._learning_rate:g}" if wrong else ""
            what = f"the loss of the first batch is {losses[wrong]}{after}"
            raise refused(location_of_return(self._task.loss), what)
        self._note_temporaries(trainer.compiled_step(self._batch))
        return "loss " + ", then ".join(f"{loss:.5g}" for loss in losses)

    def _check_evaluate(self) -> str:
        trees = jax.block_until_ready(self._trees(self._program.init(_key())))  # type: ignore[no-untyped-call]  # untyped in JAX
        figures = evaluated(self._task.evaluate, *trees)
        return ", ".join(f"{name} {value:.4g}" for name, value in figures.items()) or "no figures"

    def _trace_evaluate(self) -> str:
        try:
            jax.eval_shape(self._evaluated, *self._trees(self._shapes()))
        except NOT_TRACEABLE:
            return "traced to where it leaves JAX"
        return "traced"

    def _evaluated(self, params: PyTree, state: PyTree) -> int:
        try:
            evaluated(self._task.evaluate, params, state)
        except TaskError as error:
            if isinstance(error.__cause__, NOT_TRACEABLE):  # a figure without a value, as traced
                raise error.__cause__ from None
            raise
        return 0

    def _trees(self, leaves: tuple[PyTree, PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        """Build parameters and state from local, frozen and carried leaves."""
        local, frozen, carried = leaves
        return self._program.tree(local, frozen), self._program.state_tree(local, carried)


def refuse_chance(task: Task[PyTree]) -> None:
    """Refuse an `init` whose two traces with the same key differ."""
    one, other = (jax.make_jaxpr(lambda key: _values(task, key))(_key()) for _ in range(2))
    same = str(one.jaxpr) == str(other.jaxpr) and all(map(_equal, one.consts, other.consts))
    if not same:
        what = "init differs between two calls with the same key; draw from the key alone"
        raise refused(location_of_return(task.init), what)


def _values(task: Task[PyTree], key: Array) -> PyTree:
    start = task.init(key)
    return start.params, start.state


def _equal(one: object, other: object) -> bool:
    first, second = (np.asarray(words_of(each)) for each in (one, other))
    return first.dtype == second.dtype and first.tobytes() == second.tobytes()


def _key() -> Array:
    return jax.random.key(0)


def _same(one: tuple[PyTree, PyTree, object], other: tuple[PyTree, PyTree, object]) -> bool:
    first, second = jax.tree.leaves(one[0]), jax.tree.leaves(other[0])
    return one[1] == other[1] and len(first) == len(second) and all(map(_equal, first, second))
