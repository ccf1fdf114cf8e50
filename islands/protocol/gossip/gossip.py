"""The gossip schedule: a learner exchanges values with others, and no syncer merges meanwhile.

The syncer of such a run keeps version 0, leases, quotas and the books. At the end every present
learner contributes to each fragment all of its work since version 0, so that the closing merge is
the mean of all local values. A learner lives through these stages:

    new ──somebody trains──▶ asking ──all its slow values are here──┐
     └──nobody trains yet: all begin with version 0──────────────────┴─▶ settled ──▶ gathered
                                                                                (at the end)

A *newcomer*, which must not mix version 0 into a trained model, first asks learners that train for
their slow values, in turn, until one has given all.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import assert_never

from islands.protocol.gossip import actions, events
from islands.protocol.gossip.exchanges import Exchanges
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Status
from islands.protocol.learner.memory import LearnerMemory
from islands.protocol.learner.schedule import Schedule
from islands.protocol.membership import HeartbeatContent, SupervisorView
from islands.protocol.messages.gossip import ShareDeclined, ValueGiven, ValueWanted
from islands.protocol.messages.membership import Member, MembershipChanged
from islands.protocol.messages.training import FragmentUpdate
from islands.protocol.tape.entry import Record
from islands.protocol.tape.gossip_entries import TookOver
from islands.protocol.tape.process_entries import KeptOut

DOUBLINGS_MAX = 6
"""How often the wait for a donor doubles: each question costs a whole value on the link."""

GIVEN_MOST = 3
"""How often a learner gives a fragment's slow value to one that asks for it, in each round."""


class Stage(StrEnum):
    """The stages of a learner that gossips."""

    NEW = "new"
    ASKING = "asking"
    SETTLED = "settled"


@dataclass(slots=True)
class Gossip(Schedule):
    """The schedule of a learner that gossips, which listens at `address`, and its roster.

    `donor` was asked last for its slow values, at `asked_s`; `asked` are all that were asked for
    the next fragment, `unanswered` counts how often since the last answer, `taken` are the
    fragments that came, and `round` is the newest round of donors. `given` counts the gifts of a
    slow value in the round `given_round`, by asker. `gathering` says that the run closes, and
    `gathered` holds the fragments whose work is measured from version 0 again.
    """

    announces = True

    exchanges: Exchanges
    address: str | None = None
    view: SupervisorView = field(default_factory=SupervisorView)
    stage: Stage = Stage.NEW
    donor: str = ""
    asked_s: float = 0.0
    asked: dict[str, None] = field(default_factory=dict)
    unanswered: int = 0
    taken: dict[int, None] = field(default_factory=dict)
    round: int = -1
    given: Counter[tuple[Incarnation, int]] = field(default_factory=Counter)
    given_round: int = -1
    gathering: bool = False
    gathered: dict[int, None] = field(default_factory=dict)

    # --- the roster -----------------------------------------------------------------------------

    def listens(self, address: str) -> None:
        """Note where neighbours reach this learner, before anything else."""
        self.address = address

    def neighbour(self, name: str) -> Member | None:
        return self.view.listed.get(LearnerName(name))

    def listed(self) -> Iterable[Member]:
        return self.view.listed.values()

    @property
    def present(self) -> dict[str, Incarnation]:
        """The learners that train and can be reached."""
        return {
            name: member.incarnation
            for name, member in self.view.listed.items()
            if member.stepped and member.address and member.status is Status.LIVE
        }

    def on_view(self, memory: LearnerMemory, page: MembershipChanged) -> None:
        """Follow the roster: links and exchanges with none but its learners."""
        if self.view.take(page):
            self.exchanges.on_roster(self.present, memory.now_s)
            memory.actions.append(actions.FollowNeighbours(memory.incarnation))

    def heartbeat(self, content: HeartbeatContent) -> HeartbeatContent:
        return replace(content, address=self.address)

    # --- the schedule ---------------------------------------------------------------------------

    def whole(self) -> bool:
        return self.stage is Stage.SETTLED

    def end(self, *, sound: bool) -> None:
        """End the exchanges of an incarnation; the next one keeps the values if they are sound."""
        self.exchanges.end()
        self.view = SupervisorView()  # its proofs were for this incarnation
        self.asked.clear()
        self.unanswered = 0
        if not sound:
            self.stage, self.donor = Stage.NEW, ""
            self.taken.clear()

    def may_answer(self, memory: LearnerMemory) -> bool:
        """Answer the closing rounds once all work is gathered, or at once if there is none."""
        if memory.compute.allowed:
            return len(self.gathered) == memory.fragments
        return bool(memory.pulls.wanted)

    def instead_of_adopting(
        self, memory: LearnerMemory, update: FragmentUpdate
    ) -> actions.HoldValue | None:
        settled = self.stage is Stage.SETTLED and not self.gathering
        if not settled or memory.accounts[update.fragment].version is not None:
            return None
        assert memory.incarnation is not None, "only who is admitted is sent values"
        return actions.HoldValue(update.fragment, update.version, memory.incarnation)

    def advance(self, memory: LearnerMemory) -> None:
        exchanges, compute = self.exchanges, memory.compute
        if memory.ending:
            if memory.compute.closing:
                self._gather(memory)
            exchanges.end()
        elif self.stage is not Stage.SETTLED:
            self._settle(memory)
        elif memory.incarnation is not None and compute.allowed and not self.gathering:
            if not exchanges.active:
                exchanges.begin(memory.incarnation, compute.steps, self.round)
            exchanges.stepped(compute.steps, memory.now_s, compute.step_time_s)
        exchanges.tick(memory.now_s)
        memory.actions.extend(exchanges.drain())

    def _gather(self, memory: LearnerMemory) -> None:
        """Have the work of all fragments measured from version 0, once, as the run closes."""
        if self.gathering:
            return
        self.gathering = True
        mixing = [fragment for fragment, one in self.exchanges.open.items() if one.mixing]
        for fragment in range(memory.fragments):
            if fragment not in mixing and memory.accounts[fragment].version is not None:
                memory.actions.append(actions.Gather(FragmentIndex(fragment)))

    # --- events ---------------------------------------------------------------------------------

    def on_gossip(self, memory: LearnerMemory, event: events.GossipEvent) -> None:
        match event:
            case events.ShareTaken():
                self.exchanges.on_own_share(event, memory.now_s)
            case events.ShareArrived():
                self.exchanges.on_share(event, memory.now_s)
            case events.NeighbourSaid(sender, message):
                if isinstance(message, ShareDeclined):
                    self.exchanges.on_decline(sender, message, memory.now_s)
                else:
                    self._give(memory, sender, message)
            case events.ValueArrived():
                self._on_value(memory, event)
            case events.Mixed(fragment, steps_total):
                self.exchanges.on_mixed(fragment, steps_total)
                memory.actions.append(
                    actions.AdoptMixed(fragment, steps_total, event.value, event.gradient)
                )
                if self.gathering:
                    memory.actions.append(actions.Gather(fragment))
            case events.WorkGathered(fragment):
                self.gathered[fragment] = None
                memory.pulls.snapshots.pop(fragment, None)
            case _:
                assert_never(event)

    def _give(self, memory: LearnerMemory, asker: str, wanted: ValueWanted) -> None:
        """Give a newcomer a slow value, if this learner trains itself."""
        member = self.neighbour(asker)
        known = member is not None and member.incarnation == wanted.incarnation
        if not known or not self.exchanges.active or not 0 <= wanted.fragment < memory.fragments:
            return
        assert memory.incarnation is not None, "its exchanges are active"
        if self.exchanges.clock != self.given_round:
            self.given_round = self.exchanges.clock
            self.given.clear()
        self.given[wanted.incarnation, wanted.fragment] += 1
        if self.given[wanted.incarnation, wanted.fragment] > GIVEN_MOST:
            return
        given = ValueGiven(wanted.fragment, memory.incarnation, self.exchanges.clock, digest="")
        memory.actions.append(actions.GiveValue(asker, given))

    # --- a newcomer -----------------------------------------------------------------------------

    def _settle(self, memory: LearnerMemory) -> None:
        """Begin with version 0 if nobody trains yet, else with the slow values of one who does."""
        whole = memory.compute.ready and all(one.version is not None for one in memory.accounts)
        if not whole or not self.view.complete or memory.incarnation is None:
            return
        donors = [name for name in self.present if name != memory.membership.name]
        if not donors:
            self.stage, self.donor = Stage.SETTLED, ""
            return
        limit_s = memory.settings.timing.scaled(memory.settings.timing.resend_s)
        doublings = min(max(0, self.unanswered - 1), DOUBLINGS_MAX)
        late = memory.now_s >= self.asked_s + limit_s * 2**doublings
        if self.donor in donors and self.stage is Stage.ASKING and not late:
            return
        later = [name for name in donors if name > self.donor]
        self.stage, self.donor, self.asked_s = Stage.ASKING, (later or donors)[0], memory.now_s
        self._ask(memory)

    def _ask(self, memory: LearnerMemory) -> None:
        missing = [index for index in range(memory.fragments) if index not in self.taken]
        if memory.incarnation is not None and missing:
            self.asked[self.donor] = None
            self.unanswered += 1
            wanted = ValueWanted(FragmentIndex(missing[0]), memory.incarnation)
            memory.actions.append(actions.ToNeighbour(self.donor, wanted))

    def _on_value(self, memory: LearnerMemory, event: events.ValueArrived) -> None:
        """Take over a fragment of any who was asked; the last one lets the learner step."""
        given = event.message
        if self.stage is not Stage.ASKING or event.sender not in self.asked:
            return
        if given.fragment in self.taken:
            return
        self.unanswered = 0
        if event.problem is not None:  # another donor is asked in its time
            refused = KeptOut(event.sender, f"values of round {given.round}", event.problem)
            memory.actions.append(Record(refused))
            return
        self.donor = event.sender
        self.taken[given.fragment] = None
        self.asked.clear()
        self.round = max(self.round, given.round)
        self.asked_s = memory.now_s
        clock = (given.round + 1) * memory.settings.round_interval_steps(memory.fragments)
        memory.actions.append(actions.TakeOver(given.fragment, clock, event.payload))
        if len(self.taken) == memory.fragments:
            self.stage = Stage.SETTLED
            memory.actions.append(Record(TookOver(self.donor, self.round)))
        else:
            self._ask(memory)
