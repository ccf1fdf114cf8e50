"""The notes that members send to the run's folder, and which of them are kept.

A note is an entry of a member's own tape, and whoever holds the token may send any note. Therefore
a member writes under its own name, and only the kinds that its role decides (`NOTED`), none of them
long: a learner admits and evicts nobody, and merges nothing.
"""

from collections.abc import Mapping

from islands.protocol.identities import Role
from islands.protocol.messages.control import Note
from islands.protocol.tape import learner_entries as learners
from islands.protocol.tape import member_entries as members
from islands.protocol.tape import process_entries as processes
from islands.protocol.tape.kinds import NOTABLE, kinds_of

CHARACTERS_MAX = 16_384

EVALUATIONS = (processes.Evaluation, processes.EvaluationFailed)

SUPERVISORS_OWN = kinds_of(
    *(members.Admitted, members.Recognised, members.Evicted, members.Left, members.Commanded),
    *(members.GaveUp, members.Killed, members.StoodStill, members.Promoted),
    *(members.ProcessStarted, members.ProcessEnded, processes.RunDiverged),
    *EVALUATIONS,
)
"""Kinds that only the process with the run's folder, or an observer, may decide."""

NOTED: Mapping[Role, frozenset[str]] = {
    Role.LEARNER: kinds_of(
        *(learners.MomentsKept, learners.MomentsReset),
        *(learners.MomentsTaken, learners.MomentsFresh, processes.Failed),
    ),
    Role.OBSERVER: kinds_of(*EVALUATIONS, processes.Failed),
    Role.SYNCER: NOTABLE - SUPERVISORS_OWN,
    Role.STANDBY: kinds_of(processes.Disk, processes.Failed),
    Role.SUPERVISOR: frozenset(),
}


def is_kept(role: Role, note: Note) -> bool:
    """Return whether a member of a role may have this note kept; a syncer holds the key."""
    short = role is Role.SYNCER or len(note.fields) <= CHARACTERS_MAX
    return note.kind in NOTED[role] and short
