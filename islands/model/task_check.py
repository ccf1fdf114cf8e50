"""Check before a run whether a task keeps its contract: for `islands check` and the dry run.

Each fault is one sentence that begins with the user's file and line. Checks that depend on a faulty
part are skipped; all others are still made. Of a large model steps and evaluation are traced, and
not computed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from islands.model.compiled_steps import CompiledSteps, compiled_steps_for
from islands.model.evaluation import evaluated
from islands.model.jax_trainer import JaxTrainer, step_name
from islands.model.moment_pieces import words_of
from islands.model.placement import placed
from islands.protocol.errors import IslandsError, TaskError, UserError
from islands.protocol.settings.run import RunSettings
from islands.settings.quantities import size
from islands.tasks.data.shards import ShardKey
from islands.tasks.source_location import (
    SourceLocation,
    location_of_return,
    location_of_yield,
    refused,
    said,
    task_error,
)
from islands.tasks.task import Task, path_of

BATCHES_READ = 3
STEPS_TAKEN = 2
VALUES_ELEMENTS_MAX = 1 << 24
"""Largest number of parameters for which a dry run computes values; a larger model is traced."""

NOT_TRACEABLE = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)
"""Errors of a traced evaluation that leaves JAX for NumPy or Python, as most do in the end."""

Batches = list[tuple[PyTree, PyTree, SourceLocation | None]]
"""The batch, the position after it, and the yielding line."""


@dataclass(slots=True)
class TaskReport:
    """The result of a check.

    Parts without a fault have a remark each; those that were skipped, the reason. `ends` is a
    sentence if the data ends after a pass, else "". Temporaries are the bytes that a step allocates
    and frees, from XLA's analysis; tokens are those of the first batch.
    """

    passed: list[tuple[str, str]] = field(default_factory=list)
    faults: list[IslandsError] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    ends: str = ""
    temporaries: int | None = None
    tokens: int | None = None


class TaskCheck:
    """One check of a task under the settings of its run.

    The bytes that a learner needs are asked for after `init` passed; `room_bytes` is the memory of
    this host that it may take, if that is known.
    """

    def __init__(
        self,
        task: Task[PyTree],
        settings: RunSettings,
        needed_bytes: Callable[[], int],
        *,
        values: bool | None,
        room_bytes: int | None,
    ) -> None:
        self.report = TaskReport()
        self._task = task
        self._settings = settings
        self._wanted = values
        self._values = False
        self._room_bytes = room_bytes
        self._needed_bytes = needed_bytes
        self._program: CompiledSteps
        self._batch: PyTree = None

    def run(self) -> TaskReport:
        if self._part("init", self._check_init):
            fits = self._part("memory", self._check_memory)
            small = self._program.layout.size <= VALUES_ELEMENTS_MAX
            self._values = fits and (small if self._wanted is None else self._wanted)
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
        self._program = self._compiled_steps()
        refuse_chance(self._task)
        return self._program.layout.summary

    def _compiled_steps(self, *, merges_moments: bool = False) -> CompiledSteps:
        settings = self._settings
        return compiled_steps_for(
            self._task,
            settings.fragments,
            settings.pattern,
            settings.piece_bytes_min,
            merges_moments=merges_moments,
        )

    def _check_values(self) -> str:
        params, state = self._trees(self._program.init(_key()))
        leaves = jax.tree_util.tree_leaves_with_path({"params": params, "state": state})
        for keys, leaf in leaves:
            floating = jnp.issubdtype(leaf.dtype, jnp.inexact)
            if floating and not bool(jnp.isfinite(leaf).all()):
                what = f"{path_of(keys)} is not finite in the beginning"
                raise refused(location_of_return(self._task.init), what)
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
        for index, (batch, _, line) in enumerate(found):
            try:
                jax.eval_shape(lambda batch: batch, batch)
            except TypeError as error:
                raise refused(line, said(error)) from error
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
        what = f"none of the {self._task.shards} shards has a batch at position 0"
        raise refused(location_of_return(self._task.batches), what)

    def _read(self, shard: ShardKey, position: int) -> Batches:
        """Read a few batches from a position on, each with the line that yielded it."""
        iterator: Iterator[object] = iter(self._task.batches(shard, position))
        found: Batches = []
        for given in islice(iterator, BATCHES_READ):
            line = location_of_yield(iterator, self._task.batches)
            if not isinstance(given, tuple) or len(given) != 2:  # noqa: PLR2004  batch, position
                what = f"batches gave a {type(given).__name__}, not a batch and the position after"
                raise refused(line, what)
            if given[0] is None:  # nothing at the moment
                break
            found.append((*given, line))
        return found

    def _check_position(self, found: Batches, index: int) -> None:
        batch, position, line = found[index]
        before = found[index - 1][1] if index else 0
        tokens: object = self._task.tokens(batch)
        if not isinstance(tokens, int | np.integer) or tokens < 1:
            what = f"tokens is {tokens!r} for a batch; it must be a whole number, at least 1"
            raise refused(location_of_return(self._task.tokens), what)
        if not isinstance(position, int):
            what = f"the position after a batch is a {type(position).__name__}; it must be an int"
            raise refused(line, what)
        if position <= before:
            what = f"the position after a batch is {position} and before it {before}; it must grow"
            raise refused(line, what)
        if position - before > tokens:
            raise refused(
                line,
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
        return f"{self._trace_step()[1].dtype}, traced"

    def _check_optimizer(self) -> str:
        before, after = self._shapes()[0], self._trace_step()[0]
        for old, new in zip(before, after, strict=True):
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                what = f"an update turns {old.dtype}{list(old.shape)} into {new.dtype}"
                raise refused(location_of_return(self._task.optimizer), what)
        return "; ".join(("a step can be traced", *self._moments_apart()))

    def _moments_apart(self) -> Iterator[str]:
        """Yield what a run does not merge, or not well, of the optimizer's state."""
        if not self._settings.merge_moments:
            return
        program = self._compiled_steps(merges_moments=True)
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
        """Compile a step as a trainer does, and note its temporary memory; nothing is allocated."""
        analysis = self._program.functions.compile(
            placed(None),
            step_name(self._batch),
            self._program.step,
            self._arguments(),
            donate=(0, 1, 2),
            batch=4,
        ).memory_analysis()
        if analysis is None:
            return "not known"
        self.report.temporaries = int(analysis.temp_size_in_bytes)
        return size(self.report.temporaries)

    def _arguments(self) -> tuple[PyTree, ...]:
        """Return the arguments of a step, by their shapes where they are large."""
        local, frozen, carried = self._shapes()
        moments = jax.eval_shape(self._program.optimizer_state, local)
        held = (local, moments, carried, frozen)
        rate = np.float32(self._settings.learning_rate)
        return (*held, self._batch, _key(), np.uint32(0), rate)

    def _trace_step(self) -> tuple[PyTree, jax.ShapeDtypeStruct]:
        leaves, _, _, loss, _ = jax.eval_shape(self._program.step, *self._arguments())
        return leaves, loss

    def _check_steps(self) -> str:
        settings = self._settings
        trainer = JaxTrainer(
            self._task,
            settings.fragments,
            pattern=settings.pattern,
            min_piece_bytes=settings.piece_bytes_min,
        )
        trainer.setup()
        rate = settings.learning_rate
        losses = [trainer.step(self._batch, rate).loss() for _ in range(STEPS_TAKEN)]
        wrong = next((index for index, loss in enumerate(losses) if not isfinite(loss)), None)
        if wrong is not None:
            after = f" after a step at learning rate {rate:g}" if wrong else ""
            what = f"the loss of the first batch is {losses[wrong]}{after}"
            raise refused(location_of_return(self._task.loss), what)
        self._compile_step()
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
