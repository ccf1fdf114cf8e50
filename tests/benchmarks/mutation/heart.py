"""The heart: faults in the seam of two roles, each of which may be green alone."""

from tests.benchmarks.mutation.kind import Mutation

HEART = (
    Mutation(
        "a pull that a newer one replaces is never declined",
        "islands/protocol/learner/answering.py",
        "    if replaced is not None:\n        _decline(core, replaced, REPLACED)\n",
        "    if replaced is not None:\n        pass\n",
        ("tests/rounds/test_starved.py",),
    ),
    Mutation(
        "one lost answer leaves its learner with a pull for ever",
        "islands/protocol/syncer/contribution_admission.py",
        (
            "    for earlier in learner.pulls.overtaken(number, fragment)"
            " if pull is not None else ():\n"
        ),
        "    for earlier in ():\n",
        ("tests/rounds/test_starved.py", "tests/syncer/test_retries.py"),
    ),
    Mutation(
        "an answer that a newer one replaces in the queue has no end",
        "islands/protocol/learner/answering.py",
        "    if not core.pulls.unanswered(event.fragment, event.ticket):\n",
        "    if not core.pulls.unanswered(event.fragment, event.ticket) and False:\n",
        ("tests/learner/test_pulls.py", "tests/learner/test_state.py"),
    ),
    Mutation(
        "a full inspection queue drops an answer in silence",
        "islands/syncer/inspection_queue.py",
        "            self._post(Received(declined, connection))\n",
        "",
        ("tests/syncer/test_actor.py",),
    ),
    Mutation(
        "a learner that is heard counts as silent",
        "islands/protocol/syncer/members.py",
        " and self.heard_s <= oldest_s\n",
        "\n",
        ("tests/syncer/test_eligibility.py",),
    ),
    Mutation(
        "a word does not redeem a silent learner",
        "islands/protocol/syncer/members.py",
        "        silent, self.silent, self.heard_s = self.silent, False, now_s\n",
        "        silent, self.heard_s = False, now_s\n",
        ("tests/syncer/test_eligibility.py",),
    ),
    Mutation(
        "a round with quorum auto waits for nobody",
        "islands/protocol/syncer/grace.py",
        "        return usual_s is None or usual_s <= self.near_s\n",
        "        return False\n",
        ("tests/syncer/test_grace.py",),
    ),
    Mutation(
        "a round with quorum auto waits for ever",
        "islands/protocol/syncer/rounds.py",
        "        if now_s >= self.patient_until_s and self.awaited:\n",
        "        if False:\n",
        ("tests/syncer/test_grace.py",),
    ),
    Mutation(
        "the end of patience does not enter what is measured",
        "islands/protocol/syncer/scheduling.py",
        "            core.rounds.durations.quorum_s.add(now_s - round_.opened_s)\n",
        "            pass\n",
        ("tests/syncer/test_grace.py",),
    ),
    Mutation(
        "who has yet to adopt is not awaited",
        "islands/protocol/syncer/scheduling.py",
        "            round_.await_adoption_of(name)\n",
        "            pass\n",
        ("tests/syncer/test_grace.py",),
    ),
    Mutation(
        "a decline over an old link ends a pull of the new one",
        "islands/protocol/syncer/contribution_admission.py",
        (
            "    if connection != learner.connection or ticket.epoch != core.durable.epoch:\n"
            "        return\n"
        ),
        "",
        ("tests/syncer/test_retries.py",),
    ),
    Mutation(
        "lone steps outweigh all others in the last merges",
        "islands/protocol/syncer/commits.py",
        "    return min(1.0, BELATED_INTERVALS * max(usual_steps, interval_steps) / steps)\n",
        "    return 1.0\n",
        ("tests/syncer/test_closing.py",),
    ),
    Mutation(
        "decay goes on by steps where a budget is set",
        "islands/protocol/settings/run.py",
        (
            "        if self.total_steps is None or self.budget_tokens is None:\n"
            "            return clock + steps\n"
        ),
        "        if True:\n            return clock + steps\n",
        ("tests/settings/test_learning_rate.py",),
    ),
    Mutation(
        "a quarantined learner's process lives on",
        "islands/protocol/learner/membership.py",
        "        begin_leaving(core, reason, refused=True)\n",
        "        pass\n",
        ("tests/learner/test_quarantine.py",),
    ),
)
