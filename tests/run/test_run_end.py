"""Who can still finish a run, who failed it, and what is concluded; without a loop."""

import pytest

from islands.actors.ports import KILLED, ProcessEnd, ended_by
from islands.protocol import errors
from islands.protocol.identities import LearnerName, Phase, Role
from islands.protocol.messages.membership import Leave
from islands.protocol.sessions import Received
from islands.protocol.supervisor.memory import Drained, SupervisorMemory
from islands.protocol.syncer.timeouts import DIVERGED
from islands.run.run_end import (
    ExitResponse,
    RunEnd,
    can_still_train,
    has_live_syncer,
    still_compiles,
)
from tests.supervisor.desk import Desk, beat

LEARNERS = ("learner-0", "learner-1")
MENDABLE = ProcessEnd(errors.OF_NO_USE, "exit code 2: no such task", "no such task")


def core(*launched: str) -> SupervisorMemory:
    """The memory of a supervisor that launched these, and has admitted nobody."""
    return Desk(launched=launched or ("syncer", *LEARNERS, "observer")).state.memory


# ------------------------------------------------------------------------------- what follows


@pytest.mark.parametrize(
    "end",
    [ProcessEnd(), KILLED, ProcessEnd(errors.FAILED, "exit code 1"), ProcessEnd(None, "unknown")],
)
def test_an_end_that_may_pass_is_the_supervisors_matter(end: ProcessEnd) -> None:
    for name in ("syncer", "learner-0", "observer"):
        run = RunEnd()
        assert run.on_process_ended(name, end, core(), []) is ExitResponse.RESTART
        assert not run.over


def test_who_is_asked_to_leave_is_not_started_again() -> None:
    run = RunEnd(leaving=True)
    assert run.on_process_ended("learner-0", KILLED, core(), []) is ExitResponse.NOTHING
    assert not run.over


def test_who_was_replaced_steps_aside() -> None:
    """To start it again would take the journal of the newer one."""
    run = RunEnd()
    end = ProcessEnd(errors.REPLACED, "exit code 3: a newer start owns the journal")
    assert run.on_process_ended("syncer", end, core(), []) is ExitResponse.STEP_ASIDE
    assert not run.over


# ----------------------------------------------------------------------------- who can finish


def test_a_run_without_a_syncer_that_will_return_has_failed() -> None:
    run = RunEnd()
    assert run.on_process_ended("syncer", MENDABLE, core(), LEARNERS) is ExitResponse.NOTHING
    assert isinstance(run.failure, errors.UserError)
    assert (run.sentence, run.exit_code) == ("syncer: no such task", errors.OF_NO_USE)


def test_a_run_fails_with_its_last_learner() -> None:
    run = RunEnd()
    assert run.on_process_ended("learner-0", MENDABLE, core(), ["syncer"]) is ExitResponse.NOTHING
    assert not run.over
    run.on_gave_up("learner-1", "ended too often, last: a leak", core(), ["syncer", "observer"])
    assert run.sentence == "learner-1 ended too often, last: a leak"
    assert run.exit_code == errors.FAILED


def test_a_run_goes_on_without_an_observer() -> None:
    run = RunEnd()
    run.on_process_ended("observer", MENDABLE, core(), ["syncer", *LEARNERS])
    run.on_gave_up("observer", "ended too often", core(), ["syncer", *LEARNERS])
    assert not run.over


def test_before_its_supervisor_has_begun_a_run_has_who_runs_here() -> None:
    run = RunEnd()
    run.on_process_ended("learner-0", MENDABLE, None, ["learner-1"])
    assert not run.over
    run.on_process_ended("learner-1", MENDABLE, None, ["syncer"])
    assert run.over


def test_a_run_is_not_given_up_while_a_learner_may_train() -> None:
    desk = Desk(launched=("syncer", *LEARNERS, "observer"))
    core = desk.state.memory
    assert can_still_train(core, [], {"learner-0"})  # the other one is started again
    assert not can_still_train(core, ["supervisor", "syncer", "observer"], LEARNERS)
    assert can_still_train(core, ["learner-2"], LEARNERS)
    core.drained["learner-1"] = Drained("drained by an operator", 0.0)
    assert not can_still_train(core, [], {"learner-0"})
    assert can_still_train(core, ["learner-1"], {"learner-0"})  # it still answers
    guest = desk.admit("guest")
    assert can_still_train(core, [], LEARNERS)
    desk.handle(Received(Leave(LearnerName("guest"), guest, "done"), 0))
    assert not can_still_train(core, [], LEARNERS)


@pytest.mark.parametrize("count", [1, 4096])
def test_every_learner_counts(count: int) -> None:
    names = [f"learner-{index}" for index in range(count)]
    known, run = core("syncer", *names), RunEnd(lost=dict.fromkeys(names[:-1]))
    assert not run.over
    run.on_gave_up(names[-1], "ended too often", known, ["syncer"])
    assert run.sentence == f"{names[-1]} ended too often"


def test_a_syncer_that_died_merges_no_more() -> None:
    desk = Desk()
    assert not has_live_syncer(desk.state.memory)
    desk.admit("s", role=Role.SYNCER)
    assert has_live_syncer(desk.state.memory)
    desk.wait(30)
    assert not has_live_syncer(desk.state.memory)


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.COMPILING, Phase.STEPPING])
def test_a_learner_compiles_until_it_is_heard_to_do_something_else(phase: Phase) -> None:
    desk = Desk(launched=("syncer", "a"))
    assert still_compiles(None, ["a"])
    assert still_compiles(desk.state.memory, ["a"])
    assert not still_compiles(desk.state.memory, [])
    desk.hear(beat(desk.admit("a"), "a", phase=phase))
    assert still_compiles(desk.state.memory, ["a"]) == (phase is not Phase.STEPPING)


# -------------------------------------------------------------------------- what is concluded


def test_the_first_conclusion_stands() -> None:
    ended = RunEnd()
    ended.on_finished("tokens")
    ended.on_process_ended("syncer", MENDABLE, core(), [])
    ended.on_failed("the network", OSError("gone"))
    assert (ended.sentence, ended.exit_code) == ("its budget of tokens is spent", 0)
    failed = RunEnd()
    failed.on_failed("the network", OSError("gone"))
    failed.on_finished("tokens")
    assert (failed.sentence, failed.exit_code) == ("the network: gone", errors.FAILED)
    assert failed.reason is None


def test_a_diverged_run_must_be_mended() -> None:
    assert RunEnd(f"{DIVERGED}: lower the rate").exit_code == errors.OF_NO_USE
    assert (RunEnd("tokens").exit_code, RunEnd().exit_code, RunEnd().sentence) == (0, 0, "")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TaskError("no method loss"), errors.OF_NO_USE),
        (errors.JournalError("of another run"), errors.OF_NO_USE),
        (errors.FencedError("a newer start owns it"), errors.REPLACED),
        (errors.DiskError("full"), errors.FAILED),
        (errors.TaskFailedError("it raised"), errors.FAILED),
        (ValueError("a bug"), errors.FAILED),
    ],
)
def test_an_error_in_this_process_counts_as_one_of_its_own_would(
    error: Exception, code: int
) -> None:
    end = ended_by(error)
    assert (end.code, end.sentence) == (code, str(error))
    run = RunEnd()
    follow = run.on_process_ended("learner-0", end, core("learner-0"), [])
    if code == errors.OF_NO_USE:
        assert run.failure is error
    elif code == errors.FAILED:
        assert follow is ExitResponse.RESTART
        run.on_gave_up("learner-0", f"ended too often, last: {end.told}", core("learner-0"), [])
        assert isinstance(run.failure, errors.IslandsError)
        assert run.failure.__cause__ is error
        assert str(error) in run.sentence


def test_what_fails_a_run_keeps_its_own_class() -> None:
    run, other = RunEnd(), RunEnd()
    told = errors.UserError("the folder cannot be written")
    run.on_failed("the folder", told)
    assert run.failure is told
    struck = OSError("no route")
    other.on_failed("the network", struck)
    assert (str(other.failure), getattr(other.failure, "__cause__", None)) == (
        "the network: no route",
        struck,
    )
