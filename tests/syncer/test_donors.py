"""Whom the syncer names to a restarted learner, and between whom it passes words on."""

from dataclasses import replace

import pytest

from islands.protocol.identities import Incarnation, Phase, Status
from islands.protocol.messages.training import StateOffer, StateRequest, Welcome
from islands.protocol.syncer.events import StopRequested
from islands.protocol.syncer.members import DONATIONS_MAX, WRONG_WINDOW_S
from islands.protocol.syncer.sessions import route
from tests.syncer.bench import Bench, seeded


def running() -> Bench:
    """Ana has done two steps, ben three, eve none."""
    bench = seeded("ana", "ben", "eve")
    bench.step("ana", 2)
    bench.step("ben", 3)
    return bench


def named_to(bench: Bench, name: str, *, counter: int = 1) -> str | None:
    bench.hello(name, counter=counter)
    (welcome,) = bench.sent(Welcome)
    return welcome.donor


def test_the_one_with_most_steps_is_named() -> None:
    bench = running()
    assert named_to(bench, "zoe") == "ben"
    bench.step("ana", 1)
    assert named_to(bench, "yan") == "ana"


def test_a_restarted_learner_is_never_sent_to_itself() -> None:
    bench = running()
    assert named_to(bench, "ana") is None, "it holds something"
    assert named_to(bench, "ben", counter=2) == "ana"


def test_nobody_donates_before_there_is_a_version_or_a_step() -> None:
    assert named_to(Bench(), "ana") is None
    assert named_to(seeded("ana", "ben"), "zoe") is None


@pytest.mark.parametrize(
    "ailing", ["suspect", "stalled", "unlinked", "healing", "starved", "not whole"]
)
def test_only_the_healthy_donate(ailing: str) -> None:
    bench = running()
    learner = bench.learners["ben"]
    match ailing:
        case "suspect" | "stalled":
            bench.view("ben", Status(ailing))
        case "unlinked":
            bench.drop("ben")
        case "healing" | "starved":
            learner.phase = Phase(ailing)
            bench.report("ben")
        case "not whole":
            bench.record(learner.name).whole = False
    bench.core.touch(learner.name)
    assert named_to(bench, "zoe") == "ana"


def test_a_run_that_closes_needs_no_donors() -> None:
    bench = running()
    bench.do(StopRequested("enough"))
    assert named_to(bench, "zoe") is None


def observed() -> Bench:
    bench = running()
    bench.observe("screen", connection=50)
    return bench


def test_observers_neither_donate_nor_take() -> None:
    bench = observed()
    assert [welcome.donor for welcome in bench.sent(Welcome)] == [None]
    assert named_to(bench, "zoe") == "ben"


ASKS = StateRequest(Incarnation(1, 1), 0, "schema")
OFFERS = StateOffer(0, 3, "schema", "digest")


def routed(
    bench: Bench, sender: str, recipient: str, body: StateRequest | StateOffer = ASKS
) -> int | None:
    connection = bench.connections[sender]
    return route(bench.core, connection, sender, recipient, body, bench.now_s)


def asking() -> Bench:
    bench = running()
    assert named_to(bench, "zoe") == "ben"
    return bench


def test_words_go_between_a_learner_and_its_donor() -> None:
    bench = asking()
    zoe, ben = bench.connections["zoe"], bench.connections["ben"]
    assert routed(bench, "zoe", "ben") == ben
    assert routed(bench, "ben", "zoe", OFFERS) == zoe
    bench.hello("ben")
    assert routed(bench, "zoe", "ben") == bench.connections["ben"] != ben


def test_nobody_asks_another_one_than_its_donor() -> None:
    """Moments are large: whoever asked everybody for them would fill the hub's links."""
    bench = asking()
    assert routed(bench, "zoe", "ana") is None
    assert routed(bench, "ana", "zoe", OFFERS) is None
    assert routed(bench, "ana", "ben") is None  # it has moments of its own
    other = replace(ASKS, incarnation=Incarnation(1, 7))
    assert routed(bench, "zoe", "ben", other) is None


def test_after_a_restart_of_the_syncer_a_learner_goes_on_with_its_donor() -> None:
    """It holds versions, so that none is named to it; the one that it asks is its donor."""
    bench = running()
    bench.hello("zoe")
    bench.adopt("zoe")
    bench.record("zoe").donor = None
    assert routed(bench, "zoe", "ana") == bench.connections["ana"]
    assert routed(bench, "zoe", "ben") is None


def test_whoever_comes_back_again_and_again_is_told_of_no_donor() -> None:
    bench = running()
    told = [named_to(bench, "zoe", counter=counter) for counter in range(1, 12)]
    assert told == ["ben"] * DONATIONS_MAX + [None] * (11 - DONATIONS_MAX)
    bench.now_s += WRONG_WINDOW_S
    assert named_to(bench, "zoe", counter=20) == "ben"


def test_whoever_is_told_of_no_donor_any_more_cannot_choose_one() -> None:
    """Otherwise each of its incarnations would have the whole state sent by whom it likes."""
    bench = running()
    for counter in range(1, DONATIONS_MAX + 2):
        told = named_to(bench, "zoe", counter=counter)
    assert told is None
    asks = replace(ASKS, incarnation=bench.learners["zoe"].incarnation)
    assert routed(bench, "zoe", "ana", asks) is None
    bench.now_s += WRONG_WINDOW_S
    assert routed(bench, "zoe", "ana", asks) == bench.connections["ana"]


def test_words_of_strangers_and_to_strangers_go_nowhere() -> None:
    bench = observed()
    assert named_to(bench, "zoe") == "ben"
    zoe, eve = bench.connections["zoe"], bench.connections["eve"]
    for connection, sender, recipient in (
        *((zoe, "zoe", "nobody"), (zoe, "zoe", "zoe"), (zoe, "zoe", "screen")),
        *((eve, "zoe", "ben"), (50, "screen", "ben"), (99, "nobody", "ben")),
    ):
        assert route(bench.core, connection, sender, recipient, ASKS, bench.now_s) is None
    bench.drop("ben")
    assert routed(bench, "zoe", "ben") is None
