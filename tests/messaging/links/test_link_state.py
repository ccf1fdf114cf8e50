"""The rules by which a session is dialled again and given up, without a loop."""

import pytest

from messaging.links.link_state import Backoff, DialSettings, Liveness


def test_back_off_grows_to_its_bound() -> None:
    backoff = Backoff(DialSettings())
    waits_s = [backoff.refused(0.0) for _ in range(3000)]
    assert waits_s[:8] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])
    assert waits_s[-1] == 5.0


@pytest.mark.parametrize(("jitter", "wait_s"), [(0.0, 0.1), (0.5, 0.075), (1.0, 0.05)])
def test_jitter_shortens_the_wait(jitter: float, wait_s: float) -> None:
    assert Backoff(DialSettings()).refused(jitter) == pytest.approx(wait_s)


@pytest.mark.parametrize(("lasted_s", "wait_s"), [(4.9, 0.2), (5.0, 0.1)])
def test_only_a_stable_session_resets_the_back_off(lasted_s: float, wait_s: float) -> None:
    """A session shorter than `stable_s` counts as one more failure in the row."""
    backoff = Backoff(DialSettings())
    backoff.refused(0.0)
    assert backoff.lost(lasted_s, 0.0) == pytest.approx(wait_s)


def test_silence_closes_the_session() -> None:
    """After `liveness_s` without a word the session is closed, not before."""
    liveness = Liveness(3.0, 0.0)
    liveness.heard(2.0, held=False)
    assert liveness.check(3.0) is None
    assert liveness.check_s == 5.0
    assert liveness.check(5.0) == "nothing heard for 3 s"


def test_own_pause_is_not_the_peers_silence() -> None:
    liveness = Liveness(3.0, 0.0)
    assert liveness.check(60.0) is None
    assert liveness.check_s == 63.0
    assert liveness.check(63.0) == "nothing heard for 3 s"


def test_who_has_no_room_does_not_judge_the_peer() -> None:
    liveness = Liveness(3.0, 0.0)
    liveness.heard(1.0, held=True)
    for due_s in (3.0, 6.0, 9.0):
        assert liveness.check(due_s) is None
        assert liveness.check_s == due_s + 3.0
    liveness.heard(10.0, held=False)
    assert liveness.check(12.0) is None
    assert liveness.check_s == 13.0
    assert liveness.check(13.0) == "nothing heard for 3 s"
