"""A learner's actor between a scripted supervisor and a scripted syncer."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.actors.role_actor import Context
from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.inline_compute import InlineCompute
from islands.lab.world.inline_worker import InlineWorker
from islands.learner.actor import LearnerActor
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Version
from islands.protocol.messages.membership import Joined
from islands.protocol.messages.training import FragmentUpdate, Welcome
from islands.protocol.settings.run import RunSettings
from messaging.codec.tensors import as_buffer, digest
from messaging.envelope import Envelope
from messaging.links.link import Lane, Link
from messaging.links.memory_link import MemoryNetwork
from tests.virtual import beside, virtual

ANA = LearnerName("ana")
WHO = Incarnation(1, 1)
SETTINGS = RunSettings(interval_steps=2, fragments=1)
NEW = Version(1, 0)


@dataclass
class Stage:
    """A learner that was welcomed, and the syncer's end of its link."""

    actor: LearnerActor
    trainer: NumpyTrainer
    link: Link
    tape: MemoryTape

    def refused(self) -> list[str]:
        lines = [json.loads(line) for line in self.tape.lines]
        return [line["reason"] for line in lines if line["kind"] == "kept_out"]

    def held(self) -> Version | None:
        return self.actor.state.accounts[0].version

    async def publish(self, value: NDArray[np.float32], said: str, *payload: memoryview) -> None:
        """The syncer sends a version with this digest; a while passes."""
        update = FragmentUpdate(1, FragmentIndex(0), NEW, -1, said, 0.0, None)
        buffers = payload or (as_buffer(value),)
        self.link.send(Envelope("syncer", "ana", 1, update, payload=buffers), Lane.BULK)
        await asyncio.sleep(0.1)


@asynccontextmanager
async def open_learner(settings: RunSettings = SETTINGS) -> AsyncIterator[Stage]:
    """A learner that runs beside a test, admitted and greeted."""
    network, tape = MemoryNetwork(), MemoryTape()
    trainer = NumpyTrainer(1)
    context = Context(settings, trainer.layout, network, tape)
    compute = InlineCompute(trainer, settings, step_s=lambda: 0.1)
    worker = InlineWorker(lambda: 0.001)
    actor = LearnerActor("ana", context, compute, worker, random.Random(0))
    doors = [network.listen(name) for name in ("supervisor", "syncer")]
    async with beside(actor):
        supervisor = await doors[0].accept()
        await supervisor.receive()
        joined = Joined("run", ANA, WHO, "", 1, ("syncer",))
        supervisor.send(Envelope("supervisor", "ana", 1, joined))
        link = await doors[1].accept()
        await link.receive()
        link.send(Envelope("syncer", "ana", 1, Welcome(1, (None,))))
        await asyncio.sleep(0.1)
        yield Stage(actor, trainer, link, tape)


def value_of(number: float) -> NDArray[np.float32]:
    return np.full(NumpyTrainer(1).layout.fragments[0].size, number, np.float32)


@pytest.mark.parametrize("payload", [value_of(3), value_of(2)[:-1]], ids=["damaged", "too short"])
@virtual
async def test_a_published_value_is_adopted_and_a_damaged_one_is_not(
    payload: NDArray[np.float32],
) -> None:
    async with open_learner() as stage:
        before = stage.trainer.value(0)
        right = digest(as_buffer(value_of(2)))
        await stage.publish(value_of(2), right, as_buffer(payload))
        assert stage.held() is None
        assert np.array_equal(stage.trainer.value(0), before)
        assert len(stage.refused()) == 1
        await stage.publish(value_of(2), right)
        assert stage.held() == NEW
        assert np.array_equal(stage.trainer.value(0), value_of(2))
