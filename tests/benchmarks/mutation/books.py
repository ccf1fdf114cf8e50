"""Journalling and sessions: ledger, leases, reports, incarnations, learners, the supervisor."""

from tests.benchmarks.mutation.kind import Mutation

SYNCER_LEDGER = "tests/syncer/test_ledger.py"
SYNCER_MEMBERS = "tests/syncer/test_members.py"
SYNCER_ROUNDS = "tests/syncer/test_rounds.py"
LEARNER_ACCOUNT = "tests/learner/test_account.py"
LEARNER_ENGINE = "tests/learner/test_engine.py"
LEARNER_OLD_NEWS = "tests/learner/test_old_news.py"
LEARNER_PULLS = "tests/learner/test_pulls.py"
LEARNER_SNAPSHOTS = "tests/learner/test_snapshots.py"
LEARNER_STATE = "tests/learner/test_state.py"
SUPERVISOR_LIVENESS = "tests/supervisor/test_eviction.py"
SUPERVISOR_STATE = "tests/supervisor/test_state.py"
SYNCER_PLAUSIBILITY = "tests/syncer/test_plausibility.py"
SYNCER_COMMITS = "tests/syncer/test_commits.py"
SYNCER_LEASES = "tests/syncer/test_leases.py"
SYNCER_REPORTS = "tests/syncer/test_reports.py"
SYNCER_SESSIONS = "tests/syncer/test_sessions.py"
SYNCER_SUPERVISOR_VIEW = "tests/protocol/test_supervisor_view.py"
MEMBERSHIP = "tests/protocol/test_membership.py"
OBSERVER_STATE = "tests/observer/test_state.py"

BOOKS = (
    Mutation(
        "an older report is taken",
        "islands/protocol/syncer/reports.py",
        (
            "    if progress.steps < before.steps or progress.tokens < before.tokens:\n"
            "        return True\n"
        ),
        "",
        (SYNCER_REPORTS, SYNCER_PLAUSIBILITY, SYNCER_COMMITS),
    ),
    Mutation(
        "more tokens than granted are believed",
        "islands/protocol/syncer/reports.py",
        "if progress.tokens > granted:",
        "if False:",
        (SYNCER_REPORTS, SYNCER_PLAUSIBILITY, SYNCER_COMMITS),
    ),
    Mutation(
        "a lease goes back from its beginning",
        "islands/protocol/syncer/leases.py",
        "self.free = sorted([*self.free, *returned])",
        "self.free = sorted([*self.free, *(Lease(x.pass_index, x.shard, 0) for x in returned)])",
        (SYNCER_LEASES,),
    ),
    Mutation(
        "finished shards are leased again",
        "islands/protocol/syncer/leases.py",
        "returned, holder.leases = holder.unfinished, []",
        "returned, holder.leases = list(holder.leases), []",
        (SYNCER_LEASES,),
    ),
    Mutation(
        "an unused quota is lost",
        "islands/protocol/syncer/leases.py",
        "self.closed_tokens += processed_tokens",
        "self.closed_tokens += holder.quota_tokens",
        (SYNCER_LEASES,),
    ),
    Mutation(
        "free leases are not used",
        "islands/protocol/syncer/leases.py",
        "return self.free.pop(0) if self.free else self._new_lease()",
        "return self._new_lease()",
        (SYNCER_LEASES,),
    ),
    Mutation(
        "a pass never ends",
        "islands/protocol/syncer/leases.py",
        "self.pass_index, self.next_shard = self.pass_index + 1, 0",
        "self.next_shard = 0",
        (SYNCER_LEASES,),
    ),
    Mutation(
        "a quota grows although half of it is left",
        "islands/protocol/syncer/leases.py",
        "if holder.unused_tokens > min(chunk // 2, amount):",
        "if False:",
        (SYNCER_LEASES,),
    ),
    Mutation(
        "grants do not shrink towards the end",
        "islands/protocol/syncer/leases.py",
        "fair = remaining // (2 * max(1, members))",
        "fair = remaining",
        (SYNCER_LEASES,),
    ),
    Mutation(
        "the lost are counted without what was discarded",
        "islands/protocol/syncer/ledger.py",
        "totals.lost += book.processed - account.applied - account.reported.overwritten_tokens",
        "totals.lost += book.processed - account.applied",
        (SYNCER_LEDGER,),
    ),
    Mutation(
        "tokens that were applied may be contributed again",
        "islands/protocol/syncer/ledger.py",
        "return contribution.tokens <= max(book.processed, processed) - settled",
        "return True",
        (SYNCER_LEDGER,),
    ),
    Mutation(
        "a merge after its sender's end stays lost as well",
        "islands/protocol/syncer/ledger.py",
        "            totals.lost -= merged.tokens\n",
        "",
        (SYNCER_LEDGER,),
    ),
    Mutation(
        "a claim is charged for more than was discarded",
        "islands/protocol/syncer/ledger.py",
        "claimed = 0 if claim is None else max(0, min(claim.tokens, discarded))",
        "claimed = 0 if claim is None else claim.tokens",
        (SYNCER_LEDGER,),
    ),
    Mutation(
        "a contribution attests nothing",
        "islands/protocol/syncer/ledger.py",
        "        book.processed = max(book.processed, processed_tokens)\n\n    def apply",
        "        _ = book\n\n    def apply",
        (SYNCER_LEDGER,),
    ),
    Mutation(
        "an ended incarnation is let in",
        "islands/protocol/syncer/members.py",
        "if known is not None and incarnation <= known:",
        "if False:",
        (SYNCER_SESSIONS,),
    ),
    Mutation(
        "an ended incarnation whose name was forgotten is let in",
        "islands/protocol/syncer/members.py",
        "return self.floor is not None and incarnation <= self.floor and not open_account",
        "return False",
        (SYNCER_SESSIONS, SYNCER_MEMBERS),
    ),
    Mutation(
        "an incarnation older than a known one is let in",
        "islands/protocol/syncer/sessions.py",
        "return ended or any(hello.incarnation < incarnation for incarnation in newer)",
        "return ended",
        (SYNCER_SESSIONS, SYNCER_ROUNDS),
    ),
    Mutation(
        "an untrusted peer is let in",
        "islands/protocol/syncer/sessions.py",
        "    if not trusted:\n",
        "    if False:\n",
        (SYNCER_SESSIONS, SYNCER_ROUNDS),
    ),
    Mutation(
        "another layout is let in",
        "islands/protocol/syncer/sessions.py",
        "if hello.fingerprint != core.fingerprint:",
        "if False:",
        (SYNCER_SESSIONS, SYNCER_ROUNDS),
    ),
    Mutation(
        "a late hello replaces a newer link",
        "islands/protocol/syncer/sessions.py",
        "learner.connection is not None and connection < learner.connection:",
        "False:",
        (SYNCER_SESSIONS, SYNCER_ROUNDS),
    ),
    Mutation(
        "a link that closes takes its successor along",
        "islands/protocol/syncer/sessions.py",
        (
            "    if learner is None or learner.connection != connection:\n"
            "        return\n"
            "    if learner.role"
        ),
        "    if learner is None:\n        return\n    if learner.role",
        (SYNCER_SESSIONS, SYNCER_ROUNDS),
    ),
    Mutation(
        "a link that is down excuses nobody",
        "islands/protocol/syncer/sessions.py",
        '    _excuse_everywhere(core, name, "link down")\n',
        "",
        (SYNCER_SESSIONS, SYNCER_ROUNDS),
    ),
    Mutation(
        "a reopened link is not asked again",
        "islands/protocol/syncer/sessions.py",
        "        _ask_again(core, learner, now_s)\n\n\ndef _refusal",
        "\n\ndef _refusal",
        (SYNCER_SESSIONS, SYNCER_ROUNDS),
    ),
    Mutation(
        "only a differing version is sent at a hello, not a differing digest",
        "islands/protocol/syncer/recipients.py",
        "if due and (differs or (lacks and is_owed(core, learner, index))):",
        "if due and lacks and is_owed(core, learner, index):",
        (SYNCER_COMMITS,),
    ),
    Mutation(
        "an older supervisor's view is followed",
        "islands/protocol/membership.py",
        "        if page.supervisor_epoch < self.epoch:\n            return False\n",
        "",
        (SYNCER_SUPERVISOR_VIEW, SYNCER_SESSIONS),
    ),
    Mutation(
        "nobody ends whom no view lists",
        "islands/protocol/syncer/sessions.py",
        "    _end_absent(core, now_s)\n",
        "",
        (SYNCER_SESSIONS, SYNCER_ROUNDS),
    ),
    Mutation(
        "what is in doubt counts as overwritten",
        "islands/protocol/learner/account.py",
        "                done -= _largest(undecided)\n",
        "",
        (LEARNER_ACCOUNT, SYNCER_LEDGER),
    ),
    Mutation(
        "a doubt that is answered again stays in doubt",
        "islands/protocol/learner/account.py",
        "            group[:] = [sent for sent in group if sent.ticket != ticket]\n",
        "",
        (LEARNER_ACCOUNT, LEARNER_OLD_NEWS),
    ),
    Mutation(
        "an update of an earlier round decides later tickets",
        "islands/protocol/learner/account.py",
        "return self.epoch < update.epoch or self.round <= update.round",
        "return True",
        (LEARNER_ACCOUNT, SYNCER_LEDGER),
    ),
    Mutation(
        "what is in doubt is not pending",
        "islands/protocol/learner/account.py",
        "settled_tokens=self.base_tokens - in_doubt,",
        "settled_tokens=self.base_tokens,",
        (LEARNER_ACCOUNT, SYNCER_LEDGER),
    ),
    Mutation(
        "a grant of an older syncer is taken",
        "islands/protocol/learner/steps.py",
        "if grant.epoch < core.epoch_seen or grant.incarnation",
        "if grant.incarnation",
        (LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "a quota may shrink",
        "islands/protocol/learner/steps.py",
        "compute.quota_tokens = max(quota_tokens, grant.quota_tokens)",
        "compute.quota_tokens = grant.quota_tokens",
        (LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "an older value is adopted",
        "islands/protocol/learner/steps.py",
        "if not event.intact or old or update.epoch < core.epoch_seen",
        "if not event.intact or update.epoch < core.epoch_seen",
        (LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "a value of an older syncer is adopted",
        "islands/protocol/learner/steps.py",
        "or old or update.epoch < core.epoch_seen or core.incarnation is None",
        "or old or core.incarnation is None",
        (LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "what an ended incarnation adopts is its successor's",
        "islands/protocol/learner/steps.py",
        "    if event.incarnation != core.incarnation:\n        return  #",
        "    if False:\n        return  #",
        (LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "the steps of an ended incarnation are its successor's",
        "islands/protocol/learner/steps.py",
        "    if not compute.allowed:\n        compute.origin_steps",
        "    if False:\n        compute.origin_steps",
        (LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "it steps while the run closes",
        "islands/protocol/learner/steps.py",
        "if whole and not (core.ending or run.paused",
        "if whole and not (run.paused",
        (LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "an older syncer is followed",
        "islands/protocol/membership.py",
        "if welcome.epoch < self.epoch_seen:",
        "if False:",
        (MEMBERSHIP, LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "an ended incarnation is taken up again",
        "islands/protocol/membership.py",
        "if self.previous is not None and joined.incarnation <= self.previous:",
        "if False:",
        (MEMBERSHIP, LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "another's eviction is one's own",
        "islands/protocol/membership.py",
        "own = evicted.incarnation == self.incarnation",
        "own = True",
        (MEMBERSHIP, LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "a second admission replaces the first",
        "islands/protocol/membership.py",
        " or self.incarnation is not None:",
        ":",
        (MEMBERSHIP, OBSERVER_STATE),
    ),
    Mutation(
        "a pull for an older incarnation is answered",
        "islands/protocol/learner/answering.py",
        "if ticket.incarnation != core.incarnation or ticket.epoch < core.epoch_seen:",
        "if ticket.epoch < core.epoch_seen:",
        (LEARNER_SNAPSHOTS, LEARNER_STATE),
    ),
    Mutation(
        "a snapshot from another base is sent",
        "islands/protocol/learner/pulls.py",
        "if snapshot is None or snapshot.base != base or snapshot.steps < least_steps:",
        "if snapshot is None or snapshot.steps < least_steps:",
        (LEARNER_PULLS, LEARNER_SNAPSHOTS, LEARNER_STATE),
    ),
    Mutation(
        "a repeated pull over the same link is answered again",
        "islands/protocol/learner/pulls.py",
        (
            "        if answered is not None and answered.ticket == pull.ticket:\n"
            "            return None\n"
        ),
        "",
        (LEARNER_PULLS, LEARNER_SNAPSHOTS, LEARNER_STATE),
    ),
    Mutation(
        "positions go back",
        "islands/protocol/learner/steps.py",
        "        max(lease, news.get((lease.pass_index, lease.shard), lease))\n",
        "        news.get((lease.pass_index, lease.shard), lease)\n",
        (LEARNER_OLD_NEWS, LEARNER_STATE),
    ),
    Mutation(
        "a snapshot is taken before commands are carried out",
        "islands/learner/boundary.py",
        "        self._bases[fragment] = adopt.version\n",
        "        self._bases.setdefault(fragment, adopt.version)\n",
        (LEARNER_ENGINE,),
    ),
    Mutation(
        "a step beyond the quota",
        "islands/learner/boundary.py",
        "return self.tokens + tokens <= self._until_tokens",
        "return self.tokens < self._until_tokens",
        (LEARNER_ENGINE,),
    ),
    Mutation(
        "the silent are not evicted",
        "islands/protocol/supervisor/eviction.py",
        "        return Status.EVICTED\n",
        "        return Status.SUSPECT\n",
        (SUPERVISOR_LIVENESS, SUPERVISOR_STATE),
    ),
    Mutation(
        "a closed link is not suspect",
        "islands/protocol/supervisor/eviction.py",
        " or member.connection is None:",
        ":",
        (SUPERVISOR_LIVENESS, SUPERVISOR_STATE),
    ),
    Mutation(
        "the supervisor's own pause is the members' fault",
        "islands/protocol/supervisor/eviction.py",
        "        self.heard_s += late_s\n",
        "",
        (SUPERVISOR_LIVENESS, SUPERVISOR_STATE),
    ),
    Mutation(
        "after its own long pause nobody has time to dial again",
        "islands/protocol/supervisor/eviction.py",
        "evict_s + redial_s):",
        "evict_s):",
        (SUPERVISOR_LIVENESS,),
    ),
    Mutation(
        "a supervisor whose ticks are all late evicts nobody",
        "islands/protocol/supervisor/eviction.py",
        "        late_s = gap_s - tick_s(timing)\n",
        "        late_s = gap_s\n",
        (SUPERVISOR_STATE,),
    ),
    Mutation(
        "a name that is taken is given again",
        "islands/protocol/supervisor/membership.py",
        "        if taken is not None:\n",
        "        if False:\n",
        (SUPERVISOR_STATE,),
    ),
    Mutation(
        "incarnations come back",
        "islands/protocol/supervisor/membership.py",
        "    core.counter += 1\n",
        "    core.counter = 1\n",
        (SUPERVISOR_STATE,),
    ),
    Mutation(
        "a layout that differs is admitted",
        "islands/protocol/supervisor/membership.py",
        "if join.fingerprint != core.fingerprint:",
        "if False:",
        (SUPERVISOR_STATE,),
    ),
    Mutation(
        "an ended incarnation's heartbeat counts",
        "islands/protocol/supervisor/membership.py",
        "if member is None or fenced or member.status.ended:",
        "if member is None or fenced:",
        (SUPERVISOR_STATE,),
    ),
)
