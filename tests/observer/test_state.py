"""The observer's decisions: hold the newest of everything, evaluate now and then."""

from dataclasses import replace

import pytest

from islands.protocol.identities import (
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Role,
    Version,
)
from islands.protocol.messages.membership import (
    RUN_OVER,
    Evicted,
    Heartbeat,
    HeartbeatAck,
    Join,
    Joined,
    Refused,
    Stop,
)
from islands.protocol.messages.training import FragmentUpdate, Hello, Progress, Welcome
from islands.protocol.observer.actions import Action, Evaluate, Keep
from islands.protocol.observer.events import EvaluationFinished, Event, MessageArrived, Ticked
from islands.protocol.observer.state import ObserverState
from islands.protocol.sessions import (
    DialSyncer,
    DropSyncerLink,
    Exit,
    SupervisorLinkChanged,
    SyncerLinkChanged,
    ToSupervisor,
    ToSyncer,
    UpdateArrived,
)
from islands.protocol.settings.run import RunSettings

ME = Incarnation(1, 4)
BYTES = memoryview(b"a value")
JOINED = Joined("r", "watcher", ME, "signed", 1, ("syncer",))


class Seat:
    """An observer of two fragments with a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.state = ObserverState(RunSettings(run="r"), "watcher", "print", 2, interval_s=10.0)

    def handle(self, event: Event) -> list[Action]:
        return self.state.handle(event, now_s=self.now_s)

    def seated(self) -> "Seat":
        self.handle(SupervisorLinkChanged(up=True))
        self.handle(MessageArrived(JOINED))
        self.handle(SyncerLinkChanged(up=True))
        return self

    def take(
        self, fragment: int, number: int, *, epoch: int = 1, clock: float = 0.0
    ) -> list[Action]:
        """A published value arrives intact."""
        return self.handle(
            UpdateArrived(update(fragment, number, epoch, clock), intact=True, payload=BYTES)
        )


def update(fragment: int, number: int, epoch: int = 1, clock: float = 0.0) -> FragmentUpdate:
    return FragmentUpdate(
        epoch, FragmentIndex(fragment), Version(epoch, number), number, f"d{number}", clock, None
    )


def test_it_joins_as_an_observer_and_dials_the_syncer() -> None:
    seat = Seat()
    (asked,) = seat.handle(SupervisorLinkChanged(up=True))
    assert isinstance(asked, ToSupervisor)
    assert isinstance(asked.message, Join)
    assert asked.message.role is Role.OBSERVER
    assert seat.handle(MessageArrived(JOINED)) == [DialSyncer("syncer")]
    (said,) = seat.handle(SyncerLinkChanged(up=True))
    assert isinstance(said, ToSyncer)
    assert isinstance(said.message, Hello)
    assert (said.message.role, said.message.credential) == (Role.OBSERVER, "signed")


def test_it_says_hello_only_when_admitted() -> None:
    seat = Seat()
    assert not seat.handle(SyncerLinkChanged(up=True))
    actions = seat.handle(MessageArrived(JOINED))
    assert [type(action) for action in actions] == [DialSyncer, ToSyncer]


def test_a_tick_is_a_heartbeat_and_a_report() -> None:
    seat = Seat().seated()
    seat.take(0, 3)
    beat, report = seat.handle(Ticked())
    assert isinstance(beat, ToSupervisor)
    assert isinstance(beat.message, Heartbeat)
    assert (beat.message.phase, beat.message.incarnation) == (Phase.HEALING, ME)
    assert isinstance(report, ToSyncer)
    assert isinstance(report.message, Progress)
    assert [one.version for one in report.message.fragments] == [Version(1, 3), None]
    assert (report.message.steps, report.message.tokens) == (0, 0)


def test_it_evaluates_when_it_holds_everything() -> None:
    seat = Seat().seated()
    assert [type(action) for action in seat.take(0, 0, clock=8.0)] == [Keep]
    keep, evaluate = seat.take(1, 0, clock=4.0)
    assert isinstance(keep, Keep)
    assert evaluate == Evaluate(8.0, 0)


def test_evaluations_keep_their_distance_and_do_not_overlap() -> None:
    seat = Seat().seated()
    seat.take(0, 0)
    seat.take(1, 0)
    assert [type(action) for action in seat.take(0, 1)] == [Keep]
    seat.now_s += 11
    assert not any(isinstance(action, Evaluate) for action in seat.handle(Ticked())), "one runs"
    (begun,) = seat.handle(EvaluationFinished())
    assert begun == Evaluate(0.0, 0)
    seat.handle(EvaluationFinished())
    seat.now_s += 11
    assert not any(isinstance(action, Evaluate) for action in seat.handle(Ticked())), "no news"
    seat.now_s -= 2
    seat.take(1, 1)
    assert seat.take(0, 2) == [Keep(update(0, 2), BYTES)], "begun less than an interval ago"


@pytest.mark.parametrize(("epoch", "number"), [(1, 4), (1, 5), (0, 9)])
def test_what_is_not_newer_is_not_kept(epoch: int, number: int) -> None:
    seat = Seat().seated()
    seat.take(0, 5)
    assert not seat.take(0, number, epoch=epoch)
    assert seat.state.held[0] == Version(1, 5)


def test_a_higher_epoch_wins_over_a_higher_number() -> None:
    seat = Seat().seated()
    seat.take(0, 5)
    assert seat.take(0, 1, epoch=2)
    assert seat.state.held[0] == Version(2, 1)


def test_an_old_syncer_is_not_believed() -> None:
    seat = Seat().seated()
    seat.handle(MessageArrived(Welcome(3, (None, None))))
    assert not seat.take(0, 9, epoch=2)
    assert seat.take(0, 0, epoch=3)


def test_the_link_to_an_old_syncer_is_dropped() -> None:
    """Else it would stay with a syncer that publishes nothing that it believes."""
    seat = Seat().seated()
    assert not seat.handle(MessageArrived(Welcome(3, (None, None))))
    assert not seat.handle(MessageArrived(Welcome(3, (None, None))))
    (dropped,) = seat.handle(MessageArrived(Welcome(2, (None, None))))
    assert dropped == DropSyncerLink("epoch 2 is older than 3")


def test_a_damaged_value_is_dropped() -> None:
    """What does not match its digest is as if it had never come."""
    seat = Seat().seated()
    assert not seat.handle(UpdateArrived(update(0, 1), intact=False, payload=BYTES))
    assert seat.take(0, 1)


def test_an_evicted_observer_joins_again_with_what_it_holds() -> None:
    seat = Seat().seated()
    seat.take(0, 2)
    assert not seat.handle(MessageArrived(Evicted("watcher", Incarnation(1, 3), "old")))
    (asked,) = seat.handle(MessageArrived(Evicted("watcher", ME, "silent")))
    assert isinstance(asked, ToSupervisor)
    assert isinstance(asked.message, Join)
    assert (asked.message.previous, asked.message.credential) == (ME, "signed")
    again = replace(JOINED, incarnation=Incarnation(1, 9))
    hello = seat.handle(MessageArrived(again))[-1]
    assert isinstance(hello, ToSyncer)
    assert isinstance(hello.message, Hello)
    assert hello.message.incarnation == Incarnation(1, 9)
    assert hello.message.digests == ("d2", "")


@pytest.mark.parametrize("counter", [3, 4, 5], ids=["an older one", "the same", "a newer one"])
def test_an_admission_that_comes_twice_or_late_changes_nothing(counter: int) -> None:
    seat = Seat().seated()
    assert seat.handle(MessageArrived(replace(JOINED, incarnation=Incarnation(1, counter)))) == []
    beat = seat.handle(Ticked())[0]
    assert isinstance(beat, ToSupervisor)
    assert isinstance(beat.message, Heartbeat)
    assert beat.message.incarnation == ME


def test_an_ended_incarnation_is_not_taken_up_again() -> None:
    seat = Seat().seated()
    seat.handle(MessageArrived(Evicted("watcher", ME, "silent")))
    assert seat.handle(MessageArrived(JOINED)) == []


def test_an_older_supervisor_is_not_believed() -> None:
    seat = Seat()
    seat.handle(MessageArrived(HeartbeatAck(2)))
    assert seat.handle(MessageArrived(JOINED)) == []
    assert seat.handle(MessageArrived(HeartbeatAck(1, ("elsewhere",)))) == []


def test_it_heals_until_it_holds_every_fragment() -> None:
    seat, told = Seat().seated(), []
    for fragment in (0, 1):
        for action in seat.handle(Ticked()):
            assert isinstance(action, ToSupervisor | ToSyncer)
            assert isinstance(action.message, Heartbeat | Progress)
            told.append(action.message.phase)
        seat.take(fragment, 0)
    beat = seat.handle(Ticked())[0]
    assert isinstance(beat, ToSupervisor)
    assert isinstance(beat.message, Heartbeat)
    assert [*told, beat.message.phase] == [Phase.HEALING] * 4 + [Phase.OBSERVING]


def test_it_follows_a_syncer_that_moved() -> None:
    seat = Seat().seated()
    ack = HeartbeatAck(1, ("elsewhere",))
    assert seat.handle(MessageArrived(ack)) == [DialSyncer("elsewhere")]


@pytest.mark.parametrize(
    ("message", "exits"),
    [
        (Stop("budget spent"), [Exit("budget spent", failed=False)]),
        (
            Refused("watcher", "another layout", retry=False),
            [Exit("refused: another layout", failed=True)],
        ),
        (
            Refused("watcher", f"{RUN_OVER}: tokens", retry=False),
            [Exit(f"refused: {RUN_OVER}: tokens", failed=False)],
        ),
        (Refused("watcher", "name taken", retry=True), []),
    ],
)
def test_when_it_ends(message: Stop | Refused, exits: list[Exit]) -> None:
    assert Seat().seated().handle(MessageArrived(message)) == exits


def test_its_name_is_that_of_a_peer() -> None:
    assert Seat().state.membership.name == LearnerName("watcher")


def test_an_evaluation_stands_at_the_tokens_of_the_values_it_judges() -> None:
    """Initial values stand at 0; of others it is the mean over fragments, whatever came since."""
    seat = Seat().seated()
    seat.take(0, 0)
    (_, first) = seat.take(1, 0)
    assert isinstance(first, Evaluate)
    assert first.tokens == 0
    for fragment, tokens in ((0, 400), (1, 600)):
        message = replace(update(fragment, 1), tokens=tokens)
        seat.handle(UpdateArrived(message, intact=True, payload=BYTES))
    seat.now_s += 11
    (second,) = seat.handle(EvaluationFinished())
    assert isinstance(second, Evaluate)
    assert second.tokens == 500
