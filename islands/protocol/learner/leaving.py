"""Graceful shutdown (drain) of a learner, on a signal of the host or at an operator's command.

    asked to ─▶ no step after this one ─▶ what was asked for is answered ─▶ its fate is known
                                                                                    │
                                    end ◀── goodbye to both ◀── last report ◀───────┘

Contributions of an incarnation that has ended are not merged. So the learner stays until those that
it has sent are decided, and declines every new pull from now on; deadlines bound the wait.
It returns its leases with the last positions, and the unused quota is granted to others.
"""

from islands.protocol.learner.account import Sent
from islands.protocol.learner.core import FROM_SUPERVISOR, FROM_SYNCER, Core, Leaving
from islands.protocol.messages.control import Drain
from islands.protocol.messages.membership import Stop
from islands.protocol.sessions import Exit, ToSupervisor, ToSyncer


def begin_leaving(core: Core, reason: str) -> None:
    """Begin the shutdown and stop at the next boundary; further requests change nothing."""
    if core.leaving is None:
        patience_s = core.settings.timing.scaled(core.settings.timing.evict_s)
        core.leaving = Leaving(reason, core.now_s + patience_s, core.now_s + 2 * patience_s)
        core.allow_steps(0, core.compute.leases)


@FROM_SUPERVISOR.handles(Drain)
def on_drain(core: Core, drain: Drain) -> None:
    """Begin the shutdown that an operator commands."""
    begin_leaving(core, drain.reason)


def go_on_leaving(core: Core) -> None:
    """End the process as soon as nothing is worth waiting for, or a deadline has passed."""
    leaving = core.leaving
    if leaving is None or leaving.left:
        return
    cut_off = core.incarnation is None or not core.membership.syncer_up
    decided = not core.pulls.wanted and not _undecided(core)
    done = core.compute.idle and (decided or core.now_s >= leaving.deadline_s)
    if cut_off or done or core.now_s >= leaving.latest_s:
        leaving.left = True
        say_goodbye(core, leaving.reason)
        core.actions.append(Exit(leaving.reason, failed=False))


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
