"""Words that come late, or once more, take nothing back: grants, ends, positions, admissions."""

from islands.protocol.identities import Incarnation, Lease
from islands.protocol.learner.account import Account
from islands.protocol.learner.actions import AllowSteps
from islands.protocol.learner.events import FromSupervisor, FromSyncer, Ticked
from islands.protocol.messages.membership import Evicted
from islands.protocol.messages.training import FinalRound, LeaseGranted, Progress, Welcome
from tests.learner.bench import started, stepping
from tests.learner.test_account import update


def test_a_grant_of_an_older_syncer_is_ignored() -> None:
    bench = started()
    bench.adopt(0, 0)
    bench.adopt(1, 0)
    bench.do(FromSyncer(Welcome(2, (None, None))))
    bench.grant(500, epoch=1)
    assert bench.of(AllowSteps) == []
    bench.grant(100, epoch=2)
    assert [action.until_tokens for action in bench.of(AllowSteps)] == [100]


def test_a_grant_while_the_run_closes_allows_nothing() -> None:
    bench = stepping()
    bench.do(FromSyncer(FinalRound(1, "tokens")))
    assert [action.until_tokens for action in bench.of(AllowSteps)] == [0]
    bench.grant(20_000)
    assert bench.of(AllowSteps) == []


def test_an_ended_incarnation_is_not_taken_up_again() -> None:
    bench = stepping()
    bench.do(FromSupervisor(Evicted("ana", Incarnation(1, 1), "silent")))
    bench.admit(counter=1)
    assert bench.state.incarnation is None
    bench.admit(counter=2)
    assert bench.state.incarnation == Incarnation(1, 2)


def test_positions_never_go_back() -> None:
    bench = stepping()
    further = (Lease(0, 0, 9), Lease(0, 1, 0))
    bench.do(FromSyncer(LeaseGranted(1, Incarnation(1, 1), 20_000, further)))
    bench.step()
    bench.do(Ticked(), after_s=5.0)
    (told,) = bench.sent(Progress)
    assert told.leases == further


def test_the_answer_over_a_new_link_takes_the_place_of_the_one_in_doubt() -> None:
    account = Account()
    account.adopt(update(0, -1), steps=0, tokens=0)
    account.answered(1, 5, 40)
    account.adopt(update(1, 0), steps=4, tokens=40)
    assert account.progress.settled_tokens == 0
    account.answered(1, 5, 10)
    told = account.progress
    assert (told.settled_tokens, told.overwritten_tokens) == (40, 40)
