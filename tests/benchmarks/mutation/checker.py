"""The history checker, and rules of rounds, ends and clocks that had no test."""

from tests.benchmarks.mutation.kind import Mutation

ORDER, ACCOUNTS = "islands/lab/checker/order.py", "islands/lab/checker/accounts.py"
BOUNDS = MOMENTS = "islands/lab/checker/bounds.py"
EVIDENCE = SPANS = "islands/lab/checker/evidence.py"
TAPES = ("tests/lab/checker/test_tapes.py",)


def unchecked(name: str, file: str, old: str, new: str) -> Mutation:
    """The history checker does not look at something."""
    return Mutation(f"the history checker: {name}", file, old, new, TAPES)


REVIEWED = (
    unchecked(
        "any quorum will do",
        ORDER,
        "if len(who) < (1 if closing else limits.quorum):",
        "if len(who) < 1:",
    ),
    unchecked("a shard goes back", ACCOUNTS, "if position != read_to:", "if position > read_to:"),
    unchecked(
        "part of a contribution is applied twice",
        ACCOUNTS,
        "if begin < end.get((who, sent.fragment), 0):",
        "if sent.processed <= end.get((who, sent.fragment), 0):",
    ),
    unchecked(
        "any number of tokens is lost", ACCOUNTS, "if row.lost > _losable(history, index):", "if 0:"
    ),
    unchecked(
        "a contribution counts from before its base",
        ACCOUNTS,
        "if mark != entry.processed - entry.tokens:",
        "if mark is None or mark < entry.processed - entry.tokens:",
    ),
    unchecked(
        "a ticket is admitted again after a restart",
        ACCOUNTS,
        "arrived = {text: entry for text, entry in arrived.items() if text in fates}",
        "arrived = {}",
    ),
)
"""Those that a review found to be noticed by no test."""

CHECKER = (
    unchecked(
        "a ticket that a restart lost is admitted again",
        ORDER,
        "isinstance(entry, Arrived) and ticket(entry.ticket).epoch != epoch:",
        "isinstance(entry, Arrived) and False:",
    ),
    unchecked(
        "a round merges below its quorum",
        ORDER,
        "elif isinstance(entry, Closed | Merged):",
        "elif isinstance(entry, Closed):",
    ),
    unchecked(
        "the closing outlasts a restart",
        ORDER,
        "if isinstance(entry, Started | Closing):",
        "if isinstance(entry, Closing):",
    ),
    unchecked(
        "a contribution of an incarnation that ended is applied",
        ORDER,
        "if facts.incarnation <= fence:",
        "if facts.incarnation < fence:",
    ),
    unchecked(
        "the base may be one version older",
        ORDER,
        "[-limits.staleness_max - 1 :]",
        "[-limits.staleness_max - 2 :]",
    ),
    unchecked("a version has another start's epoch", ORDER, "if epoch != now:", "if epoch > now:"),
    unchecked(
        "a version is sent before it is durable",
        ORDER,
        "isinstance(entry, Adopted | Committed)",
        "isinstance(entry, Adopted)",
    ),
    unchecked(
        "one durable record makes all that are written durable",
        ORDER,
        "for sequence in [number for number in written if number <= entry.sequence]:",
        "for sequence in list(written):",
    ),
    unchecked(
        "an incarnation goes to two names",
        ORDER,
        "            if incarnation in given:\n",
        "            if given.get(incarnation) == entry.name:\n",
    ),
    unchecked(
        "the final values are others under the same version",
        ORDER,
        "        elif isinstance(entry, Final):\n",
        "        elif False:\n",
    ),
    unchecked(
        "an epoch that another took is told late",
        ORDER,
        "late = syncer and actor in overtaken and epoch not in taken",
        "late = syncer and actor in overtaken",
    ),
    unchecked(
        "a version is adopted a moment after it was due",
        ORDER,
        "due_s = at_s + period_s",
        "due_s = at_s + 1.1 * period_s",
    ),
    unchecked(
        "another name's ticket", ACCOUNTS, "elif [*history.senders[fate.ticket]] !=", "elif [] =="
    ),
    unchecked(
        "a learner ends with more tokens than its quota",
        ACCOUNTS,
        "if max(known) > granted.get(who, 0):",
        "if min(known) > granted.get(who, 0):",
    ),
    unchecked(
        "a quarantined learner's rest is given out twice",
        ACCOUNTS,
        "granted[who] = spent[who] = entry.used",
        "granted[who], spent[who] = entry.used, 0",
    ),
    unchecked(
        "a shard is given up before its end",
        ACCOUNTS,
        "if self._reached(who, shard) < self.records:",
        "if self._reached(who, shard) < self.records - 1:",
    ),
    unchecked(
        "a shard is returned from before where its holder began",
        ACCOUNTS,
        "elif entry.position < self.begun[shard]:",
        "elif entry.position < 0:",
    ),
    unchecked(
        "the last to end keeps its shards",
        ACCOUNTS,
        "            shards.ended = (entry.name, pair(entry.incarnation))\n"
        "    yield from shards.settle()\n",
        "            shards.ended = (entry.name, pair(entry.incarnation))\n",
    ),
    unchecked(
        "what others applied lessens what can be lost",
        ACCOUNTS,
        "if sent.fragment == fragment and who in closed:",
        "if who in closed:",
    ),
    unchecked(
        "one batch of the budget is left over",
        ACCOUNTS,
        "if not 0 <= rest < max(limits.batch_tokens.values()):",
        "if not 0 <= rest <= max(limits.batch_tokens.values()):",
    ),
    unchecked(
        "a mended disk excuses for ever", BOUNDS, "begun_s <= at_s <= latest_s", "begun_s <= at_s"
    ),
    unchecked(
        "the newer of two syncers is fenced",
        BOUNDS,
        "return max(others, default=0.0) >= self._epochs.get(name, inf)",
        "return bool(others)",
    ),
    unchecked(
        "a killed process may have held anything",
        BOUNDS,
        "            held = entry.waiting_bytes_most or 0\n",
        "            held = isinstance(entry, ProcessEnded) and entry.waiting_bytes_most or 0\n",
    ),
    unchecked(
        "moments outlive their process",
        MOMENTS,
        "            stepped.pop(entry.name, None)\n",
        "",
    ),
    unchecked("pieces for an earlier process are taken", MOMENTS, "if pair[1] != entry.name}", "}"),
    unchecked(
        "a freeze before the wait excuses it",
        SPANS,
        "max(0.0, min(ended_s, to_s) - max(begun_s, from_s))",
        "max(0.0, min(ended_s, to_s) - begun_s)",
    ),
    unchecked(
        "a restart begins before what was durable",
        EVIDENCE,
        "if entry.resumed and (entry.sequence or 0) < durable:",
        "if False:",
    ),
    unchecked(
        "a fenced syncer's work counts",
        EVIDENCE,
        '                elif owner not in ("", line.actor):\n                    continue\n',
        "",
    ),
)
"""Further rules of the checker that one could lose."""

RULES = (
    Mutation(
        "a round paid at the next interval's price",
        "islands/protocol/syncer/grace.py",
        "        for name in self.credits:\n            paid",
        "        self.round_interval_steps = next_interval_steps\n"
        "        for name in self.credits:\n            paid",
        ("tests/syncer/test_grace.py",),
    ),
    Mutation(
        "silent learners asked again at closing",
        "islands/protocol/syncer/closing.py",
        "[name for name in core.eligible(fragment) if name not in closing.silent]",
        "list(core.eligible(fragment))",
        ("tests/syncer/test_closing.py",),
    ),
    Mutation(
        "the supervisor's own pause counted as a member's compiling",
        "islands/protocol/supervisor/eviction.py",
        "        self.phase_since_s += late_s\n",
        "",
        ("tests/supervisor/test_eviction.py",),
    ),
    Mutation(
        "the supervisor's own pause counted as a member's step",
        "islands/protocol/supervisor/eviction.py",
        "        self.stepped_s += late_s\n",
        "",
        ("tests/supervisor/test_eviction.py",),
    ),
    Mutation(
        "the first ratio of a learner's clock believed",
        "islands/protocol/learner/learning_rate_clock.py",
        "median_low(known if self.sure else [1.0, *known])",
        "median_low(known)",
        ("tests/learner/test_learning_rate_clock.py",),
    ),
    Mutation(
        "a step that was not taken booked at a loop's end",
        "islands/loops/joined_run.py",
        "        if not announced:\n            return\n",
        "",
        ("tests/loops/test_joined_run.py",),
    ),
    Mutation(
        "a loop that ends books the step that was announced",
        "islands/loops/joined_run.py",
        "        if not self._left:\n            self._left = reason\n",
        "        if not self._left:\n"
        "            if self._announced and not self.over:\n"
        "                self._book(self._params, None, self._opt_state)\n"
        "            self._left = reason\n",
        ("tests/loops/test_joined_run.py",),
    ),
    Mutation(
        "what merged before taken for news in an account",
        "islands/protocol/learner/account.py",
        "        if merged is None or (merged.epoch, merged.round) <= self.merged_newest:\n"
        "            return None\n",
        "        if merged is None or (merged.epoch, merged.round) == self.merged_newest:\n"
        "            return None\n",
        ("tests/learner/test_account.py",),
    ),
    Mutation(
        "what merged before taken for news in the values",
        "islands/learner/boundary.py",
        "(merged.epoch, merged.round) <= self._merged.get(fragment, NEVER):",
        "(merged.epoch, merged.round) == self._merged.get(fragment, NEVER):",
        ("tests/learner/test_engine.py",),
    ),
)

CHECKED = REVIEWED + CHECKER + RULES
