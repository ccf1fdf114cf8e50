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


def doctored(doctor: Doctor) -> tuple[History, Limits]:
    """A doctored copy of the honest tape as evidence, and what it has to keep to."""
    scenario, lines = honest()
    entries: list[Line] = [json.loads(line) for line in lines]
    doctor(entries)
    return History.of(json.dumps(entry).encode() for entry in entries), limits(scenario)


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


# --- I1 and the journal ---------------------------------------------------------------------------


def repeat_epoch(entries: list[Line]) -> None:
    """The restarted syncer takes the epoch of its predecessor."""
    find(entries, "started", actor="syncer", resumed=True)["epoch"] = 1


def give_incarnation_twice(entries: list[Line]) -> None:
    first = find(entries, "admitted", role="learner")
    find(entries, "admitted", 1, role="learner")["incarnation"] = first["incarnation"]


def commit_backwards(entries: list[Line]) -> None:
    entries.append(find(entries, "committed", 0))


def skip_a_number(entries: list[Line]) -> None:
    merged = find(entries, "merged", -1)
    epoch, number = str(merged["version"]).split(".")
    merged["version"] = f"{epoch}.{int(number) + 1}"


def fork_a_version(entries: list[Line]) -> None:
    """A learner holds another value under the same version."""
    find(entries, "adopted", 5)["digest"] = "0" * 32


def send_before_journal(entries: list[Line]) -> None:
    """A version reaches a learner although it was never made durable."""
    adopted = find(entries, "adopted", -1)
    for entry in list(entries):
        same = (entry.get("fragment"), entry.get("version"))
        if entry["kind"] == "journal" and same == (adopted["fragment"], adopted["version"]):
            entries.remove(entry)


# --- fences ---------------------------------------------------------------------------------------


def ticket_of(entries: list[Line], **fields: object) -> tuple[str, list[Line]]:
    """The ticket of the last applied contribution, and all entries that carry it."""
    ticket = str(find(entries, "fate", -1, fate="applied", **fields)["ticket"])
    return ticket, [entry for entry in entries if entry.get("ticket") == ticket]


def apply_from_ended(entries: list[Line]) -> None:
    """A contribution of an incarnation whose book was closed is applied."""
    ended = find(entries, "book_closed", name="learner-1")
    ticket, with_it = ticket_of(entries)
    _, right = ticket.split("@")
    for entry in with_it:
        entry["ticket"] = f"learner-1/{ended['incarnation']}@{right}"


def close_without_anybody(entries: list[Line]) -> None:
    find(entries, "closed", 2)["arrived"] = []


# --- I2 -------------------------------------------------------------------------------------------


def give_two_fates(entries: list[Line]) -> None:
    """An applied contribution is late as well."""
    fate = find(entries, "fate", -1, fate="applied")
    entries.insert(entries.index(fate) + 1, {**fate, "fate": "late"})


def apply_twice(entries: list[Line]) -> None:
    """Tokens that were applied are part of a later contribution."""
    who = str(find(entries, "fate", -1, fate="applied")["ticket"]).split("@")[0]
    sent = find(entries, "contribute", -1, ticket=ticket_of(entries)[0])
    for number, entry in enumerate(entries):
        mine = entry["kind"] == "contribute" and str(entry["ticket"]).startswith(who)
        if mine and entry["fragment"] == sent["fragment"] and entry is not sent:
            entries[number] = {**entry, "processed": sent["processed"]}


def count_up_to_now(entries: list[Line]) -> None:
    """A contribution counts a step that was done after its snapshot."""
    sent = find(entries, "contribute")
    sent["tokens"], sent["processed"] = (
        int(str(sent["tokens"])) + 8,
        int(str(sent["processed"])) + 8,
    )


def count_from_elsewhere(entries: list[Line]) -> None:
    """A contribution claims tokens from before its base."""
    adopted = find(entries, "adopted", -1)
    assert isinstance(adopted["tokens"], int)
    for entry in entries:
        if entry["kind"] == "adopted":
            assert isinstance(entry["tokens"], int)
            entry["tokens"] += 8


def cook_the_ledger(entries: list[Line]) -> None:
    """The final ledger has a token too many."""
    ledger = find(entries, "finished", actor="syncer")["ledger"]
    assert isinstance(ledger, list)
    ledger[0]["applied"] += 1


def exceed_quota(entries: list[Line]) -> None:
    """A learner steps on after its quota is used up."""
    find(entries, "progress", -1)["tokens"] = 10**6


def lease_twice(entries: list[Line]) -> None:
    """Two learners read the same shard."""
    one = find(entries, "granted", 0, name="learner-0")
    other = find(entries, "granted", 0, name="learner-1")
    other["leases"] = one["leases"]


# --- I3 to I7, and the end ------------------------------------------------------------------------


def merge_nonsense(entries: list[Line]) -> None:
    find(entries, "merged", 3)["direction_norm"] = None


def stop_adopting(entries: list[Line]) -> None:
    healed = find(entries, "healed")
    healed["recovery_s"], healed["period_s"] = 1.0, 1.0
    kept = [e for e in entries if e["kind"] != "adopted" or float(str(e["at_s"])) < 5.0]
    entries[:] = kept


def hoard(entries: list[Line]) -> None:
    """The syncer keeps contributions that it has no use for."""
    find(entries, "process_ended", name="syncer")["waiting_bytes_most"] = 10**6


def fall_behind(entries: list[Line]) -> None:
    find(entries, "process_ended", name="syncer")["mailbox_most"] = 10**4


def fail(entries: list[Line]) -> None:
    find(entries, "process_ended", name="learner-0")["error"] = "InvariantError()"


def step_without_a_word(entries: list[Line]) -> None:
    """A restarted learner does not say with which moments it begins."""
    entries.remove(find(entries, "moments_taken"))


def take_what_was_not_given(entries: list[Line]) -> None:
    """A learner has a piece that its donor never sent."""
    entries.remove(find(entries, "moments_given"))


def wait_for_ever(entries: list[Line]) -> None:
    """A learner stands still until its donor answers."""
    find(entries, "moments_taken")["waited_s"] = 60.0


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


DOCTORED: list[tuple[Doctor, Rule]] = [
    (repeat_epoch, order.epochs_grow),
    (give_incarnation_twice, order.incarnations_are_given_once),
    (commit_backwards, order.versions_grow),
    (skip_a_number, order.versions_follow),
    (fork_a_version, order.versions_have_one_value),
    (send_before_journal, order.journal_comes_first),
    (apply_from_ended, order.what_ended_is_fenced),
    (close_without_anybody, order.rounds_have_their_quorum),
    (give_two_fates, accounts.each_has_one_fate),
    (apply_twice, accounts.nothing_is_applied_twice),
    (count_up_to_now, accounts.contributions_are_their_steps),
    (count_from_elsewhere, accounts.adoptions_discard),
    (cook_the_ledger, accounts.ledger_balances),
    (exceed_quota, accounts.quotas_are_kept),
    (lease_twice, accounts.shards_are_read_on),
    (merge_nonsense, bounds.values_are_finite),
    (step_without_a_word, bounds.steps_follow_moments),
    (take_what_was_not_given, bounds.moments_are_given),
    (wait_for_ever, bounds.nobody_waits_for_moments),
    (stop_adopting, order.learners_keep_up),
    (lose_an_answer, pulls.pulls_end_once),
    (leave_out, pulls.the_able_are_asked),
    (leave_out, pulls.the_able_are_merged),
    (hoard, bounds.contributions_fit),
    (fall_behind, bounds.mailboxes_are_short),
    (fail, bounds.run_ends),
]


@pytest.mark.parametrize(
    ("doctor", "rule"), DOCTORED, ids=[f"{one.__name__}-{rule.__name__}" for one, rule in DOCTORED]
)
def test_doctored_history_is_refused(doctor: Doctor, rule: Rule) -> None:
    """A real tape on which one promise is broken is refused by the rule of that promise.

    What each rule says of which lie is shown by short tapes (`test_tapes.py`).
    """
    assert list(rule(*doctored(doctor)))


def test_every_rule_refuses_something() -> None:
    refusing = [rule for _, rule in DOCTORED]
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
