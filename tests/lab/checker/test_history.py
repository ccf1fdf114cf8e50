"""The history checker accepts an honest tape and refuses every doctored one, naming the rule."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest

from islands.lab.checker import RULES, Rule, accounts, bounds, first_difference, judge, order, pulls
from islands.lab.checker.evidence import History, Limits
from islands.lab.world.scenario import Scenario, draw, kill
from islands.lab.world.trial import limits, play
from islands.protocol.settings.choices import Adoption

Line = dict[str, object]
HEALED_S = 6.0
Doctor = Callable[[list[Line]], None]


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


def find(entries: list[Line], kind: str, nth: int = 0, **fields: object) -> Line:
    found = [
        entry
        for entry in entries
        if entry["kind"] == kind and all(entry.get(key) == fields[key] for key in fields)
    ]
    return found[nth]


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


# --- lies ---------------------------------------------------------------------------------------


def lie(kind: str, nth: int = 0, where: Line | None = None, **changes: object) -> Doctor:
    """An entry has other fields; a function gets what was there."""

    def doctor(entries: list[Line]) -> None:
        entry = find(entries, kind, nth, **(where or {}))
        for key, value in changes.items():
            entry[key] = value(entry[key]) if callable(value) else value

    return doctor


def lost(kind: str, nth: int = 0) -> Doctor:
    return lambda entries: entries.remove(find(entries, kind, nth))


def twice(kind: str, nth: int = 0, where: Line | None = None, **changes: object) -> Doctor:
    """An entry stands twice, the second time with other fields."""

    def doctor(entries: list[Line]) -> None:
        entry = find(entries, kind, nth, **(where or {}))
        entries.append({**entry, "at_s": entries[-1]["at_s"], **changes})

    return doctor


def more(by: int) -> Callable[[int], int]:
    return lambda count: count + by


def next_number(version: str) -> str:
    epoch, number = version.split(".")
    return f"{epoch}.{int(number) + 1}"


def one_token_more(ledger: list[dict[str, int]]) -> list[dict[str, int]]:
    return [{**ledger[0], "applied": ledger[0]["applied"] + 1}, *ledger[1:]]


def give_incarnation_twice(entries: list[Line]) -> None:
    first = find(entries, "admitted", role="learner")
    find(entries, "admitted", 1, role="learner")["incarnation"] = first["incarnation"]


def last_applied(entries: list[Line]) -> str:
    return str(find(entries, "fate", -1, fate="applied")["ticket"])


def apply_from_ended(entries: list[Line]) -> None:
    """A contribution of an incarnation whose book was closed is applied."""
    ended = find(entries, "book_closed", name="learner-1")
    ticket = last_applied(entries)
    for entry in [entry for entry in entries if entry.get("ticket") == ticket]:
        entry["ticket"] = f"learner-1/{ended['incarnation']}@{ticket.split('@')[1]}"


def apply_twice(entries: list[Line]) -> None:
    """Tokens that were applied are part of a later contribution."""
    ticket = last_applied(entries)
    sent = find(entries, "contribute", -1, ticket=ticket)
    for entry in entries:
        mine = entry["kind"] == "contribute" and entry["fragment"] == sent["fragment"]
        if mine and str(entry["ticket"]).startswith(ticket.split("@")[0]):
            entry["processed"] = sent["processed"]


def count_from_elsewhere(entries: list[Line]) -> None:
    """Contributions claim tokens from before their base."""
    for entry in [entry for entry in entries if entry["kind"] == "adopted"]:
        entry["tokens"] = int(str(entry["tokens"])) + 8


def lease_twice(entries: list[Line]) -> None:
    """Two learners read the same shard."""
    leases = find(entries, "granted", name="learner-0")["leases"]
    find(entries, "granted", name="learner-1")["leases"] = leases


def stop_adopting(entries: list[Line]) -> None:
    lie("healed", recovery_s=1.0, period_s=1.0)(entries)
    entries[:] = [e for e in entries if e["kind"] != "adopted" or float(str(e["at_s"])) < 5.0]


def lose_an_answer(entries: list[Line]) -> None:
    """A pull has no end, and later ones of its fragment have."""
    answers = [entry for entry in entries if entry["kind"] == "arrived"]
    entries.remove(next(one for one in answers if float(str(one["at_s"])) > HEALED_S))


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


SYNCER: Line = {"name": "syncer"}
DOCTORED: list[tuple[Rule, Doctor]] = [
    (order.epochs_grow, lie("started", 0, {"actor": "syncer", "resumed": True}, epoch=1)),
    (order.incarnations_are_given_once, give_incarnation_twice),
    (order.versions_grow, twice("committed")),
    (order.versions_follow, lie("merged", -1, version=next_number)),
    (order.versions_have_one_value, lie("adopted", 5, digest="0" * 32)),
    (order.journal_comes_first, lost("journal")),
    (order.what_ended_is_fenced, apply_from_ended),
    (order.rounds_have_their_quorum, lie("closed", 2, arrived=[])),
    (accounts.each_has_one_fate, twice("fate", -1, {"fate": "applied"}, fate="late")),
    (accounts.nothing_is_applied_twice, apply_twice),
    (accounts.contributions_are_their_steps, lie("contribute", tokens=more(8), processed=more(8))),
    (accounts.adoptions_discard, count_from_elsewhere),
    (accounts.ledger_balances, lie("finished", 0, {"actor": "syncer"}, ledger=one_token_more)),
    (accounts.quotas_are_kept, lie("progress", -1, tokens=10**6)),
    (accounts.shards_are_read_on, lease_twice),
    (bounds.values_are_finite, lie("merged", 3, direction_norm=None)),
    (bounds.steps_follow_moments, lost("moments_taken")),
    (bounds.moments_are_given, lost("moments_given")),
    (bounds.nobody_waits_for_moments, lie("moments_taken", waited_s=60.0)),
    (order.learners_keep_up, stop_adopting),
    (pulls.pulls_end_once, lose_an_answer),
    (pulls.the_able_are_asked, leave_out),
    (pulls.the_able_are_merged, leave_out),
    (bounds.contributions_fit, lie("process_ended", 0, SYNCER, waiting_bytes_most=10**6)),
    (bounds.mailboxes_are_short, lie("process_ended", 0, SYNCER, mailbox_most=10**4)),
    (bounds.run_ends, lie("process_ended", 0, {"name": "learner-0"}, error="InvariantError()")),
]


@pytest.mark.parametrize(("rule", "doctor"), DOCTORED, ids=[one.__name__ for one, _ in DOCTORED])
def test_doctored_history_is_refused(rule: Rule, doctor: Doctor) -> None:
    """A real tape on which one promise is broken is refused by the rule of that promise.

    What each rule says of which lie is shown by short tapes (`test_tapes.py`).
    """
    scenario, lines = honest()
    entries: list[Line] = [json.loads(line) for line in lines]
    doctor(entries)
    history = History.of(json.dumps(entry).encode() for entry in entries)
    assert list(rule(history, limits(scenario)))


def test_every_rule_refuses_something() -> None:
    refusing = [rule for rule, _ in DOCTORED]
    assert [name for name, rule in RULES if rule not in refusing] == []


def test_smaller_limits_are_refused() -> None:
    assert rules_broken(mailbox_most=0) == ["I7"]
    assert rules_broken(budget_tokens=800) == ["I2"]
    assert rules_broken(open_rounds_max=0) == ["I5"]


def test_tapes_of_one_seed_are_compared_to_the_byte() -> None:
    lines = honest()[1]
    assert first_difference(lines, lines) is None
    other = [*lines[:7], lines[7] + b" ", *lines[8:]]
    assert (first_difference(lines, other) or "").startswith("line 8:")
    assert first_difference(lines, lines[:-1]) == f"{len(lines)} lines and {len(lines) - 1}"
