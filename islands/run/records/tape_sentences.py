"""Tape entries as sentences for people; only entries that a person may act on have one.

None is made of what every process does once, of what another entry says as well, or of warnings,
which are shown as long as they are true.
"""

from collections.abc import Mapping

from islands.protocol.identities import OPERATOR, Role, Status
from islands.protocol.running_statistics import UNSTEADY
from islands.protocol.tape import learner_entries as learners
from islands.protocol.tape import member_entries as members
from islands.protocol.tape import process_entries as processes
from islands.protocol.tape import round_entries as rounds
from islands.protocol.tape.entry import Entry
from messaging.plain_text import plain

ENDS = {"tokens": "its budget of tokens is spent", "time": "its time is over"}
"""The sentences for the reasons for which a run ends."""

USUAL = frozenset({learners.NO_DONOR, learners.KEEPS_NONE, learners.STEPS_NO_MORE})
"""Reasons for fresh moments that people are not shown."""

STATUS = {
    Status.LIVE: "is heard again",
    Status.SUSPECT: "is not heard",
    Status.STALLED: "takes no step",
}


WORDS: Mapping[type[Entry], str] = {
    members.Evicted: "{0.name} was evicted: {0.reason}",
    members.Left: "{0.name} left: {0.reason}",
    members.WrongReport: "what {0.name} says is wrong: {0.reason}",
    members.LinkUnsteady: f"the link of {{0.name}} to the syncer {UNSTEADY.format('{0.times}')}",
    members.Diverged: "{0.name} begins again with a fresh optimizer: its loss was no finite number",
    members.StoodStill: "{actor} stood still for {0.gap_s:.1f} s",
    members.Paused: "the run is paused",
    members.Resumed: "the run goes on",
    members.Killed: "{0.name} was killed: {0.reason}",
    members.Promoted: "the standby {0.name} goes on as the syncer in the place of {0.takes_over}",
    members.GaveUp: "{0.name} is not started again: {0.reason}",
    learners.MomentsTaken: "{actor} took its optimizer's moments from {0.donor}",
    rounds.Seeded: "{0.name} gave the initial parameters",
    rounds.TakenBack: (
        "the journal is lost: the run goes on from the newest values that {0.name} has, of "
        "{0.members} with such values; the ledger, outer momentum, data positions and the clock of "
        "the learning rate begin anew"
    ),
    rounds.SeedLate: "{0.name} did not send the initial parameters in time",
    rounds.LeftOut: "{0.name} was not asked in {0.rounds} rounds: {0.reason}",
    rounds.AskedAgain: "{0.name} is asked again, after {0.rounds} rounds",
    rounds.Extended: "the run goes on with a larger budget",
    rounds.Abandoned: "a round on fragment {0.fragment} was given up: {0.reason}",
    processes.Refused: "{0.name} was refused: {0.reason}",
    processes.Failed: "{actor} failed: {0.error}",
    processes.EvaluationFailed: "an evaluation failed: {0.error}",
    processes.Checkpointed: "checkpoint {0.merges} is stored: {0.path}",
    processes.CopyFailed: "the {0.what} fails: {0.error}",
    processes.RunDiverged: "the run has diverged: {0.why}; {0.then}",
    processes.Mirrored: "the second copy of the run is written: {0.path}",
    processes.Disk: "{actor} waits for its disk: {0.error}",
}
"""The sentence of each kind of entry whose sentence has only one form."""


def sentence(actor: str, entry: Entry, *, known: bool = False) -> str:
    """Return the sentence of a tape entry, or "" if people are shown none.

    The learner that an admission names is back if it is `known`: it was a member before.
    """
    match entry:
        case members.Admitted(name, Role.LEARNER):
            text = f"{name} is back" if known else f"{name} joined"
            if entry.invited is not None:
                text += f" by the invitation of {entry.invited}"
        case members.StatusChanged(name, status):
            text = f"{name} {STATUS[status]}" if status in STATUS else ""
        case members.Commanded(_, answer, verb, target, by=by):
            who = by if by == OPERATOR else f"{OPERATOR} {by}"
            text = f"{who}: {verb} {target}".rstrip() + f": {answer}"
        case members.ProcessEnded(name, str(reason)) if reason:
            text = f"the process of {name} ended: {reason}"
        case members.Adapted(name, precision, reason):
            text = f"{name} sends {precision}: {reason}"
        case learners.MomentsFresh(reason) if reason not in USUAL:
            text = f"{actor} begins with fresh moments of its optimizer: {reason}"
        case rounds.WaitsFor(count, because):
            named = "; ".join(f"{name} {why}" for name, why in because.items())
            more = count - len(because)
            text = f"the run waits for {named}" + (f"; and for {more} more" if more > 0 else "")
        case rounds.NothingMerged(for_s=for_s, because=because):
            named = "; ".join(f"{name}: {why}" for name, why in because.items())
            text = f"nothing was merged for {for_s:.0f} s: {named}"
        case rounds.Closing(reason):
            text = f"the run is ending: {why_ended(reason)}"
        case _:
            text = WORDS.get(type(entry), "").format(entry, actor=actor)
    return plain(text.rstrip(": "))


def why_ended(reason: str) -> str:
    """Return the reason for which a run has ended, in words for people."""
    return ENDS.get(reason, reason)
