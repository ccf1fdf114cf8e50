"""Bounds of what admitted members take, and of gossip."""

from tests.benchmarks.mutation.kind import Mutation

LEARNER_LINKS = "tests/learner/test_peer_links.py"
LEARNER_MOMENTS = "tests/learner/test_moments.py"
LEARNER_NEWCOMERS = "tests/learner/test_gossiping.py"
LEARNER_NORMS = "tests/learner/test_exchanges.py"
ACTORS_ACCEPTOR = "tests/actors/test_acceptor.py"
SETTINGS_ADDRESSES = "tests/settings/test_addresses.py"
SUPERVISOR_COMMANDS = "tests/supervisor/test_commands.py"
SUPERVISOR_NAMES = "tests/supervisor/test_names.py"
SYNCER_DONORS = "tests/syncer/test_donors.py"
SYNCER_PLAUSIBILITY = "tests/syncer/test_plausibility.py"
SYNCER_SESSIONS = "tests/syncer/test_sessions.py"
SYNCER_JOURNAL = "tests/syncer/test_journal.py"
SYNCER_STANDING = "tests/syncer/test_standstill.py"

MEMBERS = (
    Mutation(
        "who stands still keeps its tokens",
        "islands/protocol/syncer/standstill.py",
        "if stood_s < GRACE_LIMITS * limit_s:",
        "if True:",
        (SYNCER_STANDING,),
    ),
    Mutation(
        "who stands still has no grace",
        "islands/protocol/syncer/standstill.py",
        "GRACE_LIMITS = 2",
        "GRACE_LIMITS = 1",
        (SYNCER_STANDING,),
    ),
    Mutation(
        "the syncer's own suspension is a member's standing still",
        "islands/protocol/syncer/standstill.py",
        "            before.since_s += late_s\n",
        "            pass\n",
        (SYNCER_STANDING,),
    ),
    Mutation(
        "a claimed step of a week is waited for",
        "islands/protocol/syncer/standstill.py",
        "return min(own_s, max(first_s, STALLED_STEPS * core.step_s))",
        "return own_s",
        (SYNCER_STANDING,),
    ),
    Mutation(
        "who stood still is granted as much as before",
        "islands/protocol/syncer/granting.py",
        "if learner.name in core.health.idle and not learner.progress.steps:",
        "if False:",
        (SYNCER_STANDING,),
    ),
    Mutation(
        "the closing waits for who stands still",
        "islands/protocol/syncer/closing.py",
        "        and not learner.still\n    )\n",
        "    )\n",
        (SYNCER_STANDING,),
    ),
    Mutation(
        "a drain need not be obeyed",
        "islands/protocol/supervisor/membership.py",
        "if learner is not None and now_s - order.since_s >= limit_s:",
        "if False:",
        (SUPERVISOR_COMMANDS,),
    ),
    Mutation(
        "an evicted process comes back",
        "islands/protocol/supervisor/membership.py",
        "if join.previous is not None:",
        "if False:",
        (SUPERVISOR_COMMANDS,),
    ),
    Mutation(
        "a refused distance moves the limit",
        "islands/protocol/gossip/exchanges.py",
        "        if usual > 0 and norm > own",
        "        self.norms.append(norm)\n        if usual > 0 and norm > own",
        (LEARNER_NORMS,),
    ),
    Mutation(
        "the first distances may be any",
        "islands/protocol/gossip/exchanges.py",
        "usual = max(usual, own)",
        "usual = 0.0",
        (LEARNER_NORMS,),
    ),
    Mutation(
        "a newcomer takes whatever it is given",
        "islands/protocol/gossip/gossip.py",
        "        if self._refuses(core, event):\n            return\n",
        "",
        (LEARNER_NEWCOMERS,),
    ),
    Mutation(
        "a newcomer hears only whom it asked last",
        "islands/protocol/gossip/gossip.py",
        "event.sender not in self.asked:",
        "event.sender != self.donor:",
        (LEARNER_NEWCOMERS,),
    ),
    Mutation(
        "moments are asked of anybody",
        "islands/protocol/syncer/donors.py",
        "return target.connection if own and source.donor == target.name else None",
        "return target.connection if own else None",
        (SYNCER_DONORS,),
    ),
    Mutation(
        "a donor is named again and again",
        "islands/protocol/syncer/members.py",
        "if len(times_s) >= DONATIONS_MAX:",
        "if False:",
        (SYNCER_DONORS,),
    ),
    Mutation(
        "a piece of moments is given again and again",
        "islands/protocol/learner/moments_recovery.py",
        "often = given.get(request.piece, 0) >= COPIES_MAX",
        "often = False",
        (LEARNER_MOMENTS,),
    ),
    Mutation(
        "one hello is answered again and again",
        "islands/protocol/syncer/sessions.py",
        "if who == (connection, hello.incarnation):",
        "if False:",
        (SYNCER_SESSIONS,),
    ),
    Mutation(
        "every new link gets the model at once",
        "islands/protocol/syncer/members.py",
        "again = max(0, self.links - LINKS_FREE)",
        "again = 0",
        (SYNCER_SESSIONS,),
    ),
    Mutation(
        "a claimed step time is granted for",
        "islands/protocol/syncer/plausibility.py",
        "return max(claimed_s, seen_s / STEP_TIME_SLACK if seen_s > 0 else STEP_CLAIMED_MIN_S)",
        "return claimed_s",
        (SYNCER_PLAUSIBILITY,),
    ),
    Mutation(
        "the token makes a supervisor",
        "islands/protocol/supervisor/membership.py",
        "if join.role is Role.SUPERVISOR:",
        "if False:",
        (SUPERVISOR_NAMES,),
    ),
    Mutation(
        "names differ in case only",
        "islands/protocol/supervisor/membership.py",
        "    if alike is not None:\n",
        "    if False:\n",
        (SUPERVISOR_NAMES,),
    ),
    Mutation(
        "a refusal repeats what it refuses",
        "islands/protocol/supervisor/membership.py",
        "not {plain(join.run, SHOWN)!r}",
        "not {join.run!r}",
        (SUPERVISOR_NAMES,),
    ),
    Mutation(
        "texts of any length are received",
        "islands/actors/acceptor.py",
        "if isinstance(text, str) and len(text) > most:",
        "if False:",
        (ACTORS_ACCEPTOR,),
    ),
    Mutation(
        "a member is dialled where it says",
        "islands/protocol/settings/addresses.py",
        "    if seen is None:\n        return None\n",
        "    if seen is None or not _names_loopback(address):\n        return None\n",
        (SETTINGS_ADDRESSES,),
    ),
    Mutation(
        "a learner is dialled without TLS",
        "islands/learner/peer_links.py",
        'if self._demands_tls and not member.address.startswith("wss://"):',
        "if False:",
        (LEARNER_LINKS,),
    ),
    Mutation(
        "any secret opens a link between learners",
        "messaging/websocket/security.py",
        'return _digest(value) in self._accepted and kind.lower() == "bearer"',
        "return True",
        (LEARNER_LINKS,),
    ),
    Mutation(
        "a liar that names another's address is shown its proof",
        "islands/learner/peer_links.py",
        "            address = f\"{address.rpartition('/')[0]}/{member.name}\"",
        "            address = str(address)",
        (LEARNER_LINKS,),
    ),
    Mutation(
        "whoever is told of no donor any more chooses one",
        "islands/protocol/syncer/donors.py",
        "if unnamed and core.members.may_have_donor(source.name, now_s):",
        "if unnamed:",
        (SYNCER_DONORS,),
    ),
    Mutation(
        "a new process has the time to leave of the drained one before it",
        "islands/protocol/supervisor/membership.py",
        "    order.since_s = now_s\n",
        "",
        (SUPERVISOR_COMMANDS,),
    ),
    Mutation(
        "the version before a damaged one accounts for no tokens",
        "islands/syncer/journal.py",
        "tokens = 0 if then is None else then.tokens",
        "tokens = 0",
        (SYNCER_JOURNAL,),
    ),
    Mutation(
        "whom the end waits for is looked up in each round for each learner",
        "islands/protocol/syncer/closing.py",
        "        learner = core.members.learners[name]\n"
        "        if closing.stage is ClosingStage.DRAINING and",
        "        learner = core.members.learners[name]\n"
        "        pulled = {one for held in core.rounds.open.values() for one in held.waiting}\n"
        "        if closing.stage is ClosingStage.DRAINING and",
        (SYNCER_STANDING,),
    ),
)
