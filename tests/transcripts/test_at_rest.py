"""Rules at rest: a second event at the same instant that says nothing new asks for nothing.

Each state is shown two more events after each one: a word that concerns nobody, and the same event
again, if a link or a clock may repeat it and it asks for no answer.
"""

from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from islands.protocol import sessions
from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName, Phase, Version
from islands.protocol.learner import events as learner_events
from islands.protocol.learner.state import LearnerState
from islands.protocol.messages import training
from islands.protocol.messages.membership import Leave, MembershipChanged, Refused, Stop
from islands.protocol.observer.state import ObserverState
from islands.protocol.sessions import Received, ToSyncer
from islands.protocol.settings.run import RunSettings
from islands.protocol.supervisor import events as supervisor_events
from islands.protocol.supervisor.state import SupervisorState
from islands.protocol.syncer import events as syncer_events
from islands.protocol.syncer.state import SyncerState
from tests.transcripts.company import BYTES, Company
from tests.transcripts.people import A, E_contra, Handle, Learner
from tests.transcripts.script import obey

NOBODY, NEVER = LearnerName("nobody"), Incarnation(0, 0)
REPORT_OF_NOBODY = training.Progress(NOBODY, NEVER, Phase.STEPPING, 0, 0, 0.0, 0, 0, (), ())
DAMAGED = training.FragmentUpdate(1, FragmentIndex(0), Version(9, 9), 9, "", 0.0, None)

CONCERNS_NOBODY: dict[type, object] = {
    SyncerState: Received(REPORT_OF_NOBODY, 0),
    SupervisorState: supervisor_events.LinkClosed(-1),
    LearnerState: learner_events.FromSyncer(training.LeaseGranted(0, NEVER, 0, ())),
    ObserverState: sessions.UpdateArrived(DAMAGED, intact=False, payload=BYTES),
}

REPEATED = (
    Received,
    syncer_events.LinkClosed,
    MembershipChanged,
    syncer_events.SeedArrived,
    syncer_events.JournalFinished,
    syncer_events.StopRequested,
    syncer_events.EndHeard,
    syncer_events.Ticked,
    supervisor_events.LinkClosed,
    supervisor_events.Ticked,
    learner_events.FromSyncer,
    sessions.UpdateArrived,
    learner_events.SnapshotTaken,
    learner_events.ValueAdopted,
)
"""What may come twice, and asks for no answer of its own."""

ANSWERED = (training.Welcome, Refused, Stop)
"""Words that are acted upon each time: what was asked before may be lost; an end is an end."""

LINES = (
    *(*["ana steps", "ben steps"] * 4, "ana diverges"),
    *("ana loses the syncer", "ana is back", "ben beats", "ana beats", "syncer beats"),
    *("ana dies", "ana starts", "ana has compiled", "eve watches", "eve beats"),
    *("syncer ends", "syncer starts", "ben sends not-finite", "ben sends good"),
    *("operator pause", "operator resume", "operator drain ben", "operator stop"),
    *("hold ben to syncer", "release ben to syncer", "hold disk of syncer"),
    *("release disk of syncer", "hold syncer to ana", "release syncer to ana"),
    *("wait 0.5", "wait 2", "the run is to stop"),
)
BEGINNING = (
    *("supervisor starts", "syncer starts", "ana starts", "ana has compiled"),
    *("ben starts", "ben has compiled", "eve watches"),
)


class Restful(Company):
    """A company in which every state is shown to be at rest."""

    def take(self, who: str, handle: Handle[E_contra, A], event: E_contra) -> list[A]:
        actions = super().take(who, handle, event)
        state: object = handle.__self__  # type: ignore[attr-defined]  # it is a bound method
        more = CONCERNS_NOBODY[type(state)]
        assert handle(more, now_s=self.now_s) == [], f"{who} was not at rest after {event}"  # type: ignore[arg-type]
        if self._is_repeated(event):
            again = [one for one in handle(event, now_s=self.now_s) if not declines(one)]
            assert again == [], f"{who} took a repetition of {event} for news: {again}"
        return actions

    def _is_repeated(self, event: object) -> bool:
        said = getattr(event, "message", None)
        if isinstance(said, Leave) and said.diverged:
            return False  # each is told on the tape, and counted once
        if isinstance(said, training.Progress) and self.settings.budget_tokens:
            return False  # what is left of a budget is granted in parts, at most one part ahead
        return isinstance(event, REPEATED) and not isinstance(said, ANSWERED)


def declines(action: object) -> bool:
    """Whether a learner says that it has nothing for a pull, as often as it is asked."""
    said = action.message if isinstance(action, ToSyncer) else None
    return isinstance(said, training.ContributionDeclined)


def possible(stage: Company, line: str) -> bool:
    name, *verb = line.split()
    peer = stage.peers.get(name)
    if name in ("hold", "release"):
        return (name == "release") is (" ".join(verb) in stage.held)
    if verb[0] in ("starts", "watches"):
        return peer is None and name not in stage.syncers
    if name == "syncer" or line == "the run is to stop":
        return "syncer" in stage.syncers
    if verb[0] in ("steps", "diverges"):
        return isinstance(peer, Learner) and peer.compute.running
    return name in ("operator", "wait") or peer is not None


LAST_TO_STOP = ["ben dies", *["ana steps"] * 4, "the run is to stop", "ana steps"]
"""Once ana has stopped nobody else will answer: K = 2 becomes what has arrived, and is merged."""


@settings(max_examples=60)
@example(lines=LAST_TO_STOP, quorum=2, fragments=1, budget_tokens=None)
@given(
    lines=st.lists(st.sampled_from(LINES), max_size=40),
    quorum=st.sampled_from([1, 2, None]),
    fragments=st.integers(1, 3),
    budget_tokens=st.sampled_from([None, 3000]),
)
def test_every_state_is_at_rest_after_every_event(
    lines: list[str], quorum: int | None, fragments: int, budget_tokens: int | None
) -> None:
    settings = RunSettings(
        interval_steps=4, fragments=fragments, quorum=quorum, budget_tokens=budget_tokens
    )
    play(Restful(settings, pieces=2), [*BEGINNING, *lines])


def play(stage: Company, lines: list[str]) -> None:
    """Everything that is possible happens; a failure shows what came before it."""
    for line in lines:
        if possible(stage, line):
            stage.lines.append(f"> {line}")
            try:
                obey(stage, line.split())
            except AssertionError:
                note("\n".join(stage.lines))
                raise
