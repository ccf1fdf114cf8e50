"""A learner's membership rules; the state itself is shared by all roles (`protocol/membership.py`).

When an incarnation ends, the process asks for a new one, and adopts every fragment again. It keeps
only the moments of its inner optimizer, unless the loss was not finite. Until it has adopted a
fragment, it still has the published value that it adopted last, which it tells every syncer: one
that has lost its journal takes it back.
"""

from dataclasses import replace

from islands.protocol.gossip import gossiping
from islands.protocol.identities import Phase
from islands.protocol.learner.account import Account
from islands.protocol.learner.actions import (
    DialSyncer,
    DropSyncerLink,
    Exit,
    ResetFeedback,
    ResetMoments,
    TellPosition,
    ToSupervisor,
    ToSyncer,
)
from islands.protocol.learner.core import Core
from islands.protocol.learner.leaving import say_goodbye
from islands.protocol.learner.moments_recovery import start_anew, take_donor
from islands.protocol.learner.training import allow, pass_over
from islands.protocol.membership import EpochOrder, HeartbeatContent
from islands.protocol.messages.membership import NOT_FINITE, RUN_OVER, Evicted, HeartbeatAck, Joined
from islands.protocol.messages.training import Kept, Welcome
from islands.protocol.tape.entry import Record
from islands.protocol.tape.process_entries import Waits


def take_supervisor_link(core: Core, *, up: bool) -> None:
    """Note the link's state; over a new link ask for admission, or send a heartbeat."""
    core.membership.supervisor_up = up
    show_life(core)


def take_syncer_link(core: Core, *, up: bool) -> None:
    """Forget requests of the old link, which the syncer repeats; send Hello over a new one."""
    core.membership.syncer_up = up
    core.pulls.link_changed()
    if core.adaptation is not None:
        core.adaptation.link_changed()
    core.offered.clear()
    _hello(core)


def take_tick(core: Core, now_s: float, *, compiling: bool) -> None:
    """Send a heartbeat to the supervisor, and a report to the syncer if none was sent lately."""
    show_life(core, compiling=compiling)
    timing = core.settings.timing
    if core.incarnation is not None and now_s - core.reported_s >= timing.scaled(
        timing.heartbeat_s
    ):
        core.report_due = True
    pass_over(core)


def show_life(core: Core, *, compiling: bool = False) -> None:
    """Send a heartbeat, or ask to be admitted.

    The phase is COMPILING if a step is `compiling` at this moment.
    """
    within = compiling and core.phase is Phase.STEPPING
    phase = Phase.COMPILING if within else core.phase
    content = HeartbeatContent(phase, core.steps - core.origin_steps)
    if core.gossip is not None:
        view = core.gossip.view
        content = replace(
            content, address=core.gossip.address, view_epoch=view.epoch, view=view.number
        )
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
    held = [
        one if account.version is None else None
        for one, account in zip(core.kept, core.accounts, strict=True)
    ]
    return tuple(held) if any(held) else ()


def take_joined(core: Core, joined: Joined) -> None:
    """Take an admission, unless an older supervisor sent it or its incarnation is not a new one."""
    if core.membership.on_joined(joined):
        core.reported_steps = core.steps
        core.quota_tokens = 0
        core.actions.extend(DialSyncer(syncer.address) for syncer in joined.syncers)
        _hello(core)


def take_ack(core: Core, ack: HeartbeatAck) -> None:
    """Dial the syncer where the supervisor's answer to a heartbeat says that it is."""
    core.actions.extend(DialSyncer(address) for address in core.membership.on_ack(ack))


def take_refusal(core: Core, by: str, reason: str, *, retry: bool) -> None:
    """Exit on a refusal that a retry cannot mend; otherwise record that the learner waits.

    A refusal because the run is over is no failure: nothing is left to mend or to do.
    """
    if retry:
        core.actions.append(Record(Waits(f"{by} refused: {reason}")))
    else:
        failed = not reason.startswith(RUN_OVER)
        core.actions.append(Exit(f"{by} refused: {reason}", failed))


def take_welcome(core: Core, welcome: Welcome) -> None:
    """Follow a syncer unless it is an older one; ask the donor that it may name for moments."""
    epoch, seen = welcome.epoch, core.epoch_seen
    followed = core.membership.on_welcome(welcome)
    if followed is EpochOrder.OLDER:
        core.actions.append(DropSyncerLink(f"epoch {epoch} is older than {seen}"))
        return
    if not core.positioned:  # later, the process holds its place by itself
        core.positioned = True
        if welcome.position:
            core.actions.append(TellPosition(welcome.position))
    take_donor(core, welcome.donor)
    if followed is EpochOrder.NEWER:
        core.pulls.link_changed()
        for account, version in zip(core.accounts, welcome.versions, strict=False):
            account.welcomed(epoch, version)
        core.report_due = True
        if core.closing or core.quarantined:  # a new syncer announces by itself that the run is
            core.closing = core.quarantined = False  # still closing, and knows of no quarantine
            allow(core)


def take_eviction(core: Core, evicted: Evicted) -> None:
    """Begin anew if the incarnation that was evicted is this learner's."""
    if core.membership.on_evicted(evicted):
        _begin_anew(core)


def start_over(core: Core) -> None:
    """End the incarnation after a loss that is not finite; its moments and values are worthless.

    Supervisor and syncer are told why it ends: it was not evicted, and a run in which every learner
    diverges must end. A step that was still running reports such a loss once more; it belongs to no
    new incarnation, whose totals begin after it. The moments are reset after the last step.
    """
    if core.incarnation is not None and core.allowed:
        _rest(core)
        say_goodbye(core, NOT_FINITE, diverged=True)
        core.membership.end()
        _begin_anew(core, sound=False)
        core.actions.append(ResetMoments())


def _rest(core: Core) -> None:
    membership, timing = core.membership, core.settings.timing
    well = core.steps - core.origin_steps > core.settings.well_steps
    rest_s = membership.rest(timing.scaled(timing.heartbeat_s), core.now_s, well=well)
    if rest_s:
        times = f"{membership.relapses} times in a row"
        again = f"{NOT_FINITE}, {times}: it tries again in {rest_s:g} s"
        core.actions.append(Record(Waits(again)))


def _begin_anew(core: Core, *, sound: bool = True) -> None:
    """Keep the moments, drop everything else of the ended incarnation, ask for a new one.

    A learner that gossips keeps its values too, as long as they are `sound`.
    """
    gossiping.begin_anew(core, kept=sound and core.allowed)
    core.leases, core.quota_tokens, core.allowed, core.quarantined = (), 0, False, False
    if core.synchrony is not None:
        core.synchrony.end()
    if core.turns is not None:
        core.turns.end()
    core.allow_steps(0, ())
    core.kept = [
        one if account.version is None else Kept(account.version, account.digest)
        for one, account in zip(core.kept, core.accounts, strict=True)
    ]
    core.accounts = [Account() for _ in core.accounts]
    core.adopting.clear()
    core.decided.clear()
    core.pulls.forget()
    if core.settings.keeps_residuals:
        core.actions.append(ResetFeedback())
    start_anew(core)
    show_life(core)
