"""A quarantined learner: it stands still, until its incarnation or its syncer is another one."""

from islands.protocol.identities import Incarnation, Phase
from islands.protocol.learner.actions import AllowSteps
from islands.protocol.learner.events import FromSyncer
from islands.protocol.messages.membership import Evicted
from islands.protocol.messages.training import Progress, Quarantined, Welcome
from tests.learner import bench as states


def notice(counter: int = 1) -> FromSyncer:
    """The end of all merging for an incarnation."""
    return FromSyncer(Quarantined(states.ANA, Incarnation(1, counter), "third strike"))


def test_it_stands_still_whatever_it_is_granted() -> None:
    """A step would use a quota that others are to have."""
    bench = states.stepping()
    bench.do(notice())
    assert bench.of(AllowSteps) == [AllowSteps(0, states.LEASES)]
    bench.stop()
    assert [report.phase for report in bench.sent(Progress)] == [Phase.STARVED]
    bench.grant(20_000)
    assert bench.of(AllowSteps) == []
    bench.do(notice())
    assert bench.of(AllowSteps) == []


def test_a_notice_to_an_earlier_incarnation_is_old_news() -> None:
    """What that did wrong does not stop this one."""
    bench = states.stepping()
    bench.do(notice(counter=0))
    assert bench.of(AllowSteps) == []


def test_a_new_incarnation_steps_again() -> None:
    """It begins like any other."""
    bench = states.stepping()
    bench.do(notice())
    bench.do(FromSyncer(Evicted(states.ANA, Incarnation(1, 1), "silent")))
    bench.admit(counter=2)
    for fragment in range(states.P):
        bench.adopt(fragment, 1)
    bench.grant(100, counter=2)
    assert [order.until_tokens > 0 for order in bench.of(AllowSteps)] == [True]


def test_a_restarted_syncer_knows_of_no_quarantine() -> None:
    """It merges what this incarnation sends; the same syncer, over another link, does not."""
    bench = states.stepping()
    bench.do(notice())
    bench.do(FromSyncer(Welcome(1, (None,) * states.P, None, "")))
    assert bench.of(AllowSteps) == []
    bench.do(FromSyncer(Welcome(2, (None,) * states.P, None, "")))
    assert [order.until_tokens > 0 for order in bench.of(AllowSteps)] == [True]
