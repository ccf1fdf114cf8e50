"""The gossip schedule: newcomers, rounds, and the end of the run."""

from itertools import pairwise, permutations

import numpy as np
import pytest

from islands.lab.toys.toy import NumpyTrainer
from islands.learner.gossip import GossipValues
from islands.protocol.gossip import actions, events
from islands.protocol.gossip.gossip import GIVEN_MOST, Gossip, Stage
from islands.protocol.identities import (
    FragmentIndex,
    Incarnation,
    LearnerName,
    Phase,
    Status,
    Version,
)
from islands.protocol.learner.events import FromSupervisor, SnapshotTaken, Ticked
from islands.protocol.learner.state import LearnerState
from islands.protocol.messages.gossip import Share, ValueGiven, ValueWanted
from islands.protocol.messages.membership import Member, MembershipChanged
from islands.protocol.messages.training import FinalRound
from islands.protocol.settings.choices import GossipRule, Neighbours
from islands.protocol.settings.gossip import GossipSettings
from islands.protocol.tape.entry import Record
from islands.protocol.tape.gossip_entries import TookOver
from islands.protocol.tape.process_entries import KeptOut
from messaging.codec.tensors import as_buffer
from tests.learner.bench import ANA, BATCH, Bench, P, phase_of, stepping_by
from tests.learner.exchange_bench import PAIRS, settings_of

ANA_S, BEN = Incarnation(1, 1), Incarnation(1, 2)
NO_BYTES = memoryview(b"")
NOTHING = (NO_BYTES, NO_BYTES)
H = 4
"""Steps of an interval, of which each of the two fragments has a round in every second one."""


def gossiping(*, alone: bool) -> Bench:
    """A learner of two fragments on version 0; ben trains already, unless it is alone."""
    bench = stepping_by(settings_of(PAIRS, H, P))
    tell_roster(bench, ben=not alone)
    return bench


def tell_roster(bench: Bench, *, ben: bool) -> None:
    """The supervisor's view comes: this learner, and ben, who trains, or who is not there."""
    own = Member(ANA, Incarnation(1, 1), Status.LIVE, "ana:1")
    other = Member(LearnerName("ben"), BEN, Status.LIVE if ben else Status.LEFT, "ben:1", ben)
    page = MembershipChanged(1, (own, other))
    bench.do(FromSupervisor(page))


def gossip_of(bench: Bench) -> Gossip:
    gossip = bench.state.schedule
    assert isinstance(gossip, Gossip)
    return gossip


def give(bench: Bench, fragment: int, round_: int) -> None:
    """Ben gives its slow value of a fragment; the newest round that it knows is told."""
    given = ValueGiven(FragmentIndex(fragment), BEN, round_, "digest")
    bench.do(events.ValueArrived("ben", given, None, payload=NO_BYTES))


def settled() -> Bench:
    """Alone at first, so that it began with version 0; then ben is there."""
    bench = gossiping(alone=True)
    tell_roster(bench, ben=True)
    return bench


# --- a newcomer -----------------------------------------------------------------------------------


def test_a_newcomer_goes_on_after_the_newest_round_that_its_donor_knows() -> None:
    bench = gossiping(alone=False)
    assert [one.message for one in bench.of(actions.ToNeighbour)] == [
        ValueWanted(FragmentIndex(0), ANA_S)
    ]
    give(bench, 0, 6)
    assert [one.clock for one in bench.of(actions.TakeOver)] == [7 * H / P]
    assert [one.message for one in bench.of(actions.ToNeighbour)] == [
        ValueWanted(FragmentIndex(1), ANA_S)
    ]
    give(bench, 1, 7)
    assert [one.clock for one in bench.of(actions.TakeOver)] == [8 * H / P]
    assert [entry.round for entry in takeovers(bench)] == [7]
    bench.do(Ticked())
    assert gossip_of(bench).exchanges.clock == 7
    bench.step()
    bench.step()
    (take,) = bench.of(actions.TakeShare)
    assert (take.round, take.fragment, take.clock) == (8, 0, 9 * H / P)


def test_a_learner_that_comes_back_holds_its_own_values_and_takes_none_of_the_syncer() -> None:
    bench = settled()
    bench.evict()
    bench.admit(2)
    bench.update(0, 0)
    assert [one.version for one in bench.of(actions.HoldValue)] == [Version(1, 0)]


def takeovers(bench: Bench) -> list[TookOver]:
    """What the last event put on the tape of a takeover."""
    entries = [getattr(action, "entry", None) for action in bench.actions]
    return [entry for entry in entries if isinstance(entry, TookOver)]


def test_a_newcomer_takes_no_step_before_it_has_all_values() -> None:
    """It would mix version 0 into a trained model; a value that comes again is not taken again."""
    bench = gossiping(alone=False)
    assert phase_of(bench) is Phase.HEALING
    give(bench, 0, 6)
    give(bench, 0, 9)
    assert bench.of(actions.TakeOver) == []
    assert phase_of(bench) is Phase.HEALING
    give(bench, 1, 6)
    assert phase_of(bench) is Phase.STEPPING
    assert gossip_of(bench).round == 6, "a value that was not taken tells no round"


def test_a_donor_tells_its_newest_round_and_gives_a_value_so_often_and_not_more() -> None:
    """So that whoever takes its values over is in the same round."""
    bench = settled()
    for _ in range(3 * H // P):
        bench.step()
    assert gossip_of(bench).exchanges.clock == 2
    bench.do(events.NeighbourSaid("ben", ValueWanted(FragmentIndex(1), BEN)))
    (given,) = bench.of(actions.GiveValue)
    assert (given.peer, given.message.fragment, given.message.round) == ("ben", 1, 2)
    answers = []
    for _ in range(2 * GIVEN_MOST):
        bench.do(events.NeighbourSaid("ben", ValueWanted(FragmentIndex(1), BEN)))
        answers.append(len(bench.of(actions.GiveValue)))
    assert answers == [1] * (GIVEN_MOST - 1) + [0] * (GIVEN_MOST + 1), "one was given before"


def test_nobody_is_given_values_who_is_not_in_the_roster() -> None:
    bench = settled()
    for fragment, incarnation in ((0, Incarnation(1, 9)), (P, BEN)):
        asked = ValueWanted(FragmentIndex(fragment), incarnation)
        bench.do(events.NeighbourSaid("ben", asked))
        assert bench.of(actions.GiveValue) == []


# --- the sums of a group --------------------------------------------------------------------------


@pytest.mark.parametrize("rule", list(GossipRule))
def test_shares_are_summed_by_name_whatever_the_order_of_their_arrival(rule: GossipRule) -> None:
    trainer = NumpyTrainer(1, shapes=[("x", (3,))])
    settings = GossipSettings(Neighbours.RING, rule=rule)
    slow = {"ana": 1e30, "ben": -1e30, "eve": 1.0, "zoe": 1.0}
    given = {name: payload_of(value) for name, value in slow.items()}
    results: dict[str, dict[float, None]] = {name: {} for name in slow}
    for own in slow:
        for order in permutations(name for name in slow if name != own):
            values = GossipValues(settings, trainer.layout, own)
            values.begin(0, as_buffer(np.zeros(3, np.float32)))
            value, _ = values.mixing(0, given[own], {name: given[name] for name in order})()
            results[own][float(value[0])] = None
    averaged = rule is GossipRule.AVERAGE
    mean = np.float32(0.5)
    pulled = np.float32(1) + np.float32(settings.pull) * (mean - np.float32(1))
    for name in slow if averaged else ("eve", "zoe"):
        assert list(results[name]) == [mean if averaged else pulled]


def payload_of(slow: float) -> tuple[memoryview, memoryview]:
    """A share of a learner whose local value is its slow one."""
    return as_buffer(np.full(3, slow, np.float32)), as_buffer(np.zeros(3, np.float32))


# --- the end --------------------------------------------------------------------------------------


def mixing() -> Bench:
    """A gossip step of fragment 0 is being computed with ben's share."""
    bench = settled()
    bench.step()
    bench.step()
    (take,) = bench.of(actions.TakeShare)
    bench.do(events.ShareTaken(take.fragment, take.round, bench.steps, "digest", NOTHING))
    assert len(bench.of(actions.ToNeighbour)) == 1
    share = Share(take.round, take.fragment, BEN, 2, wanted=False, digest="digest")
    bench.do(events.ShareArrived("ben", share, None, NOTHING))
    assert len(bench.of(actions.Mix)) == 1
    return bench


def gathered(bench: Bench) -> list[int]:
    """The fragments whose work the last event had measured from version 0."""
    return [action.fragment for action in bench.of(actions.Gather)]


def test_the_work_of_a_fragment_is_gathered_once() -> None:
    bench = mixing()
    bench.hear(FinalRound(1, "tokens"))
    assert gathered(bench) == [1]
    bench.hear(FinalRound(1, "tokens"))
    bench.do(Ticked(), after_s=1.0)
    assert gathered(bench) == []
    bench.do(events.Mixed(FragmentIndex(0), 2, NO_BYTES, NO_BYTES))
    adopted = [
        type(action)
        for action in bench.actions
        if isinstance(action, actions.AdoptMixed | actions.Gather)
    ]
    assert adopted == [actions.AdoptMixed, actions.Gather]
    assert gathered(bench) == [0]
    for fragment in range(P):
        bench.do(events.WorkGathered(FragmentIndex(fragment)))
    bench.step()
    assert gathered(bench) == []


def test_a_pull_of_the_end_is_answered_with_gathered_work_alone() -> None:
    """A snapshot of before is measured from another base, and would be some of the work again."""
    bench = mixing()
    bench.hear(FinalRound(1, "tokens"))
    bench.do(SnapshotTaken(FragmentIndex(1), Version(1, 0), 2, 2 * BATCH, NO_BYTES))
    bench.do(events.WorkGathered(FragmentIndex(1)))
    assert 1 not in bench.state.pulls.snapshots


def test_gathering_measures_from_version_0_and_adds_nothing_a_second_time() -> None:
    """What was moved since version 0, once; and then there is nothing left."""
    trainer = NumpyTrainer(1, shapes=[("x", (3,))])
    values = GossipValues(PAIRS, trainer.layout, "ana")
    values.begin(0, as_buffer(np.array([1, 2, 3], np.float32)))
    values.take_over(0, as_buffer(np.array([2, 4, 8], np.float32)))
    told = [[np.frombuffer(part, np.float32).tolist() for part in values.gather(0)] for _ in "ab"]
    assert told == [[[1, 2, 3], [1, 2, 5]], [[1, 2, 3], [0, 0, 0]]]


NAMES = ("bo", "cy", "di")


class Newcomer:
    """Ana asks those who train for the slow value of her only fragment, one after the other."""

    def __init__(self, *donors: str) -> None:
        state = LearnerState(settings_of(PAIRS), LearnerName("ana"), "bench", 1)
        self.state = state
        assert isinstance(self.state.schedule, Gossip)
        self.gossip = self.state.schedule
        self.gossip.stage = Stage.ASKING
        for index, name in enumerate(donors):
            member = Member(
                LearnerName(name), Incarnation(1, index), Status.LIVE, f"ws://{name}", stepped=True
            )
            self.gossip.view.listed[member.name] = member

    def given(self, donor: str, problem: str | None, *, last: str | None = None) -> bool:
        """What a donor gives has come; returns whether it is taken over.

        `last` is the one that was asked last: by default this one.
        """
        self.gossip.donor, self.state.actions = last or donor, []
        self.gossip.asked[self.gossip.donor] = None
        incarnation = self.gossip.view.listed[LearnerName(donor)].incarnation
        message = ValueGiven(FragmentIndex(0), incarnation, 3, "digest")
        self.gossip.on_gossip(
            self.state, events.ValueArrived(donor, message, problem, memoryview(b""))
        )
        return any(isinstance(action, actions.TakeOver) for action in self.state.actions)

    def refusals(self) -> list[str]:
        """Why the last value was refused, as the tape tells it."""
        entries = [action.entry for action in self.state.actions if isinstance(action, Record)]
        return [entry.reason for entry in entries if isinstance(entry, KeptOut)]


def test_a_value_that_was_long_under_way_is_taken() -> None:
    newcomer = Newcomer(*NAMES)
    assert not newcomer.given("bo", None, last="cy")
    newcomer.gossip.asked["bo"] = None
    assert newcomer.given("bo", None, last="cy")


def test_the_wait_for_donors_that_are_silent_doubles() -> None:
    bench = gossiping(alone=False)
    asked_s = [
        bench.now_s
        for _ in range(400)
        if any(isinstance(each, actions.ToNeighbour) for each in bench.do(Ticked(), after_s=0.25))
    ]
    waits = [later - sooner for sooner, later in pairwise(asked_s)]
    assert waits[1:] == [2 * wait for wait in waits[:-1]]
    assert len(waits) >= 3


def test_a_value_that_one_donor_makes_up_is_refused() -> None:
    ana = Newcomer(*NAMES)
    assert not ana.given("bo", "its digest differs")
    assert ana.refusals() == ["its digest differs"]
    assert ana.given("cy", None)
