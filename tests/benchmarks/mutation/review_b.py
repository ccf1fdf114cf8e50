"""Donors that nobody named, orders for a name, and a damaged slot's tokens."""

from tests.benchmarks.mutation.kind import Mutation

JOURNAL = "tests/syncer/test_journal.py"
SUPERVISOR_COMMANDS = "tests/supervisor/test_commands.py"
SYNCER_STANDING = "tests/syncer/test_standing.py"
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
    Mutation(
        "the version before a damaged one accounts for no tokens",
        "islands/syncer/journal.py",
        "tokens = 0 if then is None else then.tokens",
        "tokens = 0",
        (JOURNAL,),
    ),
    Mutation(
        "whom the end waits for is looked up in each round for each learner",
        "islands/syncer/closing.py",
        "        learner = core.learners[name]\n"
        "        if closing.stage is ClosingStage.DRAINING and",
        "        learner = core.learners[name]\n"
        "        pulled = {one for held in core.rounds.values() for one in held.waiting}\n"
        "        if closing.stage is ClosingStage.DRAINING and",
        (SYNCER_STANDING,),
    ),
)
