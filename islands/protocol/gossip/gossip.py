"""The gossip schedule: a learner exchanges values with others, and no syncer merges meanwhile.

The syncer of such a run keeps version 0, leases, quotas and the books. The supervisor's roster says
who is present. At the end every learner contributes once to each fragment, all of its work since
version 0, so that the closing merge is the mean of all local values, and every token of a learner
that is present is applied; those of others are lost. A learner lives through these stages:

    new ──somebody trains──▶ asking ──all its slow values are here──┐
     └──nobody trains yet: all begin with version 0──────────────────┴─▶ settled ──▶ gathered
                                                                                (at the end)

A *newcomer*, such as a restarted process, must not mix version 0 into a trained model. Before its
first step it asks learners that train for their slow values, in turn, until one has given all.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from islands.protocol.gossip import actions, events
from islands.protocol.gossip.exchanges import Exchanges
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Status
from islands.protocol.learner.schedule import Schedule
from islands.protocol.membership import HeartbeatContent, SupervisorView
from islands.protocol.messages.gossip import ShareDeclined, ValueGiven, ValueWanted
from islands.protocol.messages.membership import Member, MembershipChanged
from islands.protocol.messages.training import FragmentUpdate
from islands.protocol.tape.entry import Record
from islands.protocol.tape.gossip_entries import TookOver
from islands.protocol.tape.process_entries import KeptOut

if TYPE_CHECKING:  # the memory holds its schedule
    from islands.protocol.learner.core import Core


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
    """The schedule of a learner that gossips, and what it knows of the others.

    `address` is where it listens. `donor` is the learner that was asked last for its slow values,
    at `asked_s`; `asked` are all that were asked for the next fragment, and `unanswered` counts
    how often since the last answer; `taken` are the fragments that came, and `round` is the newest
    round of donors.
    `given` counts how often a fragment's slow value was given in the round `given_round`, by asker.
    `gathering` says that the run closes, and `gathered` holds the fragments whose work of all
    exchanges is measured from version 0 again.
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
        """Return a learner of the roster by name; None if it is not there."""
        return self.view.listed.get(LearnerName(name))

    def listed(self) -> Iterable[Member]:
        return self.view.listed.values()

    @property
    def present(self) -> dict[str, Incarnation]:
        """The learners that train and can be reached, with their incarnations."""
        return {
            name: member.incarnation
            for name, member in self.view.listed.items()
            if member.stepped and member.address and member.status is Status.LIVE
        }

    def on_view(self, core: "Core", page: MembershipChanged) -> None:
        """Follow the roster: links and exchanges with none but its learners."""
        if self.view.take(page):
            self.exchanges.on_roster(self.present, core.now_s)
            core.actions.append(actions.FollowNeighbours(core.incarnation))

    def heartbeat(self, content: HeartbeatContent) -> HeartbeatContent:
        """Add the address for neighbours."""
        return replace(content, address=self.address)

    # --- the schedule ---------------------------------------------------------------------------

    def whole(self) -> bool:
        """Whether it has its values: nobody trained yet, or all of a donor's have come."""
        return self.stage is Stage.SETTLED

    def end(self, *, sound: bool) -> None:
        """End the exchanges of an incarnation; the next one keeps the values if they are sound.

        The roster's proofs were for this incarnation, so the next one is sent the roster anew.
        """
        self.exchanges.end()
        self.view = SupervisorView()
        self.asked.clear()
        self.unanswered = 0
        if not sound:
            self.stage, self.donor = Stage.NEW, ""
            self.taken.clear()

    def may_answer(self, core: "Core") -> bool:
        """Whether pulls are answered: only closing rounds pull, and all work is to be gathered.

        A learner that never stepped declines them at once.
        """
        if core.compute.allowed:
            return len(self.gathered) == core.fragments
        return bool(core.pulls.wanted)

    def instead_of_adopting(self, core: "Core", update: FragmentUpdate) -> actions.HoldValue | None:
        """Have a new incarnation keep its own value, which no version 0 replaces."""
        settled = self.stage is Stage.SETTLED and not self.gathering
        if not settled or core.accounts[update.fragment].version is not None:
            return None
        assert core.incarnation is not None, "only who is admitted is sent values"
        return actions.HoldValue(update.fragment, update.version, core.incarnation)

    def advance(self, core: "Core") -> None:
        """Settle, come to rounds, end exchanges in time."""
        exchanges, compute = self.exchanges, core.compute
        if core.run.closing or core.leaving is not None:
            if core.run.closing:
                self._gather(core)
            exchanges.end()
        elif self.stage is not Stage.SETTLED:
            self._settle(core)
        elif core.incarnation is not None and compute.allowed and not self.gathering:
            if not exchanges.active:
                exchanges.begin(core.incarnation, compute.steps, self.round)
            exchanges.stepped(compute.steps, core.now_s, compute.step_time_s)
        exchanges.tick(core.now_s)
        core.actions.extend(exchanges.drain())

    def _gather(self, core: "Core") -> None:
        """Have the work of all fragments measured from version 0, once, as the run closes."""
        if self.gathering:
            return
        self.gathering = True
        mixing = [fragment for fragment, one in self.exchanges.open.items() if one.mixing]
        for fragment in range(core.fragments):
            if fragment not in mixing and core.accounts[fragment].version is not None:
                core.actions.append(actions.Gather(FragmentIndex(fragment)))

    # --- events ---------------------------------------------------------------------------------

    def on_gossip(self, core: "Core", event: events.GossipEvent) -> None:
        match event:
            case events.ShareTaken():
                self.exchanges.on_own_share(event, core.now_s)
            case events.ShareArrived():
                self.exchanges.on_share(event, core.now_s)
            case events.NeighbourSaid(sender, message):
                if isinstance(message, ShareDeclined):
                    self.exchanges.on_decline(sender, message, core.now_s)
                else:
                    self._give(core, sender, message)
            case events.ValueArrived():
                self._on_value(core, event)
            case events.Mixed(fragment, steps_total):
                self.exchanges.on_mixed(fragment, steps_total)
                core.actions.append(
                    actions.AdoptMixed(fragment, steps_total, event.value, event.gradient)
                )
                if self.gathering:
                    core.actions.append(actions.Gather(fragment))
            case events.WorkGathered(fragment):
                self.gathered[fragment] = None
                core.pulls.snapshots.pop(fragment, None)
            case _:
                assert_never(event)

    def _give(self, core: "Core", asker: str, wanted: ValueWanted) -> None:
        """Give a newcomer a slow value, if this learner trains itself."""
        member = self.neighbour(asker)
        known = member is not None and member.incarnation == wanted.incarnation
        if not known or not self.exchanges.active or not 0 <= wanted.fragment < core.fragments:
            return
        assert core.incarnation is not None, "its exchanges are active"
        if self.exchanges.clock != self.given_round:
            self.given_round = self.exchanges.clock
            self.given.clear()
        self.given[wanted.incarnation, wanted.fragment] += 1
        if self.given[wanted.incarnation, wanted.fragment] > GIVEN_MOST:
            return
        given = ValueGiven(wanted.fragment, core.incarnation, self.exchanges.clock, digest="")
        core.actions.append(actions.GiveValue(asker, given))

    # --- a newcomer -----------------------------------------------------------------------------

    def _settle(self, core: "Core") -> None:
        """Begin with version 0 if nobody trains yet, else with the slow values of one who does."""
        whole = core.compute.ready and all(one.version is not None for one in core.accounts)
        if not whole or not self.view.complete or core.incarnation is None:
            return
        donors = [name for name in self.present if name != core.membership.name]
        if not donors:
            self.stage, self.donor = Stage.SETTLED, ""
            return
        limit_s = core.settings.timing.scaled(core.settings.timing.resend_s)
        doublings = min(max(0, self.unanswered - 1), DOUBLINGS_MAX)
        late = core.now_s >= self.asked_s + limit_s * 2**doublings
        if self.donor in donors and self.stage is Stage.ASKING and not late:
            return
        later = [name for name in donors if name > self.donor]
        self.stage, self.donor, self.asked_s = Stage.ASKING, (later or donors)[0], core.now_s
        self._ask(core)

    def _ask(self, core: "Core") -> None:
        missing = [index for index in range(core.fragments) if index not in self.taken]
        if core.incarnation is not None and missing:
            self.asked[self.donor] = None
            self.unanswered += 1
            wanted = ValueWanted(FragmentIndex(missing[0]), core.incarnation)
            core.actions.append(actions.ToNeighbour(self.donor, wanted))

    def _on_value(self, core: "Core", event: events.ValueArrived) -> None:
        """Take over a fragment of a donor's; the last one lets the learner step.

        A value may travel longer than its donor is waited for, so that of any who was asked counts,
        and the one that has answered is asked for the next.
        """
        given = event.message
        if self.stage is not Stage.ASKING or event.sender not in self.asked:
            return
        if given.fragment in self.taken:
            return
        self.unanswered = 0
        if event.problem is not None:  # another donor is asked in its time
            refused = KeptOut(event.sender, f"values of round {given.round}", event.problem)
            core.actions.append(Record(refused))
            return
        self.donor = event.sender
        self.taken[given.fragment] = None
        self.asked.clear()
        self.round = max(self.round, given.round)
        self.asked_s = core.now_s
        clock = (given.round + 1) * core.settings.round_interval_steps(core.fragments)
        core.actions.append(actions.TakeOver(given.fragment, clock, event.payload))
        if len(self.taken) == core.fragments:
            self.stage = Stage.SETTLED
            core.actions.append(Record(TookOver(self.donor, self.round)))
        else:
            self._ask(core)
