"""A learner's membership rules; the state itself is shared by all roles (`protocol/membership.py`).

When an incarnation ends, the process asks for a new one, and adopts every fragment again. It keeps
only the moments of its inner optimizer, unless the loss was not finite. Until it has adopted a
fragment, it still has the published value that it adopted last, which it tells every syncer: one
that has lost its journal takes it back.

When a link breaks, the dialler opens it anew, and the learner steps on. What went over the old link
may be lost, so pulls, offers and measurements are forgotten, and the syncer repeats what it needs.

A learner shuts down gracefully (drains) on a signal of the host or at an operator's command:

    asked to ─▶ no step after this one ─▶ what was asked for is answered ─▶ its fate is known
                                                                                    │
                                    end ◀── goodbye to both ◀── last report ◀───────┘

Contributions of an incarnation that has ended are not merged. So the learner stays until those that
it has sent are decided, and declines every new pull from now on; deadlines bound the wait.
It returns its leases with the last positions, and the unused quota is granted to others.
"""

from dataclasses import replace

from islands.protocol.identities import Phase
from islands.protocol.learner.account import Sent
from islands.protocol.learner.actions import (
    ResetFeedback,
    ResetMoments,
)
from islands.protocol.learner.core import FROM_SUPERVISOR, FROM_SYNCER, Core, Leaving
from islands.protocol.learner.events import Ticked
from islands.protocol.learner.moments_recovery import on_donor, stop_asking
from islands.protocol.learner.steps import allow, pass_over
from islands.protocol.membership import EpochOrder, HeartbeatContent
from islands.protocol.messages.control import Drain
from islands.protocol.messages.membership import (
    NOT_FINITE,
    RUN_OVER,
    Evicted,
    HeartbeatAck,
    Joined,
    MembershipChanged,
    Refused,
    Stop,
)
from islands.protocol.messages.training import Kept, Welcome
from islands.protocol.sessions import DialSyncer, DropSyncerLink, Exit, ToSupervisor, ToSyncer
from islands.protocol.tape.entry import Record
from islands.protocol.tape.process_entries import Waits


def on_supervisor_link(core: Core, *, up: bool) -> None:
    """Note the link's state; over a new link ask for admission, or send a heartbeat."""
    core.membership.supervisor_up = up
    show_life(core)


def on_syncer_link(core: Core, *, up: bool) -> None:
    """Forget requests of the old link, which the syncer repeats; send Hello over a new one."""
    core.membership.syncer_up = up
    core.pulls.link_changed()
    core.pulls.offered.clear()
    _hello(core)


def on_tick(core: Core, event: Ticked) -> None:
    """Send a heartbeat to the supervisor, and a report to the syncer if none was sent lately."""
    show_life(core, compiling=event.compiling)
    timing = core.settings.timing
    overdue = core.now_s - core.reporting.at_s >= timing.scaled(timing.heartbeat_s)
    core.reporting.due |= core.incarnation is not None and overdue
    pass_over(core)


def show_life(core: Core, *, compiling: bool = False) -> None:
    """Send a heartbeat, or ask to be admitted.

    The phase is COMPILING if a step is `compiling` at this moment.
    """
    within = compiling and core.phase is Phase.STEPPING
    phase = Phase.COMPILING if within else core.phase
    content = core.schedule.heartbeat(HeartbeatContent(phase, core.compute.own_steps))
    word = core.membership.say(content, core.now_s)
    if word is not None:
        core.actions.append(ToSupervisor(word))


def _hello(core: Core) -> None:
    if core.membership.syncer_up and core.incarnation is not None:
        digests = tuple(account.digest for account in core.accounts)
        hello = core.membership.hello(core.progress(core.incarnation), digests, _kept(core))
        core.actions.append(ToSyncer(hello))


def _kept(core: Core) -> tuple[Kept | None, ...]:
    """Return the values that compute still has from before this incarnation, by fragment."""
    held = [account.kept if account.version is None else None for account in core.accounts]
    return tuple(held) if any(held) else ()


@FROM_SUPERVISOR.handles(Joined)
def on_joined(core: Core, joined: Joined) -> None:
    """Begin an incarnation, unless an older supervisor sent it, or it is not a new one."""
    if core.membership.on_joined(joined):
        core.reporting.steps = core.compute.steps
        core.compute.quota_tokens = 0
        core.actions.extend(DialSyncer(address) for address in joined.syncers)
        _hello(core)


@FROM_SUPERVISOR.handles(HeartbeatAck)
def on_ack(core: Core, ack: HeartbeatAck) -> None:
    """Dial the syncer where the supervisor's answer to a heartbeat says that it is."""
    core.actions.extend(DialSyncer(address) for address in core.membership.on_ack(ack))


@FROM_SUPERVISOR.handles(MembershipChanged)
def on_view(core: Core, page: MembershipChanged) -> None:
    """Have the schedule follow a page of the supervisor's membership view."""
    core.schedule.on_view(core, page)


@FROM_SUPERVISOR.handles(Refused)
def on_supervisor_refusal(core: Core, refused: Refused) -> None:
    _on_refused(core, "the supervisor", refused.reason, retry=refused.retry)


@FROM_SYNCER.handles(Refused)
def on_syncer_refusal(core: Core, refused: Refused) -> None:
    _on_refused(core, "the syncer", refused.reason, retry=refused.retry)


def _on_refused(core: Core, by: str, reason: str, *, retry: bool) -> None:
    """Exit on a refusal that a retry cannot mend; otherwise record that the learner waits.

    A refusal because the run is over is no failure: nothing is left to mend or to do.
    """
    if retry:
        core.actions.append(Record(Waits(f"{by} refused: {reason}")))
    else:
        failed = not reason.startswith(RUN_OVER)
        core.actions.append(Exit(f"{by} refused: {reason}", failed))


@FROM_SYNCER.handles(Welcome)
def on_welcome(core: Core, welcome: Welcome) -> None:
    """Follow a syncer unless it is an older one; ask the donor that it may name for moments."""
    epoch, seen = welcome.epoch, core.epoch_seen
    told, own = len(welcome.versions), len(core.accounts)
    if told != own:
        core.actions.append(
            DropSyncerLink(f"it has versions of {told} fragments, the run has {own}")
        )
        return
    followed = core.membership.on_welcome(welcome)
    if followed is EpochOrder.OLDER:
        core.actions.append(DropSyncerLink(f"epoch {epoch} is older than {seen}"))
        return
    on_donor(core, welcome.donor)
    if followed is EpochOrder.NEWER:
        core.pulls.link_changed()
        for account, version in zip(core.accounts, welcome.versions, strict=True):
            account.welcomed(epoch, version)
        core.reporting.due = True
        if core.run.closing:  # a new syncer announces by itself that the run closes
            core.run.closing = False
            allow(core)


@FROM_SUPERVISOR.handles(Evicted)
def on_evicted(core: Core, evicted: Evicted) -> None:
    """Begin anew if the incarnation that was evicted is this learner's."""
    if core.membership.on_evicted(evicted):
        _begin_anew(core)


@FROM_SYNCER.handles(Evicted)
def on_fenced(core: Core, evicted: Evicted) -> None:
    """Begin anew if the syncer fences this incarnation, which it knows by the supervisor's word."""
    on_evicted(core, replace(evicted, unknown=False))


def start_over(core: Core) -> None:
    """End the incarnation after a loss that is not finite; its moments and values are worthless.

    Supervisor and syncer are told why it ends: it was not evicted, and a run in which every learner
    diverges must end. A step that was still running reports such a loss once more; it belongs to no
    new incarnation, whose totals begin after it. The moments are reset after the last step.
    """
    if core.incarnation is not None and core.compute.allowed:
        _rest(core)
        say_goodbye(core, NOT_FINITE, diverged=True)
        core.membership.end()
        _begin_anew(core, sound=False)
        core.actions.append(ResetMoments())


def _rest(core: Core) -> None:
    membership, timing = core.membership, core.settings.timing
    well = core.compute.own_steps > core.settings.well_steps
    rest_s = membership.rest(timing.scaled(timing.heartbeat_s), core.now_s, well=well)
    if rest_s:
        times = f"{membership.relapses} times in a row"
        again = f"{NOT_FINITE}, {times}: it tries again in {rest_s:g} s"
        core.actions.append(Record(Waits(again)))


def _begin_anew(core: Core, *, sound: bool = True) -> None:
    """Keep the moments, drop everything else of the ended incarnation, ask for a new one.

    A learner that gossips keeps its values too, as long as they are `sound`.
    """
    compute = core.compute
    core.schedule.end(sound=sound and compute.allowed)
    compute.leases, compute.quota_tokens, compute.allowed = (), 0, False
    core.allow_steps(0, ())
    core.accounts = [account.next_incarnation() for account in core.accounts]
    core.pulls.forget()
    if core.settings.keeps_residuals:
        core.actions.append(ResetFeedback())
    stop_asking(core)
    show_life(core)


# --- a graceful shutdown -------------------------------------------------------------------------


def begin_leaving(core: Core, reason: str) -> None:
    """Begin the shutdown and stop at the next boundary; further requests change nothing."""
    if core.leaving is None:
        patience_s = core.settings.timing.scaled(core.settings.timing.evict_s)
        deadline_s, latest_s = core.now_s + patience_s, core.now_s + 2 * patience_s
        core.leaving = Leaving(reason, deadline_s, latest_s)
        core.allow_steps(0, core.compute.leases)


@FROM_SUPERVISOR.handles(Drain)
def on_drain(core: Core, drain: Drain) -> None:
    """Begin the shutdown that an operator commands."""
    begin_leaving(core, drain.reason)


def go_on_leaving(core: Core) -> None:
    """End the process as soon as nothing is worth waiting for, or a deadline has passed.

    Rounds are opened for its open work (`protocol/syncer/scheduling.py`). A lost link to the syncer
    may come back, unless the supervisor is gone as well.
    """
    leaving = core.leaving
    if leaving is None or leaving.left:
        return
    links = core.membership.syncer_up or (core.membership.supervisor_up and _owes(core))
    cut_off = core.incarnation is None or not links
    decided = not (core.pulls.wanted or _undecided(core) or _owes(core))
    done = core.compute.idle and (decided or core.now_s >= leaving.deadline_s)
    if cut_off or done or core.now_s >= leaving.latest_s:
        leaving.left = True
        say_goodbye(core, leaving.reason)
        core.actions.append(Exit(leaving.reason, failed=False))


def _owes(core: Core) -> bool:
    """Whether it has work that rounds will ask it for, though it stands still."""
    done = core.compute.own_tokens
    return core.hands_over and any(done > account.base_tokens for account in core.accounts)


def _undecided(core: Core) -> bool:
    """Whether a contribution that was sent may still be merged."""

    def open_(group: list[Sent]) -> bool:
        return any(sent.ticket not in core.pulls.rejected for sent in group)

    return any(open_(a.sent) or any(map(open_, a.doubtful)) for a in core.accounts)


def say_goodbye(core: Core, reason: str, *, diverged: bool = False) -> None:
    """Send Leave to supervisor and syncer; the last progress report reaches the syncer first."""
    farewell = core.membership.farewell(reason, diverged=diverged)
    if farewell is None:
        return
    if core.membership.syncer_up:
        core.actions.append(ToSyncer(core.progress(farewell.incarnation)))
        core.actions.append(ToSyncer(farewell))
    if core.membership.supervisor_up:
        core.actions.append(ToSupervisor(farewell))


@FROM_SYNCER.handles(Stop)
def end_with_run(core: Core, stop: Stop) -> None:
    """Exit since the syncer says that the run is over, and notify the supervisor, if reachable."""
    farewell = core.membership.farewell(f"the run is over: {stop.reason}")
    if farewell is not None and core.membership.supervisor_up:
        core.actions.append(ToSupervisor(farewell))
    on_stop(core, stop)


@FROM_SUPERVISOR.handles(Stop)
def on_stop(core: Core, stop: Stop) -> None:
    """Exit, as the supervisor says that the run is over."""
    core.actions.append(Exit(stop.reason, failed=False))
