"""What a codec loses of a contribution stays in the local value, and comes with a later one."""

import numpy as np
import pytest

from islands.lab.toys.toy import NumpyTrainer
from islands.learner.compute import enqueue
from islands.numerics.codecs import QUANTIZERS, decode, encode
from islands.protocol.identities import FragmentIndex, Incarnation, Lease, Version
from islands.protocol.learner import actions
from islands.protocol.messages.training import Merged
from islands.protocol.settings.choices import Adoption, Precision
from islands.protocol.settings.run import RunSettings
from messaging.codec.tensors import as_buffer
from tests.learner.bench import BATCH, Copies, TrainedBoundary

ZERO = FragmentIndex(0)
CARRY = Adoption.DELAY_CORRECTED
LEASE = Lease(0, 0, 0)


class Carried:
    """A boundary that keeps its local work, and a syncer of one fragment that only adds."""

    def __init__(self, precision: Precision, *, error_feedback: bool = True) -> None:
        settings = RunSettings(
            fragments=1, adoption=CARRY, precision=precision, error_feedback=error_feedback
        )
        self.copies = Copies()
        self.boundary = TrainedBoundary(
            NumpyTrainer(1, batch_tokens=BATCH, shards=4, batches_per_shard=40),
            settings,
            report=lambda _: None,
            copier=self.copies,
        )
        self.precision, self.feeds_back = precision, error_feedback
        self.size = self.boundary.trainer.layout.fragments[0].size
        self.value = np.zeros(self.size, np.float32)
        self.number = 0
        self.adopt(None, None)
        enqueue(self.boundary.commands, actions.PlanSnapshots((ZERO,)))
        enqueue(self.boundary.commands, actions.AllowSteps(400 * BATCH, (LEASE,)))
        self.boundary.carry_out()

    @property
    def local(self) -> np.ndarray:
        return self.boundary.trainer.value(0)

    def step(self) -> memoryview:
        assert self.boundary.has_work()
        self.boundary.dispatch()
        self.boundary.carry_out()
        return self.copies.snapshots[-1].snapshot.buffer()

    def adopt(self, merged: Merged | None, sent: memoryview | None) -> None:
        carry = self.number > 0
        version = Version(1, self.number)
        who, value = Incarnation(1, 1), as_buffer(self.value.copy())
        told = self.precision if self.feeds_back else None
        command = actions.AdoptValue(
            *(ZERO, version, 0.0, 1, who, value, carry, merged, sent), sent_precision=told
        )
        self.number += 1
        enqueue(self.boundary.commands, command)
        self.boundary.carry_out()


@pytest.mark.parametrize("precision", [each for each in QUANTIZERS if each.on_host])
@pytest.mark.parametrize("fates", ["aaaa", "alala", "llaal"])
def test_carried_work_contains_what_was_lost(precision: Precision, fates: str) -> None:
    """What was applied and what is still to be sent is all that was done, by a float64 account.

    A contribution that was lost is contained in the next; one that was applied is not, but for
    what its codec lost.
    """
    run, applied, others = Carried(precision), np.zeros(1), np.zeros(1)
    work = np.zeros(run.size)
    for round_, fate in enumerate(fates):
        before = run.local.astype(np.float64)
        payload = run.step()
        work += run.local - before
        sent = encode(np.frombuffer(payload, np.float32), precision)
        merged = None
        if fate == "a":
            merged = Merged(1, round_, round_ + 1 - fates[:round_].rfind("a") - 1, BATCH)
            arrived = decode(sent, run.size, precision)
            run.value = run.value - arrived
            applied = applied - arrived.astype(np.float64)
        else:
            run.value = run.value + np.float32(0.25)  # another's work
            others = others + 0.25
        run.adopt(merged, sent.data if merged else None)
        open_ = run.local.astype(np.float64) - run.value
        np.testing.assert_allclose(applied + open_, work, atol=1e-4)
        np.testing.assert_allclose(run.local, others + work, atol=1e-4)
    assert np.abs(applied - work).max() > 1e-3 * np.abs(work).max()


def test_without_feedback_the_local_value_loses_it_too() -> None:
    """What is subtracted once it was applied is the snapshot, not what arrived of it."""
    run = Carried(Precision.FP4, error_feedback=False)
    payload = run.step()
    arrived = decode(encode(np.frombuffer(payload, np.float32), "fp4"), run.size, "fp4")
    run.value = run.value - arrived
    run.adopt(Merged(1, 0, 1, BATCH), payload)
    np.testing.assert_array_equal(run.local, run.value)
