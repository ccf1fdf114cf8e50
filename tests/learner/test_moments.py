"""Where a restarted learner's moments come from, and what a healthy one gives away."""

import pytest

from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Phase, Version
from islands.protocol.learner import actions, events
from islands.protocol.learner.memory import CheckpointedMoments
from islands.protocol.learner.moments_recovery import GIVING_MAX
from islands.protocol.messages.membership import Evicted
from islands.protocol.messages.training import FinalRound, StateOffer, StateRequest, Welcome
from islands.protocol.sessions import SupervisorLinkChanged, SyncerLinkChanged
from islands.protocol.tape.entry import Record
from islands.protocol.tape.learner_entries import MomentsFresh, MomentsTaken
from tests.learner.bench import ANA, BATCH, LEASES, Bench, phase_of, stepping

BEN = LearnerName("ben")
EVE = LearnerName("eve")
SCHEMA = "adam"
PIECES = 3


def payload(piece: int) -> memoryview:
    """The bytes of a piece; another one has others."""
    return memoryview(f"piece {piece:2}".encode())


LIMIT_S = 2.0  # resend_s, for patience 1


class Fresh(Bench):
    """A process that has just begun, with moments of three pieces."""

    def __init__(self, *, pieces: int = PIECES, schema: str = SCHEMA) -> None:
        """Admitted and linked; its trainer is made."""
        super().__init__()
        self.do(events.TrainerMade(schema, pieces))
        self.do(SupervisorLinkChanged(up=True))
        self.admit()
        self.do(SyncerLinkChanged(up=True))

    def welcome(self, donor: LearnerName | None = BEN, *, after_s: float = 0.0) -> None:
        self.do(events.FromSyncer(Welcome(1, (Version(1, 0),) * 2, donor)), after_s=after_s)

    def heal(self) -> None:
        """Compiled, all fragments adopted, quota granted."""
        self.do(events.TrainerReady(BATCH))
        self.grant(500)
        self.adopt_all()

    def asked(self) -> list[int]:
        """Pieces that the last event asked the donor for."""
        messages = [action.message for action in self.of(actions.ToPeer) if action.peer == BEN]
        return [message.piece for message in messages if isinstance(message, StateRequest)]

    def piece(
        self,
        piece: int,
        *,
        sender: str = BEN,
        pieces: int = PIECES,
        schema: str = SCHEMA,
        intact: bool = True,
    ) -> None:
        offer = StateOffer(piece, pieces, schema, "")
        self.do(events.PieceArrived(sender, offer, payload(piece), intact))

    def held(self) -> list[int]:
        """Pieces that have come and wait for the others."""
        return sorted(self.state.moments.arrived)

    def noted(self) -> list[tuple[str, object]]:
        """What the last event wrote about moments, with the reason or the donor."""
        told: list[tuple[str, object]] = []
        for entry in (action.entry for action in self.of(Record)):
            if isinstance(entry, MomentsFresh):
                told.append((entry.kind, entry.reason))
            elif isinstance(entry, MomentsTaken):
                told.append((entry.kind, entry.donor))
        return told


def welcomed() -> Fresh:
    """Told of a donor; everything else it needs for its first step is there."""
    bench = Fresh()
    bench.welcome()
    bench.heal()
    return bench


def test_a_fresh_process_asks_the_donor_before_it_steps() -> None:
    bench = Fresh()
    bench.welcome()
    assert bench.asked() == [0, 1]
    bench.heal()
    assert phase_of(bench) is Phase.HEALING
    assert bench.of(actions.AllowSteps) == []
    bench.piece(1)
    assert (bench.held(), bench.asked()) == ([1], [2])
    bench.piece(0)
    bench.piece(2)
    (load,) = bench.of(actions.LoadMoments)
    assert load.pieces == tuple(map(payload, range(PIECES))), "in their order, as they came"
    assert bench.of(actions.AllowSteps) == []
    assert bench.held() == []
    bench.do(events.MomentsLoaded(taken=True), after_s=0.5)
    assert bench.noted() == [("moments_taken", BEN)]
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(500, LEASES)]
    assert phase_of(bench) is Phase.STEPPING


def test_it_tells_what_it_took_and_how_long_that_kept_it() -> None:
    """The tape has pieces, bytes, seconds since it asked, and seconds since it could have begun."""
    bench = Fresh()
    bench.welcome()
    bench.do(events.TrainerReady(BATCH), after_s=5.0)
    for piece in range(PIECES):
        bench.piece(piece)
    bench.do(events.MomentsLoaded(taken=True), after_s=0.25)
    (record,) = bench.of(Record)
    assert record.entry == MomentsTaken(
        donor=BEN, pieces=PIECES, bytes=8 * PIECES, seconds=5.25, waited_s=0.25
    )


def test_pieces_come_while_it_compiles() -> None:
    bench = Bench()
    bench.do(SupervisorLinkChanged(up=True))
    bench.admit()
    bench.do(SyncerLinkChanged(up=True))
    bench.do(events.FromSyncer(Welcome(1, (Version(1, 0),) * 2, BEN)))
    assert bench.of(actions.ToPeer) == []
    bench.do(events.TrainerMade(SCHEMA, PIECES), after_s=1.0)
    assert len(bench.of(actions.ToPeer)) == 2
    bench.do(events.Ticked(), after_s=10 * LIMIT_S)
    bench.do(events.TrainerReady(BATCH))
    assert phase_of(bench) is Phase.HEALING
    assert bench.of(Record) == []


def test_without_a_donor_it_steps_at_once() -> None:
    bench = Fresh()
    bench.welcome(None)
    bench.heal()
    assert bench.noted() == [("moments_fresh", "no donor")]
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(500, LEASES)]


def test_it_never_waits_longer_than_its_limit() -> None:
    bench = Fresh()
    bench.welcome()
    bench.do(events.TrainerReady(BATCH), after_s=5.0)
    (timer,) = bench.of(actions.SetTimer)
    assert timer.after_s == LIMIT_S
    bench.piece(0)
    assert bench.of(actions.SetTimer) == []
    bench.do(events.Ticked(), after_s=0.99 * LIMIT_S)
    assert bench.noted() == []
    bench.do(events.TimerDue(), after_s=0.01 * LIMIT_S)
    assert bench.noted() == [("moments_fresh", "2 of 3 pieces did not come in time")]
    assert bench.held() == []
    bench.piece(1)
    assert bench.of(actions.LoadMoments) == []


@pytest.mark.parametrize(
    ("pieces", "schema", "intact", "says"),
    [
        (0, SCHEMA, True, "ben has none to give"),
        (PIECES, "lion", True, "those of ben are of another optimizer"),
        (PIECES + 1, SCHEMA, True, "those of ben are of another optimizer"),
        (PIECES, SCHEMA, False, "piece 0 was damaged"),
    ],
)
def test_an_answer_that_is_no_good_ends_it_at_once(
    pieces: int, schema: str, says: str, *, intact: bool
) -> None:
    """Also one whose optimizer is another, or cut otherwise."""
    bench = welcomed()
    bench.piece(0, pieces=pieces, schema=schema, intact=intact)
    assert (bench.held(), bench.asked()) == ([], [])
    assert bench.noted() == [("moments_fresh", says)]
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(500, LEASES)]


def test_only_the_donor_is_listened_to_and_only_to_what_was_asked() -> None:
    bench = Fresh()
    bench.welcome()
    for answer in ({"sender": EVE}, {"sender": EVE, "pieces": 0}):
        bench.piece(0, **answer)
        assert bench.actions == []
    for number in (2, -1, 99):
        bench.piece(number)
        assert bench.actions == []
    bench.piece(0)
    bench.piece(0)
    assert bench.held() == [0]


def test_an_optimizer_without_moments_asks_nobody() -> None:
    bench = Fresh(pieces=0, schema="")
    bench.welcome()
    assert bench.of(actions.ToPeer) == []
    assert bench.noted() == [("moments_fresh", "this optimizer keeps none")]
    bench.heal()
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(500, LEASES)]


def test_moments_that_are_no_good_are_not_kept() -> None:
    bench = welcomed()
    for piece in range(PIECES):
        bench.piece(piece)
    bench.do(events.MomentsLoaded(taken=False))
    assert [kind for kind, _ in bench.noted()] == ["moments_fresh"]
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(500, LEASES)]


def test_a_new_link_goes_on_with_what_has_arrived() -> None:
    bench = welcomed()
    bench.piece(0)
    bench.do(SyncerLinkChanged(up=False), after_s=0.5)
    bench.do(SyncerLinkChanged(up=True), after_s=0.5)
    bench.welcome(None)
    assert bench.asked() == [1, 2]
    bench.do(events.Ticked(), after_s=LIMIT_S - 1.0)
    assert [kind for kind, _ in bench.noted()] == ["moments_fresh"]


def test_another_donor_is_asked_from_the_beginning() -> None:
    bench = welcomed()
    bench.piece(0)
    bench.do(SyncerLinkChanged(up=True))
    bench.welcome(EVE)
    assert bench.held() == []
    assert [action.peer for action in bench.of(actions.ToPeer)] == [EVE, EVE]


def test_an_eviction_while_it_waits_lets_it_ask_again() -> None:
    bench = welcomed()
    bench.do(events.FromSyncer(Evicted(ANA, Incarnation(1, 1), "silent")), after_s=1.0)
    bench.admit(counter=2)
    bench.welcome(EVE, after_s=LIMIT_S)
    assert [action.peer for action in bench.of(actions.ToPeer)] == [EVE, EVE]


def test_memory_that_is_intact_is_kept() -> None:
    bench = stepping()
    bench.do(events.TrainerMade(SCHEMA, PIECES))
    bench.evict()
    bench.admit(counter=2)
    bench.do(events.FromSyncer(Welcome(1, (Version(1, 0),) * 2, BEN)))
    assert bench.of(actions.ToPeer) == []
    bench.adopt_all()
    assert phase_of(bench) is Phase.STEPPING


def test_a_state_that_is_not_finite_takes_fresh_moments() -> None:
    bench = stepping()
    bench.do(events.TrainerMade(SCHEMA, PIECES))
    bench.step(finite=False)
    assert bench.of(actions.ResetMoments) == [actions.ResetMoments()]
    bench.admit(counter=2)
    bench.do(events.FromSyncer(Welcome(1, (Version(1, 0),) * 2, BEN)))
    assert bench.of(actions.ToPeer) == []


def test_the_end_of_the_run_is_not_kept_waiting() -> None:
    bench = welcomed()
    bench.do(events.FromSyncer(FinalRound(1, "tokens")))
    assert bench.noted() == [("moments_fresh", "it will not step any more")]


# --- the donor ------------------------------------------------------------------------------------


def donor() -> Bench:
    bench = stepping()
    bench.do(events.TrainerMade(SCHEMA, PIECES))
    return bench


def request(bench: Bench, piece: int = 0, *, schema: str = SCHEMA) -> list[object]:
    """A peer asks; returns what it is told at once."""
    bench.do(events.StateRequested(BEN, StateRequest(Incarnation(1, 9), piece, schema)))
    return [action.message for action in bench.of(actions.ToPeer)]


def declined(piece: int = 0) -> list[object]:
    return [StateOffer(piece, 0, SCHEMA, "")]


def test_a_donor_reads_at_a_boundary_and_offers() -> None:
    bench = donor()
    assert request(bench, 2) == []
    assert bench.of(actions.ReadMoments) == [actions.ReadMoments(2, BEN)]
    read = payload(2)
    bench.do(events.MomentsRead(2, BEN, read))
    offer = actions.ToPeer(BEN, StateOffer(2, PIECES, SCHEMA, ""), read)
    assert bench.of(actions.ToPeer) == [offer]
    assert bench.of(actions.ToPeer)[0].payload is read


def test_unlike_optimizers_and_pieces_that_do_not_exist_are_declined() -> None:
    bench = donor()
    assert request(bench, schema="lion") == declined()
    assert request(bench, PIECES) == declined(PIECES)
    assert request(bench, -1) == declined(-1)


def test_who_has_not_stepped_has_nothing_to_give() -> None:
    bench = Fresh()
    assert request(bench) == declined()
    bench.welcome(None)
    bench.heal()
    assert request(bench) == declined()
    bench.step()
    assert request(bench) == []


def test_a_donor_that_must_heal_gives_nothing_that_it_read_before() -> None:
    bench = donor()
    request(bench)
    bench.step(finite=False)
    bench.do(events.MomentsRead(0, BEN, payload(0)))
    assert [action.message for action in bench.of(actions.ToPeer)] == declined()


def test_a_new_incarnation_gives_only_after_a_step_of_its_own() -> None:
    bench = donor()
    bench.evict()
    bench.admit(counter=2)
    for fragment in range(2):
        bench.update(fragment, 0)
        adopted = events.ValueAdopted(
            FragmentIndex(fragment), Version(1, 0), 2, 20, Incarnation(1, 2)
        )
        bench.do(adopted)
    bench.grant(10_000, counter=2)
    assert request(bench) == declined()
    bench.step()
    assert request(bench) == []


def test_few_pieces_wait_at_a_donor() -> None:
    bench = donor()
    for _ in range(GIVING_MAX):
        assert request(bench) == []
    assert request(bench) == declined()
    bench.do(events.MomentsRead(0, BEN, payload(0)))
    assert request(bench) == []


# --- what an earlier process left on disk ---------------------------------------------------------

HELD = (Version(1, 0),) * 2
KEPT = CheckpointedMoments(SCHEMA, PIECES, HELD)
LOST = "run, or of versions that it has lost"


def resumed(
    donor: LearnerName | None = None,
    kept: CheckpointedMoments = KEPT,
) -> Fresh:
    """A process that finds moments on its host's disk, and has all else for its first step."""
    bench = Fresh()
    bench.state.moments.kept = kept
    bench.welcome(donor)
    bench.heal()
    return bench


def test_after_a_stop_of_everybody_moments_come_from_disk() -> None:
    bench = resumed()
    assert bench.of(actions.LoadCheckpoint) == [actions.LoadCheckpoint()]
    assert bench.of(actions.AllowSteps) == []
    assert phase_of(bench) is Phase.HEALING
    bench.do(events.MomentsLoaded(taken=True))
    assert bench.noted() == [("moments_taken", "disk")]
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(500, LEASES)]


def test_a_peers_are_newer_than_those_on_disk() -> None:
    bench = resumed(BEN)
    for piece in range(PIECES):
        bench.piece(piece)
    assert (len(bench.of(actions.LoadMoments)), bench.of(actions.LoadCheckpoint)) == (1, [])


def test_those_on_disk_serve_where_a_peer_gives_none() -> None:
    bench = Fresh()
    bench.state.moments.kept = KEPT
    bench.welcome(BEN)
    bench.piece(0, pieces=0)
    assert bench.of(actions.LoadCheckpoint) == []
    bench.heal()
    assert bench.of(actions.LoadCheckpoint) == [actions.LoadCheckpoint()]


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        (CheckpointedMoments("sgd", PIECES, HELD), "optimizer"),
        (CheckpointedMoments(SCHEMA, PIECES + 1, HELD), "optimizer"),
        (CheckpointedMoments(SCHEMA, PIECES, (Version(1, 0), Version(1, 9))), LOST),
        (CheckpointedMoments(SCHEMA, PIECES, HELD[:1]), LOST),
    ],
)
def test_what_does_not_belong_to_the_run_is_left(kept: CheckpointedMoments, reason: str) -> None:
    bench = resumed(kept=kept)
    assert bench.of(actions.LoadCheckpoint) == []
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(500, LEASES)]
    assert ("moments_fresh", f"those on disk are of another {reason}") in bench.noted()


def test_what_is_damaged_on_disk_is_told_and_costs_no_step() -> None:
    bench = resumed()
    bench.do(events.MomentsLoaded(taken=False))
    assert bench.noted() == [
        ("moments_fresh", "those of this host's disk are of other sizes, damaged, or not finite")
    ]
    assert bench.of(actions.AllowSteps) == [actions.AllowSteps(500, LEASES)]
