"""Learners that step on version 1.0, and stand still when they are told to wait."""

from islands.protocol.learner.events import FromSyncer, Idled, SyncerLinkChanged, TrainerReady
from islands.protocol.learner.state import LearnerState
from islands.protocol.messages.training import Welcome
from islands.protocol.settings.run import RunSettings
from tests.learner import test_state as states


def stepping(settings: RunSettings) -> states.Bench:
    """A learner of two fragments that has adopted version 1.0 of both, and may step."""
    bench = states.Bench()
    bench.state = LearnerState(settings, states.ANA, "bench", states.P)
    bench.admit()
    bench.do(SyncerLinkChanged(up=True))
    bench.do(FromSyncer(Welcome(1, (None, None))))
    bench.do(TrainerReady(states.BATCH))
    bench.adopt(0, 0)
    bench.adopt(1, 0)
    bench.grant(10_000)
    return bench


def stand_still(bench: states.Bench) -> None:
    """Compute has reached its limit of steps."""
    tokens, order = bench.steps * states.BATCH, bench.state.core.compute.order
    bench.do(Idled(bench.steps, tokens, states.LEASES, order, waiting=True))
