"""Rounds: who is asked, what is admitted, when they close, what is committed."""

from tests.benchmarks.mutation.kind import Mutation

ORACLE_VALUES = "tests/oracle/test_values.py"
SYNCER_OLD_VALUES = "tests/syncer/test_old_values.py"
SYNCER_PLAUSIBILITY = "tests/syncer/test_plausibility.py"
SYNCER_COMMITS = "tests/syncer/test_commits.py"
SYNCER_DURABLE_FIRST = "tests/syncer/test_durable_first.py"
SYNCER_ELIGIBILITY = "tests/syncer/test_eligibility.py"
SYNCER_FATE = "tests/syncer/test_admission.py"
SYNCER_GRACE = "tests/syncer/test_grace.py"
SYNCER_LATE_ANSWERS = "tests/syncer/test_late_answers.py"
SYNCER_ROUND_EDGES = "tests/syncer/test_round_edges.py"
SYNCER_ROUNDS = "tests/syncer/test_rounds.py"
SYNCER_VAULT = "tests/syncer/test_vault.py"

ROUNDS = (
    Mutation(
        "a round opened on a fragment that has one",
        "islands/protocol/syncer/scheduling.py",
        "if fragment in core.rounds.open or core.rounds.barren == number:",
        "if core.rounds.barren == number:",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "an opened round costs no credit",
        "islands/protocol/syncer/scheduling.py",
        "        core.rounds.pace.opened(core.interval_steps / core.fragments)\n",
        "",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "round numbers do not grow",
        "islands/protocol/syncer/scheduling.py",
        "    core.durable.round += 1\n",
        "",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "what an ended incarnation contributed stays in the round",
        "islands/protocol/syncer/rounds.py",
        "        admitted = self.arrived.pop(name, None)\n",
        "        admitted = self.arrived.get(name)\n",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "the quorum's time stays after a withdrawal",
        "islands/protocol/syncer/rounds.py",
        (
            "        if not self.quorum_complete:\n            self.quorum_s = None\n"
            "        self.changes += 1\n        return admitted"
        ),
        "        self.changes += 1\n        return admitted",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "a decline excuses nobody",
        "islands/protocol/syncer/admission.py",
        "        round_.excuse(ticket.name, declined.reason)\n",
        "        pass\n",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "an answer over a link that is gone is taken",
        "islands/protocol/syncer/admission.py",
        "if connection != learner.connection:",
        "if False:",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "a closed round's ticket stays open",
        "islands/protocol/syncer/admission.py",
        "        and round_.stage is Stage.COLLECTING\n        and round_.asked",
        "        and round_.asked",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "another round's ticket is admitted",
        "islands/protocol/syncer/admission.py",
        "        and round_.asked.get(learner.name) == contribution.ticket\n",
        "        and learner.name in round_.asked\n",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "an answered pull stays unanswered",
        "islands/protocol/syncer/members.py",
        "        self.unanswered.pop(round_, None)\n        self.exchange.answer(",
        "        self.exchange.answer(",
        (SYNCER_ROUND_EDGES,),
    ),
    Mutation(
        "norms compared per step instead of per root of steps",
        "islands/protocol/syncer/admission.py",
        "check.norm / (sqrt(steps) * rate)",
        "check.norm / (steps * rate)",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "the learning rate left out of the norms",
        "islands/protocol/syncer/admission.py",
        "check.norm / (sqrt(steps) * rate)",
        "check.norm / sqrt(steps)",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "a refused contribution leaves no claim",
        "islands/protocol/syncer/admission.py",
        "ledger.claim(ticket.name, contribution.fragment, refused.fate, contribution.tokens)",
        "pass",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "strikes are not counted",
        "islands/protocol/syncer/admission.py",
        "    if refused.strike:\n",
        "    if False:\n",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "an abandoned round's contributions have no fate",
        "islands/protocol/syncer/scheduling.py",
        "        refuse(core, round_.arrived[name].contribution, late, now_s, None)\n",
        "        _ = late\n",
        (SYNCER_ROUNDS,),
    ),
    Mutation(
        "a round merges below its quorum after refusals",
        "islands/protocol/syncer/scheduling.py",
        "if len(admitted) < (round_.quorum or 1):",
        "if not admitted:",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "contributions merged in the order of arrival",
        "islands/protocol/syncer/scheduling.py",
        "judged.scales[str(name)]) for name in sorted(round_.arrived)]",
        "judged.scales[str(name)]) for name in round_.arrived]",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "who is newly eligible is not asked",
        "islands/protocol/syncer/scheduling.py",
        "            _ask_newly_eligible(core, round_, now_s)\n",
        "",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_PLAUSIBILITY),
    ),
    Mutation(
        "a new version keeps the old epoch",
        "islands/protocol/syncer/scheduling.py",
        "target = Version(core.durable.epoch, round_.version.number + 1)",
        "target = Version(round_.version.epoch, round_.version.number + 1)",
        (SYNCER_COMMITS,),
    ),
    Mutation(
        "a version is sent before it is durable",
        "islands/protocol/syncer/commits.py",
        "    core.write_fragment(fragment)\n\n\ndef _keep",
        "    core.write_fragment(fragment)\n    _commit(core, fragment, now_s)\n\n\ndef _keep",
        (SYNCER_DURABLE_FIRST, SYNCER_ROUND_EDGES, SYNCER_COMMITS, SYNCER_LATE_ANSWERS),
    ),
    Mutation(
        "what was merged is not dropped",
        "islands/protocol/syncer/commits.py",
        "    core.actions.append(DropContribution(ticket))\n",
        "",
        (SYNCER_DURABLE_FIRST, SYNCER_ROUND_EDGES, SYNCER_COMMITS, SYNCER_LATE_ANSWERS),
    ),
    Mutation(
        "the round of a version is not journalled",
        "islands/protocol/syncer/commits.py",
        "Published(version, facts.digest, number, settled)",
        "Published(version, facts.digest, -1, settled)",
        (SYNCER_DURABLE_FIRST, SYNCER_ROUND_EDGES, SYNCER_COMMITS, SYNCER_LATE_ANSWERS),
    ),
    Mutation(
        "a grant is sent before it is durable",
        "islands/protocol/syncer/books.py",
        "while self.written_grants and self.written_grants[0][0] <= sequence:",
        "while self.written_grants:",
        (SYNCER_DURABLE_FIRST,),
    ),
    Mutation(
        "an update does not tell what it contains",
        "islands/protocol/syncer/ledger.py",
        "return self.books[name].accounts[fragment].merged if contained else None",
        "return None",
        (SYNCER_DURABLE_FIRST, SYNCER_COMMITS, SYNCER_ROUNDS),
    ),
    Mutation(
        "an update tells of a later version's contribution",
        "islands/protocol/syncer/ledger.py",
        "contained = merged is not None and merged <= version",
        "contained = merged is not None",
        (SYNCER_DURABLE_FIRST, SYNCER_COMMITS, SYNCER_ROUNDS),
    ),
    Mutation(
        "asked again before the own merge is adopted",
        "islands/protocol/syncer/eligibility.py",
        "if merged is not None and base < merged:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "a base that is not kept is fresh",
        "islands/protocol/syncer/eligibility.py",
        "if base not in kept:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "asked without a step since the base",
        "islands/protocol/syncer/eligibility.py",
        "if learner.progress.steps <= told.base_steps:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "asked with two pulls unanswered",
        "islands/protocol/syncer/eligibility.py",
        "if len(learner.unanswered) >= UNANSWERED_MAX:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "asked before every fragment is adopted",
        "islands/protocol/syncer/eligibility.py",
        "if not learner.whole:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "suspects are asked",
        "islands/protocol/syncer/eligibility.py",
        "if learner.status is not Status.LIVE:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "the limit on norms is told from no sample on",
        "islands/protocol/syncer/plausibility.py",
        "if known >= NORM_SAMPLES_MIN else 0.0",
        "if known else 0.0",
        (SYNCER_FATE,),
    ),
    Mutation(
        "one of two whose norms are too long is clipped",
        "islands/protocol/syncer/plausibility.py",
        "2 * sum(exceeds.values()) > len(exceeds)",
        "2 * sum(exceeds.values()) >= len(exceeds)",
        (SYNCER_FATE,),
    ),
    Mutation(
        "a changed regime is refused, not clipped",
        "islands/protocol/syncer/plausibility.py",
        "if alone or 2 * sum(exceeds.values()) > len(exceeds):",
        "if alone:",
        (SYNCER_FATE,),
    ),
    Mutation(
        "grace longer than a step",
        "islands/protocol/syncer/timing.py",
        "return min(step_s, safety * hidden_s)",
        "return safety * hidden_s",
        (SYNCER_GRACE, SYNCER_ROUNDS),
    ),
    Mutation(
        "grace ignores what the exchange needs",
        "islands/protocol/syncer/timing.py",
        "overlap_steps * step_s - quorum_s - sync_s",
        "overlap_steps * step_s",
        (SYNCER_GRACE, SYNCER_ROUNDS),
    ),
    Mutation(
        "the first answer to a ticket is overwritten by a repetition",
        "islands/syncer/vault.py",
        "if connection not in by_link:",
        "if True:",
        (SYNCER_VAULT,),
    ),
    Mutation(
        "an optimizer's state is not journalled",
        "islands/syncer/vault.py",
        'return {"value": shelf.values[version], **shelf.state, **remainder}',
        'return {"value": shelf.values[version], **remainder}',
        (ORACLE_VALUES,),
    ),
    Mutation(
        "too few versions are kept",
        "islands/syncer/vault.py",
        "[: -self._settings.values_kept]",
        "[:-1]",
        (ORACLE_VALUES,),
    ),
    Mutation(
        "old values are freed while a round is open",
        "islands/protocol/syncer/commits.py",
        "if not kept.older_held or fragment in core.rounds.open or _needed(core, fragment):",
        "if not kept.older_held or _needed(core, fragment):",
        (SYNCER_OLD_VALUES,),
    ),
    Mutation(
        "old values are freed though a learner contributes from them",
        "islands/protocol/syncer/commits.py",
        "return counts and held != kept.newest and held in kept",
        "return counts and held is None",
        (SYNCER_OLD_VALUES,),
    ),
    Mutation(
        "who was lost comes back to a value that was freed",
        "islands/protocol/syncer/commits.py",
        " or kept.awaited:",
        ":",
        (SYNCER_OLD_VALUES,),
    ),
    Mutation(
        "a restarted syncer frees what a learner in its books holds",
        "islands/protocol/syncer/commits.py",
        "return len(core.durable.ledger.books) > len(core.members.index.learners)",
        "return False",
        (SYNCER_OLD_VALUES,),
    ),
)
