"""A newcomer that gossips takes slow values from those who train, and not whatever one gives."""

import pytest

from islands.protocol.gossip.actions import TakeOver
from islands.protocol.gossip.events import Checked, ValueArrived
from islands.protocol.gossip.gossip import Gossip, Stage
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Status
from islands.protocol.learner.state import LearnerState
from islands.protocol.messages.gossip import ValueGiven
from islands.protocol.messages.membership import Member
from islands.protocol.tape.entry import Record
from islands.protocol.tape.gossip_entries import ShareRefused
from tests.learner.exchange_bench import PAIRS, settings_of

NAMES = ("bo", "cy", "di")


class Newcomer:
    """Ana asks those who train for the slow value of her only fragment, one after the other."""

    def __init__(self, *donors: str) -> None:
        state = LearnerState(settings_of(PAIRS), LearnerName("ana"), "bench", 1)
        self.core, self.asked = state.core, list(donors)
        assert isinstance(self.core.schedule, Gossip)
        self.gossip = self.core.schedule
        self.gossip.stage = Stage.ASKING
        for index, name in enumerate(donors):
            member = Member(
                LearnerName(name), Incarnation(1, index), Status.LIVE, f"ws://{name}", stepped=True
            )
            self.gossip.view.listed[member.name] = member

    def given(self, donor: str, checked: Checked) -> bool:
        """What a donor gives has come; returns whether it is taken over."""
        self.gossip.donor, self.core.actions = donor, []
        incarnation = self.gossip.view.listed[LearnerName(donor)].incarnation
        message = ValueGiven(FragmentIndex(0), incarnation, 3, "digest")
        self.gossip.on_gossip(self.core, ValueArrived(donor, message, checked, memoryview(b"")))
        return any(isinstance(action, TakeOver) for action in self.core.actions)

    def refusals(self) -> list[str]:
        """Why the last value was refused, as the tape tells it."""
        entries = [action.entry for action in self.core.actions if isinstance(action, Record)]
        return [entry.reason for entry in entries if isinstance(entry, ShareRefused)]


def test_an_ordinary_value_is_taken_at_once() -> None:
    """It is no farther from version 0 than ten times its length."""
    assert Newcomer(*NAMES).given("bo", Checked(None, 9.0, 1.0))


@pytest.mark.parametrize("checked", [Checked("its digest differs"), Checked(None, 1e30, 1.0)])
def test_a_value_that_one_donor_makes_up_is_refused(checked: Checked) -> None:
    """It is told, and the next donor's is taken."""
    ana = Newcomer(*NAMES)
    assert not ana.given("bo", checked)
    assert len(ana.refusals()) == 1
    assert not ana.given("bo", checked)
    assert ana.given("cy", Checked(None, 2.0, 1.0))


def test_a_model_that_all_say_has_moved_far_is_taken() -> None:
    """Small values may grow: whom all agree with is right, and the one who exceeds them is not."""
    ana = Newcomer(*NAMES)
    assert not ana.given("bo", Checked(None, 30.0, 1.0))
    assert not ana.given("cy", Checked(None, 31.0, 1.0))
    assert not ana.given("di", Checked(None, 1e30, 1.0))
    assert ana.given("bo", Checked(None, 30.0, 1.0))


def test_the_only_one_who_trains_is_believed() -> None:
    """There is nobody else to ask, and a newcomer must not wait for ever."""
    ana = Newcomer("bo")
    assert ana.given("bo", Checked(None, 30.0, 1.0))
