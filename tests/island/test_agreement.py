"""All hosts of an island carry out the same commands at the same boundary, and no step waits."""

import heapq
import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from islands.island import agreement
from islands.island.commands import Arrivals
from islands.learner.compute import BookCopy
from islands.protocol.identities import FragmentIndex, Incarnation, Version
from islands.protocol.learner.actions import AdoptValue, AllowSteps, EngineAction, ResetMoments

STEP_S = 1.0


def adopt(fragment: int, number: int) -> AdoptValue:
    index, version = FragmentIndex(fragment), Version(1, number)
    return AdoptValue(index, version, 0.0, 1, Incarnation(1, 1), memoryview(b""))


@dataclass
class Host:
    """One host on a clock of the test's own: what it carried out, by boundary."""

    follower: agreement.Follower = field(default_factory=agreement.Follower)
    arrivals: Arrivals = field(default_factory=Arrivals)
    entries: dict[int, str] = field(default_factory=dict)
    carried_out: list[tuple[int, ...]] = field(default_factory=list)
    waited: int = 0
    done: int = 0


class Island:
    """Hosts that step together, with links whose delays a seed draws.

    Boundary b of a host comes a step after its boundary b − 1, or, as steps are collective, once
    every host has come to boundary b − 1, whatever is later.
    """

    def __init__(self, hosts: int, seed: int, delay_s: float) -> None:
        self.leader = agreement.Leader()
        self.log = agreement.CommandLog()
        self.holdings = agreement.Holdings(range(1, hosts))
        self.followers = {rank: Host() for rank in range(1, hosts)}
        self.own: list[tuple[int, ...]] = []
        self._rng = random.Random(seed)
        self._delay_s = delay_s
        self._mail: list[tuple[float, int, int, tuple[object, ...]]] = []
        self._sent = 0

    def command(self, command: agreement.LogEntry, now_s: float) -> None:
        self.log.put(command)
        self._flow(now_s)

    def boundary(self, now_s: float) -> None:
        """Let every host come to its next boundary, a step after the last one."""
        self._deliver(now_s)
        done, boundary, upto = self.leader.arrive(self.holdings.common(self.log.issued))
        before = sum(len(numbers) for numbers in self.own)
        self.own.append(tuple(range(before + 1, done + 1)))
        self.log.take(done)
        for rank in self.followers:
            self._send(rank, now_s, ("word", boundary, upto))
        self._flow(now_s)
        for host in self.followers.values():
            host.waited += not host.follower.knows
            while not host.follower.knows:
                self._deliver(self._mail[0][0])
            upto = host.follower.arrive()
            host.carried_out.append(tuple(range(host.done + 1, upto + 1)))
            assert all(number <= host.arrivals.held for number in host.carried_out[-1])
            host.done = max(host.done, upto)

    def _flow(self, now_s: float) -> None:
        for number, entry in self.log.issue():
            for rank in self.followers:
                self._send(rank, now_s, ("head", number, type(entry).__name__))
                self._send(rank, now_s, ("part", number))

    def _send(self, rank: int, now_s: float, message: tuple[object, ...]) -> None:
        self._sent += 1
        at_s = now_s + self._rng.uniform(0, self._delay_s)
        heapq.heappush(self._mail, (at_s, self._sent, rank, message))

    def _deliver(self, now_s: float) -> None:
        while self._mail and self._mail[0][0] <= now_s:
            at_s, _, rank, message = heapq.heappop(self._mail)
            if rank < 0:
                self.holdings.on_held(-rank, int(str(message[1])))
                continue
            host, before = self.followers[rank], self.followers[rank].arrivals.held
            match message:
                case ("word", int(boundary), int(upto)):
                    host.follower.on_word(boundary, upto)
                case ("head", int(number), str(kind)):
                    host.arrivals.on_head(number, kind, {}, 1)
                case ("part", int(number)):
                    host.arrivals.on_part(number, 0, memoryview(b""))
            host.arrivals.complete()
            if host.arrivals.held > before:
                self._send(-rank, at_s, ("held", host.arrivals.held))


@pytest.mark.parametrize("drawn", range(20))
@pytest.mark.parametrize(("hosts", "delay_s"), [(2, 0.1), (4, 0.9), (16, 1.9), (3, 30.0)])
def test_all_hosts_carry_out_the_same_commands_at_the_same_boundary(
    hosts: int, delay_s: float, drawn: int
) -> None:
    island, rng = Island(hosts, drawn, delay_s), random.Random(drawn)
    for step in range(300):
        if step < 200 and rng.random() < 0.5:
            island.command(AllowSteps(step, ()), step * STEP_S)
        island.boundary(step * STEP_S)
    for host in island.followers.values():
        assert host.carried_out == island.own
    assert sum(map(len, island.own)) == island.log.issued > 0


@pytest.mark.parametrize("drawn", range(20))
def test_no_step_waits_for_a_word_that_takes_less_than_two_steps(drawn: int) -> None:
    island = Island(4, drawn, 0.99 * agreement.AHEAD * STEP_S)
    for step in range(100):
        island.command(ResetMoments(), step * STEP_S)
        island.boundary(step * STEP_S)
    assert [host.waited for host in island.followers.values()] == [0, 0, 0]


def test_a_command_is_carried_out_two_boundaries_after_all_hosts_hold_it() -> None:
    leader, held = agreement.Leader(), 0
    words = []
    for boundary in range(6):
        held = 1 if boundary >= 1 else 0
        words.append(leader.arrive(held)[0])
    assert words == [0, 0, 0, 1, 1, 1]


def test_a_host_that_stands_still_comes_on_until_what_is_agreed_is_carried_out() -> None:
    leader = agreement.Leader()
    leader.arrive(0)
    assert not leader.has_news(0)
    assert leader.has_news(1)
    for _ in range(agreement.AHEAD):
        leader.arrive(1)
        assert leader.has_news(1)
    assert leader.arrive(1)[0] == 1
    assert not leader.has_news(1)


def test_a_hanging_step_keeps_one_value_of_each_fragment_on_the_way() -> None:
    log = agreement.CommandLog()
    for number in range(5):
        log.put(adopt(0, number))
    log.put(adopt(1, 7))
    log.put(AllowSteps(100, ()))
    first = log.issue()
    assert [entry for _, entry in first] == [adopt(0, 4), adopt(1, 7), AllowSteps(100, ())]
    log.put(adopt(0, 5))
    log.put(adopt(0, 6))
    log.put(BookCopy(1))
    assert log.issue() == []
    assert log.take(3) == [adopt(0, 4), adopt(1, 7), AllowSteps(100, ())]
    assert log.issue() == [(4, adopt(0, 6)), (5, BookCopy(1))]


def test_commands_are_complete_in_their_order_alone() -> None:
    arrivals = Arrivals()
    arrivals.on_head(2, "End", {}, 0)
    arrivals.on_part(1, 1, memoryview(b"b"))
    arrivals.on_head(1, "AdoptValue", {"x": 1}, 2)
    assert arrivals.complete() == []
    assert arrivals.held == 0
    arrivals.on_part(1, 0, memoryview(b"a"))
    found = arrivals.complete()
    assert [(number, kind, [bytes(x) for x in arrays]) for number, kind, _, arrays in found] == [
        (1, "AdoptValue", [b"a", b"b"]),
        (2, "End", []),
    ]
    assert arrivals.held == 2


def test_what_all_hold_is_what_the_slowest_holds() -> None:
    holdings = agreement.Holdings((1, 2))
    holdings.on_held(1, 5)
    assert holdings.common(9) == 0
    holdings.on_held(2, 7)
    holdings.on_held(2, 3)
    assert holdings.common(9) == 5
    assert holdings.common(4) == 4


def test_the_last_command_is_the_same_for_all_hosts() -> None:
    island = Island(3, 0, 0.5)
    commands: deque[EngineAction | agreement.End] = deque([AllowSteps(1, ()), agreement.End()])
    for step in range(10):
        if commands:
            island.command(commands.popleft(), step * STEP_S)
        island.boundary(step * STEP_S)
    ends = {host.carried_out.index((2,)) for host in island.followers.values()}
    assert ends == {island.own.index((2,))}
