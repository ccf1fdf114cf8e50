"""What Decoupled DiLoCo (arXiv 2604.21428) says of failure and recovery, on the production states.

Each test shows one sentence of protocol §7 and §8, in our own words. Only that a restarted learner
recovers from a healthy peer, and that a checkpoint is a consistent cut, is the paper's [P], as
digests and implementations report it; all else is ours [O], and must never be claimed for it.
"""

from copy import deepcopy

import pytest

from islands.protocol.identities import Incarnation, LearnerName, Lease, Phase, Status, Version
from islands.protocol.learner.actions import AllowSteps, LoadMoments, ReadMoments, ToPeer
from islands.protocol.learner.events import (
    FromSupervisor,
    FromSyncer,
    MomentsLoaded,
    PieceArrived,
    StateRequested,
    TrainerMade,
)
from islands.protocol.messages.membership import Evicted, Join
from islands.protocol.messages.peers import StateOffer, StateRequest
from islands.protocol.messages.training import Hello, LeaseGranted, Welcome
from islands.protocol.sessions import SyncerLinkChanged
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge
from islands.protocol.syncer.recovery import Durable
from tests.learner.bench import ANA, stepping
from tests.learner.test_moments import BEN, PIECES, SCHEMA, Fresh
from tests.supervisor.desk import Desk, beat, sent
from tests.syncer.bench import Bench, opened, seeded

SETTINGS = RunSettings(interval_steps=4, fragments=2)


def started_again(before: Bench, durable: Durable) -> Bench:
    """Another start of the syncer from what its journal holds; learners kept training."""
    bench = Bench(before.settings, durable=durable, epoch=before.core.durable.epoch + 1)
    bench.now_s, bench.learners = before.now_s, before.learners
    for name in sorted(bench.learners):
        bench.hello(name)
    return bench


# --- a learner is restarted --------------------------------------------------------------------


def test_a_restarted_learner_takes_its_moments_from_a_healthy_peer() -> None:
    """[P] §8: all pieces of the donor's, loaded before the first step, which waits for them."""
    bench = Fresh()
    bench.welcome(BEN)
    bench.heal()
    assert bench.of(AllowSteps) == []
    for piece in range(PIECES):
        assert bench.of(LoadMoments) == []
        bench.piece(piece)
    assert [len(load.pieces) for load in bench.of(LoadMoments)] == [PIECES]
    bench.do(MomentsLoaded(taken=True))
    assert [allowed.until_tokens for allowed in bench.of(AllowSteps)] == [500]


def test_it_takes_parameters_and_data_positions_from_the_syncer_and_counts_from_zero() -> None:
    """[O] §8: the published values, not a peer's; the shards at the last positions told.

    Its earlier process did seven steps of ten tokens and read seven records of its first shard.
    """
    bench = seeded("ana", "ben", settings=SETTINGS)
    bench.journal()
    held = bench.core.durable.leases.holders[LearnerName("ana")].leases
    bench.learners["ana"].leases = (Lease(held[0].pass_index, held[0].shard, 7), *held[1:])
    bench.step("ana", 7)
    bench.view("ana", Status.EVICTED)
    bench.hello("ana", counter=2)
    assert [update.version for update in bench.updates()] == [Version(1, 0)] * 2
    book = bench.core.durable.ledger.books[LearnerName("ana")]
    assert (book.incarnation, book.processed) == (Incarnation(1, 2), 0)
    bench.adopt("ana")
    bench.journal()
    (granted,) = bench.sent(LeaseGranted)
    assert granted.leases[0] == Lease(held[0].pass_index, held[0].shard, 7)


def test_a_fresh_learner_neither_contributes_nor_donates() -> None:
    """[O] §3.2: before it has adopted every fragment and stepped, it has nothing of worth."""
    bench = seeded("ana", "ben", settings=SETTINGS)
    bench.step("ana")
    bench.view("ben", Status.EVICTED)
    bench.hello("ben", counter=2)
    (welcome,) = bench.sent(Welcome)
    assert welcome.donor == "ana"
    bench.hello("zoe")
    (welcome,) = bench.sent(Welcome)
    assert welcome.donor == "ana"
    assert {pull.ticket.name for pull in opened(bench)} == {"ana"}


def test_a_donor_gives_a_piece_per_boundary_and_steps_on() -> None:
    """[O] §8: the healthy peer is not stopped for it."""
    bench = stepping()
    bench.do(TrainerMade(SCHEMA, PIECES))
    request = StateRequest(Incarnation(1, 2), 0, SCHEMA)
    bench.do(StateRequested("ben", request))
    assert bench.actions == [ReadMoments(0, "ben")]
    bench.step()
    assert bench.of(AllowSteps) == []


def test_without_a_peer_it_begins_with_fresh_moments_and_waits_for_nobody() -> None:
    """[O] §8: a donor that has none costs no more than its answer."""
    bench = Fresh()
    bench.welcome(BEN)
    bench.heal()
    bench.do(PieceArrived(BEN, StateOffer(0, 0, SCHEMA, ""), memoryview(b""), intact=True))
    assert [allowed.until_tokens for allowed in bench.of(AllowSteps)] == [500]


# --- a link is lost, an incarnation ends ---------------------------------------------------------


def test_a_link_that_comes_back_finds_the_memory_intact() -> None:
    """[O] §8: no step is lost, no moments are asked for, and what is newer is adopted."""
    bench = stepping()
    bench.do(SyncerLinkChanged(up=False))
    bench.step()
    bench.do(SyncerLinkChanged(up=True))
    (hello,) = bench.sent(Hello)
    assert (hello.progress.steps, hello.progress.phase) == (3, Phase.STEPPING)
    bench.do(FromSyncer(Welcome(1, (Version(1, 4), Version(1, 0)))))
    bench.adopt(0, 4)
    assert [account.version for account in bench.state.accounts] == [Version(1, 4), Version(1, 0)]
    assert (bench.of(AllowSteps), bench.of(ToPeer)) == ([], [])


def test_a_zombie_comes_back_under_a_new_incarnation() -> None:
    """[O] §8: who was evicted and lives asks anew, adopts everything, and counts from zero."""
    bench = stepping()
    bench.do(FromSupervisor(Evicted(ANA, Incarnation(1, 1), "silent")))
    assert [join.previous for join in bench.sent(Join)] == [Incarnation(1, 1)]
    bench.admit(2)
    (hello,) = bench.sent(Hello)
    assert (hello.progress.steps, hello.progress.tokens) == (0, 0)
    assert [told.version for told in hello.progress.fragments] == [None, None]


# --- the syncer is restarted -------------------------------------------------------------------


def test_what_died_with_a_syncer_is_in_the_next_pull_of_its_successor() -> None:
    """[O] §8: nothing is offered again, and nothing is missing.

    Ana's answer, two steps, died with the syncer. She did three more while it was away: its next
    pull brings all five.
    """
    bench = seeded("ana", "ben", settings=SETTINGS)
    durable = deepcopy(bench.core.durable)
    bench.step("ben")
    bench.step("ana", 2)
    bench.answer(bench.pulls()[0])
    assert [part.ticket.name for part in bench.merge().parts] == ["ana"]
    bench.learners["ana"].steps += 3
    again = started_again(bench, durable)
    again.step("ben", 2)
    pull = next(pull for pull in again.pulls() if pull.ticket.name == "ana")
    assert pull.ticket.epoch == 2
    again.answer(pull)
    (begun,) = again.of(BeginMerge)
    assert [(part.base, part.steps) for part in begun.parts] == [(Version(1, 0), 5)]


def test_learners_are_eligible_as_soon_as_they_have_said_hello() -> None:
    """[O] §3.2: a hello names the versions held, so a restarted syncer need not send them again."""
    bench = seeded("ana", settings=SETTINGS)
    bench.step("ana")
    again = started_again(bench, deepcopy(bench.core.durable))
    assert again.core.ineligible(LearnerName("ana"), 0) is None


# --- the supervisor is restarted ---------------------------------------------------------------


def test_a_restarted_supervisor_rebuilds_its_view_from_heartbeats() -> None:
    """[O] §8: those whom its predecessor admitted keep their incarnations."""
    desk = Desk(epoch=2)
    desk.hear(beat(Incarnation(1, 3), phase=Phase.STEPPING))
    assert (desk.status(), desk.state.members["a"].incarnation) == (Status.LIVE, Incarnation(1, 3))


def test_it_evicts_nobody_that_it_has_not_heard_itself() -> None:
    """[O] §8: whoever is silent for the first five seconds was heard by nobody of this start."""
    desk = Desk(epoch=2)
    assert sent(desk.wait(60.0), Evicted) == []
    desk.hear(beat(Incarnation(1, 3), phase=Phase.STEPPING))
    assert desk.status() is Status.LIVE


# --- everything is restarted -------------------------------------------------------------------


@pytest.mark.parametrize("written", ["before the record", "after it"])
def test_deviation_what_is_durable_is_a_consistent_cut(written: str) -> None:
    """[P] §8 takes a Chandy-Lamport snapshot; [O] through one hub, ordered writes are that cut.

    A version is sent only once it is durable, so no learner ever holds one that the journal lacks,
    and what was in flight when all died is what the next Welcome brings.
    """
    bench = seeded("ana", "ben", settings=SETTINGS)
    durable, newest = deepcopy(bench.core.durable), 0
    bench.answer(opened(bench)[0])
    bench.merge()
    assert bench.updates() == []
    if written == "after it":
        durable, newest = deepcopy(bench.core.durable), 1
        bench.journal()
        assert {update.version for update in bench.updates()} == {Version(1, 1)}
    again = Bench(SETTINGS, durable=durable, epoch=2)
    again.hello("ana", counter=2)
    (welcome,) = again.sent(Welcome)
    assert welcome.versions == (Version(1, newest), Version(1, 0))
    assert tuple(update.version for update in again.updates()) == welcome.versions
