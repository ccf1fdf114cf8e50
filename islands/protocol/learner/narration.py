"""Progress messages on a learner's own terminal, in sentences, since its hub may be far away.

They report admissions and evictions, links that stay down or come back, the first step, pauses, a
loss that is not finite, and once a minute the progress. A link that comes back at once is not
reported.
"""

from dataclasses import dataclass, field

from islands.protocol.identities import Incarnation, Phase
from islands.protocol.learner.core import Core
from islands.protocol.learner.events import Event, FromSupervisor, FromSyncer, StepFinished
from islands.protocol.messages.membership import NOT_FINITE, Evicted
from islands.protocol.messages.training import Quarantined
from islands.protocol.settings.run import Timing
from messaging.plain_text import plain

PROGRESS_S = 60.0


@dataclass(frozen=True, slots=True)
class LearnerView:
    """A learner's state at one moment. `loss` is the mean of its last steps, if known."""

    incarnation: Incarnation | None
    phase: Phase
    supervisor_up: bool
    syncer_up: bool
    steps: int
    tokens: int
    loss: float | None


def seen_of(core: Core, loss: float | None) -> LearnerView:
    """Extract from the learner's memory what its messages depend on."""
    return LearnerView(
        core.incarnation,
        core.phase,
        core.membership.supervisor_up,
        core.membership.syncer_up,
        core.steps,
        core.tokens,
        loss,
    )


@dataclass(slots=True)
class _Link:
    """One link: since when it has been down, and whether that was reported."""

    what: str
    meanwhile: str
    was_up: bool = False
    down_s: float | None = None
    told: bool = False

    def follow(self, now_s: float, patience_s: float, *, up: bool) -> str | None:
        self.was_up |= up
        if up:
            told, since_s, self.told, self.down_s = self.told, self.down_s, False, None
            return f"{self.what} is back after {now_s - (since_s or now_s):.0f} s" if told else None
        if self.down_s is None:
            self.down_s = now_s
        if self.told or not self.was_up or now_s - self.down_s < patience_s:
            return None
        self.told = True
        return f"{self.what} cannot be reached; {self.meanwhile}"


@dataclass(slots=True)
class Narrator:
    """Turns changes of a learner's state into sentences.

    Args:
        timing: timing settings of the run; a link is reported after `suspect_s` without it.
    """

    timing: Timing
    before: LearnerView | None = None
    admissions: int = 0
    stepped: bool = False
    progress_s: float | None = None
    links: tuple[_Link, _Link] = field(
        default_factory=lambda: (
            _Link("the supervisor", "it is dialled until it is back"),
            _Link("the syncer", "steps go on, as far as tokens were granted"),
        )
    )

    def follow(self, event: Event, seen: LearnerView, now_s: float) -> list[str]:
        """The sentences to print after an event that led to this state."""
        before, self.before = self.before, seen
        told = [*self._ended(event, before, seen), *self._links(seen, now_s)]
        if seen.incarnation is not None and (
            before is None or before.incarnation != seen.incarnation
        ):
            self.admissions += 1
            again = " again" if self.admissions > 1 else ""
            told.append(f"admitted{again}, as incarnation {seen.incarnation}")
        if before is not None and before.phase is not seen.phase:
            told += self._phase(before.phase, seen.phase)
        return [*told, *self._progress(seen, now_s)]

    @staticmethod
    def _ended(event: Event, before: LearnerView | None, seen: LearnerView) -> list[str]:
        """A sentence that says why the incarnation ended, if this event ended it."""
        match event:
            case FromSupervisor(Evicted(_, incarnation, reason)):
                ended = incarnation
            case FromSyncer(Evicted(_, incarnation, reason)):
                ended = incarnation
            case FromSyncer(Quarantined(_, incarnation, reason)):
                ours = before is not None and before.incarnation == incarnation
                why = plain(reason)
                return ours * [f"it is quarantined ({why}) and stands still: start it again"]
            case StepFinished(finite=False):
                over = before is not None and before.incarnation != seen.incarnation
                return over * [f"{NOT_FINITE}: it begins again from the published values"]
            case _:
                return []
        if before is None or before.incarnation != ended:
            return []
        why = plain(reason)
        return [f"its incarnation has ended ({why}): it keeps its moments, and joins again"]

    def _links(self, seen: LearnerView, now_s: float) -> list[str]:
        patience_s = self.timing.scaled(self.timing.suspect_s)
        ups = (seen.supervisor_up, seen.syncer_up)
        found = [
            link.follow(now_s, patience_s, up=up) for link, up in zip(self.links, ups, strict=True)
        ]
        return [told for told in found if told is not None]

    def _phase(self, before: Phase, phase: Phase) -> list[str]:
        if phase is Phase.PAUSED:
            return ["the run is paused"]
        if before is Phase.PAUSED and phase is Phase.STEPPING:
            return ["the run goes on"]
        if phase is Phase.COMPILING:
            return ["it reads its data, and compiles its step"]
        return []

    def _progress(self, seen: LearnerView, now_s: float) -> list[str]:
        if seen.steps and not self.stepped:
            self.stepped, self.progress_s = True, now_s
            return ["its first step is done"]
        if self.progress_s is None or now_s - self.progress_s < PROGRESS_S:
            return []
        self.progress_s = now_s
        if seen.phase is not Phase.STEPPING:
            return []
        loss = "" if seen.loss is None else f", loss {seen.loss:.4g}"
        return [f"{seen.steps:,} steps, {seen.tokens:,} tokens{loss}"]
