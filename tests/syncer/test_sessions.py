"""Links, membership, the ends of incarnations, and what is fenced; observers only read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from islands.protocol.errors import OutdatedError
from islands.protocol.identities import Incarnation, Phase, Status, Version
from islands.protocol.messages.membership import (
    Evicted,
    HeartbeatAck,
    Joined,
    MembershipChanged,
    Refused,
)
from islands.protocol.messages.training import FinalRound, LeaseGranted
from islands.protocol.sessions import Received
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.events import LinkClosed, LinkOpened, StopRequested
from islands.protocol.syncer.members import LINKS_FREE
from islands.protocol.tape.round_entries import Closed, Merged, Opened
from tests.syncer.bench import BATCH, CONNECTION, Bench, Learner, opened, seeded
from tests.syncer.test_start import RECOVERY_S, Supervised, open_room
from tests.virtual import virtual


def open_as(bench: Bench, **changes: object) -> list[object]:
    """A stranger says hello with something wrong; returns the last words it gets."""
    bench.open(Learner("eve", bench.fragments, 7), 99, **changes)  # type: ignore[arg-type]
    return bench.dismissed()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"protocol": 9}, "protocol 9"),
        ({"run": "other"}, "other"),
        ({"fingerprint": "other"}, "layout other"),
        ({"digests": ()}, "fragments"),
    ],
)
def test_a_stranger_is_refused_with_the_difference(changes: dict[str, object], says: str) -> None:
    (refused,) = open_as(Bench(), **changes)
    assert isinstance(refused, Refused)
    assert says in refused.reason
    assert not refused.retry


@pytest.mark.parametrize("fenced", [False, True])
def test_a_forged_credential_opens_and_fences_nothing(*, fenced: bool) -> None:
    bench = Bench()
    hello = replace(bench.hello_of(Learner("eve", 2, 1)), epoch_seen=2 * fenced)
    bench.do(LinkOpened(hello, 1, trusted=False, fenced=fenced))
    bench.last_word(Refused)
    assert bench.core.members.learners == {}
    assert bench.core.durable.ledger.books == {}


@pytest.mark.parametrize("epoch", [2, 10**6, 2**62])
def test_a_claim_of_a_newer_epoch_is_its_senders_mistake(epoch: int) -> None:
    bench = seeded("ana", "ben")
    (refused,) = open_as(bench, epoch_seen=epoch)
    assert isinstance(refused, Refused)
    assert f"epoch {epoch}" in refused.reason
    bench.step("ben")
    assert not bench.dismissed()


def test_a_syncer_that_was_replaced_ends() -> None:
    bench = Bench()
    hello = replace(bench.hello_of(Learner("ana", 2, 1)), epoch_seen=2)
    with pytest.raises(OutdatedError, match=r"epoch 2.*start this one again"):
        bench.do(LinkOpened(hello, 1, trusted=True, fenced=True))


def test_a_compiling_learner_gets_values_when_it_can_adopt_them() -> None:
    """They would only pile up before; they are sent as soon as it has compiled."""
    bench = seeded("ana")
    bench.learners["ben"] = Learner("ben", 2, 1)
    bench.learners["ben"].phase = Phase.COMPILING
    bench.hello("ben")
    assert bench.receivers(0) == []
    bench.learners["ben"].phase = Phase.HEALING
    bench.report("ben")
    assert bench.receivers(0) == bench.receivers(1) == ["ben"]


def test_a_hello_that_is_said_again_over_its_link_is_not_answered_again() -> None:
    bench = seeded("ana")
    bench.hello("ben")
    assert bench.receivers(0) == ["ben"]
    connection = bench.connections["ben"]
    for _ in range(100):
        assert bench.hello("ben", connection=connection) == []


def test_who_dials_again_and_again_is_not_sent_the_model_each_time() -> None:
    bench, copies = seeded("ana"), 0
    for _ in range(1000):
        bench.hello("ben")
        copies += bench.receivers(0) == ["ben"]
    assert copies == 1 + LINKS_FREE
    for _ in range(1000):
        bench.tick(0.1)
        bench.hello("ben")
        copies += bench.receivers(0) == ["ben"]
    assert copies <= 1 + LINKS_FREE + 6


def test_an_observer_that_dials_again_and_again_is_not_sent_the_model_each_time() -> None:
    bench, copies = seeded("ana"), 0
    for connection in range(100, 400):
        bench.connections["eye"] = connection
        bench.observe("eye", connection=connection)
        copies += bench.receivers(0) == ["eye"]
        bench.drop("eye")
    assert copies == 1 + LINKS_FREE


def test_who_compiles_again_and_again_is_not_sent_the_model_each_time() -> None:
    bench, copies = seeded("ana"), 0
    bench.hello("ben")
    for _ in range(100):
        for phase in (Phase.COMPILING, Phase.HEALING):
            bench.learners["ben"].phase = phase
            bench.report("ben")
            copies += bench.receivers(0) == ["ben"]
    assert copies == 0, "they came with the answer to its hello"


def test_a_new_version_is_sent_over_a_new_link_at_once() -> None:
    bench = seeded("ana")
    for _ in range(50):
        bench.hello("ben")
    sent = bench.record("ben").sent[0]
    assert bench.core.versions.published[0] is not None
    bench.core.versions.published[0].version = Version(1, 7)
    bench.hello("ben")
    assert bench.receivers(0) == ["ben"]
    assert sent.version == Version(1, 0)


def test_a_newer_incarnation_ends_the_older_one() -> None:
    bench = seeded("ana", "ben")
    bench.step("ben")
    bench.hello("ben", counter=2)
    assert bench.core.durable.fence.names[bench.learners["ben"].name].counter == 1
    assert bench.state.ledger_rows()[0].lost == BATCH
    bench.hello("ben", counter=1)
    assert isinstance(bench.dismissed()[0], Evicted)


def test_what_the_supervisor_ended_stays_ended() -> None:
    bench = seeded("ana", "ben")
    bench.view("ben", Status.EVICTED)
    assert isinstance(bench.dismissed()[0], Evicted)
    bench.hello("ben")
    assert isinstance(bench.dismissed()[0], Evicted)
    bench.hello("ben", counter=2)
    assert bench.dismissed() == []
    assert bench.core.durable.rejoins == 1
    bench = seeded("ana", "ben")
    bench.view("ben", Status.LIVE, counter=2)
    assert isinstance(bench.dismissed()[0], Evicted)
    assert "ben" not in bench.core.members.learners


def test_an_older_incarnation_than_the_journal_knows_is_fenced() -> None:
    bench = seeded("ana", "ben")
    bench.hello("ben", counter=3)
    bench.journal()
    again = Bench(durable=bench.core.durable, epoch=2)
    again.hello("ben", counter=2)
    assert isinstance(again.dismissed()[0], Evicted)
    again.hello("ben", counter=3)
    assert again.dismissed() == []


def test_an_older_supervisor_is_ignored() -> None:
    bench = seeded("ana", "ben")
    bench.view("ana", Status.LIVE, epoch=2)
    bench.view("ben", Status.EVICTED, epoch=1)
    assert "ben" in bench.core.members.learners


def test_who_is_in_no_view_and_has_no_link_is_ended() -> None:
    bench = seeded("ana", "ben", "linked")
    bench.drop("ben")
    for _ in range(12):
        bench.view("ana", Status.LIVE, epoch=2)
        bench.tick(1.0)
    assert "ben" not in bench.core.durable.ledger.books
    assert "ben" not in bench.core.durable.leases.holders
    assert {"ana", "linked"} == bench.core.durable.ledger.books.keys()


def test_who_comes_back_is_absent_from_then_on() -> None:
    bench = seeded("ana", "ben")
    bench.drop("ben")
    bench.view("ana", Status.LIVE, epoch=2)
    bench.tick(1.0)
    bench.view("ben", Status.EVICTED, epoch=2)
    bench.tick(60.0)
    bench.hello("ben", counter=2)
    bench.drop("ben")
    bench.view("ana", Status.LIVE, epoch=2)
    assert "ben" in bench.core.durable.ledger.books


def test_what_comes_over_a_replaced_link_changes_nothing() -> None:
    bench = seeded("ana")
    old = bench.connections["ana"]
    bench.hello("ana", connection=20)
    bench.learners["ana"].steps += 5
    bench.do(Received(bench.learners["ana"].progress(), old))
    bench.do(LinkClosed("ana", old))
    bench.hello("ana", connection=10)
    bench.last_word(Refused)
    assert (bench.record("ana").connection, bench.record("ana").progress.steps) == (20, 0)


def test_a_hello_that_goes_back_brings_its_sender_back() -> None:
    bench = seeded("ana", "ben")
    late = bench.hello_of(bench.learners["ana"])
    bench.step("ana")
    bench.drop("ana")
    bench.do(LinkOpened(late, 50, trusted=True))
    ana = bench.record("ana")
    assert (ana.connection, ana.progress.steps) == (50, 1)


def test_a_grant_is_sent_only_when_it_is_durable() -> None:
    bench = seeded("ana", settings=RunSettings(interval_steps=400, budget_tokens=1000))
    before = bench.holder("ana").quota_tokens
    bench.step("ana", before // BATCH)
    assert bench.written()
    assert bench.sent(LeaseGranted) == []
    bench.hello("ana")
    assert bench.sent(LeaseGranted) == []
    bench.journal()
    assert bench.sent(LeaseGranted)[-1].quota_tokens > before


def test_who_comes_while_the_run_closes_is_told() -> None:
    bench = seeded("ana", "ben")
    bench.drop("ben")
    bench.do(StopRequested("enough"))
    bench.hello("ben")
    assert bench.sent(FinalRound) == [FinalRound(1, "enough")]


FIRST = Incarnation(1, 1)
BEAT_S = 1.0


def admission(incarnation: Incarnation) -> Joined:
    return Joined("run", "syncer", incarnation, "", incarnation.epoch, ())


@asynccontextmanager
async def open_merging() -> AsyncIterator[Supervised]:
    async with open_room() as room:
        await asyncio.sleep(RECOVERY_S + 2 * BEAT_S)
        assert room.beats[-1].phase is Phase.MERGING
        yield room


@virtual
async def test_an_admission_by_an_older_supervisor_does_not_count() -> None:
    async with open_merging() as room:
        room.admits = False
        room.say(HeartbeatAck(5), Evicted("syncer", FIRST, "silent"), admission(Incarnation(4, 9)))
        await asyncio.sleep(2 * BEAT_S)
        assert room.beats[-1].incarnation == FIRST, "its last heartbeat was from before its end"
        room.say(admission(Incarnation(5, 1)))
        await asyncio.sleep(2 * BEAT_S)
        assert room.beats[-1].incarnation == Incarnation(5, 1)


@virtual
async def test_an_evicted_syncer_shows_which_incarnation_it_was() -> None:
    async with open_merging() as room:
        room.admits = False
        room.say(Evicted("syncer", FIRST, "silent"))
        await asyncio.sleep(2 * BEAT_S)
        assert room.joins[-1].previous == FIRST
        assert not any(b'"evicted"' in line for line in room.tape.lines)


@virtual
async def test_a_syncer_hands_on_whose_invitations_were_revoked() -> None:
    async with open_merging() as room:
        told = (("ana", 2000), ("ben", 1))
        for revoked in ((), told):
            room.say(MembershipChanged(1, (), begins=False, revoked=revoked))
        await asyncio.sleep(BEAT_S)
        assert room.revoked == [told]


@virtual
async def test_heartbeats_say_what_the_syncer_does() -> None:
    async with open_merging() as room:
        for paused, phase in ((True, Phase.PAUSED), (False, Phase.MERGING)):
            room.say(MembershipChanged(1, (), paused=paused))
            await asyncio.sleep(2 * BEAT_S)
            assert room.beats[-1].phase is phase
        room.actor.finish("enough")
        await asyncio.sleep(2 * BEAT_S)
        assert room.beats[-1].phase is Phase.FINISHED


def leave(bench: Bench, name: str, *, connection: int = CONNECTION) -> None:
    bench.do(LinkClosed(name, connection))


def test_observers_that_came_and_went_leave_nothing() -> None:
    bench = seeded("ana")
    for number in range(200):
        bench.observe(f"reader-{number}", connection=CONNECTION + number)
        leave(bench, f"reader-{number}", connection=CONNECTION + number)
    assert list(bench.core.members.learners) == ["ana"]
    assert list(bench.core.durable.ledger.books) == ["ana"]


def test_an_observer_comes_back_as_it_was_or_as_another() -> None:
    bench = seeded("ana")
    for counter in (90, 90, 91):
        bench.observe("reader", counter=counter)
        assert bench.dismissed() == []
        assert [update.fragment for update in bench.updates()] == [0, 1]
        assert bench.record("reader").incarnation == Incarnation(1, counter)
        leave(bench, "reader")


def test_a_replaced_link_of_an_observer_forgets_nobody() -> None:
    bench = seeded("ana")
    bench.observe("reader", connection=CONNECTION)
    bench.observe("reader", connection=CONNECTION + 1)
    leave(bench, "reader", connection=CONNECTION)
    assert bench.record("reader").connection == CONNECTION + 1


def test_observers_are_not_counted_as_learners() -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=2))
    bench.observe("reader")
    pulls = opened(bench)
    assert [entry.left_out for entry in bench.entries(Opened)] == [{}]
    shares: list[float] = []
    for pull in pulls:
        bench.answer(pull)
        shares += [entry.share for entry in bench.entries(Closed)]
    bench.merge()
    (merged,) = bench.entries(Merged)
    assert shares == [1.0]
    assert (merged.learners, merged.contributions) == (2, 2)
    assert bench.core.durable.present_sum == 2
