"""What `mutations` breaks, and the tests that are to notice."""

from dataclasses import dataclass

VALUES = "tests/oracle/test_values.py"
CONTRIBUTIONS = "tests/oracle/test_contributions.py"
SYNCER = "tests/syncer"
LEARNER = "tests/learner"
SUPERVISOR = "tests/supervisor"
LEDGER = "tests/test_ledger.py"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One thing broken on purpose: `old` stands once in `file` and becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


VAULT = "islands/syncer/vault.py"
SCHEDULING = "islands/syncer/scheduling.py"

FAULT_18 = (
    Mutation(
        "momentum not carried to the next merge",
        VAULT,
        "self._shelve(shelf, action.target, step.value, step.state)",
        "self._shelve(shelf, action.target, step.value, shelf.state)",
        (VALUES,),
    ),
    Mutation(
        "momentum zero after a restart",
        VAULT,
        "self._shelves[fragment] = _Shelf({version: value}, state)",
        "self._shelves[fragment] = _Shelf({version: value}, self._optimizer.init(value))",
        (VALUES,),
    ),
    Mutation(
        "weights paired with the wrong contributions",
        VAULT,
        "for p in action.parts]",
        "for p in reversed(action.parts)]",
        (VALUES,),
    ),
    Mutation(
        "anchor current ignored for an older base",
        VAULT,
        "if self._settings.anchor is Anchor.CURRENT and",
        "if False and",
        (VALUES,),
    ),
    Mutation(
        "rebasing from another kept value than the named base",
        VAULT,
        "base = shelf.values[part.base]",
        "base = shelf.values[min(shelf.values)]",
        (VALUES,),
    ),
    Mutation(
        "merge: average ignored",
        VAULT,
        "if self._averaged:",
        "if False:",
        (VALUES,),
    ),
    Mutation(
        "the clip factor ignored",
        VAULT,
        "if part.scale < 1:",
        "if False:",
        (VALUES,),
    ),
    Mutation(
        "digests of contributions not verified",
        VAULT,
        "if digest(payload[0]) != contribution.digest:",
        "if False:",
        ("tests/syncer/test_vault.py", "tests/syncer/test_late_answers.py"),
    ),
    Mutation(
        "digests of updates not verified",
        "islands/learner/actor.py",
        "intact=computed == update.digest",
        "intact=True",
        (LEARNER,),
    ),
    Mutation(
        "a contribution counts tokens up to now instead of up to its snapshot",
        "islands/learner/answering.py",
        "processed = snapshot.tokens - core.origin_tokens",
        "processed = core.tokens - core.origin_tokens",
        (LEARNER, CONTRIBUTIONS),
    ),
    Mutation(
        "an older incarnation's ticket admitted",
        SCHEDULING,
        "if learner is None or not known or learner.incarnation != ticket.incarnation:",
        "if learner is None or not known:",
        ("tests/syncer/test_vault.py", "tests/syncer/test_late_answers.py"),
    ),
    Mutation(
        "a grant to an older incarnation taken",
        "islands/learner/training.py",
        "if grant.epoch < core.epoch_seen or grant.incarnation != core.incarnation:",
        "if grant.epoch < core.epoch_seen:",
        (LEARNER,),
    ),
    Mutation(
        "a claim not cleared when applied",
        "islands/ledger.py",
        "        account.merged_version = version\n        account.claim = None\n",
        "        account.merged_version = version\n",
        (LEDGER,),
    ),
    Mutation(
        "discarded tokens claimed again",
        SCHEDULING,
        "if not _discarded(core, contribution):",
        "if True:",
        ("tests/syncer/test_vault.py", "tests/syncer/test_late_answers.py"),
    ),
    Mutation(
        "the evicted left out of the supervisor's view",
        "islands/supervisor/core.py",
        "            if member.role is Role.LEARNER\n",
        "            if member.role is Role.LEARNER and member.status not in ENDED\n",
        (SUPERVISOR,),
    ),
    Mutation(
        "grace and xi_quorum counted from the first arrival",
        SCHEDULING,
        "if round_.quorum_s is None and round_.quorum_complete:",
        "if round_.quorum_s is None:",
        ("tests/syncer/test_vault.py", "tests/syncer/test_late_answers.py"),
    ),
    Mutation(
        "the clock replaced instead of its maximum",
        "islands/learner/engine.py",
        "self._clock = max(self._clock, clock)",
        "self._clock = clock",
        (LEARNER,),
    ),
    Mutation(
        "bytes without payload",
        "islands/learner/actor.py",
        "self.bytes_up += NOMINAL_HEADER_BYTES + sum(buffer.nbytes for buffer in payload)",
        "self.bytes_up += NOMINAL_HEADER_BYTES",
        (CONTRIBUTIONS,),
    ),
)

MUTATIONS: tuple[Mutation, ...] = FAULT_18
