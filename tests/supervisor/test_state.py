"""The supervisor's decisions, one event after the other."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from islands.protocol.errors import OutdatedError, RefusedError
from islands.protocol.identities import SYNCER, Incarnation, Phase, Role, Status
from islands.protocol.messages.control import Verb
from islands.protocol.messages.membership import (
    ASKS_AGAIN_S,
    RUN_OVER,
    Evicted,
    Heartbeat,
    HeartbeatAck,
    Joined,
    Refused,
    RunSpecRequest,
    Stop,
)
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.sessions import Received
from islands.protocol.settings.run import Timing
from islands.protocol.supervisor import events
from islands.protocol.supervisor.actions import (
    Action,
    FinishRun,
    GiveUp,
    Send,
    SendRunSpec,
    StartProcess,
)
from islands.protocol.supervisor.eviction import ALIKE_MAX
from islands.protocol.supervisor.membership import ASKED_S, ASKING_MAX
from islands.protocol.supervisor.memory import ENDED_REMEMBERED, ORDERS_REMEMBERED
from tests.supervisor.desk import Desk, beat, killed, recorded, sent, started


def test_those_who_come_and_go_under_new_names_are_forgotten() -> None:
    desk = Desk(launched=("l",))
    first = desk.admit("l")
    desk.leave("l", first, "done")
    gone: list[Incarnation] = []
    for index in range(3 * ENDED_REMEMBERED):
        desk.wait(6)
        gone.append(desk.admit(f"n{index}"))
    assert len(desk.state.members) <= ENDED_REMEMBERED + 3
    assert desk.status("l") is Status.LEFT
    (word,) = sent(desk.hear(beat(gone[0], "n0")), Evicted)
    assert (word.incarnation, "n0" in desk.state.members) == (gone[0], False)


def test_launched_learners_that_departed_are_forgotten_too() -> None:
    desk = Desk(launched=(SYNCER,))
    for _ in range(3 * ENDED_REMEMBERED):
        desk.wait(6)
        name = desk.command(Verb.ADD).told.removeprefix("started ")
        incarnation = desk.admit(name)
        desk.command(Verb.DRAIN, name)
        desk.leave(name, incarnation, "drained")
        desk.handle(events.ProcessEnded(name, ""))
    memory = desk.state.memory
    assert set(memory.launched) == {SYNCER}
    assert len(memory.members) <= ENDED_REMEMBERED
    assert len(memory.folded) == len(memory.members)
    for index in range(2 * ORDERS_REMEMBERED):
        desk.command(Verb.EVICT, desk.command(Verb.ADD).told.removeprefix("started "))
        desk.handle(events.ProcessEnded(f"learner-{index}", "killed by SIGKILL"))
    assert len(memory.drained) <= ORDERS_REMEMBERED


def test_who_was_admitted_by_an_earlier_start_and_ended_stays_ended() -> None:
    desk = Desk(epoch=2)
    cut_off = Incarnation(1, 5)
    desk.hear(beat(cut_off, "old"))
    for index in range(2 * ENDED_REMEMBERED):
        desk.wait(6)
        desk.admit(f"n{index}")
    assert "old" not in desk.state.members
    (word,) = sent(desk.hear(beat(cut_off, "old")), Evicted)
    assert (word.incarnation, "old" in desk.state.members) == (cut_off, False)
    desk.hear(beat(Incarnation(1, 4), "silent until now"))
    assert desk.status("silent until now") is Status.LIVE


def test_an_admission_gives_an_incarnation_and_the_address_map() -> None:
    desk = Desk(epoch=7)
    (joined,) = sent(desk.join("a", 1), Joined)
    assert joined.incarnation == Incarnation(7, 1)
    assert joined.supervisor_epoch == 7
    assert joined.syncers == ("configured",)
    assert desk.admit("b", 2) == Incarnation(7, 2)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"protocol": PROTOCOL + 1}, "protocol"),
        ({"run": "another"}, "this is run 'r', not 'another'"),
        ({"fingerprint": "other"}, "layout other differs from the run's same everywhere"),
    ],
)
def test_who_differs_is_refused_for_good(changed: dict[str, object], sentence: str) -> None:
    """The sentence says what differs; trying again would not help."""
    (refused,) = sent(Desk().join("a", 1, **changed), Refused)
    assert sentence in refused.reason
    assert not refused.retry


def test_a_syncer_without_the_key_is_refused() -> None:
    desk = Desk()
    desk.proven = False
    actions = desk.join("syncer", role=Role.SYNCER)
    (refused,) = sent(actions, Refused)
    assert "does not hold this run's key" in refused.reason
    assert not refused.retry
    desk.proven = True
    assert sent(desk.join("syncer", role=Role.SYNCER), Joined)


def test_a_second_learner_of_one_name_is_refused_while_the_first_is_not_suspect() -> None:
    desk = Desk()
    first = desk.admit("a", 1)
    (refused,) = sent(desk.join("a", 2), Refused)
    assert refused.retry
    assert "the name 'a' is taken" in refused.reason
    assert desk.state.members["a"].incarnation == first
    assert desk.status() is Status.LIVE


def test_a_suspect_learner_is_replaced_and_fenced() -> None:
    desk = Desk()
    first = desk.admit("a", 1)
    desk.handle(events.LinkClosed(1))
    assert desk.status() is Status.SUSPECT
    actions = desk.join("a", 2)
    (joined,) = sent(actions, Joined)
    assert joined.incarnation > first
    assert recorded(actions) == ["evicted", "admitted"]
    assert desk.evictions == 1
    (evicted,) = sent(desk.hear(beat(first)), Evicted)
    assert evicted.incarnation == first


def test_addresses_that_syncers_tell_replace_the_configured_ones() -> None:
    desk = Desk()
    syncer = desk.admit("s", 9, role=Role.SYNCER)
    own = Heartbeat(Role.SYNCER, "s", syncer, Phase.STARVED, 0, epoch=1, address="here")
    desk.hear(own, 9)
    (joined,) = sent(desk.join("a", 1), Joined)
    assert joined.syncers == ("here",)
    (ack,) = sent(desk.hear(beat(joined.incarnation)), HeartbeatAck)
    assert ack.syncers == ("here",)


@pytest.mark.parametrize("old", ["a", "z"])
def test_of_two_syncers_members_hear_of_the_newer_one(old: str) -> None:
    """They would dial one after the other without end while an older one lives on."""
    desk = Desk()
    for name, epoch, link in ((old, 1, 8), ("new", 1001, 9), (old, 1, 8)):
        if name not in desk.state.members:
            desk.admit(name, link, role=Role.SYNCER)
        incarnation = desk.state.members[name].incarnation
        desk.hear(
            Heartbeat(Role.SYNCER, name, incarnation, Phase.STARVED, 0, epoch=epoch, address=name),
            link,
        )
    (joined,) = sent(desk.join("learner", 1), Joined)
    assert joined.syncers == ("new",)


@pytest.mark.parametrize("patience", [0.01, 0.2, 1.0, 10.0])
@pytest.mark.parametrize(
    ("awake_s", "stalled_s", "evicted_s"),
    [
        (4.5, 3.5, 18.0),
        (4.5, 2.9, 9.0),
        (1.0, 4.0, 41.0),
        (0.0, 1.0, 21.0),
        (0.0, 2.9, 61.0),
        (0.0, 60.0, 2500.0),
    ],
)
def test_its_pauses_keep_no_dead_member(
    patience: float, awake_s: float, stalled_s: float, evicted_s: float
) -> None:
    timing = Timing(patience=patience)
    desk = Desk(timing=timing)
    a, b = desk.admit("a", 1), desk.admit("b", 2)
    while desk.now_s < evicted_s * patience and desk.status("a") is not Status.EVICTED:
        desk.now_s += stalled_s * patience
        desk.handle(events.Ticked())
        desk.hear(beat(b, "b"), 2)
        for _ in range(round(4 * awake_s)):
            desk.now_s += patience / 4
            desk.handle(events.Ticked())
            desk.hear(beat(b, "b"), 2)
    assert (desk.status("a"), desk.status("b")) == (Status.EVICTED, Status.LIVE)
    assert sent(desk.hear(beat(a)), Evicted)


def test_a_pause_is_seen_by_whatever_event_comes_first() -> None:
    desk = Desk()
    a = desk.admit("a", 1)
    desk.admit("b", 2)
    desk.now_s += 60
    actions = desk.handle(events.LinkClosed(2))
    assert recorded(actions) == ["stood_still", "status"]
    assert (desk.status("a"), desk.status("b")) == (Status.LIVE, Status.SUSPECT)
    assert sent(desk.hear(beat(a)), HeartbeatAck)
    assert "stood_still" not in recorded(desk.wait(1, beat(a))), "one pause is counted once"


def test_who_leaves_is_no_eviction_and_an_old_leave_is_ignored() -> None:
    desk = Desk()
    a = desk.admit("a", 1)
    desk.leave("a", a, "drained")
    assert desk.status() is Status.LEFT
    assert desk.evictions == 0
    assert desk.admit("a", 2) > a
    desk = Desk()
    first = desk.admit("a", 1)
    desk.handle(events.LinkClosed(1))
    desk.admit("a", 2)
    desk.leave("a", first, "late")
    assert desk.status() is Status.LIVE


def test_an_older_syncer_is_fenced() -> None:
    desk = Desk()
    syncer = desk.admit("s", 9, role=Role.SYNCER)
    newer = Heartbeat(Role.SYNCER, "s", syncer, Phase.STARVED, 0, epoch=2)
    desk.hear(newer, 9)
    assert sent(desk.hear(replace(newer, epoch=1), 9), Evicted)


def test_who_asks_is_told_what_the_run_is() -> None:
    desk = Desk()
    assert desk.handle(Received(RunSpecRequest(PROTOCOL, Role.LEARNER, "a"), 5)) == [
        SendRunSpec(5, "a")
    ]
    (refused,) = sent(
        desk.handle(Received(RunSpecRequest(PROTOCOL, Role.LEARNER, "b"), 5)), Refused
    )
    assert "sent over this link" in refused.reason, "a request of 100 bytes brings a whole plan"
    desk.handle(events.LinkClosed(5))
    newer = RunSpecRequest(PROTOCOL + 1, Role.LEARNER, "a")
    (refused,) = sent(desk.handle(Received(newer, 5)), Refused)
    assert "protocol" in refused.reason


def asked(desk: Desk, name: str = "away", role: Role = Role.LEARNER) -> list[Action]:
    desk.handle(events.LinkClosed(5))
    return desk.handle(Received(RunSpecRequest(PROTOCOL, role, name), 5))


def finished(desk: Desk) -> float:
    """The syncer ends the run; how long the supervisor stays."""
    desk.admit("s", 7, role=Role.SYNCER)
    (finish,) = [each for each in desk.stop("spent", 7) if isinstance(each, FinishRun)]
    return finish.stay_s


def test_who_waits_to_take_part_hears_that_the_run_is_over() -> None:
    desk = Desk()
    for _ in range(100):
        asked(desk)
        desk.wait(ASKS_AGAIN_S)
    assert finished(desk) == ASKED_S - ASKS_AGAIN_S > 0
    (told,) = sent(asked(desk), Refused)
    assert told.reason.startswith(RUN_OVER)
    assert not told.retry


def left(desk: Desk) -> None:
    desk.leave("a", desk.admit("a"))


@pytest.mark.parametrize(
    "then",
    [
        lambda desk: desk.admit("a"),
        left,
        lambda desk: (desk.admit("a"), asked(desk, "a")),
        lambda desk: asked(desk, "watcher", Role.OBSERVER) and desk.admit("a"),
        lambda desk: desk.wait(ASKED_S),
    ],
    ids=["is here", "has left", "is here and asks again", "observes", "is gone"],
)
def test_nobody_is_waited_for_who_is_here_or_gone(then: Callable[[Desk], object]) -> None:
    desk = Desk()
    asked(desk, "a")
    then(desk)
    assert finished(desk) == 0


def test_silence_after_the_end_is_no_eviction() -> None:
    desk = Desk()
    finished(desk)
    desk.handle(events.LinkClosed(7))
    desk.wait(20)
    assert desk.status("s") is Status.LEFT
    assert desk.evictions == 0


def test_those_who_ask_are_remembered_up_to_a_number() -> None:
    desk = Desk()
    for number in range(2 * ASKING_MAX):
        asked(desk, f"n{number}")
    assert len(desk.state.memory.asking) == ASKING_MAX
    desk.wait(2 * ASKED_S)
    asked(desk)
    assert list(desk.state.memory.asking) == ["away"]


def test_a_restarted_supervisor_knows_its_predecessors_admissions() -> None:
    desk = Desk(epoch=2)
    old = Incarnation(1, 3)
    actions = desk.hear(beat(old, step=40, phase=Phase.STEPPING))
    assert sent(actions, HeartbeatAck)
    assert recorded(actions) == ["recognised"]
    assert desk.state.members["a"].incarnation == old
    assert desk.evictions == 0
    assert desk.admit("b", 2) == Incarnation(2, 1), "above all that was given before"


def test_of_two_supervisors_the_older_one_ends() -> None:
    desk = Desk(epoch=2)
    with pytest.raises(OutdatedError, match="follows a supervisor of epoch 3, this one has 2"):
        desk.hear(beat(Incarnation(3, 1)))


@pytest.mark.parametrize(("kept", "error"), [(True, RefusedError), (False, OutdatedError)])
def test_who_gives_way_is_started_again_only_if_its_folder_is_its_own(
    error: type[Exception], *, kept: bool
) -> None:
    with pytest.raises(error, match="a follows a supervisor of epoch 7, this one has 1"):
        Desk().handle(events.NewerSupervisorProven("a", 7, kept=kept))


def delays_of(actions: list[Action]) -> list[float]:
    return [action.delay_s for action in actions if isinstance(action, StartProcess)]


def test_a_launched_process_is_started_again_until_it_ends_too_often() -> None:
    desk = Desk(launched=("a",))
    delays = []
    for _ in range(ALIKE_MAX - 1):
        actions = desk.handle(events.ProcessEnded("a", "killed (9)"))
        delays += delays_of(actions)
    assert delays == sorted(delays)
    assert len(delays) == ALIKE_MAX - 1
    actions = desk.handle(events.ProcessEnded("a", "out of memory"))
    assert [action for action in actions if isinstance(action, GiveUp)] == [
        GiveUp(
            "a",
            "ended too often, 6 times in a row without a word before its first step, "
            "last: out of memory",
        )
    ]
    assert not started(actions)


@pytest.mark.parametrize(("stepped", "starts"), [(False, 2), (True, 5)])
def test_a_learner_that_never_steps_is_not_started_in_vain(*, stepped: bool, starts: int) -> None:
    desk = Desk(launched=("a",))
    delays = []
    for connection in range(1, 20):
        incarnation = desk.admit("a", connection)
        for step in range(1 + stepped):
            desk.hear(beat(incarnation, step=step), connection)
        desk.now_s += 20.0
        desk.handle(events.LinkClosed(connection))
        actions = desk.handle(events.ProcessEnded("a", "exit code 1: a.py:24: no memory"))
        delays += delays_of(actions)
        if any(isinstance(action, GiveUp) for action in actions):
            break
    assert len(delays) == starts


def test_a_syncer_that_cannot_start_yet_is_tried_as_often_as_before() -> None:
    desk = Desk(launched=("syncer",))
    told = events.ProcessEnded("syncer", "exit code 1: the disk is full")
    actions = [action for _ in range(ALIKE_MAX - 1) for action in desk.handle(told)]
    assert len(started(actions)) == ALIKE_MAX - 1


def test_only_what_it_launched_is_started_or_killed() -> None:
    desk = Desk(launched=("a",))
    a, b = desk.admit("a", 1), desk.admit("b", 2)
    beats = [beat(a, phase=Phase.STEPPING), beat(b, "b", phase=Phase.STEPPING)]
    actions = desk.wait(601, *beats)
    assert (desk.status("a"), desk.status("b")) == (Status.STALLED, Status.STALLED)
    assert killed(actions) == ["a"]
    assert recorded(desk.handle(events.ProcessEnded("b", ""))) == ["process_ended"]
    desk.handle(events.ProcessEnded("a", "killed by SIGKILL (9)"))
    desk.wait(6)
    again = beat(desk.admit("a", 3), phase=Phase.STEPPING)
    assert not killed(desk.wait(601, again)), "it has more time now"


def test_the_end_is_told_once_to_all_and_starts_nothing() -> None:
    desk = Desk(launched=("a",))
    desk.admit("a", 1)
    desk.admit("s", 2, role=Role.SYNCER)
    actions = desk.stop("budget spent", 2)
    assert [stop.reason for stop in sent(actions, Stop)] == ["budget spent"] * 2
    assert FinishRun("budget spent", 2) in actions
    again = desk.stop("again", 2)
    assert again == [Send(2, Stop("budget spent"))], "it may have missed the answer"
    assert recorded(desk.handle(events.ProcessEnded("a", ""))) == ["process_ended"]


def test_only_a_syncer_ends_the_run() -> None:
    desk = Desk()
    desk.admit("a", 1)
    for connection in (1, 7):
        assert recorded(desk.stop("enough", connection)) == ["refused"]
    assert desk.state.finished is None


def test_who_comes_after_the_end_is_told_so() -> None:
    desk = Desk()
    a = desk.admit("a", 1)
    desk.admit("s", 2, role=Role.SYNCER)
    desk.stop("tokens", 2)
    assert sent(desk.hear(beat(a)), Stop) == [Stop("tokens")]
    (refused,) = sent(desk.join("b", 3), Refused)
    assert refused.reason == "the run is over: tokens"
    assert not refused.retry


def test_a_launched_process_that_left_is_not_started_again() -> None:
    desk = Desk(launched=("a", "b", "c"))
    for name in ("a", "b"):
        incarnation = desk.admit(name, 1)
        desk.leave(name, incarnation, "SIGTERM")
    for name, reason, again in (("a", "", []), ("b", "killed (9)", ["b"]), ("c", "", ["c"])):
        assert started(desk.handle(events.ProcessEnded(name, reason))) == again


def test_a_learner_that_had_finished_is_not_started_again() -> None:
    for told, names in (("", []), ("killed (9)", ["a"])):
        desk = Desk(launched=("a",))
        a = desk.admit("a", 1)
        desk.hear(beat(a, phase=Phase.FINISHED))
        actions = desk.handle(events.ProcessEnded("a", told))
        assert recorded(actions) == ["process_ended"]
        assert started(actions) == names


NAMES = st.sampled_from(("a", "b"))
WHAT = st.sampled_from(("join", "beat", "old beat", "close", "wait"))
STEPS = st.tuples(WHAT, NAMES, st.integers(1, 3))


@given(st.lists(STEPS, max_size=60))
def test_incarnations_are_given_once_and_only_grow(steps: list[tuple[str, str, int]]) -> None:
    desk = Desk()
    given_out: list[Incarnation] = []
    held: dict[str, list[Incarnation]] = {"a": [], "b": []}
    for what, name, number in steps:
        match what:
            case "join":
                joined = sent(desk.join(name, number), Joined)
                given_out += [one.incarnation for one in joined]
                held[name] += [one.incarnation for one in joined]
            case "beat" if held[name]:
                desk.hear(beat(held[name][-1], name), number)
            case "old beat" if len(held[name]) > 1:
                answers = desk.hear(beat(held[name][-2], name), number)
                assert sent(answers, Evicted)
                assert not sent(answers, HeartbeatAck)
            case "close":
                desk.handle(events.LinkClosed(number))
            case "wait":
                desk.wait(2 * number)
    assert given_out == sorted(set(given_out))
    for name, incarnations in held.items():
        if incarnations:
            assert desk.state.members[name].incarnation == incarnations[-1]
