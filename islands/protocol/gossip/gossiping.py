"""The rules by which a learner gossips: they connect `exchanges.py` with the learner's other rules.

The syncer of such a run merges nothing while it goes on: it keeps version 0, leases, quotas and the
books. The supervisor's roster says who is present. At the end every learner contributes once to
each fragment, all of its work since version 0, so that the closing merge is the mean of all local
values, and every token of a learner that is present is applied; those of others are lost.
"""

from statistics import median_low
from typing import assert_never

from islands.protocol.gossip.gossip import Gossip, Stage
from islands.protocol.gossip.gossip_actions import (
    AdoptMixed,
    FollowNeighbours,
    Gather,
    GiveValue,
    TakeOver,
    ToNeighbour,
)
from islands.protocol.gossip.gossip_events import (
    GossipEvent,
    Mixed,
    NeighbourSaid,
    ShareArrived,
    ShareTaken,
    ValueArrived,
    WorkGathered,
)
from islands.protocol.identities import FragmentIndex
from islands.protocol.learner.core import Core
from islands.protocol.messages.gossip import ShareDeclined, ValueGiven, ValueWanted
from islands.protocol.messages.membership import MembershipChanged
from islands.protocol.supervisor_view import SupervisorView
from islands.protocol.tape.entry import Record
from islands.protocol.tape.gossip_entries import ShareRefused, TookOver


def take_gossip(core: Core, event: GossipEvent) -> None:
    """Handle an event of gossip; without gossip there is none."""
    gossip = core.gossip
    if gossip is None:
        return
    exchanges = gossip.exchanges
    match event:
        case ShareTaken():
            exchanges.take_own(event, core.now_s)
        case ShareArrived():
            exchanges.take_share(event, core.now_s)
        case NeighbourSaid(sender, message):
            if isinstance(message, ShareDeclined):
                exchanges.take_decline(sender, message, core.now_s)
            else:
                _give(core, gossip, sender, message)
        case ValueArrived():
            _take_value(core, gossip, event)
        case Mixed(fragment, steps_total):
            exchanges.mixed(fragment, steps_total)
            core.actions.append(AdoptMixed(fragment, steps_total, event.value, event.gradient))
            if gossip.gathering:
                core.actions.append(Gather(fragment))
        case WorkGathered(fragment):
            gossip.gathered[fragment] = None
            core.pulls.snapshots.pop(fragment, None)
        case _:
            assert_never(event)


def take_roster(core: Core, page: MembershipChanged) -> None:
    """Take in a page of the supervisor's membership view."""
    gossip = core.gossip
    if gossip is None or not gossip.view.take(page):
        return
    gossip.exchanges.take_roster(gossip.present, core.now_s)
    core.actions.append(FollowNeighbours(core.incarnation))


def go_on(core: Core) -> None:
    """Do what is due after every event: settle, come to rounds, end exchanges in time."""
    gossip = core.gossip
    if gossip is None:
        return
    exchanges = gossip.exchanges
    if core.closing or core.leaving is not None:
        if core.closing:
            _gather(core, gossip)
        exchanges.end()
    elif gossip.stage is not Stage.SETTLED:
        _settle(core, gossip)
    elif core.incarnation is not None and core.allowed and not gossip.gathering:
        if not exchanges.active:
            exchanges.begin(core.incarnation, core.steps, gossip.round)
        exchanges.stepped(core.steps, core.now_s, core.step_time_s)
    exchanges.tick(core.now_s)
    core.actions.extend(exchanges.taken())


def begin_anew(core: Core, *, kept: bool) -> None:
    """End the exchanges of an incarnation; the next one keeps the values if they are sound.

    The roster's proofs were for this incarnation, so the next one asks for the roster anew.
    """
    gossip = core.gossip
    if gossip is not None:
        gossip.exchanges.end()
        gossip.view = SupervisorView()
        if not kept:
            gossip.stage, gossip.donor = Stage.NEW, ""
            gossip.taken.clear()
            gossip.far.clear()


def _settle(core: Core, gossip: Gossip) -> None:
    """Begin with version 0 if nobody trains yet, else with the slow values of one who does."""
    whole = core.ready and all(account.version is not None for account in core.accounts)
    if not whole or not gossip.view.complete or core.incarnation is None:
        return
    donors = [name for name in gossip.present if name != core.membership.name]
    if not donors:
        gossip.stage, gossip.donor = Stage.SETTLED, ""
        return
    limit_s = core.settings.timing.scaled(core.settings.timing.resend_s)
    late = core.now_s >= gossip.asked_s + limit_s
    if gossip.donor in donors and gossip.stage is Stage.ASKING and not late:
        return
    later = [name for name in donors if name > gossip.donor]
    gossip.stage, gossip.donor, gossip.asked_s = Stage.ASKING, (later or donors)[0], core.now_s
    _ask(core, gossip)


def _ask(core: Core, gossip: Gossip) -> None:
    missing = [index for index in range(core.fragments) if index not in gossip.taken]
    if core.incarnation is not None and missing:
        wanted = ValueWanted(FragmentIndex(missing[0]), core.incarnation)
        core.actions.append(ToNeighbour(gossip.donor, wanted))


def _give(core: Core, gossip: Gossip, asker: str, wanted: ValueWanted) -> None:
    """Give a newcomer a slow value, if this learner trains itself."""
    member = gossip.neighbour(asker)
    known = member is not None and member.incarnation == wanted.incarnation
    if not known or not gossip.exchanges.active or not 0 <= wanted.fragment < core.fragments:
        return
    assert core.incarnation is not None, "its exchanges are active"
    given = ValueGiven(wanted.fragment, core.incarnation, gossip.exchanges.clock, digest="")
    core.actions.append(GiveValue(asker, given))


def _take_value(core: Core, gossip: Gossip, event: ValueArrived) -> None:
    """Take over a fragment of the donor's; the last one lets the learner step."""
    given = event.message
    if gossip.stage is not Stage.ASKING or event.sender != gossip.donor:
        return
    if given.fragment in gossip.taken or _refused(core, gossip, event):
        return
    gossip.taken[given.fragment] = None
    gossip.far.clear()
    gossip.round = max(gossip.round, given.round)
    gossip.asked_s = core.now_s
    clock = (given.round + 1) * core.settings.round_interval_steps(core.fragments)
    core.actions.append(TakeOver(given.fragment, clock, event.payload))
    if len(gossip.taken) == core.fragments:
        gossip.stage = Stage.SETTLED
        core.actions.append(Record(TookOver(gossip.donor, gossip.round)))
    else:
        _ask(core, gossip)


def _refused(core: Core, gossip: Gossip, event: ValueArrived) -> bool:
    """Refuse a value that cannot be used, or is too far; another donor is asked in its time."""
    sender, given, checked = event.sender, event.message, event.checked
    reason = checked.problem or gossip.exchanges.too_far(given.fragment, checked)
    if reason is None:
        return False
    if checked.problem is None:
        gossip.far[sender] = checked.norm
        others = [name for name in gossip.present if name != core.membership.name]
        agreed = all(name in gossip.far for name in others)
        if agreed and checked.norm <= core.settings.norm_limit * median_low(gossip.far.values()):
            return False
    refused = ShareRefused(sender, str(given.incarnation), given.round, reason, 0)
    core.actions.append(Record(refused))
    return True


def _gather(core: Core, gossip: Gossip) -> None:
    """Have the work of all fragments measured from version 0, once, as the run closes."""
    if gossip.gathering:
        return
    gossip.gathering = True
    mixing = [fragment for fragment, one in gossip.exchanges.open.items() if one.mixing]
    for fragment in range(core.fragments):
        if fragment not in mixing and core.accounts[fragment].version is not None:
            core.actions.append(Gather(FragmentIndex(fragment)))
