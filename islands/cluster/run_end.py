"""How a run ends: who can still finish it, who failed it, and what is concluded.

Its last rounds, and what is merged in them, are the syncer's (`syncer/closing.py`).

One set of rules for every composition: all roles in this process, a hub with processes of its own,
a simulated world.

=====================================  =========================================================
a process                              what follows
=====================================  =========================================================
ended as it should, was killed, or     the supervisor hears of it, and starts it again after a
failed in a way that may pass          while, or gives it up because that was too often
ended since its user must mend         it is lost: starting it again is in vain
something
was replaced by a newer one            it steps aside while the newer one lives; then the
                                       supervisor hears of it
was given up by the supervisor         it is lost
=====================================  =========================================================

A run has failed when its syncer is lost, or when no learner runs, will be started, or may return
from elsewhere. Its failure is then the sentence of the one that was lost last. Whatever else a run
cannot do without fails it at once. The first conclusion stands: how processes end afterwards
changes nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto

from islands.actors.ports import ProcessEnd
from islands.cluster.tape_sentences import why_ended
from islands.errors import OF_NO_USE, REPLACED, IslandsError, UserError, exit_code_of
from islands.identities import OBSERVER, SUPERVISOR, SYNCER, Role, Status
from islands.supervisor.core import Core
from islands.syncer.divergence import DIVERGED

GOODBYE_S = 10.0
"""How long processes may take to end by themselves once the run has ended."""


class ExitResponse(Enum):
    """What follows from the end of a process."""

    RESTART = auto()
    STEP_ASIDE = auto()
    NOTHING = auto()


@dataclass(slots=True)
class RunEnd:
    """What is known of a run's end.

    Args:
        reason: why the run has ended, as its syncer told; None while it goes on.
        failure: why it cannot go on; None if it can, or has ended as it should.
        leaving: processes are asked to end by whoever started them: none is started again.
        lost: processes that are not started again.
    """

    reason: str | None = None
    failure: IslandsError | None = None
    leaving: bool = False
    lost: dict[str, None] = field(default_factory=dict)
    _errors: dict[str, BaseException] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether the run is concluded."""
        return self.reason is not None or self.failure is not None

    @property
    def sentence(self) -> str:
        """What is concluded, for a person; empty while the run goes on."""
        if self.failure is not None:
            return str(self.failure)
        return "" if self.reason is None else why_ended(self.reason)

    @property
    def exit_code(self) -> int:
        """With which whoever hosts the run ends."""
        diverged = self.reason is not None and self.reason.startswith(DIVERGED)
        return OF_NO_USE if diverged else exit_code_of(self.failure)

    def on_finished(self, reason: str) -> None:
        """The run has ended as it should: all that was published is safe."""
        if not self.over:
            self.reason = reason

    def on_failed(self, part: str, error: BaseException) -> None:
        """Something without which the run cannot go on has ended."""
        if isinstance(error, IslandsError):
            self._fail(error)
        else:
            self._fail(IslandsError(f"{part}: {error}"), error)

    def on_process_ended(
        self, name: str, end: ProcessEnd, core: Core | None, awaited: Collection[str]
    ) -> ExitResponse:
        """A process ended.

        Args:
            name: of the process.
            end: how it ended.
            core: the supervisor's memory; None if it has not begun.
            awaited: processes that run here, or are about to be started.
        """
        if end.code == REPLACED:
            return ExitResponse.STEP_ASIDE
        if end.code == OF_NO_USE:
            self._lose(name, _mendable(name, end), end.error, core, awaited)
            return ExitResponse.NOTHING
        if end.error is not None:
            self._errors[name] = end.error
        return ExitResponse.NOTHING if self.leaving else ExitResponse.RESTART

    def on_gave_up(
        self, name: str, reason: str, core: Core | None, awaited: Collection[str]
    ) -> None:
        """The supervisor starts a process no more, since it ended too often.

        Args:
            name: of the process.
            reason: how often, and how it ended last.
            core: the supervisor's memory; None if it has not begun.
            awaited: processes that run here, or are about to be started.
        """
        error = self._errors.get(name)
        self._lose(name, IslandsError(f"{name} {reason}"), error, core, awaited)

    def _lose(
        self,
        name: str,
        failure: IslandsError,
        cause: BaseException | None,
        core: Core | None,
        awaited: Collection[str],
    ) -> None:
        self.lost[name] = None
        if name == SYNCER or not someone_trains(core, awaited, self.lost):
            self._fail(failure, cause)

    def _fail(self, failure: IslandsError, cause: BaseException | None = None) -> None:
        if self.over:
            return
        self.failure = failure
        if cause is not None and cause is not failure:
            failure.__cause__ = cause


def _mendable(name: str, end: ProcessEnd) -> IslandsError:
    """What its user must mend; an error that was raised in this process says it itself."""
    if isinstance(end.error, IslandsError):
        return end.error
    return UserError(f"{name}: {end.sentence or end.told}")


def someone_merges(core: Core) -> bool:
    """Whether a syncer lives, wherever it runs."""
    return any(member.status is Status.LIVE for member in core.here[Role.SYNCER].values())


def someone_trains(core: Core | None, awaited: Collection[str], lost: Collection[str]) -> bool:
    """Whether a learner runs or may yet be started, here or on another host.

    Args:
        core: the supervisor's memory; None if it has not begun.
        awaited: processes that run here, or are about to be started.
        lost: processes that are not started again, since they ended too often or in vain.
    """
    may_train = set(awaited) | (set() if core is None else _expected(core))
    return bool(may_train - set(lost) - {SUPERVISOR, SYNCER, OBSERVER})


def _expected(core: Core) -> set[str]:
    """Learners that are here, and processes that may be started again."""
    present = {member.name for member in core.present(Role.LEARNER)}
    left = {name for name, member in core.members.items() if member.status is Status.LEFT}
    returning = set(core.launched) - left - set(core.drained)
    elsewhere = present - set(core.launched)
    return returning | elsewhere
