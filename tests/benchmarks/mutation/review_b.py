"""Donors that nobody named, orders for a name, and a damaged slot's tokens."""

from tests.benchmarks.mutation.kind import Mutation

SUPERVISOR_COMMANDS = "tests/supervisor/test_commands.py"
SYNCER_DONORS = "tests/syncer/test_state_donors.py"

REVIEW_B = (
    Mutation(
        "whoever is told of no donor any more chooses one",
        "islands/syncer/state_donors.py",
        "if unnamed and _may_have_donor(core, source.name, now_s):",
        "if unnamed:",
        (SYNCER_DONORS,),
    ),
    Mutation(
        "a new process has the time to leave of the drained one before it",
        "islands/supervisor/membership.py",
        "if order is not None and join.previous is None:",
        "if False:",
        (SUPERVISOR_COMMANDS,),
    ),
)
