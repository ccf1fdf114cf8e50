"""Rounds: who is asked, what is admitted, when they close, what is committed."""

from tests.benchmarks.mutation.kind import Mutation

ORACLE_VALUES = "tests/oracle/test_values.py"
SYNCER_CLAIMS = "tests/syncer/test_claims.py"
SYNCER_COMMITS = "tests/syncer/test_commits.py"
SYNCER_DURABLE_FIRST = "tests/syncer/test_durable_first.py"
SYNCER_ELIGIBILITY = "tests/syncer/test_eligibility.py"
SYNCER_FATE = "tests/syncer/test_fate.py"
SYNCER_GRACE = "tests/syncer/test_grace.py"
SYNCER_LATE_ANSWERS = "tests/syncer/test_late_answers.py"
SYNCER_ROUND_EDGES = "tests/syncer/test_round_edges.py"
SYNCER_ROUNDS = "tests/syncer/test_rounds.py"
SYNCER_VAULT = "tests/syncer/test_vault.py"

ROUNDS = (
    Mutation(
        "a round opened on a fragment that has one",
        "islands/syncer/scheduling.py",
        "if fragment in core.rounds or core.barren == number:",
        "if core.barren == number:",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "an opened round costs no credit",
        "islands/syncer/scheduling.py",
        "        core.pace.opened()\n",
        "",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "round numbers do not grow",
        "islands/syncer/scheduling.py",
        "    core.durable.round += 1\n",
        "",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "what an ended incarnation contributed stays in the round",
        "islands/syncer/scheduling.py",
        "admitted = round_.arrived.pop(name, None)",
        "admitted = round_.arrived.get(name)",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "the quorum's time stays after a withdrawal",
        "islands/syncer/scheduling.py",
        "        if not round_.quorum_complete:\n            round_.quorum_s = None\n",
        "",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "a decline excuses nobody",
        "islands/syncer/scheduling.py",
        "        excuse(round_, ticket.name, reason)\n\n\ndef take_contribution",
        "        pass\n\n\ndef take_contribution",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "an answer over a link that is gone is taken",
        "islands/syncer/scheduling.py",
        "if connection != learner.connection:",
        "if False:",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "a closed round's ticket stays open",
        "islands/syncer/scheduling.py",
        "        and round_.stage is Stage.COLLECTING\n        and round_.asked",
        "        and round_.asked",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "another round's ticket is admitted",
        "islands/syncer/scheduling.py",
        "        and round_.asked.get(learner.name) == contribution.ticket\n",
        "        and learner.name in round_.asked\n",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "an answered pull stays unanswered",
        "islands/syncer/scheduling.py",
        "        learner.unanswered.pop(ticket.round, None)\n        learner.exchange.answer(",
        "        learner.exchange.answer(",
        (SYNCER_ROUND_EDGES,),
    ),
    Mutation(
        "norms compared per step instead of per root of steps",
        "islands/syncer/scheduling.py",
        "check.norm / (sqrt(contribution.steps) * rate)",
        "check.norm / (contribution.steps * rate)",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "the learning rate left out of the norms",
        "islands/syncer/scheduling.py",
        "check.norm / (sqrt(contribution.steps) * rate)",
        "check.norm / sqrt(contribution.steps)",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "a refused contribution leaves no claim",
        "islands/syncer/scheduling.py",
        "ledger.claim(ticket.name, contribution.fragment, refused.fate, contribution.tokens)",
        "pass",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "strikes are not counted",
        "islands/syncer/scheduling.py",
        "    if refused.strike:\n",
        "    if False:\n",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "an abandoned round's contributions have no fate",
        "islands/syncer/scheduling.py",
        "        refuse(core, round_.arrived[name].contribution, late, now_s, None)\n",
        "        _ = late\n",
        (SYNCER_ROUNDS,),
    ),
    Mutation(
        "a round merges below its quorum after refusals",
        "islands/syncer/scheduling.py",
        "if len(admitted) < (round_.quorum or 1):",
        "if not admitted:",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "contributions merged in the order of arrival",
        "islands/syncer/scheduling.py",
        "return [(round_.arrived[name], scales[str(name)]) for name in sorted(round_.arrived)]",
        "return [(round_.arrived[name], scales[str(name)]) for name in round_.arrived]",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "who is newly eligible is not asked",
        "islands/syncer/scheduling.py",
        "            _ask_newly_eligible(core, round_, now_s)\n",
        "",
        (SYNCER_ROUND_EDGES, SYNCER_LATE_ANSWERS, SYNCER_ROUNDS, SYNCER_CLAIMS),
    ),
    Mutation(
        "a new version keeps the old epoch",
        "islands/syncer/scheduling.py",
        "target = Version(core.durable.epoch, round_.version.number + 1)",
        "target = Version(round_.version.epoch, round_.version.number + 1)",
        (SYNCER_COMMITS,),
    ),
    Mutation(
        "a version is sent before it is durable",
        "islands/syncer/commits.py",
        "    core.write_fragment(fragment)\n\n\ndef _look",
        "    core.write_fragment(fragment)\n    _commit(core, fragment, now_s)\n\n\ndef _look",
        (SYNCER_DURABLE_FIRST, SYNCER_ROUND_EDGES, SYNCER_COMMITS, SYNCER_LATE_ANSWERS),
    ),
    Mutation(
        "what was merged is not dropped",
        "islands/syncer/commits.py",
        "    core.actions.append(DropContribution(ticket))\n",
        "",
        (SYNCER_DURABLE_FIRST, SYNCER_ROUND_EDGES, SYNCER_COMMITS, SYNCER_LATE_ANSWERS),
    ),
    Mutation(
        "the round of a version is not journalled",
        "islands/syncer/commits.py",
        "Published(version, facts.digest, number)",
        "Published(version, facts.digest, -1)",
        (SYNCER_DURABLE_FIRST, SYNCER_ROUND_EDGES, SYNCER_COMMITS, SYNCER_LATE_ANSWERS),
    ),
    Mutation(
        "a grant is sent before it is durable",
        "islands/syncer/commits.py",
        "while core.written_grants and core.written_grants[0][0] <= sequence:",
        "while core.written_grants:",
        (SYNCER_DURABLE_FIRST,),
    ),
    Mutation(
        "an update does not tell what it contains",
        "islands/syncer/core.py",
        "return account.merged if contained else None",
        "return None",
        (SYNCER_DURABLE_FIRST, SYNCER_COMMITS, SYNCER_ROUNDS),
    ),
    Mutation(
        "an update tells of a later version's contribution",
        "islands/syncer/core.py",
        "account.merged_version <= version",
        "True",
        (SYNCER_DURABLE_FIRST, SYNCER_COMMITS, SYNCER_ROUNDS),
    ),
    Mutation(
        "asked again before the own merge is adopted",
        "islands/syncer/eligibility.py",
        "if merged is not None and base < merged:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "a base that is not kept is fresh",
        "islands/syncer/eligibility.py",
        "if base not in kept:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "asked without a step since the base",
        "islands/syncer/eligibility.py",
        "if learner.progress.steps <= told.base_steps:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "asked with two pulls unanswered",
        "islands/syncer/eligibility.py",
        "if len(learner.unanswered) >= UNANSWERED_MAX:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "asked before every fragment is adopted",
        "islands/syncer/eligibility.py",
        "if not learner.whole:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "suspects are asked",
        "islands/syncer/eligibility.py",
        "if learner.status is not Status.LIVE:",
        "if False:",
        (SYNCER_ELIGIBILITY, SYNCER_ROUNDS),
    ),
    Mutation(
        "the limit on norms is told from no sample on",
        "islands/syncer/fate.py",
        "known = len(self._samples) >= NORM_SAMPLES_MIN",
        "known = True",
        (SYNCER_FATE,),
    ),
    Mutation(
        "norms enter the median only when they are small",
        "islands/syncer/fate.py",
        (
            "        self._samples.append(rate)\n"
            "        return rate / allowed if known and allowed > 0 else 0.0"
        ),
        (
            "        if not allowed or rate <= allowed:\n"
            "            self._samples.append(rate)\n"
            "        return rate / allowed if known and allowed > 0 else 0.0"
        ),
        (SYNCER_FATE,),
    ),
    Mutation(
        "a changed regime is refused, not clipped",
        "islands/syncer/fate.py",
        "if 2 * len(over) >= len(excesses):",
        "if False:",
        (SYNCER_FATE,),
    ),
    Mutation(
        "grace longer than a step",
        "islands/syncer/grace.py",
        "return min(step_s, safety * hidden_s)",
        "return safety * hidden_s",
        (SYNCER_GRACE, SYNCER_ROUNDS),
    ),
    Mutation(
        "grace ignores what the exchange needs",
        "islands/syncer/grace.py",
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
        '{"value": shelf.values[version], **shelf.state}',
        '{"value": shelf.values[version]}',
        (ORACLE_VALUES,),
    ),
    Mutation(
        "too few versions are kept",
        "islands/syncer/vault.py",
        "[: -(self._settings.staleness_max + 2)]",
        "[:-1]",
        (ORACLE_VALUES,),
    ),
)
