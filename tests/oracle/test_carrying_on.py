"""The learner's half of the oracle where adoption carries on what a value does not contain.

Reference: protocol §14, delay-corrected adoption (LOSCAR, arXiv 2605.20866): with its contribution
in the value, local becomes value + (local − sent), without it value + (local − base).
"""

import numpy as np
import pytest

from islands.protocol.identities import Version
from islands.protocol.messages.training import Contribution
from tests.oracle.cases import replay
from tests.oracle.rules import as_double

CASES = ["carried-on", "carried-on-in-bfloat16", "carried-on-in-fp4"]


def applied(name: str) -> dict[str, Version]:
    fates = replay(name).run.lines("fate")
    done = [fate for fate in fates if fate["fate"] == "applied"]
    return {str(f["ticket"]): Version(*map(int, str(f["version"]).split("."))) for f in done}


@pytest.mark.parametrize("name", CASES)
def test_a_contribution_begins_where_the_newest_merged_one_ended(name: str) -> None:
    run, versions = replay(name).run, applied(name)
    merged: list[Contribution] = []
    longer = 0
    for said, crossing in run.tap.contributions():
        trainer = run.trainers[crossing.source]
        earlier = [
            one.processed_tokens
            for one in merged
            if one.ticket.name == said.ticket.name and one.fragment == said.fragment
            if versions[str(one.ticket)] <= said.base
        ]
        began = max(earlier, default=0)
        assert said.tokens == said.processed_tokens - began
        index = trainer.tokens_after.index
        assert said.steps == index(said.processed_tokens) - index(began)
        longer += said.steps > 1
        if str(said.ticket) in versions:
            merged.append(said)
    assert longer >= 20


@pytest.mark.parametrize("name", CASES)
def test_what_a_value_does_not_contain_is_carried_on(name: str) -> None:
    run = replay(name).run
    sent = [
        (
            said.ticket.name,
            said.fragment,
            as_double(crossing.payload, said.precision, run.layout.fragments[said.fragment].size),
        )
        for said, crossing in run.tap.contributions()
    ]
    corrected = 0
    for learner, trainer in run.trainers.items():
        for place, (before, after, base, merged) in trainer.carried.items():
            fragment, value, _ = trainer.adopted[place]
            assert before is not None
            assert after is not None
            assert base is not None
            known = base.astype(np.float64)
            if merged is not None:
                known -= merged
                mine = [payload for who, f, payload in sent if (who, f) == (learner, fragment)]
                assert any(np.array_equal(payload, merged) for payload in mine)
                corrected += 1
            wanted = value + (before - known)
            np.testing.assert_allclose(after, wanted, rtol=0, atol=1e-5 * np.abs(value).max())
            missed = np.abs(value + (before - base) - wanted).max()
            assert bool(missed > 1e-3) is (merged is not None)
    assert corrected >= 10
