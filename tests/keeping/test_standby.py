"""A standby: a copy over a link, in which a hub or a syncer goes on when the other host is lost."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from islands.actors.epochs import epoch_disk
from islands.files.disk import DiskFile, RealDisk
from islands.files.slots import Slots
from islands.keeping import standbys
from islands.keeping.promotion import (
    Answer,
    Standby,
    answer,
    answered,
    keep_standby,
    standby_in,
    wish,
    wished,
)
from islands.keeping.standby import held_on
from islands.keeping.standby_state import (
    HUB,
    SYNCER,
    Action,
    DiskFailed,
    Event,
    MessageArrived,
    Promote,
    StandbyState,
    Store,
    Stored,
    SyncerGone,
    SyncerLinked,
    Ticked,
)
from islands.keeping.standby_state import Answer as No
from islands.keeping.standbys import NONE_FOLLOWS, Standbys
from islands.keeping.verifying import faults_of_run
from islands.protocol import sessions
from islands.protocol.errors import DiskError, UserError
from islands.protocol.identities import Incarnation, LearnerName, Phase, Role
from islands.protocol.membership import Credentials, MembershipState
from islands.protocol.messages.membership import (
    Evicted,
    HeartbeatAck,
    Join,
    Joined,
    MembershipChanged,
    Refused,
    RunSpecRequest,
)
from islands.protocol.messages.standby import Follow, PieceHeld, RecordPiece
from islands.protocol.tape.process_entries import CopyFailed, Mirrored
from islands.settings.run_spec import write
from islands.syncer.journal import JOURNAL, Journal, Peers
from tests.keeping.test_checkpoints import FRAGMENTS, LAYOUT, PLAN, SPEC, Run, values_in

ME, CONNECTION = Incarnation(1, 2), 7
JOINED = Joined("r", "sb", ME, "signed", 1, ("ws://hub/syncer",), "proof")
FOLLOWED = HeartbeatAck(1, JOINED.syncers, "proof")
T = TypeVar("T")


def state_of(held: dict[str, str], after_s: float | None = None) -> StandbyState:
    member = MembershipState("r", Role.STANDBY, LearnerName("sb"), LAYOUT.fingerprint)
    return StandbyState(member, address="ws://me", held=held, file_bytes=1 << 20, after_s=after_s)


class Pair:
    """A syncer's journal and one standby; the test carries what one sends to the other."""

    def __init__(self, folder: Path, *, waits: bool = False) -> None:
        self.run = Run(folder / "run", every=None)
        self.other = folder / "other"
        write(self.other, SPEC, PLAN)
        self.disk = epoch_disk(self.other, JOURNAL)
        self.slots = Slots(self.disk)
        self.dropped: list[str] = []
        self.confirmed = 0
        self.sent: list[RecordPiece] = []
        self.spoil = self.no_room = False
        self.room = 1000
        self.wire: list[MessageArrived] = []
        self.standbys = Standbys(waits=waits)
        self.standbys.attach(Peers(self._send, self._drop, self.look, self._confirm))
        self.state: StandbyState

    def link(self) -> None:
        self.state = state_of(held_on(self.slots, LAYOUT))
        self.handle(sessions.SupervisorLinkChanged(up=True))
        self.handle(MessageArrived(JOINED))
        self.handle(SyncerLinked("syncer"))
        self.handle(MessageArrived(FOLLOWED))

    def lose(self) -> None:
        self.wire.clear()
        self.standbys.lost(CONNECTION)
        self.handle(SyncerGone())

    def commit(self, number: int) -> None:
        self.run.commit(number)
        self.look()

    def deliver(self) -> None:
        """Carry what is under way until nothing is."""
        while self.wire:
            self.handle(self.wire.pop(0))

    def handle(self, event: Event) -> None:
        for action in self.state.handle(event, now_s=0.0):
            match action:
                case sessions.ToSyncer(Follow() | PieceHeld() as message):
                    self.standbys.receive(CONNECTION, message)
                case Store(_, piece, parts):
                    head = self.slots.take(piece.file, list(parts))
                    whole = head is not None and head.sequence == piece.sequence
                    self.handle(Stored(action, head.digest if head is not None and whole else ""))
                case sessions.DropSyncerLink(reason):
                    self.dropped.append(reason)

    def _send(self, connection: int, message: object, payload: tuple[memoryview, ...]) -> bool:
        assert connection == CONNECTION
        if self.no_room:
            return False
        assert isinstance(message, RecordPiece)
        if len(self.wire) >= self.room:
            return False
        self.sent.append(message)
        data = bytearray(b"".join(payload))
        data[-1] ^= self.spoil
        self.wire.append(MessageArrived(message, (memoryview(data),)))
        return True

    def _drop(self, _: int, reason: str) -> None:
        self.dropped.append(reason)

    def look(self) -> None:
        self.standbys.follow(self.run.journal)
        self.standbys.followed()

    def _confirm(self) -> None:
        self.confirmed += 1


@pytest.mark.parametrize("piece_bytes", [40, 1 << 20])
def test_every_record_is_copied_and_a_hub_goes_on_there(
    tmp_path: Path, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standbys, "RECORD_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(standbys, "WINDOW", 3)
    pair = Pair(tmp_path)
    pair.commit(1)
    pair.link()
    for number in range(2, 10):
        pair.commit(number)
        pair.deliver()
    assert pair.dropped == []
    assert list(pair.standbys.news()) == [Mirrored("standby sb at ws://me")]
    assert pair.state.phase is Phase.OBSERVING
    assert values_in(pair.other) == values_in(pair.run.folder)
    journal = Journal(epoch_disk(pair.other, JOURNAL), FRAGMENTS)
    recovered = journal.take_over()
    assert recovered is not None
    assert (recovered.durable.merges, journal.damaged) == (9, [])
    assert journal.epoch > pair.run.journal.epoch
    assert faults_of_run(pair.other) == []


def test_one_that_returns_is_sent_what_it_lacks(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.commit(1)
    pair.link()
    pair.commit(2)
    pair.deliver()
    pair.lose()
    pair.commit(3)
    pair.sent.clear()
    pair.link()
    pair.deliver()
    assert [piece.sequence for piece in pair.sent] == [3]
    assert values_in(pair.other) == values_in(pair.run.folder)
    kinds = [type(entry) for entry in pair.standbys.news()]
    assert kinds == [Mirrored, CopyFailed, Mirrored]


def test_one_that_is_slow_is_sent_the_newest_of_each_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standbys, "WAITING_MAX", 1)
    monkeypatch.setattr(standbys, "WINDOW", 1)
    pair = Pair(tmp_path)
    pair.commit(1)
    pair.link()
    for number in range(2, 20):
        pair.commit(number)
    pair.deliver()
    assert len(pair.sent) < 10
    assert pair.sent[-1].left == 0
    assert pair.state.whole
    assert values_in(pair.other) == values_in(pair.run.folder)


def test_a_piece_for_which_a_link_has_no_room_is_sent_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standbys, "RECORD_PIECE_BYTES", 40)
    pair = Pair(tmp_path)
    pair.room = 2
    pair.commit(1)
    pair.commit(2)
    pair.link()
    pair.deliver()
    assert pair.dropped == []
    assert values_in(pair.other) == values_in(pair.run.folder)


class Failing(RealDisk):
    """A disk of which nothing can be opened, or written, while it is bad."""

    bad = False

    def open(self, name: str, at_bytes: int = 0) -> DiskFile | None:
        if self.bad:
            raise DiskError("too many open files")
        return super().open(name, at_bytes)


def test_a_file_that_cannot_be_opened_is_sent_later(tmp_path: Path) -> None:
    pair = Pair(tmp_path, waits=True)
    pair.commit(1)
    pair.commit(2)
    failing = Failing(pair.run.folder / JOURNAL)
    pair.run.journal._disk = failing  # noqa: SLF001
    failing.bad = True
    pair.link()
    assert (pair.sent, pair.standbys.wanted, pair.standbys.holds(1)) == ([], True, False)
    (failed,) = pair.standbys.news()
    assert failed == CopyFailed("standby", "sb: too many open files")
    failing.bad = False
    pair.look()
    pair.deliver()
    assert pair.standbys.holds(2)
    assert values_in(pair.other) == values_in(pair.run.folder)


def test_a_standby_is_not_whole_before_it_has_everything(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.commit(1)
    pair.commit(2)
    pair.link()
    assert [piece.left for piece in pair.sent] == [1, 0]
    pair.handle(pair.wire.pop(0))
    assert (pair.state.whole, pair.state.phase) == (False, Phase.HEALING)
    pair.deliver()
    assert pair.state.whole


def test_with_mirrored_durability_a_record_is_held_once_a_standby_has_it(tmp_path: Path) -> None:
    pair = Pair(tmp_path, waits=True)
    pair.commit(1)
    assert not pair.standbys.holds(1)
    assert list(pair.standbys.news()) == [CopyFailed("standby", NONE_FOLLOWS)]
    assert not pair.standbys.holds(1)
    assert list(pair.standbys.news()) == []  # it is told once
    pair.link()
    assert not pair.standbys.holds(1)
    pair.deliver()
    assert (pair.standbys.holds(1), pair.standbys.holds(2)) == (True, False)
    pair.commit(2)
    pair.lose()
    assert not pair.standbys.holds(2)
    pair.link()
    pair.deliver()
    assert pair.standbys.holds(2)
    assert pair.confirmed > 0


def test_one_that_has_everything_holds_it_without_a_record_more(tmp_path: Path) -> None:
    pair = Pair(tmp_path, waits=True)
    pair.commit(1)
    pair.link()
    pair.deliver()
    pair.lose()
    pair.sent.clear()
    pair.link()
    assert (pair.sent, pair.standbys.holds(1)) == ([], True)


def test_nothing_is_confirmed_before_an_earlier_file_is_durable(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.commit(1)
    pair.commit(2)
    pair.link()
    first, second = pair.wire
    (store,) = pair.state.handle(first, now_s=0.0)
    (other,) = pair.state.handle(second, now_s=0.0)
    assert isinstance(store, Store)
    assert isinstance(other, Store)
    (held,) = pair.state.handle(Stored(store, "digest"), now_s=0.0)
    assert held == sessions.ToSyncer(PieceHeld(1))


def test_a_file_that_was_changed_on_the_way_is_not_confirmed(tmp_path: Path) -> None:
    pair = Pair(tmp_path, waits=True)
    pair.commit(1)
    pair.spoil = True
    pair.link()
    pair.deliver()
    assert pair.dropped == ["fragment-00000.a.safetensors did not arrive whole"]
    assert not pair.standbys.holds(1)
    pair.lose()
    pair.spoil = False
    pair.link()
    pair.deliver()
    assert pair.standbys.holds(1)


def test_what_a_link_had_no_room_for_is_sent_later(tmp_path: Path) -> None:
    pair = Pair(tmp_path, waits=True)
    pair.commit(1)
    pair.no_room = True
    pair.link()
    assert pair.standbys.wanted
    pair.no_room = False
    pair.look()
    pair.deliver()
    assert pair.standbys.holds(1)
    assert not pair.standbys.wanted


def test_records_of_one_number_that_two_syncers_wrote_are_told_apart(tmp_path: Path) -> None:
    pair, other = Pair(tmp_path / "one"), Pair(tmp_path / "other")
    for each, value in ((pair, 1), (other, 2)):
        each.commit(value)
        each.link()
        each.deliver()
    held = dict(other.state.held)
    assert held.keys() == pair.state.held.keys()
    other.lose()
    pair.state.held = held
    pair.standbys.lost(CONNECTION)
    pair.sent.clear()
    pair.handle(SyncerLinked("syncer"))
    pair.handle(MessageArrived(FOLLOWED))
    assert {piece.file for piece in pair.sent} == {*held}


def lies() -> Iterator[tuple[str, RecordPiece, bytes]]:
    fair = RecordPiece(1, "metadata.a.safetensors", 1, 0, 10)
    yield "named", replace(fair, file="../key"), b"0123456789"
    yield "named", replace(fair, file="fragment-00000.a.safetensors/x"), b"0123456789"
    yield "a file of 2097152 bytes", replace(fair, size_bytes=1 << 21), b"0123456789"
    yield "not the next one", replace(fair, at=5), b"01234"
    yield "not the next one", fair, b"01234567890"
    yield "not the next one", fair, b""


@pytest.mark.parametrize(("wrong", "piece", "payload"), [*lies()])
def test_a_syncer_that_lies_writes_nothing(wrong: str, piece: RecordPiece, payload: bytes) -> None:
    state = state_of({})
    (action,) = state.handle(MessageArrived(piece, (memoryview(payload),)), now_s=0.0)
    assert isinstance(action, sessions.DropSyncerLink)
    assert wrong in action.reason


def test_a_standby_that_lies_is_dropped(tmp_path: Path) -> None:
    pair = Pair(tmp_path, waits=True)
    pair.commit(1)
    pair.standbys.receive(CONNECTION, PieceHeld(1))
    pair.link()
    pair.standbys.receive(CONNECTION, PieceHeld(99))
    pair.standbys.receive(CONNECTION, PieceHeld(-1))
    assert pair.dropped == [
        "said something before it followed",
        "confirmed what was not sent",
        "confirmed what was not sent",
    ]
    assert not pair.standbys.holds(1)


# --- taking over ---------------------------------------------------------------------------------


class Seat:
    """A standby with a whole copy, whose clock the test moves."""

    def __init__(self, *, after_s: float | None = None, whole: bool = True) -> None:
        self.state = state_of({}, after_s)
        self.handle(sessions.SupervisorLinkChanged(up=True))
        self.handle(MessageArrived(JOINED))
        self.handle(SyncerLinked("syncer"))
        self.handle(MessageArrived(FOLLOWED))
        piece = RecordPiece(1, "metadata.a.safetensors", 1, 0, 2, left=not whole)
        (store,) = self.handle(MessageArrived(piece, (memoryview(b"ok"),)))
        assert isinstance(store, Store)
        self.handle(Stored(store, "digest"))

    def handle(self, event: Event, now_s: float = 0.0) -> list[Action]:
        return self.state.handle(event, now_s=now_s)

    def tick(self, now_s: float, *, asked: bool = False) -> list[Action]:
        """Return what it does about its place, beside its heartbeat."""
        found = self.handle(Ticked(asked), now_s)
        return [
            each
            for each in found
            if not isinstance(each, sessions.ToSupervisor) or isinstance(each.message, Join)
        ]


def claim(actions: list[Action]) -> Join:
    (action,) = actions
    assert isinstance(action, sessions.ToSupervisor)
    assert isinstance(action.message, Join)
    return action.message


def test_it_asks_the_supervisor_which_agrees() -> None:
    seat = Seat()
    seat.handle(SyncerGone(), 10.0)
    assert seat.tick(100.0) == []
    asked = claim(seat.tick(101.0, asked=True))
    assert (asked.role, asked.takes_over, asked.name) == (Role.SYNCER, "syncer", "sb")
    assert seat.tick(102.0, asked=True) == []  # it waits for the answer
    granted = replace(JOINED, incarnation=Incarnation(1, 3))
    assert seat.handle(MessageArrived(granted)) == [Promote(SYNCER)]


def test_without_a_supervisor_an_operator_alone_makes_it_the_hub() -> None:
    seat = Seat(after_s=1.0)
    seat.handle(SyncerGone(), 10.0)
    seat.handle(sessions.SupervisorLinkChanged(up=False))
    assert seat.tick(100.0) == []
    assert seat.tick(101.0, asked=True) == [Promote(HUB)]


def test_by_itself_it_asks_after_a_time_and_again_after_a_refusal() -> None:
    seat = Seat(after_s=5.0)
    assert seat.tick(1000.0) == []
    seat.handle(SyncerGone(), 1000.0)
    assert seat.tick(1004.9) == []
    claim(seat.tick(1005.0))
    refused = Refused("sb", "the run's syncer 'syncer' is alive", retry=False)
    assert seat.handle(MessageArrived(refused), 1005.5) == []
    assert seat.tick(1010.0) == []
    claim(seat.tick(1010.5))


def test_a_disk_that_fails_makes_a_copy_old() -> None:
    seat = Seat(after_s=5.0)
    seat.handle(DiskFailed())
    seat.handle(SyncerGone(), 1000.0)
    assert seat.tick(1010.0) == []


def test_a_link_that_comes_back_ends_the_wait() -> None:
    seat = Seat(after_s=5.0)
    seat.handle(SyncerGone(), 1000.0)
    seat.handle(SyncerLinked("syncer"), 1004.0)
    seat.handle(SyncerGone(), 1004.5)
    assert seat.tick(1009.0) == []
    claim(seat.tick(1009.5))


def test_an_admission_that_comes_twice_is_no_promotion() -> None:
    seat = Seat()
    seat.handle(SyncerGone(), 10.0)
    claim(seat.tick(11.0, asked=True))
    assert seat.handle(MessageArrived(JOINED)) == []


def test_one_that_was_evicted_claims_nothing_before_it_is_admitted_again() -> None:
    seat = Seat()
    seat.handle(SyncerGone(), 10.0)
    (join,) = seat.handle(MessageArrived(Evicted(LearnerName("sb"), ME, "another was promoted")))
    assert isinstance(join, sessions.ToSupervisor)
    found = seat.tick(11.0, asked=True)
    assert No("the supervisor has not admitted this standby yet") in found


def test_a_refusal_after_an_eviction_has_it_ask_for_admission() -> None:
    seat = Seat()
    seat.handle(SyncerGone(), 10.0)
    claim(seat.tick(11.0, asked=True))
    evicted = Evicted(LearnerName("sb"), ME, "another was promoted")
    assert seat.handle(MessageArrived(evicted)) == []
    join, _ = seat.handle(MessageArrived(Refused("sb", "it goes on with 'sb2'", retry=True)))
    assert isinstance(join, sessions.ToSupervisor)
    assert isinstance(join.message, Join)
    assert join.message.role is Role.STANDBY


def test_a_copy_of_another_syncer_is_not_whole() -> None:
    seat = Seat(after_s=1.0)
    seat.handle(SyncerLinked("sb2"))
    seat.handle(SyncerGone(), 10.0)
    assert seat.tick(20.0) == []


def test_one_that_may_be_passed_over_is_not_followed() -> None:
    """After a link was lost, a syncer is followed once the supervisor tells of it."""
    seat = Seat()
    seat.handle(SyncerGone(), 10.0)
    assert not sent_to_syncer(seat.handle(SyncerLinked("syncer"), 11.0))
    other = HeartbeatAck(1, ("ws://b/sb2",), "proof")
    assert not sent_to_syncer(seat.handle(MessageArrived(other)))
    seat.handle(SyncerLinked("sb2"))
    (follow,) = sent_to_syncer(seat.handle(MessageArrived(other)))
    assert isinstance(follow, Follow)
    assert not sent_to_syncer(seat.handle(MessageArrived(other))), "it follows already"


def test_without_a_supervisor_the_syncer_that_it_finds_is_followed() -> None:
    seat = Seat()
    seat.handle(sessions.SupervisorLinkChanged(up=False))
    seat.handle(SyncerGone(), 10.0)
    assert sent_to_syncer(seat.handle(SyncerLinked("syncer"), 11.0))


def sent_to_syncer(actions: list[Action]) -> list[object]:
    return [each.message for each in actions if isinstance(each, sessions.ToSyncer)]


def test_an_answer_over_another_link_is_waited_for_no_more() -> None:
    seat = Seat()
    seat.handle(SyncerGone(), 10.0)
    claim(seat.tick(11.0, asked=True))
    seat.handle(sessions.SupervisorLinkChanged(up=False))
    _, *again = seat.handle(sessions.SupervisorLinkChanged(up=True))
    claim(again)
    assert seat.tick(12.0, asked=True) == [
        each for each in seat.tick(12.0) if not isinstance(each, No)
    ]


def test_it_says_why_it_does_not_take_over() -> None:
    alive = Seat()
    assert alive.tick(1.0, asked=True) == [No("the run's syncer is alive, and is followed")]
    young = Seat(whole=False, after_s=1.0)
    young.handle(SyncerGone(), 10.0)
    assert young.tick(20.0) == []
    (no,) = young.tick(21.0, asked=True)
    assert isinstance(no, No)
    assert "has not copied all of the run" in no.reason
    passed = Seat()
    passed.handle(SyncerGone(), 10.0)
    claim(passed.tick(11.0, asked=True))
    refused = Refused("sb", "the run has gone on with 'other' since", retry=False)
    assert passed.handle(MessageArrived(refused)) == [No(refused.reason)]


def test_a_refusal_of_its_admission_ends_it() -> None:
    state = state_of({})
    request, join = state.handle(sessions.SupervisorLinkChanged(up=True), now_s=0.0)
    assert isinstance(request, sessions.ToSupervisor)
    assert isinstance(request.message, RunSpecRequest)
    assert isinstance(join, sessions.ToSupervisor)
    assert isinstance(join.message, Join)
    word = Refused("sb", "the standby 'sb' does not hold this run's key", retry=False)
    (end,) = state.handle(MessageArrived(word), now_s=0.0)
    assert end == sessions.Exit(f"refused: {word.reason}", failed=True)


def test_it_dials_the_newest_syncer_and_keeps_revocations() -> None:
    seat = Seat()
    ack = HeartbeatAck(1, ("ws://a/syncer", "ws://b/sb2"), "proof")
    assert seat.handle(MessageArrived(ack)) == [sessions.DialSyncer("ws://b/sb2")]
    page = MembershipChanged(1, (), revoked=(("ben", 5),))
    (kept,) = seat.handle(MessageArrived(page))
    assert getattr(kept, "revoked", None) == {"ben": 5}


# --- an operator's wish --------------------------------------------------------------------------


def test_a_wish_is_answered_once(tmp_path: Path) -> None:
    credentials = Credentials("r", b"0123456789abcdef")
    assert not wished(tmp_path, credentials)
    wish(tmp_path, credentials)
    assert wished(tmp_path, credentials)
    answer(tmp_path, Answer(reason="not now"))
    assert (wished(tmp_path, credentials), answered(tmp_path)) == (False, Answer(reason="not now"))
    wish(tmp_path, credentials)
    assert answered(tmp_path) is None


def test_a_forged_wish_is_refused(tmp_path: Path) -> None:
    wish(tmp_path, Credentials("r", b"another key of 16"))
    assert not wished(tmp_path, Credentials("r", b"0123456789abcdef"))
    assert answered(tmp_path) == Answer(reason="the wish is not signed with the run's key")


def test_a_promotion_is_not_forgotten_by_another_wish(tmp_path: Path) -> None:
    answer(tmp_path, Answer(role=HUB))
    wish(tmp_path, Credentials("r", b"0123456789abcdef"))
    assert answered(tmp_path) == Answer(role=HUB)


def test_a_standby_keeps_its_name_and_where_its_key_is(tmp_path: Path) -> None:
    assert standby_in(tmp_path) is None
    keep_standby(tmp_path, Standby("sb", "/somewhere/key"))
    assert standby_in(tmp_path) == Standby("sb", "/somewhere/key")
    (tmp_path / "standby.json").write_bytes(b"{}")
    assert standby_in(tmp_path) is None


def test_a_damaged_answer_is_told(tmp_path: Path) -> None:
    answer(tmp_path, Answer(role=HUB))
    (tmp_path / "promoted.json").write_bytes(b"{}")
    with pytest.raises(UserError, match="is damaged, so it is not known"):
        answered(tmp_path)
