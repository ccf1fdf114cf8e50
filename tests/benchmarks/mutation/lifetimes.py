"""Begin, repetition, pause and end of a run: pace, journal, observers, donors, credentials."""

from tests.benchmarks.mutation.kind import Mutation

SYNCER_JOURNAL = "tests/syncer/test_journal.py"
SYNCER_DURABLE = "tests/syncer/test_recovery.py"
SYNCER_ROUNDS = "tests/syncer/test_rounds.py"
SYNCER_RETRIES = "tests/syncer/test_retries.py"
SYNCER_TIMING = "tests/syncer/test_grace.py"
SYNCER_COMMITS = "tests/syncer/test_commits.py"
LEARNER_MOMENTS = "tests/learner/test_moments.py"
OBSERVER_STATE = "tests/observer/test_state.py"
SYNCER_CLOSING = "tests/syncer/test_closing.py"
SYNCER_DONORS = "tests/syncer/test_donors.py"
SYNCER_PAUSING = "tests/syncer/test_pausing.py"
CREDENTIALS = "tests/protocol/test_credentials.py"
RECOVERY = "tests/run/test_recovery.py"
ORACLE_INCREMENTS = "tests/oracle/test_increments.py"
SYNCER_VAULT = "tests/syncer/test_value_store.py"

LIFETIMES = (
    Mutation(
        "rounds that are open at the end keep their quorum",
        "islands/protocol/syncer/closing.py",
        "            _ask_no_more(core)\n",
        "",
        (SYNCER_CLOSING,),
    ),
    Mutation(
        "the end does not wait for who has yet to come back",
        "islands/protocol/syncer/closing.py",
        "    if len(core.durable.ledger.books) > core.learner_count:\n",
        "    if False:\n",
        (SYNCER_CLOSING,),
    ),
    Mutation(
        "the run is over before its end is durable",
        "islands/protocol/syncer/closing.py",
        "elif closing.stage is ClosingStage.CUTTING and core.journal.all_durable:",
        "elif closing.stage is ClosingStage.CUTTING:",
        (SYNCER_CLOSING,),
    ),
    Mutation(
        "what nobody settled stays open at the end",
        "islands/protocol/syncer/closing.py",
        "        end_unsettled(core, closing.reason)\n",
        "",
        (SYNCER_CLOSING,),
    ),
    Mutation(
        "that the end was heard is not journalled",
        "islands/protocol/syncer/closing.py",
        ("        core.durable.reported = True\n        core.journal.records.want()\n"),
        "        core.durable.reported = True\n",
        (SYNCER_CLOSING,),
    ),
    Mutation(
        "time does not end a run",
        "islands/protocol/syncer/closing.py",
        "if limit_s is not None and core.durable.elapsed_s >= limit_s:",
        "if False:",
        (SYNCER_CLOSING, SYNCER_PAUSING),
    ),
    Mutation(
        "a link that is gone leaves its pulls open",
        "islands/protocol/syncer/members.py",
        "        self.pulls.void()\n",
        "",
        (SYNCER_ROUNDS, "tests/syncer/test_sessions.py"),
    ),
    Mutation(
        "an update is repeated at every sweep",
        "islands/protocol/syncer/recipients.py",
        "if newer or (sent is not None and now_s >= sent.due_s(interval_s)):",
        "if True:",
        (SYNCER_RETRIES,),
    ),
    Mutation(
        "a grant is not repeated",
        "islands/protocol/syncer/retries.py",
        "        core.send(learner.connection, core.grant_of(name))\n",
        "        pass\n",
        (SYNCER_COMMITS,),
    ),
    Mutation(
        "a pull is not repeated",
        "islands/protocol/syncer/retries.py",
        "            send_pull(core, learner, number, pull.fragment, now_s)\n",
        "            pass\n",
        (SYNCER_COMMITS, SYNCER_ROUNDS),
    ),
    Mutation(
        "credits grow without bound",
        "islands/protocol/syncer/grace.py",
        "min(self.cap_steps, self.credits.get(name, 0.0) + steps)",
        "self.credits.get(name, 0.0) + steps",
        (SYNCER_TIMING,),
    ),
    Mutation(
        "debts grow without bound",
        "islands/protocol/syncer/grace.py",
        "max(CREDIT_FLOOR_STEPS, paid)",
        "paid",
        (SYNCER_TIMING,),
    ),
    Mutation(
        "the lower median sets the pace",
        "islands/protocol/syncer/grace.py",
        "place = (count - 1) // 2",
        "place = count // 2",
        (SYNCER_TIMING,),
    ),
    Mutation(
        "time counts while the run is paused",
        "islands/protocol/syncer/pausing.py",
        "core.closing is None and not core.durable.paused:",
        "core.closing is None:",
        (SYNCER_PAUSING,),
    ),
    Mutation(
        "a pause counts as time of an exchange",
        "islands/protocol/syncer/pausing.py",
        "    core.rounds.forget_adoptions()\n",
        "",
        (SYNCER_PAUSING,),
    ),
    Mutation(
        "the newer slot is overwritten",
        "islands/files/slots.py",
        "older = min(known, key=lambda file: (known[file], file))",
        "older = max(known, key=lambda file: (known[file], file))",
        (SYNCER_JOURNAL, RECOVERY),
    ),
    Mutation(
        "digests of slots are not verified",
        "islands/files/slots.py",
        "if digest.digest(length=DIGEST_BYTES) != told_digest:",
        "if False:",
        (SYNCER_JOURNAL,),
    ),
    Mutation(
        "the oldest record is recovered",
        "islands/syncer/journal.py",
        "sorted({head.sequence for head in heads}, reverse=True)",
        "sorted({head.sequence for head in heads})",
        (SYNCER_JOURNAL,),
    ),
    Mutation(
        "a fenced syncer writes on",
        "islands/syncer/journal.py",
        "        if owner > self.epoch:\n",
        "        if False:\n",
        (SYNCER_JOURNAL,),
    ),
    Mutation(
        "a record that the next syncer may have missed is told of",
        "islands/syncer/journal.py",
        "        self.check_owner()  # who took the journal over",
        "        # who took the journal over",
        (SYNCER_JOURNAL,),
    ),
    Mutation(
        "what increments left is not journalled",
        "islands/syncer/value_store.py",
        'return {"value": shelf.values[version], **shelf.state, **remainder}',
        'return {"value": shelf.values[version], **shelf.state}',
        (SYNCER_VAULT,),
    ),
    Mutation(
        "what increments left is forgotten",
        "islands/syncer/value_store.py",
        "        self.remainder = made.remainder\n",
        "        self.remainder = None\n",
        (ORACLE_INCREMENTS,),
    ),
    Mutation(
        "a fragment of another version is recovered",
        "islands/syncer/journal.py",
        "record = self._load(head) if head.version == version else None",
        "record = self._load(head)",
        (SYNCER_JOURNAL,),
    ),
    Mutation(
        "an observer goes back to an older version",
        "islands/protocol/observer/state.py",
        ("        if held is not None and held >= update.version:\n            return\n"),
        "",
        (OBSERVER_STATE,),
    ),
    Mutation(
        "an observer keeps a damaged value",
        "islands/protocol/observer/state.py",
        "if not event.intact or update.epoch < self.membership.epoch_seen:",
        "if update.epoch < self.membership.epoch_seen:",
        (OBSERVER_STATE,),
    ),
    Mutation(
        "a quarantined learner gives moments",
        "islands/protocol/syncer/members.py",
        "return present and trains and not learner.quarantined and",
        "return present and trains and",
        (SYNCER_DONORS,),
    ),
    Mutation(
        "a learner that has not stepped gives moments",
        "islands/protocol/syncer/members.py",
        " and learner.progress.steps > 0",
        "",
        (SYNCER_DONORS,),
    ),
    Mutation(
        "a word between peers goes on under a false name",
        "islands/protocol/syncer/donors.py",
        "source.connection != connection or ",
        "",
        (SYNCER_DONORS,),
    ),
    Mutation(
        "damaged moments are taken",
        "islands/protocol/learner/moments_recovery.py",
        "        if event.intact:\n",
        "        if True:\n",
        (LEARNER_MOMENTS,),
    ),
    Mutation(
        "forged credentials are genuine",
        "islands/protocol/credentials.py",
        "return _same(self.sign(name, incarnation, role), credential)",
        "return True",
        (CREDENTIALS,),
    ),
    Mutation(
        "a credential is good for another role",
        "islands/protocol/credentials.py",
        "return self._signed_here(role.value, name, str(incarnation))",
        'return self._signed_here("member", name, str(incarnation))',
        (CREDENTIALS,),
    ),
    Mutation(
        "another run's journal is taken up",
        "islands/protocol/syncer/recovery.py",
        "        if held != wanted:\n",
        "        if False:\n",
        (SYNCER_DURABLE,),
    ),
    Mutation(
        "a budget is cut by a restart",
        "islands/protocol/syncer/recovery.py",
        "if not larger and wanted_tokens != before:",
        "if False:",
        (SYNCER_DURABLE,),
    ),
)
