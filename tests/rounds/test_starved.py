"""A healthy learner is never left out: one pull without an answer, on the cores of both sides."""

from islands.protocol.identities import LearnerName
from islands.protocol.messages.training import ContributionDeclined
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.actions import BeginMerge
from islands.protocol.syncer.members import unready_because
from tests.learner.bench import stepping
from tests.syncer.bench import Bench, opened, seeded

BEN = LearnerName("ben")


def merged_round(bench: Bench, *, without: frozenset[str] = frozenset()) -> set[str]:
    """One round: all who are asked answer but some; it is merged and adopted. Who was asked?"""
    pulls = opened(bench)
    for pull in sorted(pulls, key=lambda pull: pull.ticket.name, reverse=True):  # ben first
        if pull.ticket.name not in without:
            bench.answer(pull)
    if not bench.of(BeginMerge):
        bench.tick(0.0)
    bench.merge()
    bench.journal()
    for name in sorted(bench.learners):
        bench.adopt(name)
    bench.tick(0.05)
    return {str(pull.ticket.name) for pull in pulls}


def test_every_pull_is_answered_or_declined() -> None:
    bench = stepping()
    bench.pull(0, 4)  # there is no snapshot yet, so it stays open
    ended: list[int] = []
    bench.pull(0, 6)
    ended += [one.ticket.round for one in bench.sent(ContributionDeclined)]
    bench.step()
    bench.snapshot(0)
    ended += [one.ticket.round for one in bench.contributed()]
    assert sorted(ended) == [4, 6]


def test_who_answers_all_other_pulls_is_not_silent() -> None:
    bench = seeded("ana", "ben", settings=RunSettings(interval_steps=4, fragments=2, quorum=1))
    merged_round(bench, without=frozenset({"ben"}))
    left_out_s = 0.0
    while bench.now_s < 60.0:
        before_s = bench.now_s
        if "ben" not in merged_round(bench):
            left_out_s += bench.now_s - before_s
    assert left_out_s == 0.0
    assert unready_because(bench.core.members.learners[BEN]) is None
    assert len(bench.core.members.learners[BEN].pulls) == 0
