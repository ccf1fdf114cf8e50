"""Who admits it, and whom it follows: links, incarnations, epochs, signs of life.

The supervisor admits a process under an incarnation. When that one ends, the process asks for a new
one, and adopts every fragment again; only the moments of its inner optimizer are kept, unless it
ended because the loss was not finite. Of several supervisors, or syncers, it follows the one with
the highest epoch.
"""

from islands.identities import Phase, Role
from islands.learner.account import Account
from islands.learner.actions import (
    DialSyncer,
    DropSyncerLink,
    Exit,
    Record,
    ResetMoments,
    ToSupervisor,
    ToSyncer,
)
from islands.learner.asking import start_anew, take_donor
from islands.learner.core import Core
from islands.learner.training import allow
from islands.messages.membership import (
    NOT_FINITE,
    RUN_OVER,
    Evicted,
    Heartbeat,
    HeartbeatAck,
    Join,
    Joined,
    Leave,
)
from islands.messages.protocol import PROTOCOL
from islands.messages.training import Hello, Welcome

RESTS_DOUBLED = 8
"""A learner whose loss is never finite is back after 256 heartbeats in the end."""


def take_supervisor_link(core: Core, *, up: bool) -> None:
    """Ask to be admitted, or show that we are still here."""
    core.supervisor_up = up
    if core.incarnation is None:
        _join(core)
    else:
        beat(core)


def take_syncer_link(core: Core, *, up: bool) -> None:
    """Say hello; what was asked over the old link is asked again."""
    core.syncer_up = up
    core.pulls.link_changed()
    core.offered.clear()
    _hello(core)


def show_life(core: Core, now_s: float, *, compiling: bool) -> None:
    """A heartbeat is due: tell the supervisor, and the syncer if it has heard nothing lately."""
    if core.incarnation is None:
        _join(core)
        return
    beat(core, compiling=compiling)
    timing = core.settings.timing
    if now_s - core.reported_s >= timing.scaled(timing.heartbeat_s):
        core.report_due = True


def _join(core: Core) -> None:
    if core.supervisor_up and core.now_s >= core.rests_until_s:
        join = Join(
            protocol=PROTOCOL,
            run=core.settings.run,
            role=Role.LEARNER,
            name=core.name,
            fingerprint=core.fingerprint,
            previous=core.previous,
            credential="" if core.previous is None else core.credential,
        )
        core.actions.append(ToSupervisor(join))


def beat(core: Core, *, compiling: bool = False) -> None:
    """Show the supervisor that we live, and what we do; a step may compile first."""
    within = compiling and core.phase is Phase.STEPPING
    if core.supervisor_up and core.incarnation is not None:
        beat = Heartbeat(
            role=Role.LEARNER,
            name=core.name,
            incarnation=core.incarnation,
            phase=Phase.COMPILING if within else core.phase,
            step=core.steps - core.origin_steps,
            credential=core.credential,
        )
        core.actions.append(ToSupervisor(beat))


def _hello(core: Core) -> None:
    if core.syncer_up and core.incarnation is not None:
        hello = Hello(
            protocol=PROTOCOL,
            run=core.settings.run,
            role=Role.LEARNER,
            name=core.name,
            incarnation=core.incarnation,
            credential=core.credential,
            fingerprint=core.fingerprint,
            progress=core.progress(core.incarnation),
            digests=tuple(account.digest for account in core.accounts),
            epoch_seen=core.epoch_seen,
            epoch_proof=core.epoch_proof,
        )
        core.actions.append(ToSyncer(hello))


def take_joined(core: Core, joined: Joined) -> None:
    """The supervisor admitted us; one older than the last, or an ended incarnation, does not."""
    if joined.supervisor_epoch < core.supervisor_epoch or core.incarnation is not None:
        return
    if core.previous is not None and joined.incarnation <= core.previous:
        return
    core.supervisor_epoch = joined.supervisor_epoch
    core.incarnation = joined.incarnation
    core.credential = joined.credential
    core.reported_steps = core.steps
    core.quota_tokens = 0
    core.actions.extend(DialSyncer(syncer.address) for syncer in joined.syncers)
    _hello(core)


def take_ack(core: Core, ack: HeartbeatAck) -> None:
    """The supervisor heard us; it says where the syncer is now."""
    if ack.supervisor_epoch >= core.supervisor_epoch:
        core.supervisor_epoch = ack.supervisor_epoch
        core.actions.extend(DialSyncer(syncer.address) for syncer in ack.syncers)


def take_refusal(core: Core, by: str, reason: str, *, retry: bool) -> None:
    """One that cannot be mended by trying again ends the process; another one may pass.

    That the run is over is no failure: there is nothing to mend, and nothing left to do.
    """
    if retry:
        core.actions.append(Record("waits", {"reason": f"{by} refused: {reason}"}))
    else:
        failed = not reason.startswith(RUN_OVER)
        core.actions.append(Exit(f"{by} refused: {reason}", failed))


def take_welcome(core: Core, welcome: Welcome) -> None:
    """Follow a newer syncer, drop an older one; it may name who has moments to give."""
    epoch = welcome.epoch
    if epoch < core.epoch_seen:
        core.actions.append(DropSyncerLink(f"epoch {epoch} is older than {core.epoch_seen}"))
        return
    take_donor(core, welcome.donor)
    if epoch > core.epoch_seen:
        core.epoch_seen, core.epoch_proof = epoch, welcome.proof
        core.pulls.link_changed()
        for account, version in zip(core.accounts, welcome.versions, strict=False):
            account.welcomed(epoch, version)
        core.report_due = True
        if core.closing:  # a new syncer says itself whether the run is still closing
            core.closing = False
            allow(core)


def take_eviction(core: Core, evicted: Evicted) -> None:
    """An incarnation has ended; if it is ours, begin the next."""
    if evicted.incarnation == core.incarnation:
        _rejoin(core)


def start_over(core: Core) -> None:
    """The loss was not a finite number: neither the moments nor the values are worth keeping.

    Both are told why this incarnation ends: it was not evicted, and a run in which that happens to
    everybody is to end. Steps that were under way report the same once more; they belong to no new
    incarnation, whose totals begin after them. Moments are reset after the last step.

    Where that does not help, a device may be broken: the longer it goes on, the longer this learner
    rests between two attempts.
    """
    if core.incarnation is not None and core.allowed:
        _rest(core)
        farewell = Leave(core.name, core.incarnation, NOT_FINITE, diverged=True)
        if core.syncer_up:
            core.actions.append(ToSyncer(core.progress(core.incarnation)))
            core.actions.append(ToSyncer(farewell))
        if core.supervisor_up:
            core.actions.append(ToSupervisor(farewell))
        _rejoin(core)
        core.actions.append(ResetMoments())


def _rest(core: Core) -> None:
    well = core.steps - core.origin_steps > core.settings.well_steps
    core.relapses = 1 if well else core.relapses + 1
    if core.relapses > 1:
        doubled = 2.0 ** min(core.relapses - 2, RESTS_DOUBLED)
        rest_s = core.settings.timing.scaled(core.settings.timing.heartbeat_s) * doubled
        core.rests_until_s = core.now_s + rest_s
        again = f"{NOT_FINITE}, {core.relapses} times in a row: it tries again in {rest_s:g} s"
        core.actions.append(Record("waits", {"reason": again}))


def _rejoin(core: Core) -> None:
    """This incarnation is over: keep the moments, drop the rest, ask for a new one."""
    core.previous, core.incarnation = core.incarnation, None
    core.leases, core.quota_tokens, core.allowed = (), 0, False
    core.allow_steps(0, ())
    core.accounts = [Account() for _ in core.accounts]
    core.adopting.clear()
    core.pulls.forget()
    start_anew(core)
    _join(core)
