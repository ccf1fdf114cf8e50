"""The history checker accepts the tape of an honest run, and refuses it under smaller limits.

What each rule says of which lie is shown by short tapes (`test_tapes.py`).
"""

import json
from dataclasses import replace
from functools import lru_cache

import pytest

from islands.lab.checker import Rule, judge, pulls
from islands.lab.checker.evidence import History, Limits
from islands.lab.world.scenario import Scenario, draw, kill
from islands.lab.world.trial import limits, play
from islands.protocol.settings.choices import Adoption

Line = dict[str, object]
HEALED_S = 6.0


@lru_cache(maxsize=1)
def honest() -> tuple[Scenario, tuple[bytes, ...]]:
    """A run with faults in which every promise was kept, and its tape."""
    drawn = draw(2)
    restarts = (kill(1.5, ("learner-1",), (0.3,)), kill(3.0, ("syncer",), (0.3,)))
    timing = replace(drawn.settings.timing, patience=0.2)
    settings = replace(
        drawn.settings,
        interval_steps=8,
        fragments=2,
        quorum=None,
        overlap_steps=1,
        adoption=Adoption.DELAY_CORRECTED,
        timing=timing,
        budget_tokens=4800,
    )
    host = replace(next(iter(drawn.hosts.values())), step_s=0.1, setup_s=0.1, batch_tokens=8)
    hosts = {f"learner-{number}": host for number in range(2)}
    scenario = replace(
        drawn, settings=settings, hosts=hosts, injections=restarts, heal_s=4.0, limit_s=90.0
    )
    return scenario, play(scenario).lines


def rules_broken(**changes: object) -> list[str]:
    """The rules that the honest tape breaks under changed limits, each once, in order."""
    scenario, lines = honest()
    promised: Limits = replace(limits(scenario), **changes)  # type: ignore[arg-type]
    return list(dict.fromkeys(violation.rule for violation in judge(lines, promised)))


def test_honest_history_is_accepted() -> None:
    assert rules_broken() == []


def test_honest_history_shows_what_the_rules_look_at() -> None:
    kinds = {json.loads(line)["kind"] for line in honest()[1]}
    assert kinds >= {
        *("adopted", "admitted", "arrived", "book_closed", "closed", "committed", "contribute"),
        *("fate", "final", "finished", "granted", "healed", "journal", "journalled", "merged"),
        *("moments_fresh", "moments_given", "moments_taken"),
        *("lease_returned", "process_ended", "process_killed", "progress", "seeded", "started"),
    }


def leave_out(entries: list[Line]) -> None:
    """Once all faults have stopped a learner is neither asked nor merged.

    It answers what is under way for a second.
    """
    for entry in [entry for entry in entries if float(str(entry["at_s"])) > HEALED_S]:
        key = {"opened": "asked", "merged": "participants"}.get(str(entry["kind"]))
        late = float(str(entry["at_s"])) > HEALED_S + 1.0
        if late and str(entry.get("ticket")).startswith("learner-0/"):
            entries.remove(entry)
        elif key is not None:
            names = entry[key]
            assert isinstance(names, list)
            entry[key] = [name for name in names if name != "learner-0"]


@pytest.mark.parametrize("rule", [pulls.the_able_are_asked, pulls.the_able_are_merged])
def test_who_is_left_out_of_a_real_run_is_noticed(rule: Rule) -> None:
    """What a run of these settings promises is not so little that a rule has nothing to hold."""
    scenario, lines = honest()
    entries: list[Line] = [json.loads(line) for line in lines]
    leave_out(entries)
    history = History.of(json.dumps(entry).encode() for entry in entries)
    assert list(rule(history, limits(scenario)))


def test_smaller_limits_are_refused() -> None:
    assert rules_broken(mailbox_most=0) == ["I7"]
    assert rules_broken(budget_tokens=800) == ["I2"]
    assert rules_broken(open_rounds_max=0) == ["I5"]
