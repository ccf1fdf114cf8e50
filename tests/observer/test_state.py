"""The observer's decisions: hold the newest of everything, evaluate now and then."""

from dataclasses import replace
from typing import TypeVar

import pytest

from islands.protocol import sessions
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
    Leave,
    Refused,
    Stop,
)
from islands.protocol.messages.training import FragmentUpdate, Hello, Progress, Welcome
from islands.protocol.observer.state import (
    Action,
    Evaluate,
    EvaluationFinished,
    Event,
    Keep,
    LeaveRequested,
    MessageArrived,
    ObserverState,
    Ticked,
)
from islands.protocol.settings.run import RunSettings

ME = Incarnation(1, 4)
BYTES = memoryview(b"a value")
T = TypeVar("T")

JOINED = Joined("r", "watcher", ME, "signed", 1, ("syncer",))


class Seat:
    """An observer of two fragments with a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.state = ObserverState(RunSettings(run="r"), "watcher", "print", 2, interval_s=10.0)

    def handle(self, event: Event) -> list[Action]:
        return self.state.handle(event, now_s=self.now_s)

    def seated(self) -> "Seat":
        self.handle(sessions.SupervisorLinkChanged(up=True))
        self.handle(MessageArrived(JOINED))
        self.handle(sessions.SyncerLinkChanged(up=True))
        return self

    def take(
        self, fragment: int, number: int, *, epoch: int = 1, clock: float = 0.0
    ) -> list[Action]:
        """A published value arrives intact."""
        published = update(fragment, number, epoch, clock)
        return self.handle(sessions.UpdateArrived(published, intact=True, payload=BYTES))


def update(fragment: int, number: int, epoch: int = 1, clock: float = 0.0) -> FragmentUpdate:
    return FragmentUpdate(
        epoch, FragmentIndex(fragment), Version(epoch, number), number, f"d{number}", clock, None
    )


def of(kind: type[T], actions: list[Action]) -> list[T]:
    return [action for action in actions if isinstance(action, kind)]


def said(actions: list[Action], kind: type[T]) -> T:
    """The one message of this kind that is sent."""
    sent = [each for each in actions if isinstance(each, sessions.ToSupervisor | sessions.ToSyncer)]
    (message,) = (each.message for each in sent if isinstance(each.message, kind))
    return message


def test_it_joins_as_an_observer_and_dials_the_syncer() -> None:
    seat = Seat()
    asked = said(seat.handle(sessions.SupervisorLinkChanged(up=True)), Join)
    assert (asked.role, asked.name) == (Role.OBSERVER, "watcher")
    assert seat.handle(MessageArrived(JOINED)) == [sessions.DialSyncer("syncer")]
    hello = said(seat.handle(sessions.SyncerLinkChanged(up=True)), Hello)
    assert (hello.role, hello.credential) == (Role.OBSERVER, "signed")


def test_it_says_hello_only_when_admitted() -> None:
    seat = Seat()
    assert not seat.handle(sessions.SyncerLinkChanged(up=True))
    actions = seat.handle(MessageArrived(JOINED))
    assert [type(action) for action in actions] == [sessions.DialSyncer, sessions.ToSyncer]


def test_a_tick_is_a_heartbeat_and_a_report() -> None:
    seat = Seat().seated()
    seat.take(0, 3)
    actions = seat.handle(Ticked())
    beat, report = said(actions, Heartbeat), said(actions, Progress)
    assert (beat.phase, beat.incarnation) == (Phase.HEALING, ME)
    assert [one.version for one in report.fragments] == [Version(1, 3), None]
    assert (report.steps, report.tokens) == (0, 0)


def test_a_value_that_is_kept_is_reported_at_once() -> None:
    """So the next one is an increment to it, and the end of the run need not wait for a tick."""
    seat = Seat().seated()
    report = said(seat.take(0, 3), Progress)
    assert [one.version for one in report.fragments] == [Version(1, 3), None]
    assert not seat.take(0, 2)


def test_it_evaluates_when_it_holds_everything() -> None:
    seat = Seat().seated()
    assert not of(Evaluate, seat.take(0, 0, clock=8.0))
    actions = seat.take(1, 0, clock=4.0)
    assert of(Keep, actions)
    assert of(Evaluate, actions) == [Evaluate(8.0, 0, (Version(1, 0), Version(1, 0)))]


def test_evaluations_keep_their_distance_and_do_not_overlap() -> None:
    seat = Seat().seated()
    seat.take(0, 0)
    seat.take(1, 0)
    assert not of(Evaluate, seat.take(0, 1))
    seat.now_s += 11
    assert not any(isinstance(action, Evaluate) for action in seat.handle(Ticked())), "one runs"
    (begun,) = seat.handle(EvaluationFinished())
    assert begun == Evaluate(0.0, 0, (Version(1, 1), Version(1, 0)))
    seat.handle(EvaluationFinished())
    seat.now_s += 11
    assert not any(isinstance(action, Evaluate) for action in seat.handle(Ticked())), "no news"
    seat.now_s -= 2
    seat.take(1, 1)
    actions = seat.take(0, 2)
    assert of(Keep, actions) == [Keep(update(0, 2), BYTES)]
    assert not of(Evaluate, actions), "begun less than an interval ago"


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


def test_an_old_syncer_is_not_believed_and_its_link_is_dropped() -> None:
    seat = Seat().seated()
    assert not seat.handle(MessageArrived(Welcome(3, (None, None))))
    assert not seat.handle(MessageArrived(Welcome(3, (None, None))))
    (dropped,) = seat.handle(MessageArrived(Welcome(2, (None, None))))
    assert dropped == sessions.DropSyncerLink("epoch 2 is older than 3")
    assert not seat.take(0, 9, epoch=2)
    assert seat.take(0, 0, epoch=3)


def test_a_damaged_value_is_dropped() -> None:
    """What does not match its digest is as if it had never come."""
    seat = Seat().seated()
    assert not seat.handle(sessions.UpdateArrived(update(0, 1), intact=False, payload=BYTES))
    assert seat.take(0, 1)


def test_an_evicted_observer_joins_again_with_what_it_holds() -> None:
    seat = Seat().seated()
    seat.take(0, 2)
    assert not seat.handle(MessageArrived(Evicted("watcher", Incarnation(1, 3), "old")))
    asked = said(seat.handle(MessageArrived(Evicted("watcher", ME, "silent"))), Join)
    assert (asked.previous, asked.credential) == (ME, "signed")
    again = replace(JOINED, incarnation=Incarnation(1, 9))
    hello = said(seat.handle(MessageArrived(again)), Hello)
    assert (hello.incarnation, hello.digests) == (Incarnation(1, 9), ("d2", ""))


def test_it_heals_until_it_holds_every_fragment() -> None:
    seat, phases = Seat().seated(), []
    for fragment in (0, 1):
        actions = seat.handle(Ticked())
        phases += [said(actions, Heartbeat).phase, said(actions, Progress).phase]
        seat.take(fragment, 0)
    last = said(seat.handle(Ticked()), Heartbeat).phase
    assert [*phases, last] == [Phase.HEALING] * 4 + [Phase.OBSERVING]


def test_it_follows_a_syncer_that_moved() -> None:
    seat = Seat().seated()
    ack = HeartbeatAck(1, ("elsewhere",))
    assert seat.handle(MessageArrived(ack)) == [sessions.DialSyncer("elsewhere")]


@pytest.mark.parametrize(
    ("message", "exits"),
    [
        (
            Refused("watcher", "another layout", retry=False),
            [sessions.Exit("refused: another layout", failed=True)],
        ),
        (
            Refused("watcher", f"{RUN_OVER}: tokens", retry=False),
            [sessions.Exit(f"refused: {RUN_OVER}: tokens", failed=False)],
        ),
        (Refused("watcher", "name taken", retry=True), []),
    ],
)
def test_when_it_is_refused(message: Refused, exits: list[sessions.Exit]) -> None:
    assert Seat().seated().handle(MessageArrived(message)) == exits


@pytest.mark.parametrize(
    ("event", "told", "reason"),
    [
        (MessageArrived(Stop("tokens")), "the run is over: tokens", "tokens"),
        (LeaveRequested("SIGTERM"), "SIGTERM", "SIGTERM"),
    ],
)
def test_it_says_goodbye_before_it_ends(event: Event, told: str, reason: str) -> None:
    """Else it would be evicted as silent."""
    word = Leave(LearnerName("watcher"), ME, told)
    ends = sessions.Exit(reason, failed=False)
    both = [sessions.ToSyncer(word), sessions.ToSupervisor(word), ends]
    assert Seat().seated().handle(event) == both
    alone = Seat()
    assert alone.handle(event) == [ends]


def test_an_evaluation_stands_at_the_tokens_of_the_values_it_judges() -> None:
    """Initial values stand at 0; of others it is the mean over fragments, whatever came since."""
    seat = Seat().seated()
    seat.take(0, 0)
    assert of(Evaluate, seat.take(1, 0)) == [Evaluate(0.0, 0, (Version(1, 0), Version(1, 0)))]
    for fragment, tokens in ((0, 400), (1, 600)):
        message = replace(update(fragment, 1), tokens=tokens)
        seat.handle(sessions.UpdateArrived(message, intact=True, payload=BYTES))
    seat.now_s += 11
    held = (Version(1, 1), Version(1, 1))
    assert seat.handle(EvaluationFinished()) == [Evaluate(0.0, 500, held)]
