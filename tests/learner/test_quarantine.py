"""A quarantined learner: it stops, and its process ends with a sentence."""

from islands.protocol.identities import Incarnation
from islands.protocol.learner.actions import AllowSteps
from islands.protocol.learner.events import FromSyncer
from islands.protocol.messages.membership import Leave
from islands.protocol.messages.training import Progress, Quarantined
from islands.protocol.sessions import Exit
from tests.learner import bench as states


def notice(counter: int = 1) -> FromSyncer:
    return FromSyncer(Quarantined(states.ANA, Incarnation(1, counter), "third strike"))


def test_it_stops_and_ends_so_that_who_supervises_it_sees_it() -> None:
    bench = states.stepping()
    bench.do(notice())
    assert bench.of(AllowSteps) == [AllowSteps(0, states.LEASES)]
    bench.grant(20_000)
    assert bench.of(AllowSteps) == []  # a step would use a quota that others are to have
    bench.do(notice())
    assert bench.of(Exit) == []  # a step is running still
    bench.stop()
    assert bench.sent(Progress)
    assert bench.sent(Leave)
    (end,) = bench.of(Exit)
    assert end.failed
    assert "third strike" in end.reason


def test_a_notice_to_an_earlier_incarnation_is_old_news() -> None:
    bench = states.stepping()
    bench.do(notice(counter=0))
    assert bench.of(AllowSteps) == []
