"""A learner's membership rules; the state itself is shared by all roles (`protocol/membership.py`).

When an incarnation ends, the process asks for a new one, and adopts every fragment again. It keeps
the moments of its inner optimizer, unless the loss was not finite. Until it has adopted a fragment,
it still has its last published value, and a syncer that has lost its journal takes that back.

While a link is lost the learner steps on. Pulls and offers of the old link are forgotten, and the
syncer repeats them.

A learner shuts down gracefully (drains) on a signal of the host or at an operator's command:

    asked to ─▶ no step after this one ─▶ what was asked for is answered ─▶ its fate is known
                                                                                    │
                                    end ◀── goodbye to both ◀── last report ◀───────┘

Contributions of an incarnation that has ended are not merged. So the learner stays until rounds
have asked for what it has left, and those that it has sent are decided; deadlines bound the wait.
"""

from dataclasses import replace

from islands.protocol import sessions
from islands.protocol.identities import Phase
from islands.protocol.learner import events
from islands.protocol.learner.account import Sent
from islands.protocol.learner.actions import ResetFeedback, ResetMoments
from islands.protocol.learner.memory import (
    EVENTS,
    FROM_SUPERVISOR,
    FROM_SYNCER,
    LearnerMemory,
    Leaving,
)
from islands.protocol.learner.moments_recovery import on_donor, stop_asking
from islands.protocol.learner.steps import allow, count_step, pass_over
from islands.protocol.membership import EpochOrder, HeartbeatContent
from islands.protocol.messages import membership as messages
from islands.protocol.messages.control import Drain
from islands.protocol.messages.training import Kept, Welcome
from islands.protocol.tape.entry import Record
from islands.protocol.tape.process_entries import Waits


@EVENTS.handles(events.FromSupervisor)
def from_supervisor(memory: LearnerMemory, event: events.FromSupervisor) -> None:
    FROM_SUPERVISOR.handle(memory, event.message)


@EVENTS.handles(events.FromSyncer)
def from_syncer(memory: LearnerMemory, event: events.FromSyncer) -> None:
    FROM_SYNCER.handle(memory, event.message)


@EVENTS.handles(sessions.SupervisorLinkChanged)
def on_supervisor_link(memory: LearnerMemory, event: sessions.SupervisorLinkChanged) -> None:
    """Note the link's state; over a new link ask for admission, or send a heartbeat."""
    memory.membership.supervisor_up = event.up
    show_life(memory)


@EVENTS.handles(sessions.SyncerLinkChanged)
def on_syncer_link(memory: LearnerMemory, event: sessions.SyncerLinkChanged) -> None:
    """Forget requests of the old link, which the syncer repeats; send Hello over a new one."""
    memory.membership.syncer_up = event.up
    memory.pulls.link_changed()
    memory.pulls.offered.clear()
    _hello(memory)


@EVENTS.handles(events.Ticked)
def on_tick(memory: LearnerMemory, event: events.Ticked) -> None:
    """Send a heartbeat to the supervisor, and a report to the syncer if none was sent lately."""
    show_life(memory, compiling=event.compiling)
    timing = memory.settings.timing
    overdue = memory.now_s - memory.reporting.at_s >= timing.scaled(timing.heartbeat_s)
    memory.reporting.due |= memory.incarnation is not None and overdue
    pass_over(memory)


def show_life(memory: LearnerMemory, *, compiling: bool = False) -> None:
    """Send a heartbeat, in the phase COMPILING if a step is `compiling`, or ask to be admitted."""
    within = compiling and memory.phase is Phase.STEPPING
    phase = Phase.COMPILING if within else memory.phase
    content = memory.schedule.heartbeat(HeartbeatContent(phase, memory.compute.own_steps))
    message = memory.membership.say(content, memory.now_s)
    if message is not None:
        memory.actions.append(sessions.ToSupervisor(message))


def _hello(memory: LearnerMemory) -> None:
    if memory.membership.syncer_up and memory.incarnation is not None:
        digests = tuple(account.digest for account in memory.accounts)
        hello = memory.membership.hello(memory.progress(memory.incarnation), digests, _kept(memory))
        memory.actions.append(sessions.ToSyncer(hello))


def _kept(memory: LearnerMemory) -> tuple[Kept | None, ...]:
    held = [account.kept if account.version is None else None for account in memory.accounts]
    return tuple(held) if any(held) else ()


@FROM_SUPERVISOR.handles(messages.Joined)
def on_joined(memory: LearnerMemory, joined: messages.Joined) -> None:
    """Begin an incarnation, unless an older supervisor sent it, or it is not a new one."""
    if memory.membership.on_joined(joined):
        memory.reporting.steps = memory.compute.steps
        memory.compute.quota_tokens = 0
        memory.actions.extend(sessions.DialSyncer(address) for address in joined.syncers)
        _hello(memory)


@FROM_SUPERVISOR.handles(messages.HeartbeatAck)
def on_ack(memory: LearnerMemory, ack: messages.HeartbeatAck) -> None:
    """Dial the syncer where the supervisor's answer to a heartbeat says that it is."""
    memory.actions.extend(sessions.DialSyncer(address) for address in memory.membership.on_ack(ack))


@FROM_SUPERVISOR.handles(messages.MembershipChanged)
def on_view(memory: LearnerMemory, page: messages.MembershipChanged) -> None:
    memory.schedule.on_view(memory, page)


@FROM_SUPERVISOR.handles(messages.Refused)
def on_supervisor_refusal(memory: LearnerMemory, refused: messages.Refused) -> None:
    _on_refused(memory, "the supervisor", refused.reason, retry=refused.retry)


@FROM_SYNCER.handles(messages.Refused)
def on_syncer_refusal(memory: LearnerMemory, refused: messages.Refused) -> None:
    _on_refused(memory, "the syncer", refused.reason, retry=refused.retry)


def _on_refused(memory: LearnerMemory, by: str, reason: str, *, retry: bool) -> None:
    """Exit on a refusal that a retry cannot mend; that the run is over is no failure."""
    if retry:
        memory.actions.append(Record(Waits(f"{by} refused: {reason}")))
    else:
        failed = not reason.startswith(messages.RUN_OVER)
        memory.actions.append(sessions.Exit(f"{by} refused: {reason}", failed))


@FROM_SYNCER.handles(Welcome)
def on_welcome(memory: LearnerMemory, welcome: Welcome) -> None:
    """Follow a syncer unless it is an older one; ask the donor that it may name for moments."""
    epoch, seen = welcome.epoch, memory.epoch_seen
    theirs, own = len(welcome.versions), len(memory.accounts)
    if theirs != own:
        why = f"it has versions of {theirs} fragments, the run has {own}"
        memory.actions.append(sessions.DropSyncerLink(why))
        return
    followed = memory.membership.on_welcome(welcome)
    if followed is EpochOrder.OLDER:
        memory.actions.append(sessions.DropSyncerLink(f"epoch {epoch} is older than {seen}"))
        return
    on_donor(memory, welcome.donor)
    if followed is EpochOrder.NEWER:
        memory.pulls.link_changed()
        for account, version in zip(memory.accounts, welcome.versions, strict=True):
            account.welcomed(epoch, version)
        memory.reporting.due = True
        if memory.compute.closing:  # a new syncer announces by itself that the run closes
            memory.compute.closing = False
            allow(memory)


@FROM_SUPERVISOR.handles(messages.Evicted)
def on_evicted(memory: LearnerMemory, evicted: messages.Evicted) -> None:
    if memory.membership.on_evicted(evicted):
        _begin_anew(memory)


@FROM_SYNCER.handles(messages.Evicted)
def on_fenced(memory: LearnerMemory, evicted: messages.Evicted) -> None:
    """Begin anew if the syncer fences this incarnation, which it knows by the supervisor's word."""
    on_evicted(memory, replace(evicted, unknown=False))


@EVENTS.handles(events.StepFinished)
def on_step(memory: LearnerMemory, event: events.StepFinished) -> None:
    """Count a step; start over if its loss is not finite and it belongs to this incarnation."""
    count_step(memory, event)
    if not event.finite and event.steps > memory.compute.origin_steps:
        start_over(memory)


def start_over(memory: LearnerMemory) -> None:
    """End the incarnation after a loss that is not finite; its moments and values are worthless.

    Supervisor and syncer receive the cause, for a run in which every learner diverges must end.
    """
    if memory.incarnation is not None and memory.compute.allowed:
        _rest(memory)
        say_goodbye(memory, messages.NOT_FINITE, diverged=True)
        memory.membership.end()
        _begin_anew(memory, sound=False)
        memory.actions.append(ResetMoments())


def _rest(memory: LearnerMemory) -> None:
    membership, timing = memory.membership, memory.settings.timing
    well = memory.compute.own_steps > memory.settings.well_steps
    rest_s = membership.rest(timing.scaled(timing.heartbeat_s), memory.now_s, well=well)
    if rest_s:
        times = f"{membership.relapses} times in a row"
        again = f"{messages.NOT_FINITE}, {times}: it tries again in {rest_s:g} s"
        memory.actions.append(Record(Waits(again)))


def _begin_anew(memory: LearnerMemory, *, sound: bool = True) -> None:
    """Keep the moments, and gossip's values if `sound`, and ask for a new incarnation."""
    compute = memory.compute
    memory.schedule.end(sound=sound and compute.allowed)
    compute.leases, compute.quota_tokens, compute.allowed = (), 0, False
    memory.allow_steps(0, ())
    memory.accounts = [account.next_incarnation() for account in memory.accounts]
    memory.pulls.forget()
    if memory.settings.keeps_residuals:
        memory.actions.append(ResetFeedback())
    stop_asking(memory)
    show_life(memory)


# --- a graceful shutdown -------------------------------------------------------------------------


@FROM_SUPERVISOR.handles(Drain)
def on_drain(memory: LearnerMemory, drain: Drain) -> None:
    begin_leaving(memory, events.LeaveRequested(drain.reason))


@EVENTS.handles(events.LeaveRequested)
def begin_leaving(memory: LearnerMemory, event: events.LeaveRequested) -> None:
    """Begin the shutdown and stop at the next boundary; further requests change nothing."""
    if memory.leaving is None:
        patience_s = memory.settings.timing.scaled(memory.settings.timing.evict_s)
        deadline_s, latest_s = memory.now_s + patience_s, memory.now_s + 2 * patience_s
        memory.leaving = Leaving(event.reason, deadline_s, latest_s)
        memory.allow_steps(0, memory.compute.leases)


def go_on_leaving(memory: LearnerMemory) -> None:
    """End the process as soon as nothing is worth waiting for, or a deadline has passed.

    Rounds are opened for its open work (`protocol/syncer/scheduling.py`). A lost link to the syncer
    may come back, unless the supervisor is gone as well.
    """
    leaving = memory.leaving
    if leaving is None or leaving.left:
        return
    links = memory.membership.syncer_up or (memory.membership.supervisor_up and _owes(memory))
    cut_off = memory.incarnation is None or not links
    decided = not (memory.pulls.wanted or _undecided(memory) or _owes(memory))
    done = memory.compute.idle and (decided or memory.now_s >= leaving.deadline_s)
    if cut_off or done or memory.now_s >= leaving.latest_s:
        leaving.left = True
        say_goodbye(memory, leaving.reason)
        memory.actions.append(sessions.Exit(leaving.reason, failed=False))


def _owes(memory: LearnerMemory) -> bool:
    """Whether it has work that rounds will ask it for, though it stands still."""
    done = memory.compute.own_tokens
    return memory.hands_over and any(done > account.base_tokens for account in memory.accounts)


def _undecided(memory: LearnerMemory) -> bool:

    def open_(group: list[Sent]) -> bool:
        return any(sent.ticket not in memory.pulls.rejected for sent in group)

    return any(open_(a.sent) or any(map(open_, a.doubtful)) for a in memory.accounts)


def say_goodbye(memory: LearnerMemory, reason: str, *, diverged: bool = False) -> None:
    """Send Leave to supervisor and syncer; the last progress report reaches the syncer first."""
    farewell = memory.membership.farewell(reason, diverged=diverged)
    if farewell is None:
        return
    if memory.membership.syncer_up:
        memory.actions.append(sessions.ToSyncer(memory.progress(farewell.incarnation)))
        memory.actions.append(sessions.ToSyncer(farewell))
    if memory.membership.supervisor_up:
        memory.actions.append(sessions.ToSupervisor(farewell))


@FROM_SYNCER.handles(messages.Stop)
def end_with_run(memory: LearnerMemory, stop: messages.Stop) -> None:
    """Exit since the syncer says that the run is over, and notify the supervisor, if reachable."""
    farewell = memory.membership.farewell(f"the run is over: {stop.reason}")
    if farewell is not None and memory.membership.supervisor_up:
        memory.actions.append(sessions.ToSupervisor(farewell))
    on_stop(memory, stop)


@FROM_SUPERVISOR.handles(messages.Stop)
def on_stop(memory: LearnerMemory, stop: messages.Stop) -> None:
    """Exit, as the supervisor says that the run is over."""
    memory.actions.append(sessions.Exit(stop.reason, failed=False))
