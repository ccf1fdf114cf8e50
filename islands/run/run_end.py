"""The rules by which a run ends: which processes are restarted, and when the run has failed.

The syncer decides the run's last rounds and what they merge (`protocol/syncer/closing.py`).

=====================================  =========================================================
a process                              what follows
=====================================  =========================================================
ended as it should, was killed, or     the supervisor is told, and restarts it after a backoff,
failed in a way that may pass          or gives it up because it ended too often
ended with an error that its user      it is lost: a restart would fail in the same way
must correct
was replaced by a newer one            it steps aside while the newer one lives; then the
                                       supervisor is told
was given up by the supervisor         it is lost
=====================================  =========================================================

A run fails when its syncer is lost, or when no learner runs, will be started, or may return from
another host; its error is that of the process that was lost last. The end of any other part that
it cannot do without (`on_failed`) fails it at once. The first conclusion stands.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto

from islands.actors.ports import ProcessEnd
from islands.protocol.errors import OF_NO_USE, REPLACED, IslandsError, UserError, exit_code_of
from islands.protocol.identities import OBSERVER, SUPERVISOR, SYNCER, Phase, Role, Status
from islands.protocol.supervisor.memory import SupervisorMemory
from islands.protocol.syncer.timeouts import DIVERGED
from islands.run.records.tape_sentences import why_ended

GOODBYE_S = 10.0
"""Once the run has ended, processes have this long to end by themselves."""


class ExitResponse(Enum):
    """What the cluster does about the end of a process."""

    RESTART = auto()
    STEP_ASIDE = auto()
    NOTHING = auto()


@dataclass(slots=True)
class RunEnd:
    """Whether and how a run has ended.

    `reason` is why its syncer ended it, `failure` why it cannot go on. No process is restarted
    while whoever started them is `leaving`, nor those that are `lost`.
    """

    reason: str | None = None
    failure: IslandsError | None = None
    leaving: bool = False
    lost: dict[str, None] = field(default_factory=dict)
    _errors: dict[str, BaseException] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        return self.reason is not None or self.failure is not None

    @property
    def sentence(self) -> str:
        """The conclusion as a sentence for people; empty while the run is in progress."""
        if self.failure is not None:
            return str(self.failure)
        return "" if self.reason is None else why_ended(self.reason)

    @property
    def exit_code(self) -> int:
        diverged = self.reason is not None and self.reason.startswith(DIVERGED)
        return OF_NO_USE if diverged else exit_code_of(self.failure)

    def on_finished(self, reason: str) -> None:
        """Record that the run has ended as it should: all that was published is durable."""
        if not self.over:
            self.reason = reason

    def on_failed(self, part: str, error: BaseException) -> None:
        """Fail the run, because a part that it cannot do without has ended."""
        failure = error if isinstance(error, IslandsError) else IslandsError(f"{part}: {error}")
        self._fail(failure, error)

    def on_process_ended(
        self, name: str, end: ProcessEnd, core: SupervisorMemory | None, awaited: Collection[str]
    ) -> ExitResponse:
        """Record the end of a process, and decide what the cluster does about it."""
        if end.code == REPLACED and name == SYNCER:
            return ExitResponse.STEP_ASIDE
        if end.code == OF_NO_USE:
            failure = end.error  # of this process, or reported by another
            if not isinstance(failure, IslandsError):
                failure = UserError(f"{name}: {end.sentence or end.told}")
            self._lose(name, failure, end.error, core, awaited)
            return ExitResponse.NOTHING
        if end.error is not None:
            self._errors[name] = end.error
        return ExitResponse.NOTHING if self.leaving else ExitResponse.RESTART

    def on_gave_up(
        self, name: str, reason: str, core: SupervisorMemory | None, awaited: Collection[str]
    ) -> None:
        """Record that the supervisor no longer restarts a process, because it ended too often."""
        error = self._errors.get(name)
        self._lose(name, IslandsError(f"{name} {reason}"), error, core, awaited)

    def _lose(
        self,
        name: str,
        failure: IslandsError,
        cause: BaseException | None,
        core: SupervisorMemory | None,
        awaited: Collection[str],
    ) -> None:
        self.lost[name] = None
        if name == SYNCER or not can_still_train(core, awaited, self.lost):
            self._fail(failure, cause)

    def _fail(self, failure: IslandsError, cause: BaseException | None = None) -> None:
        if self.over:
            return
        self.failure = failure
        if cause is not None and cause is not failure:
            failure.__cause__ = cause


def has_live_syncer(core: SupervisorMemory) -> bool:
    """Return whether the supervisor sees a live syncer, on whatever host it runs."""
    return any(member.status is Status.LIVE for member in core.here[Role.SYNCER].values())


def still_compiles(core: SupervisorMemory | None, learners: Collection[str]) -> bool:
    """Return whether one of these learners, which run, still imports or compiles."""
    known = {} if core is None else core.members
    members = [known.get(name) for name in learners]
    return any(one is None or one.phase in (Phase.JOINING, Phase.COMPILING) for one in members)


def can_still_train(
    core: SupervisorMemory | None, awaited: Collection[str], lost: Collection[str]
) -> bool:
    """Return whether a learner runs or may yet be started, here or on another host.

    Those that are `awaited` run here, or are about to be started.
    """
    may_train = set(awaited) | (set() if core is None else _expected(core))
    return bool(may_train - set(lost) - {SUPERVISOR, SYNCER, OBSERVER})


def _expected(core: SupervisorMemory) -> set[str]:
    present = {member.name for member in core.present(Role.LEARNER)}
    left = {name for name, member in core.members.items() if member.status is Status.LEFT}
    returning = set(core.launched) - left - set(core.drained)
    elsewhere = present - set(core.launched) - set(core.drained)
    return returning | elsewhere
