"""A learner's actor between a scripted supervisor and a scripted syncer."""

import asyncio
import random

import numpy as np
import pytest
from numpy.typing import NDArray

from islands.actors.role_actor import Context
from islands.files.tape_writing import MemoryTape
from islands.lab.toys.toy import NumpyTrainer
from islands.lab.world.inline import InlineCompute, InlineWorker
from islands.learner.actor import LearnerActor
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Version
from islands.protocol.messages.membership import Joined
from islands.protocol.messages.training import FragmentUpdate, Welcome
from islands.protocol.settings.run import RunSettings
from messaging.codec.tensors import as_buffer, digest
from messaging.envelope import Envelope
from messaging.links.link import Lane
from messaging.links.memory_link import MemoryNetwork
from tests.virtual import beside, virtual

ANA, WHO = LearnerName("ana"), Incarnation(1, 1)
SETTINGS, NEW = RunSettings(interval_steps=2, fragments=1), Version(1, 0)


def value_of(number: float) -> NDArray[np.float32]:
    return np.full(NumpyTrainer(1).layout.fragments[0].size, number, np.float32)


@pytest.mark.parametrize("payload", [value_of(3), value_of(2)[:-1]], ids=["damaged", "too short"])
@virtual
async def test_a_published_value_is_adopted_and_a_damaged_one_is_not(
    payload: NDArray[np.float32],
) -> None:
    network, tape, trainer = MemoryNetwork(), MemoryTape(), NumpyTrainer(1)
    context = Context(SETTINGS, trainer.layout, network, tape)
    compute = InlineCompute(trainer, SETTINGS, step_s=lambda: 0.1)
    actor = LearnerActor("ana", context, compute, InlineWorker(lambda: 0.001), random.Random(0))
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
        before, right = trainer.value(0), digest(as_buffer(value_of(2)))
        update = FragmentUpdate(1, FragmentIndex(0), NEW, -1, right, 0.0, None)
        for sent, version, held in ((payload, None, before), (value_of(2), NEW, value_of(2))):
            envelope = Envelope("syncer", "ana", 1, update, payload=(as_buffer(sent),))
            link.send(envelope, Lane.BULK)
            await asyncio.sleep(0.1)
            assert actor.state.accounts[0].version == version
            assert np.array_equal(trainer.value(0), held)
            assert sum(b'"kept_out"' in line for line in tape.lines) == 1
