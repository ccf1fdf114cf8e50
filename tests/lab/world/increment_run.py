"""A run whose updates are increments, with a late joiner, missed versions and restarts.

The production actors on a virtual clock; learners compute with NumPy, or with JAX. What is kept is
every update that crossed the network, and what every learner held as its base on its device after
each adoption.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.world import LearnerHost, World
from islands.model.interfaces import Trainer
from islands.model.jax_trainer import JaxTrainer
from islands.protocol.identities import SUPERVISOR, SYNCER, Version
from islands.protocol.messages.training import FragmentUpdate
from islands.protocol.settings.choices import Adoption, Precision, UpdatePrecision
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings, Timing
from messaging.codec.tensors import as_buffer, digest
from messaging.simulation.virtual_time import run_virtual
from tests.lab.study.regression import Regression
from tests.numerics.xla_increments import applied_by_xla
from tests.oracle.wire import Crossing, Disturbances, Tap

EVERYBODY = ("ana", "ben", "eve", "zoe")
LATE = "zoe"
LOOK_S = 0.05
LIMIT_S = 3600.0

Floats = NDArray[np.float32]


class Watched:
    """A trainer, and the digest of each base that it has had, as read from where it is."""

    def __init__(self, inner: Trainer, base: Callable[[int], Floats]) -> None:
        self.bases: list[str] = []
        self._inner = inner
        self._base = base

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def adopt(self, fragment: int, value: Floats) -> None:
        self._inner.adopt(fragment, value)
        self._note(fragment)

    def carry_on(self, fragment: int, value: Floats, sent: Floats | None) -> None:
        self._inner.carry_on(fragment, value, sent)
        self._note(fragment)

    def mix(self, fragment: int, value: Floats, share: float) -> None:
        self._inner.mix(fragment, value, share)
        self._note(fragment)

    def _note(self, fragment: int) -> None:
        self.bases.append(digest(as_buffer(np.ascontiguousarray(self._base(fragment)))))


class NumpyLearner(NumpyTrainer):
    """A learner that computes with NumPy."""

    def base(self, fragment: int) -> Floats:
        return self._base[self._ranges[fragment]]


class JaxLearner(JaxTrainer):
    """A learner whose values are arrays of XLA."""

    def base(self, fragment: int) -> Floats:
        return np.asarray(self._ready().model.base[fragment])[
            : self.layout.fragments[fragment].size
        ]


@dataclass
class Found:
    """What a run came to.

    `updates` counts those on the wire by the length of their chains, 0 for whole values. Of
    versions that were sent, `published` has the digests, and `wrong` those of which XLA makes other
    bits than the syncer. `bases` are the digests of those that each learner has had, in order.
    """

    merges: int = 0
    updates: Counter[int] = field(default_factory=Counter)
    bases: dict[str, list[str]] = field(default_factory=dict)
    published: list[str] = field(default_factory=list)
    wrong: list[Version] = field(default_factory=list)
    sent_bytes: int = 0
    whole_bytes: int = 0
    size_bytes: int = 0
    refused: list[str] = field(default_factory=list)


def settings_of(precision: UpdatePrecision, adoption: Adoption) -> RunSettings:
    """One fragment that is merged every other step."""
    return RunSettings(
        interval_steps=2,
        fragments=1,
        quorum=2,
        adoption=adoption,
        update_precision=precision,
        precision=Precision.INT8,
        outer=OuterSettings(0.7, 0.6),
        learning_rate=0.02,
        timing=Timing(patience=0.3),
    )


def play(settings: RunSettings, merges: int, *, by_jax: bool = False) -> Found:
    """Play the run until so many versions are committed."""
    return run_virtual(_live(settings, merges, by_jax=by_jax), limit_s=LIMIT_S)


async def _live(settings: RunSettings, merges: int, *, by_jax: bool) -> Found:
    made: list[tuple[str, Watched]] = []

    def trainer(name: str, host: LearnerHost) -> Trainer:
        one = _learner(settings, host, by_jax=by_jax)
        made.append((name, Watched(one, one.base)))
        return cast("Trainer", made[-1][1])

    hosts = {name: LearnerHost(step_s=0.1, noise=0.1) for name in EVERYBODY}
    tape = MemoryTape()
    world = World(settings, hosts, seed=3, tape=tape, trainers=trainer)
    assert world.network.conditions is not None, "a simulated network has conditions"
    tap = Tap(world.network.conditions, Disturbances())
    world.network.conditions = tap
    for name in (SUPERVISOR, SYNCER, *EVERYBODY):
        if name != LATE:
            world.start(name)
    await _disturb(world, merges)
    await _merged(world, merges)
    found = Found(merges=world.syncer_state.durable.merges if world.syncer_state else 0)
    await world.kill_all()
    assert world.failures == []
    _follow(found, tap.updates(), world.layout.fragments[0].size)
    for name, one in made:
        found.bases.setdefault(name, []).extend(one.bases)
    lines = [json.loads(line) for line in tape.lines]
    found.refused = [line["reason"] for line in lines if line["kind"] == "kept_out"]
    return found


def _learner(
    settings: RunSettings, host: LearnerHost, *, by_jax: bool
) -> NumpyLearner | JaxLearner:
    if by_jax:
        task = Regression(width=24)
        return JaxLearner(task, 1, min_piece_bytes=4, adoption=settings.adoption)
    return NumpyLearner(1, batch_tokens=host.batch_tokens)


async def _disturb(world: World, merges: int) -> None:
    """A learner misses versions, one joins late, one is restarted, and so is the syncer."""
    await _merged(world, merges // 8)
    world.network.cut("ben", SYNCER)
    await asyncio.sleep(0.5)
    world.network.heal("ben", SYNCER)
    await _merged(world, merges // 4)
    world.start(LATE)
    await _merged(world, merges * 3 // 8)
    await world.kill("eve")
    await asyncio.sleep(0.4)
    world.start("eve")
    await _merged(world, merges // 2)
    await world.kill(SYNCER)
    await asyncio.sleep(0.4)
    world.start(SYNCER)
    await _merged(world, merges * 3 // 4)
    for other in (SUPERVISOR, SYNCER):
        world.network.cut("ana", other)
    await asyncio.sleep(3.0)
    for other in (SUPERVISOR, SYNCER):
        world.network.heal("ana", other)


async def _merged(world: World, merges: int) -> None:
    while world.syncer_state is None or world.syncer_state.durable.merges < merges:
        assert not world.failures, world.failures
        await asyncio.sleep(LOOK_S)


def _follow(found: Found, updates: list[tuple[FragmentUpdate, Crossing]], size: int) -> None:
    """Make every published value by XLA from what was sent, and compare it by its digest."""
    held: dict[Version, Floats] = {}
    found.size_bytes = 4 * size
    for update, crossing in updates:
        found.sent_bytes += len(crossing.payload)
        found.whole_bytes += 4 * size
        if update.since is None:
            found.updates[0] += 1
            value = np.frombuffer(crossing.payload, np.float32)
        else:
            count = update.version.number - update.since.base.number
            found.updates[count] += 1
            value, each = held[update.since.base], len(crossing.payload) // count
            for start in range(0, count * each, each):
                increment = crossing.payload[start : start + each]
                value = applied_by_xla(value, increment, Precision(update.since.precision))
        if digest(as_buffer(value)) != update.digest:
            found.wrong.append(update.version)
        if update.version not in held:
            found.published.append(update.digest)
            held[update.version] = value
