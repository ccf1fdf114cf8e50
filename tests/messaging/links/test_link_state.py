"""The rules by which a session is kept alive, without a loop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.errors import LocalFault
from messaging.links.link_state import (
    CloseSession,
    Dial,
    Dialled,
    DialRefused,
    DialSettings,
    Heard,
    Held,
    LinkAction,
    LinkEvent,
    LinkState,
    Lost,
    Phase,
    SendHeartbeat,
    SetTimer,
    Started,
    StopRequested,
    TimerDue,
)

PLAIN = DialSettings(jitter=0.0)


def opened(settings: DialSettings = PLAIN, *, now_s: float = 0.0) -> LinkState:
    state = LinkState(("a",), settings)
    assert state.handle(Started(), now_s=now_s) == [Dial("a")]
    state.handle(Dialled(), now_s=now_s)
    assert state.phase is Phase.OPEN
    return state


def timer_of(actions: list[LinkAction]) -> float | None:
    (timer,) = actions
    assert isinstance(timer, SetTimer)
    return timer.at_s


def waits(state: LinkState, count: int) -> list[float]:
    """Refuse `count` dials in a row and return how long each next one waits."""
    result: list[float] = []
    for _ in range(count):
        wait_s = timer_of(state.handle(DialRefused("no", 0.0), now_s=0.0))
        assert wait_s is not None
        result.append(wait_s)
        assert isinstance(state.handle(TimerDue(), now_s=wait_s)[0], Dial)
    return result


def test_back_off_grows_to_its_bound() -> None:
    state = LinkState(("a",), PLAIN)
    state.handle(Started(), now_s=0.0)
    assert waits(state, 8) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_thousands_of_failures_are_fine() -> None:
    state = LinkState(("a",), PLAIN)
    state.handle(Started(), now_s=0.0)
    assert waits(state, 3000)[-1] == 5.0


@pytest.mark.parametrize(("jitter", "wait_s"), [(0.0, 0.1), (0.5, 0.075), (1.0, 0.05)])
def test_jitter_shortens_the_wait(jitter: float, wait_s: float) -> None:
    state = LinkState(("a",), DialSettings(jitter=0.5))
    state.handle(Started(), now_s=0.0)
    actions = state.handle(DialRefused("no", jitter), now_s=0.0)
    assert timer_of(actions) == pytest.approx(wait_s)


def test_addresses_are_taken_in_turn() -> None:
    state = LinkState(("a", "b"), PLAIN)
    assert state.handle(Started(), now_s=0.0) == [Dial("a")]
    state.handle(DialRefused("no", 0.0), now_s=0.0)
    assert state.handle(TimerDue(), now_s=1.0) == [Dial("b")]
    state.handle(Dialled(), now_s=1.0)
    state.handle(Lost("gone", 0.0), now_s=9.0)
    assert state.handle(TimerDue(), now_s=10.0) == [Dial("b")]


@pytest.mark.parametrize(("lasted_s", "wait_s"), [(4.9, 0.2), (5.0, 0.1)])
def test_only_a_stable_session_resets_the_back_off(lasted_s: float, wait_s: float) -> None:
    """A session shorter than `stable_s` counts as one more failure in the row."""
    state = LinkState(("a",), PLAIN)
    state.handle(Started(), now_s=0.0)
    waits(state, 1)
    state.handle(Dialled(), now_s=0.0)
    actions = state.handle(Lost("gone", 0.0), now_s=lasted_s)
    assert timer_of(actions) == pytest.approx(lasted_s + wait_s)


def test_silence_closes_the_session() -> None:
    """After `liveness_s` without a word the session is closed, not before."""
    state = opened(DialSettings(liveness_s=3.0))
    state.handle(Heard(), now_s=2.0)
    assert state.handle(TimerDue(), now_s=3.0) == [SetTimer(5.0)]
    actions = state.handle(TimerDue(), now_s=5.0)
    assert actions == [SetTimer(None), CloseSession("nothing heard for 3 s")]


def test_own_pause_is_not_the_peers_silence() -> None:
    state = opened(DialSettings(liveness_s=3.0))
    assert state.handle(TimerDue(), now_s=60.0) == [SetTimer(63.0)]
    assert CloseSession("nothing heard for 3 s") in state.handle(TimerDue(), now_s=63.0)


def test_heartbeats_go_out_on_time() -> None:
    """One speaks every `heartbeat_s`, whatever is heard."""
    state = opened(DialSettings(heartbeat_s=1.0, liveness_s=2.5))
    state.handle(Heard(), now_s=0.9)
    assert state.handle(TimerDue(), now_s=1.0) == [SendHeartbeat(), SetTimer(2.0)]
    assert state.handle(TimerDue(), now_s=2.0) == [SendHeartbeat(), SetTimer(3.0)]


def test_without_deadlines_there_is_no_timer() -> None:
    state = LinkState(("a",), PLAIN)
    state.handle(Started(), now_s=0.0)
    assert state.handle(Dialled(), now_s=0.0) == [SetTimer(None)]


def test_stop_closes_an_open_session() -> None:
    state = opened()
    assert state.handle(StopRequested("done"), now_s=1.0) == [SetTimer(None), CloseSession("done")]
    assert state.handle(StopRequested("again"), now_s=1.0) == []
    assert state.stop_reason == "done"
    assert state.handle(Lost("done", 0.0), now_s=1.0) == []
    assert state.handle(TimerDue(), now_s=1.0) == []


def test_session_that_comes_too_late_is_closed() -> None:
    state = LinkState(("a",), PLAIN)
    state.handle(Started(), now_s=0.0)
    state.handle(StopRequested("done"), now_s=0.0)
    (action,) = state.handle(Dialled(), now_s=1.0)
    assert isinstance(action, CloseSession)


def test_who_has_no_room_does_not_judge_the_peer() -> None:
    settings = DialSettings(jitter=0.0, liveness_s=3.0)
    state = opened(settings)
    state.handle(Held(), now_s=1.0)
    for due_s in (3.0, 6.0, 9.0):
        assert timer_of(state.handle(TimerDue(), now_s=due_s)) == due_s + 3.0
    state.handle(Heard(), now_s=10.0)
    assert timer_of(state.handle(TimerDue(), now_s=12.0)) == 13.0
    state.handle(Held(), now_s=12.5)
    state.handle(Lost("gone", 0.0), now_s=12.6)
    state.handle(TimerDue(), now_s=12.7)
    assert state.handle(Dialled(), now_s=12.8) == [SetTimer(15.8)]
    closing = state.handle(TimerDue(), now_s=15.8)
    assert closing == [SetTimer(None), CloseSession("nothing heard for 3 s")]


@pytest.mark.parametrize(
    "settings",
    [{"backoff_first_s": 0.0}, {"backoff_factor": 0.5}, {"jitter": 1.5}, {"dial_timeout_s": -1.0}],
)
def test_impossible_settings_are_refused(settings: dict[str, float]) -> None:
    """Settings that would dial without pause or wait negative times are mistakes."""
    with pytest.raises(LocalFault):
        DialSettings(**settings)


def test_an_address_is_needed() -> None:
    with pytest.raises(LocalFault, match="address"):
        LinkState((), PLAIN)


EVENTS: st.SearchStrategy[LinkEvent] = st.one_of(
    st.just(Started()),
    st.just(Dialled()),
    st.builds(DialRefused, st.just("no"), st.floats(0, 1)),
    st.just(Heard()),
    st.just(Held()),
    st.builds(Lost, st.just("gone"), st.floats(0, 1)),
    st.just(TimerDue()),
    st.just(StopRequested("done")),
)


@given(st.lists(st.tuples(EVENTS, st.floats(0, 10)), max_size=60))
def test_any_events_in_any_order_keep_the_invariants(
    schedule: list[tuple[LinkEvent, float]],
) -> None:
    state = LinkState(("a", "b"), DialSettings(heartbeat_s=1.0, liveness_s=3.0))
    now_s = 0.0
    for event, passed_s in schedule:
        now_s += passed_s
        before = state.phase
        actions = state.handle(event, now_s=now_s)
        _check(before, state, actions, now_s)


def _check(before: Phase, state: LinkState, actions: list[LinkAction], now_s: float) -> None:
    for action in actions:
        match action:
            case Dial():
                assert before in (Phase.IDLE, Phase.WAITING)
                assert state.phase is Phase.DIALLING
            case SetTimer(at_s):
                assert at_s is None or at_s >= now_s or state.phase is Phase.OPEN
            case SendHeartbeat():
                assert state.phase is Phase.OPEN
            case CloseSession():
                assert before in (Phase.OPEN, Phase.IDLE, Phase.WAITING, Phase.STOPPED)
    if before is Phase.STOPPED:
        assert state.phase is Phase.STOPPED
        assert not any(isinstance(action, Dial) for action in actions)
    if state.phase is Phase.WAITING and before is not Phase.WAITING:
        assert any(isinstance(action, SetTimer) for action in actions)
