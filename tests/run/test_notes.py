"""Which notes of its members a run's folder keeps."""

from islands.protocol.identities import Role
from islands.protocol.messages.control import Note
from islands.protocol.tape.kinds import NOTABLE
from islands.run.records.notes import CHARACTERS_MAX, NOTED, is_kept


def test_a_learners_long_note_is_dropped() -> None:
    for characters in (CHARACTERS_MAX, CHARACTERS_MAX + 1):
        note = Note("moments_fresh", "x" * characters)
        assert is_kept(Role.LEARNER, note) == (characters == CHARACTERS_MAX)


def test_each_kind_that_is_kept_is_somebodys() -> None:
    """The run's folder would else show a run as paused that goes on."""
    assert set().union(*NOTED.values()) <= NOTABLE
    assert not NOTED[Role.LEARNER] & {"merged", "admitted", "status", "finished", "diverged"}
    assert {"merged", "paused", "resumed"} <= NOTED[Role.SYNCER]
    assert "admitted" not in NOTED[Role.SYNCER]
