"""Each rule of the history checker says of a short tape what it should, and no more.

A lie that is weakened, left out or taken for the truth shows in one of these tapes, as each rule is
asked for all of its sentences. A sentence that no tape brings about fails a test.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from islands.lab.checker import RULES, accounts, bounds, evidence, judge, order, pulls
from islands.lab.checker.evidence import Limits, TicketFacts, pair, ticket
from islands.layout.fragments import plan
from islands.layout.leaves import Leaf
from islands.protocol.identities import Fate
from islands.protocol.settings.choices import Trigger
from islands.protocol.settings.run import RunSettings, Timing
from tests.lab.checker import account_cases, bound_cases, kept_cases, order_cases
from tests.lab.checker.cases import ANA, LIMITS, Case, began, encoded, fate, reported

CASES = [*order_cases.CASES, *account_cases.CASES, *bound_cases.CASES, *kept_cases.CASES]
IDS = [f"{number} {case.rule.__name__}: {case.name}" for number, case in enumerate(CASES)]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_rule_says_of_a_tape_what_it_should(case: Case) -> None:
    assert case.judged() == list(case.sentences)


def sentences() -> Iterator[tuple[str, str]]:
    """Every sentence that the rules can say: where it stands, and a pattern of it."""
    for module in (accounts, bounds, evidence, order, pulls):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            match node:
                case ast.Yield(value=(ast.JoinedStr() | ast.Constant()) as said):
                    pass
                case ast.Call(func=ast.Attribute(attr="append"), args=[(ast.JoinedStr()) as said]):
                    pass
                case _:
                    continue
            parts = said.values if isinstance(said, ast.JoinedStr) else [said]
            pattern = "".join(
                re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*"
                for part in parts
            )
            yield f"{module.__name__}:{node.lineno}", pattern


def test_every_sentence_is_said_of_some_tape() -> None:
    said = [sentence for case in CASES for sentence in case.sentences]
    known = list(sentences())
    assert len(known) >= 40
    missing = [
        where for where, pattern in known if not any(re.fullmatch(pattern, one) for one in said)
    ]
    assert missing == []


def test_every_rule_has_a_lie_and_a_truth() -> None:
    lies = {case.rule for case in CASES if case.sentences}
    truths = {case.rule for case in CASES if not case.sentences}
    assert [rule.__name__ for _, rule in RULES if rule not in lies & truths] == []


def test_a_tape_is_judged_by_all_rules_under_their_promises() -> None:
    names = [(name, rule.__name__) for name, rule in RULES]
    assert len(set(names)) == len(names) == 28
    lines = encoded([began(), reported(10), fate("ana/1.1@1:1", Fate.LATE)])
    assert [str(violation) for violation in judge(lines, LIMITS)] == [
        "I2: ana/1.1@1:1 was late with 10 tokens and never sent like that",
        "I2: ('ana', (1, 1)) processed 10 tokens, granted were 0",
    ]


def test_limits_are_those_of_the_settings() -> None:
    layout = plan([Leaf("w", (6, 2)), Leaf("b", (4,))], count=2, min_piece_bytes=4)
    timing = Timing(patience=2.0, resend_s=3.0)
    settings = RunSettings(
        fragments=2,
        quorum=3,
        staleness_max=4,
        budget_tokens=70,
        timing=timing,
    )
    rest = {"batch_tokens": {ANA: 10}, "records_per_shard": 8, "mailbox_most": 3}
    limits = Limits.of(settings, layout, **rest, late_s=0.5)  # type: ignore[arg-type]
    assert limits == Limits(
        fragment_elements=tuple(fragment.size for fragment in layout.fragments),
        open_rounds_max=settings.open_rounds_max(2),
        staleness_max=4,
        quorum=3,
        budget_tokens=70,
        batch_tokens={ANA: 10},
        records_per_shard=8,
        mailbox_most=3,
        moments_wait_s=6.5,
        to_contributors=False,
        must_finish=True,
        paced=True,
        awaits=False,
        report_late_s=12.5,
    )
    to_some = replace(
        settings,
        quorum=1,
        trigger=Trigger.LEARNER,
    )
    assert Limits.of(to_some, layout, **rest).to_contributors  # type: ignore[arg-type]
    assert Limits.of(to_some, layout, **rest).moments_wait_s == 6.0  # type: ignore[arg-type]


def test_names_may_look_like_tickets() -> None:
    assert pair("12.34") == (12, 34)
    assert ticket("a/b@c/3.4@5:6") == TicketFacts("a/b@c", (3, 4), 5, 6)
