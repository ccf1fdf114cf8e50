"""Where arithmetic meets the run: what no test noticed once, each noticed now."""

from tests.benchmarks.mutation.kind import Mutation

SYNCER_LEDGER = "tests/syncer/test_ledger.py"
SYNCER_ADMISSION = "tests/syncer/test_contribution_admission.py"
LEARNER_ACCOUNT = "tests/learner/test_account.py"
LEARNER_ACTOR = "tests/learner/test_actor.py"
LEARNER_ENGINE = "tests/learner/test_engine.py"
LEARNER_FLEET_CLOCK = "tests/learner/test_learning_rate_clock.py"
LEARNER_SNAPSHOTS = "tests/learner/test_snapshots.py"
LEARNER_OLD_NEWS = "tests/learner/test_old_news.py"
LEARNER_STATE = "tests/learner/test_state.py"
MESSAGING_WEBSOCKET_NETWORK = "tests/messaging/websocket/test_network.py"
ORACLE_CARRYING_ON = "tests/oracle/test_carrying_on.py"
ORACLE_CONTRIBUTIONS = "tests/oracle/test_contributions.py"
ORACLE_VALUES = "tests/oracle/test_values.py"
SUPERVISOR_VIEW = "tests/supervisor/test_view_of_the_ended.py"
SYNCER_PLAUSIBILITY = "tests/syncer/test_plausibility.py"
SYNCER_VAULT = "tests/syncer/test_value_store.py"

GLUE = (
    Mutation(
        "what is merged stays in what is carried on",
        "islands/learner/boundary.py",
        "            sent = share_of(whole, self.model.share(fragment))\n",
        "            sent = None if whole is None else None\n",
        (LEARNER_ENGINE, ORACLE_CARRYING_ON),
    ),
    Mutation(
        "a contribution in two values is taken from the local one twice",
        "islands/learner/boundary.py",
        "        self._merged[fragment] = merged.epoch, merged.round\n",
        "",
        (LEARNER_ENGINE,),
    ),
    Mutation(
        "a contribution begins at its base where work is carried on",
        "islands/protocol/learner/account.py",
        "            self.base_tokens += merged.tokens\n",
        "",
        (LEARNER_ACCOUNT, ORACLE_CARRYING_ON),
    ),
    Mutation(
        "an earlier stop counts",
        "islands/protocol/learner/steps.py",
        "if event.order == compute.order:",
        "if True:",
        (LEARNER_STATE,),
    ),
    Mutation(
        "a decided answer is decided again over the next link",
        "islands/protocol/syncer/contribution_admission.py",
        "if known or _admitted(core, ticket) is not None:",
        "if copies > 1 or _admitted(core, ticket) is not None:",
        (SYNCER_PLAUSIBILITY,),
    ),
    Mutation(
        "momentum not carried to the next merge",
        "islands/syncer/value_store.py",
        "self._shelve(shelf, action.target, value, step.state)",
        "self._shelve(shelf, action.target, value, shelf.state)",
        (ORACLE_VALUES,),
    ),
    Mutation(
        "momentum zero after a restart",
        "islands/syncer/value_store.py",
        "self._shelves[fragment] = _FragmentValues({version: value}, state)",
        "self._shelves[fragment] = _FragmentValues({version: value}, self._optimizer.init(value))",
        (ORACLE_VALUES,),
    ),
    Mutation(
        "weights paired with the wrong contributions",
        "islands/syncer/value_store.py",
        "for p in action.parts]",
        "for p in reversed(action.parts)]",
        (ORACLE_VALUES,),
    ),
    Mutation(
        "anchor current ignored for an older base",
        "islands/syncer/value_store.py",
        "if self._settings.anchor is Anchor.CURRENT and",
        "if False and",
        (ORACLE_VALUES,),
    ),
    Mutation(
        "rebasing from another kept value than the named base",
        "islands/syncer/value_store.py",
        "base = shelf.values[part.base]",
        "base = shelf.values[min(shelf.values)]",
        (ORACLE_VALUES,),
    ),
    Mutation(
        "merge: average ignored",
        "islands/numerics/merge_rules.py",
        "if self.averages_all:",
        "if False:",
        (ORACLE_VALUES,),
    ),
    Mutation(
        "the clip factor ignored",
        "islands/syncer/value_store.py",
        "if part.scale < 1:",
        "if False:",
        (ORACLE_VALUES,),
    ),
    Mutation(
        "digests of contributions not verified",
        "islands/syncer/value_store.py",
        "if digest(payload[0]) != contribution.digest:",
        "if False:",
        (SYNCER_VAULT, SYNCER_ADMISSION),
    ),
    Mutation(
        "digests of updates not verified",
        "islands/learner/actor.py",
        "self.post(UpdateArrived(update, taken.intact, taken.value))",
        "self.post(UpdateArrived(update, bool(taken), taken.value))",
        (LEARNER_ACTOR,),
    ),
    Mutation(
        "a contribution counts tokens up to now instead of up to its snapshot",
        "islands/protocol/learner/answering.py",
        "processed = snapshot.tokens - compute.origin_tokens",
        "processed = compute.tokens - compute.origin_tokens",
        (LEARNER_SNAPSHOTS, ORACLE_CONTRIBUTIONS),
    ),
    Mutation(
        "an older incarnation's ticket admitted",
        "islands/protocol/syncer/contribution_admission.py",
        "if learner is None or observing or learner.incarnation != ticket.incarnation:",
        "if learner is None or observing:",
        (SYNCER_VAULT, SYNCER_ADMISSION),
    ),
    Mutation(
        "a grant to an older incarnation taken",
        "islands/protocol/learner/steps.py",
        "if grant.epoch < core.epoch_seen or grant.incarnation != core.incarnation:",
        "if grant.epoch < core.epoch_seen:",
        (LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "a claim not cleared when applied",
        "islands/protocol/syncer/ledger.py",
        "        account.merged_version = version\n        account.claim = None\n",
        "        account.merged_version = version\n",
        (SYNCER_LEDGER,),
    ),
    Mutation(
        "discarded tokens claimed again",
        "islands/protocol/syncer/contribution_admission.py",
        "if not _discarded(core, contribution):",
        "if True:",
        (SYNCER_VAULT, SYNCER_ADMISSION),
    ),
    Mutation(
        "the evicted left out of the supervisor's view",
        "islands/protocol/supervisor/core.py",
        (
            "        if member.role is Role.LEARNER:\n"
            "            self.view.changed(member.name)\n"
            "        if status"
        ),
        (
            "        if member.role is Role.LEARNER and not status.ended:\n"
            "            self.view.changed(member.name)\n"
            "        if status"
        ),
        (SUPERVISOR_VIEW,),
    ),
    Mutation(
        "grace and xi_quorum counted from the first arrival",
        "islands/protocol/syncer/rounds.py",
        "if self.quorum_s is not None or not self.quorum_complete:",
        "if self.quorum_s is not None:",
        (SYNCER_VAULT, SYNCER_ADMISSION),
    ),
    Mutation(
        "the clock replaced instead of its maximum",
        "islands/protocol/learner/learning_rate_clock.py",
        "(epoch == self.epoch and newest and clock <= newest.clock):",
        "False:",
        (LEARNER_FLEET_CLOCK,),
    ),
    Mutation(
        "bytes without payload",
        "messaging/envelope.py",
        "return NOMINAL_HEADER_BYTES + sum(buffer.nbytes for buffer in self.payload)",
        "return NOMINAL_HEADER_BYTES",
        (ORACLE_CONTRIBUTIONS,),
    ),
    Mutation(
        "bytes of a real link without payload",
        "messaging/websocket/bulk_protocol.py",
        "self.bytes_sent += len(header) + (4 if self._masks else 0) + size",
        "self.bytes_sent += len(header) + (4 if self._masks else 0)",
        (MESSAGING_WEBSOCKET_NETWORK,),
    ),
)
