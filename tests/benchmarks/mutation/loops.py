"""Fleets, gossip, a learner's rules, joining, and chaos."""

from tests.benchmarks.mutation.kind import Mutation

FLEETS = (
    "tests/lab/experiments/test_fleet.py",
    "tests/lab/experiments/test_chips.py",
    "tests/lab/experiments/test_links.py",
)
GOSSIPING = ("tests/learner/test_gossiping.py",)
CHAOS_FINDINGS = ("tests/lab/faults/test_findings.py",)
CHAOS_GAPS = ("tests/lab/faults/test_gaps.py",)
JOINING_OWN_DATA = ("tests/loops/test_own_data.py", "tests/loops/test_joined_run.py")
JOINING_JAX_MOMENTS = ("tests/loops/test_jax_moments.py",)
JOINING_JAX_PARAMETERS_JOINED_RUN_JAX_MOMENTS = (
    "tests/loops/test_jax_parameters.py",
    "tests/loops/test_joined_run.py",
    "tests/loops/test_jax_moments.py",
)
JOINING_JAX_PARAMETERS_JOINED_RUN_TORCH_PARAMETERS = (
    "tests/loops/test_jax_parameters.py",
    "tests/loops/test_joined_run.py",
    "tests/loops/test_torch_parameters.py",
)
JOINING_JAX_PARAMETERS_TORCH_PARAMETERS = (
    "tests/loops/test_jax_parameters.py",
    "tests/loops/test_torch_parameters.py",
)
JOINING_JOINED_RUN = ("tests/loops/test_joined_run.py",)
LEARNER_ACCOUNT_OLD_NEWS = ("tests/learner/test_account.py", "tests/learner/test_old_news.py")
LEARNER_ENGINE_ERROR_FEEDBACK = (
    "tests/learner/test_engine.py",
    "tests/learner/test_error_feedback.py",
)
LEARNER_ENGINE_MOMENTS_COMPUTE = (
    "tests/learner/test_engine.py",
    "tests/learner/test_moments.py",
    "tests/learner/test_compute.py",
)
LEARNER_ENGINE_SYNCHRONY_STEPPED_COMPUTE = (
    "tests/learner/test_engine.py",
    "tests/learner/test_synchronous.py",
    "tests/learner/test_stepped_compute.py",
)
LEARNER_FLEET_CLOCK = ("tests/learner/test_learning_rate_clock.py",)
LEARNER_MOMENTS = ("tests/learner/test_moments.py",)
LEARNER_PULLS_SNAPSHOTS_STATE = (
    "tests/learner/test_pulls.py",
    "tests/learner/test_snapshots.py",
    "tests/learner/test_state.py",
)
LEARNER_SYNCHRONY = ("tests/learner/test_synchronous.py",)
LEARNER_SYNCHRONY_STATE_OLD_NEWS = (
    "tests/learner/test_synchronous.py",
    "tests/learner/test_state.py",
    "tests/learner/test_old_news.py",
)
LEARNER_TURNS = ("tests/learner/test_own_turns.py",)

LOOPS = (
    Mutation(
        "belated tokens count for a fleet's yield",
        "islands/lab/experiments/fleet.py",
        "applied = sum(row.applied for row in rows) - durable.belated_tokens",
        "applied = sum(row.applied for row in rows)",
        FLEETS,
    ),
    Mutation(
        "a fleet's traffic leaves moments out",
        "islands/lab/experiments/fleet.py",
        "merges_moments=cell.settings.merge_moments,",
        "merges_moments=False,",
        FLEETS,
    ),
    Mutation(
        "a formula of links leaves moments out",
        "islands/lab/experiments/formulas.py",
        "moments = [(BLOCK, 2 * BLOCK)] if settings.merge_moments else []",
        "moments: list[tuple[int, int]] = []",
        FLEETS,
    ),
    Mutation(
        "links count bytes of the toy",
        "messaging/simulation/network.py",
        "self._network.carried_bytes += size_bytes",
        "self._network.carried_bytes += envelope.size_bytes",
        FLEETS,
    ),
    Mutation(
        "a wait of actors is a step",
        "islands/lab/experiments/chips.py",
        "if self.stepped and start_s - self.stepped[-1][1] <= TOUCHING_S:",
        "if self.stepped:",
        FLEETS,
    ),
    Mutation(
        "a learner that steps no more is not still",
        "islands/lab/experiments/chips.py",
        "end_s = last_s if self.until_s == inf else self.until_s",
        "end_s = last_s",
        FLEETS,
    ),
    Mutation(
        "a step begins where the last one ended, whatever its learner waited for",
        "islands/lab/experiments/chips.py",
        "        self.chip_s += chips * (stop_s - start_s)\n        if self.stepped and",
        (
            "        began_s = self.stepped[-1][1] if self.stepped else start_s\n"
            "        self.chip_s += chips * (stop_s - began_s)\n        if self.stepped and"
        ),
        FLEETS,
    ),
    Mutation(
        "what is being mixed is gathered as well",
        "islands/protocol/gossip/gossip.py",
        "if fragment not in mixing and core.accounts",
        "if core.accounts",
        GOSSIPING,
    ),
    Mutation(
        "work is gathered twice over",
        "islands/protocol/gossip/gossip.py",
        "        if self.gathering:\n            return\n        self.gathering = True\n",
        "        self.gathering = True\n",
        GOSSIPING,
    ),
    Mutation(
        "gathered work stays in the slow value",
        "islands/learner/gossip.py",
        "        slow.value = slow.origin\n",
        "",
        GOSSIPING,
    ),
    Mutation(
        "a snapshot of before the gathering answers a pull",
        "islands/protocol/gossip/gossip.py",
        "                core.pulls.snapshots.pop(fragment, None)\n",
        "",
        GOSSIPING,
    ),
    Mutation(
        "shares are summed in the order of their arrival",
        "islands/learner/gossip.py",
        "for name in sorted(everyone)]",
        "for name in everyone]",
        GOSSIPING,
    ),
    Mutation(
        "a newcomer's rate is a round behind",
        "islands/protocol/gossip/gossip.py",
        "clock = (given.round + 1) * core",
        "clock = given.round * core",
        GOSSIPING,
    ),
    Mutation(
        "a newcomer comes to its donor's round once more",
        "islands/protocol/gossip/gossip.py",
        "exchanges.begin(core.incarnation, compute.steps, self.round)",
        "exchanges.begin(core.incarnation, compute.steps, self.round - 1)",
        GOSSIPING,
    ),
    Mutation(
        "a donor tells the round before",
        "islands/protocol/gossip/gossip.py",
        "self.exchanges.clock, digest=",
        "self.exchanges.clock - 1, digest=",
        GOSSIPING,
    ),
    Mutation(
        "the first ratio of a learner's clock is believed",
        "islands/protocol/learner/learning_rate_clock.py",
        "median_low(known if self.sure else [1.0, *known])",
        "median_low(known)",
        LEARNER_FLEET_CLOCK,
    ),
    Mutation(
        "a standstill is part of an interval of the clock",
        "islands/protocol/learner/learning_rate_clock.py",
        "if self.first is None or self.stood or epoch > self.epoch:",
        "if self.first is None or epoch > self.epoch:",
        LEARNER_FLEET_CLOCK,
    ),
    Mutation(
        "a new syncer's clock must exceed the last one's",
        "islands/protocol/learner/learning_rate_clock.py",
        "(epoch == self.epoch and newest and clock",
        "(newest and clock",
        LEARNER_FLEET_CLOCK,
    ),
    Mutation(
        "what merged before is news to an account",
        "islands/protocol/learner/account.py",
        (
            "        if merged is None or (merged.epoch, merged.round) <= self.merged_newest:\n"
            "            return None"
        ),
        "        if merged is None:\n            return None",
        LEARNER_ACCOUNT_OLD_NEWS,
    ),
    Mutation(
        "what merged before is news at a boundary",
        "islands/learner/boundary.py",
        "if merged is None or (merged.epoch, merged.round) <= self._merged.get(fragment, NEVER):",
        "if merged is None:",
        LEARNER_ENGINE_ERROR_FEEDBACK,
    ),
    Mutation(
        "a doubt ends with the first of its tickets",
        "islands/protocol/learner/account.py",
        "elif all(sent.decided_by(update) for sent in group):",
        "elif any(sent.decided_by(update) for sent in group):",
        LEARNER_ACCOUNT_OLD_NEWS,
    ),
    Mutation(
        "a welcome ends the doubts of its own epoch",
        "islands/protocol/learner/account.py",
        "if all(sent.epoch < epoch for sent in group):",
        "if all(sent.epoch <= epoch for sent in group):",
        LEARNER_ACCOUNT_OLD_NEWS,
    ),
    Mutation(
        "unknown work is carried over",
        "islands/protocol/learner/account.py",
        "return old or self._contains(self.sent, merged)",
        "return True",
        LEARNER_ACCOUNT_OLD_NEWS,
    ),
    Mutation(
        "what is decided stays known where work is carried over",
        "islands/protocol/learner/account.py",
        "        self.sent = [sent for sent in self.sent if not sent.decided_by(update)]\n",
        "",
        LEARNER_ACCOUNT_OLD_NEWS,
    ),
    Mutation(
        "what is merged is overwritten as well",
        "islands/protocol/learner/account.py",
        "            done -= merged.tokens\n",
        "            pass\n",
        LEARNER_ACCOUNT_OLD_NEWS,
    ),
    Mutation(
        "a base moves on without its steps",
        "islands/protocol/learner/account.py",
        "            self.base_steps += merged.steps\n",
        "",
        LEARNER_ACCOUNT_OLD_NEWS,
    ),
    Mutation(
        "pieces of two donors are mixed",
        "islands/protocol/learner/moments_recovery.py",
        "        moments.donor = donor\n        _forget(core)\n",
        "        moments.donor = donor\n",
        LEARNER_MOMENTS,
    ),
    Mutation(
        "a piece is asked for without end",
        "islands/protocol/learner/moments_recovery.py",
        "if times <= ASKED_MAX and core",
        "if core",
        LEARNER_MOMENTS,
    ),
    Mutation(
        "moments of later versions than are adopted are loaded",
        "islands/protocol/learner/moments_recovery.py",
        "now is not None and now >= before for now",
        "now is not None for now",
        LEARNER_MOMENTS,
    ),
    Mutation(
        "whoever waits for moments is not bound by when compute was ready",
        "islands/protocol/learner/core.py",
        "return inf if self.ready_s is None else max(self.began_s, self.ready_s) + limit_s",
        "return inf if self.ready_s is None else self.began_s + limit_s",
        LEARNER_MOMENTS,
    ),
    Mutation(
        "a donor gives what it has of an earlier incarnation",
        "islands/protocol/learner/moments_recovery.py",
        "return core.compute.own_steps > 0",
        "return core.compute.steps > 0",
        LEARNER_MOMENTS,
    ),
    Mutation(
        "any number of pieces waits at a donor",
        "islands/protocol/learner/moments_recovery.py",
        " and core.moments.giving < GIVING_MAX:",
        ":",
        LEARNER_MOMENTS,
    ),
    Mutation(
        "a learner forgets at once how far pulls went",
        "islands/protocol/learner/pulls.py",
        "self.span = max(moved, self.span - 1)",
        "self.span = moved",
        LEARNER_PULLS_SNAPSHOTS_STATE,
    ),
    Mutation(
        "what is undecided is snapshotted ahead",
        "islands/protocol/learner/pulls.py",
        "due = [index for index in ahead if index not in self.undecided]",
        "due = ahead",
        LEARNER_PULLS_SNAPSHOTS_STATE,
    ),
    Mutation(
        "answers that were skipped are lost",
        "islands/protocol/learner/pulls.py",
        "        self.wanted = self.skipped | self.wanted\n",
        "",
        LEARNER_PULLS_SNAPSHOTS_STATE,
    ),
    Mutation(
        "a link's first pull tells how far pulls went",
        "islands/protocol/learner/pulls.py",
        "                self.due_before, self.anew = pull.fragment, False\n",
        "                self.anew = False\n",
        LEARNER_PULLS_SNAPSHOTS_STATE,
    ),
    Mutation(
        "the last work of a run waits for a step",
        "islands/protocol/learner/schedule.py",
        "return core.compute.steps if core.compute.idle else core.",
        "return core.",
        LEARNER_PULLS_SNAPSHOTS_STATE,
    ),
    Mutation(
        "a round that passed delays nothing",
        "islands/protocol/learner/synchronous.py",
        (
            "        if self.anchor is not None and steps < self.due(round_):\n"
            "            self.anchor = round_, steps\n"
        ),
        "",
        LEARNER_SYNCHRONY,
    ),
    Mutation(
        "a round is due a step early",
        "islands/protocol/learner/synchronous.py",
        "return steps - (first - round_) * self.interval_steps // self.fragments",
        "return steps + (round_ - first) * self.interval_steps // self.fragments",
        LEARNER_SYNCHRONY,
    ),
    Mutation(
        "what is under way is settled with a later round",
        "islands/protocol/learner/synchronous.py",
        "            self.settled + 1 in under_way and self.settled + 1 not in self.beyond\n",
        "            False\n",
        LEARNER_SYNCHRONY,
    ),
    Mutation(
        "a value of another's round waits for its step",
        "islands/protocol/learner/synchronous.py",
        "if self.anchor is None or not contributed:",
        "if self.anchor is None:",
        LEARNER_SYNCHRONY,
    ),
    Mutation(
        "a turn that was refused is due at once",
        "islands/protocol/learner/own_turns.py",
        "begun = max(base_steps, self.refused_steps.get(fragment, 0))",
        "begun = base_steps",
        LEARNER_TURNS,
    ),
    Mutation(
        "a refusal outlives the next value",
        "islands/protocol/learner/own_turns.py",
        "        self.refused_steps.pop(update.fragment, None)\n",
        "",
        LEARNER_TURNS,
    ),
    Mutation(
        "while a run closes values wait for their step",
        "islands/protocol/learner/synchronous.py",
        "        if core.run.closing:\n            return 0\n",
        "",
        LEARNER_SYNCHRONY_STATE_OLD_NEWS,
    ),
    Mutation(
        "a snapshot without a step is taken",
        "islands/learner/boundary.py",
        "        if self._began_at[fragment] == self.steps:\n            return\n",
        "",
        LEARNER_ENGINE_SYNCHRONY_STEPPED_COMPUTE,
    ),
    Mutation(
        "a snapshot is taken again although nothing changed",
        "islands/learner/boundary.py",
        "or (of == base and taken_steps >= least_steps):",
        "or False:",
        LEARNER_ENGINE_SYNCHRONY_STEPPED_COMPUTE,
    ),
    Mutation(
        "moments that are not finite are kept",
        "islands/learner/boundary.py",
        (
            "        if not self.model.finite():\n"
            "            self.model.reset_moments()\n"
            "            return False\n"
        ),
        "",
        LEARNER_ENGINE_MOMENTS_COMPUTE,
    ),
    Mutation(
        "arrays that a step consumed are adopted into at the end",
        "islands/loops/joined_run.py",
        "            if self._announced:  # the parameters may have been donated to a step",
        "            if False:",
        JOINING_JOINED_RUN,
    ),
    Mutation(
        "after a divergence the announced step is booked",
        "islands/loops/joined_run.py",
        "            self._announced = False\n            raise TaskFailedError",
        "            raise TaskFailedError",
        JOINING_JOINED_RUN,
    ),
    Mutation(
        "a step beyond the end is taken back",
        "islands/loops/joined_run.py",
        (
            "            self._params, self._opt_state = params, opt_state\n"
            "            self._raise_failure()\n"
            "            return params"
        ),
        "            self._raise_failure()\n            return params",
        JOINING_JOINED_RUN,
    ),
    Mutation(
        "done after the end forgets the last step",
        "islands/loops/joined_run.py",
        (
            "        if over:  # what is held was given to a further step\n"
            "            self._params, self._opt_state = params, opt_state\n"
        ),
        "",
        JOINING_JOINED_RUN,
    ),
    Mutation(
        "a boundary that was broken off is left in order",
        "islands/loops/joined_run.py",
        "self._announced, self._inside = True, False",
        "self._announced, self._inside = False, False",
        JOINING_JOINED_RUN,
    ),
    Mutation(
        "a leave within a boundary announces a step",
        "islands/loops/joined_run.py",
        "            self._announced = False\n            self._leave()\n",
        "            self._leave()\n",
        JOINING_JOINED_RUN,
    ),
    Mutation(
        "batches are asked for in the middle",
        "islands/loops/joined_run.py",
        "if self._leased or self._compute.steps:",
        "if self._leased:",
        JOINING_JOINED_RUN,
    ),
    Mutation(
        "a batch is larger than a step",
        "islands/loops/joined_run.py",
        "if size > self._compute.batch_tokens:",
        "if False:",
        JOINING_JOINED_RUN,
    ),
    Mutation(
        "a cursor of the next batch is told",
        "islands/loops/own_data.py",
        "return self._packed() if self._noted is None else self._noted",
        "return self._packed()",
        JOINING_OWN_DATA,
    ),
    Mutation(
        "a cursor of any length is kept",
        "islands/loops/own_data.py",
        "if len(made) > CURSOR_BYTES_MAX:",
        "if False:",
        JOINING_OWN_DATA,
    ),
    Mutation(
        "a batch that was only read counts",
        "islands/loops/own_data.py",
        "            self._next = self._read(indices), after\n",
        "            self._next = self._read(indices), after\n            self._leases = after\n",
        JOINING_OWN_DATA,
    ),
    Mutation(
        "a new grant keeps the batch of a lost lease",
        "islands/loops/own_data.py",
        "        self._next = None\n        return self._leases\n",
        "        return self._leases\n",
        JOINING_OWN_DATA,
    ),
    Mutation(
        "positions reached are forgotten with a grant",
        "islands/loops/own_data.py",
        "max(lease, known.get(key_of(lease), lease)) for lease in leases",
        "lease for lease in leases",
        JOINING_OWN_DATA,
    ),
    Mutation(
        "new shards are read before those that were begun",
        "islands/loops/own_data.py",
        "key=lambda lease: (lease.position == 0, lease)",
        "key=lambda lease: lease",
        JOINING_OWN_DATA,
    ),
    Mutation(
        "a shard that is read whole is not done",
        "islands/loops/own_data.py",
        "done = position >= len(members)",
        "done = position > len(members)",
        JOINING_OWN_DATA,
    ),
    Mutation(
        "the last batch is short",
        "islands/loops/own_data.py",
        "return None if missing else (np",
        "return None if missing == self._size else (np",
        JOINING_OWN_DATA,
    ),
    Mutation(
        "a moment goes by a parameter's path whatever its shape",
        "islands/loops/jax_parameters.py",
        "if found is not None and found[1] == shape:",
        "if found is not None:",
        JOINING_JAX_MOMENTS,
    ),
    Mutation(
        "moments of a peer that are not finite are loaded (JAX)",
        "islands/loops/jax_parameters.py",
        "and not np.isfinite(values).all():",
        "and False:",
        JOINING_JAX_MOMENTS,
    ),
    Mutation(
        "another structure of the optimizer's state passes",
        "islands/loops/jax_parameters.py",
        "        if tree != self._tree:",
        "        if False:",
        JOINING_JAX_MOMENTS,
    ),
    Mutation(
        "the longest path does not win",
        "islands/loops/jax_parameters.py",
        "for start in range(len(words)):",
        "for start in reversed(range(len(words))):",
        JOINING_JAX_MOMENTS,
    ),
    Mutation(
        "a random key is put back as words",
        "islands/loops/jax_parameters.py",
        "if is_key(leaf) else new",
        "if False else new",
        JOINING_JAX_MOMENTS,
    ),
    Mutation(
        "an optimizer's state may be left out at a boundary",
        "islands/loops/jax_parameters.py",
        "if (opt_state is None) != (self._moments is None):",
        "if False:",
        JOINING_JAX_PARAMETERS_JOINED_RUN_JAX_MOMENTS,
    ),
    Mutation(
        "a loop's divergence is told for ever",
        "islands/loops/own_model.py",
        "found, self._diverged = self._diverged, False",
        "found = self._diverged",
        JOINING_JAX_PARAMETERS_JOINED_RUN_TORCH_PARAMETERS,
    ),
    Mutation(
        "a bad model joins",
        "islands/loops/own_model.py",
        "    if not model.finite():\n        raise",
        "    if False:\n        raise",
        JOINING_JAX_PARAMETERS_TORCH_PARAMETERS,
    ),
    Mutation(
        "a stall of the machine excuses a gap at another time",
        "islands/lab/faults/gaps.py",
        "(one.length_s for one in stalls if one.overlaps(_sent(span, lengths_s[0], one)))",
        "(one.length_s for one in stalls)",
        CHAOS_GAPS,
    ),
    Mutation(
        "a report is heard when it was sent, whatever stood still",
        "islands/lab/faults/gaps.py",
        "return span[0] - stall.length_s - gap_s, span[1]",
        "return span[0] - gap_s, span[1]",
        CHAOS_GAPS,
    ),
    Mutation(
        "one stall of the machine excuses every gap",
        "islands/lab/faults/gaps.py",
        "machine_s[: len(lengths_s)]",
        "machine_s[:1] * len(lengths_s)",
        CHAOS_GAPS,
    ),
    Mutation(
        "a stall of the machine excuses nothing",
        "islands/lab/faults/gaps.py",
        "max(0.0, *(gap - own for gap, own in pairs))",
        "max(0.0, *(gap for gap, own in pairs))",
        CHAOS_GAPS,
    ),
    Mutation(
        "what is left of the longest gap hides the others",
        "islands/lab/faults/gaps.py",
        "max(gap.left_s for gap in known)",
        "longest.left_s",
        CHAOS_GAPS,
    ),
    Mutation(
        "reports that a hub heard together are told apart",
        "islands/lab/faults/gaps.py",
        "if report.steps > last.steps and following.at_s - report.at_s >= CLOSE * usual_s:",
        "if report.steps > last.steps and following.steps >= usual_s:",
        CHAOS_GAPS,
    ),
    Mutation(
        "a stall in the control loosens the limit",
        "islands/lab/faults/verdict.py",
        "gap.left_s - control.gap.left_s > most_s:",
        "gap.left_s - control.gap.longest_s > most_s:",
        CHAOS_FINDINGS,
    ),
    Mutation(
        "what noting a stall takes is a stall",
        "islands/lab/faults/bare_loop.py",
        "        due_s = clock.now_s() + STEP_S\n",
        "        due_s += STEP_S\n",
        CHAOS_GAPS,
    ),
)
