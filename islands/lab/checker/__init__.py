"""The history checker: it reads a tape and reports which promises (protocol §15) were broken.

It is pure, and trusts no counter of the states that it judges: it recounts from what each actor
recorded of its own actions. Rules with the same name check different parts of one promise.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from islands.lab.checker import accounts, bounds, order, pulls
from islands.lab.checker.evidence import History, Limits

Rule = Callable[[History, Limits], Iterator[str]]

RULES: tuple[tuple[str, Rule], ...] = (
    ("I1", order.epochs_grow),
    ("I1", order.incarnations_are_given_once),
    ("I1", order.versions_grow),
    ("I1", order.versions_follow),
    ("I1", order.versions_have_one_value),
    ("write", order.journal_comes_first),
    ("kept", order.checkpoints_are_moments),
    ("kept", order.checkpoints_stay),
    ("fence", order.what_ended_is_fenced),
    ("quorum", order.rounds_have_their_quorum),
    ("I2", accounts.each_has_one_fate),
    ("I2", accounts.nothing_is_applied_twice),
    ("I2", accounts.contributions_are_their_steps),
    ("I2", accounts.adoptions_discard),
    ("I2", accounts.ledger_balances),
    ("I2", accounts.quotas_are_kept),
    ("I2", accounts.shards_are_read_on),
    ("I3", bounds.values_are_finite),
    ("I4", order.learners_keep_up),
    ("I5", bounds.contributions_fit),
    ("I7", bounds.mailboxes_are_short),
    ("pull", pulls.pulls_end_once),
    ("asked", pulls.the_able_are_asked),
    ("merged", pulls.the_able_are_merged),
    ("moments", bounds.steps_follow_moments),
    ("moments", bounds.moments_are_given),
    ("moments", bounds.nobody_waits_for_moments),
    ("end", bounds.run_ends),
)


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: the name of its rule, and a sentence that says what broke it."""

    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


def judge(lines: Iterable[bytes], limits: Limits, *, but: tuple[Rule, ...] = ()) -> list[Violation]:
    """Check a tape by all rules but some; returns the violations, none if all promises are kept."""
    history, rules = History.of(lines), [each for each in RULES if each[1] not in but]
    return [Violation(name, sentence) for name, rule in rules for sentence in rule(history, limits)]
