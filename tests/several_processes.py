"""One learner on eight devices of one process or of several; what comes of it goes into a file.

`tests/model/test_several_processes.py` starts the processes. Each does the same, in the same
order, and writes what it got; of flat values, that is its share alone. By hand, as process 0 of 2:

    python -m tests.several_processes 2 0 PORT FILE line stacks merged own apart refused
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray, PyTree
from numpy.typing import NDArray

from islands.layout.fragments import plan
from islands.layout.leaves import Layout, Leaf
from islands.loops.jax_parameters import JaxMoments, checked
from islands.model import compiled_steps
from islands.model.interfaces import LearnerDevices, Model, Trainer
from islands.model.jax_model import JaxModel, share_of
from islands.model.jax_trainer import JaxTrainer
from islands.model.jax_workload import JaxWorkload
from islands.model.moment_plan import joined
from islands.model.placement import CompiledFunctions, devices_of_learner, placed
from islands.protocol.errors import SettingsError, TaskError
from islands.protocol.ranges import Ranges
from islands.protocol.settings.choices import Adoption
from islands.protocol.settings.run import RunSettings
from islands.tasks.data.shards import ShardKey
from islands.tasks.task import TaskState
from tests.eight_devices import FRAGMENTS, PIECE_BYTES, Line, Stacks

DEVICES = 8
LIMIT_S = 60  # in which all processes have started
HEARTBEAT_S = 20  # after which a process ends, too, that waits for one that has failed
Found = dict[str, NDArray[np.generic]]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Counting(Stacks):
    """Stacks whose state also has leaves that no merge touches: a count of steps and a key."""

    def init(self, key: PRNGKeyArray) -> TaskState:
        start = super().init(key)
        return TaskState(start.params, {**start.state, "count": jnp.int32(0), "key": key})

    def loss(
        self, params: PyTree, state: PyTree, batch: Floats, key: PRNGKeyArray
    ) -> tuple[Array, PyTree]:
        loss, after = super().loss(params, state, batch, key)
        return loss, {**after, "count": state["count"] + 1, "key": state["key"]}


@dataclass(frozen=True)
class Adam(Line):
    """A line whose optimizer has second moments."""

    def optimizer(self, learning_rate: jax.typing.ArrayLike) -> optax.GradientTransformation:
        return optax.adam(learning_rate)


class Recorder:
    """Drives a model by its interface alone, and keeps what it gives."""

    def __init__(self, model: Model, name: str) -> None:
        self.found: Found = {}
        self._model = model
        self._name = name
        self._sizes = [fragment.size for fragment in model.layout.fragments]
        for fragment in range(len(self._sizes)):
            shares = model.shares(fragment)
            assert shares[jax.process_index()] == model.share(fragment)
            self.keep(f"ranges/{fragment}", np.array(model.share(fragment), np.int64))

    def keep(self, what: str, array: NDArray[np.generic] | np.generic) -> None:
        self.found[f"{self._name}/{what}"] = np.asarray(array)

    def each(self, what: str, act: Callable[[int, Floats], object], scale: float = 0.1) -> None:
        """Call a function with the share of a made-up value of each fragment; keep what follows."""
        rng = np.random.default_rng([len(what), *what.encode()])
        for fragment, size in enumerate(self._sizes):
            value = (scale * rng.standard_normal(size)).astype(np.float32)
            act(fragment, cut(value, self._model.share(fragment)))
        self.values(what)

    def state(self, what: str, trainer: JaxTrainer, pieces: Sequence[memoryview]) -> None:
        """Keep the leaves of the inner optimizer's state that some pieces are made of."""
        plan = trainer._program.moments  # noqa: SLF001  (the leaves are no part of the interface)
        for number, leaf in enumerate(joined(plan, pieces)):
            wide = leaf.astype(np.float32) if leaf.dtype == jnp.bfloat16 else leaf
            self.keep(f"{what}/{number}", wide)

    def values(self, what: str) -> None:
        for fragment in range(len(self._sizes)):
            self.keep(f"share/{fragment}/{what}", self._model.value(fragment))

    def snapshots(self, what: str) -> list[Floats]:
        taken = [self._model.snapshot(fragment, "float32") for fragment in range(len(self._sizes))]
        with ThreadPoolExecutor(1) as side:  # a step's thread does not wait for the bytes
            buffers = list(side.map(lambda each: each.buffer(), taken))
        shares = [np.frombuffer(each, np.float32) for each in buffers]
        for fragment, share in enumerate(shares):
            self.keep(f"share/{fragment}/{what}", share)
        half = np.frombuffer(self._model.snapshot(0, "bfloat16").buffer(), jnp.bfloat16)
        self.keep(f"share/0/{what} of half the bits", half.astype(np.float32))
        return shares


def cut(value: Floats, ranges: Ranges) -> Floats:
    return np.concatenate([value[:0], *(value[start:stop] for start, stop in ranges)])


def played(trainer: JaxTrainer, name: str) -> Found:
    trainer.setup()
    recorder = Recorder(trainer, name)
    batches = trainer.batches(ShardKey(0, 0), 0)
    recorder.values("initial")
    recorder.each("adopted", trainer.adopt)
    recorder.keep("losses", stepped(trainer, batches, 2))
    recorder.values("stepped")
    sent = recorder.snapshots("difference")
    recorder.keep("more losses", stepped(trainer, batches, 1))
    recorder.each("carried on", lambda f, value: trainer.carry_on(f, value, sent[f]))
    recorder.each("carried on alone", lambda f, value: trainer.carry_on(f, value, None))
    recorder.each("mixed", lambda f, value: trainer.mix(f, value, 0.3))
    recorder.keep("finite", np.bool_(trainer.finite()))
    pieces = moments(trainer)
    recorder.state("moments", trainer, pieces)
    trainer.reset_moments()
    recorder.state("fresh moments", trainer, moments(trainer))
    trainer.load_moments(pieces)
    assert moments(trainer) == pieces
    odd = next(batches)[0][:-1]  # type: ignore[index]  # rows that the devices cannot share
    recorder.keep("odd loss", np.float64(trainer.step(odd, 1e-3).loss()))
    recorder.each("broken", lambda f, value: trainer.adopt(f, np.full_like(value, np.nan)))
    recorder.keep("broken is finite", np.bool_(trainer.finite()))
    return recorder.found


def stepped(trainer: Trainer, batches: Iterator[tuple[object, int]], steps: int) -> Floats:
    pending = [trainer.step(next(batches)[0], 1e-3) for _ in range(steps)]
    return np.array([step.loss() for step in pending], np.float32)


def moments(trainer: JaxTrainer) -> list[memoryview]:
    """The pieces of the inner optimizer's state, each whole."""
    trainer.prepare_giving()
    taken = [trainer.read_moments(piece) for piece in range(trainer.moment_pieces)]
    return [each.buffer() for each in taken]


def merged() -> Found:
    """A run that merges moments, so that second moments advance beside first ones."""
    trainer = JaxTrainer(
        Adam(rows=16),
        FRAGMENTS,
        min_piece_bytes=1024,
        devices=interleaved(),
        model_parallel=2,
        merges_moments=True,
    )
    trainer.setup()
    recorder = Recorder(trainer, "merged")
    batches = trainer.batches(ShardKey(0, 0), 0)
    for interval in ("first", "second", "third"):
        for fragment in range(FRAGMENTS):
            trainer.adopt(fragment, trainer.value(fragment))
        recorder.keep(f"{interval} losses", stepped(trainer, batches, 2))
    recorder.values("stepped")
    recorder.state("moments", trainer, moments(trainer))
    return recorder.found


def own_leaves() -> Found:
    """A user's own loop on a mesh of two axes, whose rows of devices lie across processes."""
    layout, leaves = users_leaves()
    model = JaxModel.of(layout, leaves)
    model.prepare("float32", Adoption.DELAY_CORRECTED)
    recorder = Recorder(model, "own")  # type: ignore[arg-type]  # it has no moments
    step = jax.jit(lambda leaves: tuple(2 * leaf for leaf in leaves))
    model.local = step(model.local)
    sent = recorder.snapshots("difference")
    recorder.each("carried on", lambda f, value: model.carry_on(f, value, sent[f]))
    where = [leaf.sharding for leaf in model.local]
    recorder.each("adopted", model.adopt)
    recorder.each("mixed", lambda f, value: model.mix(f, value, 0.3))
    assert [leaf.sharding for leaf in model.local] == where
    recorder.keep("finite", np.bool_(model.finite()))
    recorder.keep("mark", np.float64(model.mark()))
    held = JaxMoments({"count": jnp.int32(3), "mu": model.local}, {}, CompiledFunctions())
    pieces = [held.read(piece).buffer() for piece in range(len(held.plan.pieces))]
    if jax.process_count() == 1:  # the bytes are those of a single device
        here = jax.device_put(jax.device_get(model.local), jax.devices()[0])
        single = JaxMoments({"count": jnp.int32(3), "mu": here}, {}, CompiledFunctions())
        assert [bytes(piece) for piece in pieces] == [
            bytes(single.read(piece).buffer()) for piece in range(len(single.plan.pieces))
        ]
    held.take({"count": jnp.int32(0), "mu": step(model.local)})
    held.load(pieces)
    assert [leaf.sharding for leaf in held.give()["mu"]] == where
    again = [bytes(held.read(piece).buffer()) for piece in range(len(held.plan.pieces))]
    assert again == [bytes(piece) for piece in pieces]
    recorder.keep("moments", np.frombuffer(b"".join(pieces), np.uint8))
    return recorder.found


def users_leaves() -> tuple[Layout, list[jax.Array]]:
    """Leaves of a user's, cut in several ways, of which two are one array."""
    grid = np.array(interleaved(), dtype=object).reshape(4, 2)
    mesh = Mesh(grid, ("fsdp", "tensor"), axis_types=(AxisType.Explicit, AxisType.Explicit))
    shapes = [Leaf("w", (16, 24)), Leaf("stack", (4, 8, 16), "bfloat16", stack=4), Leaf("b", (24,))]
    cuts = ((("tensor", "fsdp"),), ("fsdp", None, "tensor"), ("fsdp",))
    rng = np.random.default_rng(7)
    leaves = []
    for leaf, names in zip(shapes, cuts, strict=True):
        host = rng.standard_normal(leaf.shape).astype(leaf.dtype)
        sharding = NamedSharding(mesh, PartitionSpec(*names))  # type: ignore[no-untyped-call]
        leaves.append(jax.make_array_from_callback(leaf.shape, sharding, partial(_part, host)))
    both = [*shapes, Leaf("like b", (24,))]
    return plan(both, count=FRAGMENTS, min_piece_bytes=64), [*leaves, leaves[-1]]


def apart() -> Found:
    """What each process does by itself: would it wait for the others, their calls must match."""
    place, size = placed(interleaved(), 2), 1003
    value = np.arange(size, dtype=np.float32)
    share = cut(value, place.held(size))
    for _ in range(jax.process_index() + 1):
        np.testing.assert_array_equal(share_of(place.put_share(share, size), size), share)
        np.testing.assert_array_equal(place.put(value, place.whole), value)
        place.put(value[:1000].reshape(100, 10), place.sharding(None, "model"))
        place.put(jax.random.key(jax.process_index()), place.whole)
    return {"apart/held": np.array(place.held(size), np.int64)}


def refused() -> Found:
    """What several processes together may not do, and the sentences that say so."""
    layout, leaves = users_leaves()
    here = jax.device_put(np.ones(24, np.float32), jax.local_devices()[0])
    there = [each for each in jax.devices() if each.process_index != jax.process_index()]
    attempts: dict[str, Callable[[], object]] = {
        "some devices": lambda: devices_of_learner("0-3"),
        "no device of this process": lambda: placed(there[:2]),
        "a leaf here alone": lambda: JaxModel.of(layout, [*leaves[:3], here]),
        "the first leaf here alone": lambda: JaxModel.of(layout, [here, *leaves[1:]]),
        "a loss in parts": lambda: checked(leaves[2]),
    }
    found: Found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except (SettingsError, TaskError) as error:
            found[name] = np.array(str(error))
    return found


def _part(host: NDArray[np.generic], index: tuple[slice, ...]) -> NDArray[np.generic]:
    return host[index]


def interleaved() -> list[jax.Device]:
    """The devices, of which no two neighbours belong to one process where there are several."""
    half = DEVICES // 2
    return [jax.devices()[index] for pair in range(half) for index in (pair, pair + half)]


def workload() -> Found:
    """A task as a learner's process makes it, on all devices."""
    settings = RunSettings(fragments=FRAGMENTS, adoption=Adoption.DELAY_CORRECTED)
    trainer = JaxWorkload(Line(rows=16)).trainer(settings, LearnerDevices("a"))
    assert isinstance(trainer, JaxTrainer)
    return played(trainer, "line")


def stacks() -> Found:
    """Leaves cut in every way, over devices that are not grouped by process."""
    trainer = JaxTrainer(
        Counting(), FRAGMENTS, min_piece_bytes=1024, devices=interleaved(), model_parallel=2
    )
    return played(trainer, "stacks")


CASES: dict[str, Callable[[], Found]] = {
    "line": workload,
    "stacks": stacks,
    "merged": merged,
    "own": own_leaves,
    "apart": apart,
    "refused": refused,
}


def start(processes: int, index: int, port: int) -> None:
    """Become one of so many processes, which have eight devices together."""
    jax.config.update("jax_num_cpu_devices", DEVICES // processes)  # type: ignore[no-untyped-call]
    # Compilation takes most of the time, and the arithmetic is small.
    jax.config.update("jax_disable_most_optimizations", True)  # type: ignore[no-untyped-call]  # noqa: FBT003
    if processes == 1:
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # type: ignore[no-untyped-call]
    address = f"127.0.0.1:{port}"
    jax.distributed.initialize(
        *(address, processes, index),
        coordinator_bind_address=address,
        initialization_timeout=LIMIT_S,
        heartbeat_timeout_seconds=HEARTBEAT_S,
    )


def main(file: Path, cases: Sequence[str]) -> None:
    # The large leaves of moments need several pieces.
    compiled_steps.MOMENT_PIECE_BYTES = PIECE_BYTES  # type: ignore[attr-defined]
    found: Found = {}
    for case in cases:
        found |= CASES[case]()
    np.savez(file, **found)  # type: ignore[arg-type]  # untyped in NumPy


if __name__ == "__main__":
    start(*(int(word) for word in sys.argv[1:4]))
    main(Path(sys.argv[4]), sys.argv[5:])
