"""The history checker accepts an honest tape and refuses every doctored one, naming the rule."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest

from islands.lab.checker import (
    RULES,
    History,
    Limits,
    Rule,
    accounts,
    bounds,
    first_difference,
    judge,
    moments,
    order,
)
from islands.lab.world.faults import Kill, Scenario, draw
from islands.lab.world.trial import limits, play
from islands.protocol.tape.round_entries import Merged

Line = dict[str, object]
Doctor = Callable[[list[Line]], None]


@lru_cache(maxsize=1)
def honest() -> tuple[Scenario, tuple[bytes, ...]]:
    """A run with faults in which every promise was kept, and its tape."""
    drawn = draw(2)
    restarts = (
        Kill(1.5, ("learner-1",), silent=False, down_s=(0.3,)),
        Kill(3.0, ("syncer",), silent=False, down_s=(0.3,)),
    )
    timing = replace(drawn.settings.timing, patience=0.2)
    settings = replace(
        drawn.settings,
        interval_steps=4,
        fragments=2,
        quorum=1,
        overlap_steps=1,
        timing=timing,
        budget_tokens=1600,
    )
    host = replace(next(iter(drawn.hosts.values())), step_s=0.1, setup_s=0.1, batch_tokens=8)
    hosts = {f"learner-{number}": host for number in range(2)}
    scenario = replace(
        drawn, settings=settings, hosts=hosts, faults=restarts, heal_s=4.0, limit_s=90.0
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
    """The n-th entry of a kind with these fields."""
    found = [
        entry
        for entry in entries
        if entry["kind"] == kind and all(entry.get(key) == fields[key] for key in fields)
    ]
    return found[nth]


def test_honest_history_is_accepted() -> None:
    """Deaths of a learner and of the syncer break no promise."""
    assert rules_broken() == []


def test_honest_history_shows_what_the_rules_look_at() -> None:
    """No rule is content for want of evidence: every kind of it is on the honest tape."""
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


def begin_below_another(entries: list[Line]) -> None:
    """A second syncer's process begins once the first has told its epoch, and takes a lower one."""
    second = find(entries, "started", actor="syncer", resumed=True)
    began = {"at_s": second["at_s"], "actor": "world", "kind": "process_started", "name": "spare"}
    at = entries.index(second) + 1
    entries[at:at] = [began, {**second, "actor": "spare", "epoch": 0}]


def give_incarnation_twice(entries: list[Line]) -> None:
    """Two learners get the same incarnation."""
    first = find(entries, "admitted", role="learner")
    find(entries, "admitted", 1, role="learner")["incarnation"] = first["incarnation"]


def commit_backwards(entries: list[Line]) -> None:
    """A version is committed again."""
    entries.append(find(entries, "committed", 0))


def adopt_backwards(entries: list[Line]) -> None:
    """A learner goes back to a version that it had left."""
    entries.append(find(entries, "adopted", 0))


def skip_a_number(entries: list[Line]) -> None:
    """A merge leaves a number out."""
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


def forget_what_was_durable(entries: list[Line]) -> None:
    """The restarted syncer takes up an older record than the last durable one."""
    started = find(entries, "started", actor="syncer", resumed=True)
    assert isinstance(started["sequence"], int)
    started["sequence"] -= 1


# --- fences ---------------------------------------------------------------------------------------


def ticket_of(entries: list[Line], **fields: object) -> tuple[str, list[Line]]:
    """The ticket of the last applied contribution, and all entries that carry it."""
    ticket = str(find(entries, "fate", -1, fate="applied", **fields)["ticket"])
    return ticket, [entry for entry in entries if entry.get("ticket") == ticket]


def apply_from_old_epoch(entries: list[Line]) -> None:
    """A contribution of the syncer's predecessor is applied."""
    ticket, with_it = ticket_of(entries)
    for entry in with_it:
        entry["ticket"] = ticket.replace("@2:", "@1:9")


def apply_from_ended(entries: list[Line]) -> None:
    """A contribution of an incarnation whose book was closed is applied."""
    ended = find(entries, "book_closed", name="learner-1")
    ticket, with_it = ticket_of(entries)
    _, right = ticket.split("@")
    for entry in with_it:
        entry["ticket"] = f"learner-1/{ended['incarnation']}@{right}"


def apply_from_ancient_base(entries: list[Line]) -> None:
    """A contribution against the very first version is applied at the end."""
    _, with_it = ticket_of(entries)
    next(entry for entry in with_it if entry["kind"] == "contribute")["base"] = "1.0"


def close_without_anybody(entries: list[Line]) -> None:
    """A round closes although nothing has arrived."""
    find(entries, "closed", 2)["arrived"] = []


# --- I2 -------------------------------------------------------------------------------------------


def give_two_fates(entries: list[Line]) -> None:
    """An applied contribution is late as well."""
    fate = find(entries, "fate", -1, fate="applied")
    entries.insert(entries.index(fate) + 1, {**fate, "fate": "late"})


def give_no_fate(entries: list[Line]) -> None:
    """An admitted contribution is forgotten."""
    entries.remove(find(entries, "fate", -1, fate="applied"))


def invent_a_contribution(entries: list[Line]) -> None:
    """Something is applied that nobody sent."""
    ticket, with_it = ticket_of(entries)
    entries.remove(next(entry for entry in with_it if entry["kind"] == "contribute"))
    assert ticket


def inflate_tokens(entries: list[Line]) -> None:
    """The syncer applies more tokens than were sent."""
    find(entries, "fate", -1, fate="applied")["tokens"] = 4096


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


def leave_something_pending(entries: list[Line]) -> None:
    """The run ends with tokens that have no fate."""
    ledger = find(entries, "finished", actor="syncer")["ledger"]
    assert isinstance(ledger, list)
    ledger[0]["pending"], ledger[0]["overwritten"] = 8, ledger[0]["overwritten"] - 8


def process_too_little(entries: list[Line]) -> None:
    """The ledger has other tokens than the learner processed."""
    processed = find(entries, "finished", actor="syncer")["processed"]
    assert isinstance(processed, dict)
    processed[next(iter(processed))] -= 8


def exceed_quota(entries: list[Line]) -> None:
    """A learner steps on after its quota is used up."""
    find(entries, "progress", -1)["tokens"] = 10**6


def grant_too_much(entries: list[Line]) -> None:
    """More tokens are given out than the budget has."""
    find(entries, "granted", -1)["quota"] = 10**6


def step_on_in_quarantine(entries: list[Line]) -> None:
    """A learner processed more than it had used when the rest was taken back."""
    granted = find(entries, "granted", 0, name="learner-0")
    who = {key: granted[key] for key in ("at_s", "actor", "name", "incarnation")}
    last = max(i for i, e in enumerate(entries) if e["kind"] == "granted")
    entries.insert(
        last + 1, {**who, "at_s": entries[last]["at_s"], "kind": "quota_returned", "used": 0}
    )


def lease_twice(entries: list[Line]) -> None:
    """Two learners read the same shard."""
    one = find(entries, "granted", 0, name="learner-0")
    other = find(entries, "granted", 0, name="learner-1")
    other["leases"] = one["leases"]


def skip_records(entries: list[Line]) -> None:
    """A shard that goes back goes on too far ahead."""
    find(entries, "lease_returned", 0)["position"] = 15


def drop_a_shard(entries: list[Line]) -> None:
    """A shard is given up before it is read to its end."""
    granted = find(entries, "granted", 0, name="learner-0")
    later = find(entries, "granted", 1, name="learner-0")
    assert granted["leases"]
    later["leases"] = [[7, 7, 0]]


# --- I3 to I7, and the end ------------------------------------------------------------------------


def merge_nonsense(entries: list[Line]) -> None:
    """A merge has a norm that is not a number."""
    find(entries, "merged", 3)["direction_norm"] = None


def end_with_nonsense(entries: list[Line]) -> None:
    """The final values are not finite."""
    find(entries, "final")["finite"] = False


def stop_adopting(entries: list[Line]) -> None:
    """A learner that lives adopts nothing any more."""
    healed = find(entries, "healed")
    healed["recovery_s"], healed["period_s"] = 1.0, 1.0
    kept = [e for e in entries if e["kind"] != "adopted" or float(str(e["at_s"])) < 5.0]
    entries[:] = kept


def hoard(entries: list[Line]) -> None:
    """The syncer keeps contributions that it has no use for."""
    find(entries, "process_ended", name="syncer")["waiting_bytes_most"] = 10**6


def fall_behind(entries: list[Line]) -> None:
    """A mailbox grows."""
    find(entries, "process_ended", name="syncer")["mailbox_most"] = 10**4


def fail(entries: list[Line]) -> None:
    """A learner ends with an error."""
    find(entries, "process_ended", name="learner-0")["error"] = "InvariantError()"


def never_finish(entries: list[Line]) -> None:
    """The run does not come to its end."""
    entries.remove(find(entries, "finished", actor="syncer"))


def outlive_the_run(entries: list[Line]) -> None:
    """A learner does not hear that the run is over."""
    entries.append({"at_s": 99.0, "actor": "world", "kind": "left_over", "name": "learner-0"})


def export_something_else(entries: list[Line]) -> None:
    """The run ends with other values than those merged last."""
    for entry in entries:
        if entry["kind"] == "final":
            entry["digests"] = ["0" * 32, "1" * 32]
            entry["versions"] = ["9.9", "9.9"]


def step_without_a_word(entries: list[Line]) -> None:
    """A restarted learner does not say with which moments it begins."""
    entries.remove(find(entries, "moments_taken"))


def take_what_was_not_given(entries: list[Line]) -> None:
    """A learner has a piece that its donor never sent."""
    entries.remove(find(entries, "moments_given"))


def take_from_a_disk(entries: list[Line], saved: str | None = None) -> None:
    """A learner has moments of its own disk, where it saved none, or where it was told this."""
    taken = find(entries, "moments_taken")
    taken["from"] = "disk"
    if saved is not None:
        told: Line = {"at_s": taken["at_s"], "actor": taken["actor"], "kind": "moments_kept"}
        entries.insert(entries.index(taken), {**told, "error": saved})


def take_from_a_full_disk(entries: list[Line]) -> None:
    """A learner has moments of a disk that could save none."""
    take_from_a_disk(entries, saved="the disk is full")


def take_what_was_saved(entries: list[Line]) -> None:
    """A learner has the moments of its own disk, where it had saved them."""
    take_from_a_disk(entries, saved="")


def freeze_while_waiting(entries: list[Line], ended_before_s: float = 0.0) -> None:
    """A learner waits for 10 s, of which it was frozen for 9.9 s, or was so before it waited."""
    taken = find(entries, "moments_taken")
    taken["waited_s"] = 10.0
    thawed_s = float(str(taken["at_s"])) - ended_before_s
    for at_s, fault in ((thawed_s - 9.9, "freeze"), (thawed_s, "thaw")):
        told = {"at_s": at_s, "actor": "world", "kind": "fault", "fault": fault}
        entries.insert(entries.index(taken), {**told, "names": [taken["actor"]]})


def wait_for_ever(entries: list[Line]) -> None:
    """A learner stands still until its donor answers."""
    find(entries, "moments_taken")["waited_s"] = 60.0


def wait_after_a_freeze(entries: list[Line]) -> None:
    """A learner waits as long as it was frozen, and was frozen before it waited."""
    freeze_while_waiting(entries, ended_before_s=20.0)


def end_with(entries: list[Line], error: str, *, name: str = "syncer") -> None:
    """A process ends with an error before the run is over."""
    find(entries, "process_ended", name=name)["error"] = error


def strike(entries: list[Line], fault: str, *names: str, ended_before_s: float = 0.0) -> None:
    """A fault strikes before the syncer ends."""
    ended = find(entries, "process_ended", name="syncer")
    at_s = float(str(ended["at_s"])) - ended_before_s
    told = {"at_s": at_s, "actor": "world", "kind": "fault", "fault": fault, "names": [*names]}
    entries.insert(entries.index(ended), told)


def take_over(entries: list[Line], name: str, epoch: int) -> None:
    """A syncer owns the journal from now on, and tells of it before the first one ends."""
    ended = find(entries, "process_ended", name="syncer")
    started = {**find(entries, "started", actor="syncer"), "at_s": ended["at_s"]}
    told = {**started, "actor": name, "epoch": epoch, "resumed": None, "sequence": None}
    entries.insert(entries.index(ended), told)


def lose_a_bad_disk(entries: list[Line]) -> None:
    """A process ends for want of its disk, which was mended a moment before."""
    strike(entries, "full disk", "syncer", ended_before_s=5.0)
    strike(entries, "disk mended", "syncer", ended_before_s=1.9)
    end_with(entries, "DiskError('no space left')")


def lose_a_disk_and_freeze(entries: list[Line]) -> None:
    """A process ends long after its disk was mended, for it was frozen in between."""
    strike(entries, "full disk", "syncer", ended_before_s=9.0)
    strike(entries, "freeze", "syncer", ended_before_s=8.0)
    strike(entries, "disk mended", "syncer", ended_before_s=7.0)
    end_with(entries, "DiskError('no space left')")


def fence_the_older(entries: list[Line]) -> None:
    """The first syncer is fenced once the second one has taken the journal over."""
    strike(entries, "second syncer", "spare")
    take_over(entries, "spare", 9)
    end_with(entries, "FencedError('epoch 9 owns the journal')")


def fence_for_who_begins(entries: list[Line]) -> None:
    """The first syncer is fenced by the second one, which has not told of its start yet."""
    strike(entries, "second syncer", "spare")
    end_with(entries, "FencedError('epoch 9 owns the journal')")


def lose_a_sound_disk(entries: list[Line]) -> None:
    """A process ends for want of a disk that had no fault."""
    strike(entries, "disk error", "supervisor")
    end_with(entries, "DiskError('no space left')")


def lose_a_mended_disk(entries: list[Line]) -> None:
    """A process ends for want of a disk that was mended long before."""
    strike(entries, "disk error", "syncer", ended_before_s=5.0)
    strike(entries, "disk mended", "syncer", ended_before_s=2.1)
    end_with(entries, "DiskError('no space left')")


def fence_the_only_syncer(entries: list[Line]) -> None:
    """A syncer is fenced although no other one ever started."""
    end_with(entries, "FencedError('epoch 9 owns the journal')")


def fence_the_newer_syncer(entries: list[Line]) -> None:
    """Of two syncers the one that took the journal over is fenced."""
    strike(entries, "second syncer", "spare")
    take_over(entries, "spare", 1)
    end_with(entries, "FencedError('epoch 9 owns the journal')")


def fence_both_syncers(entries: list[Line]) -> None:
    """Both syncers end, the older one as it has to."""
    fence_the_older(entries)
    ended = find(entries, "process_ended", name="syncer")
    entries.insert(entries.index(ended) + 1, {**ended, "name": "spare"})


def adopt_from_a_fenced_syncer(entries: list[Line]) -> None:
    """Learners adopt what the older syncer made durable after the newer one had started."""
    at = entries.index(find(entries, "merged", -4))
    durable = [entry for entry in entries[:at] if entry["kind"] == "journalled"][-1]
    started = {**find(entries, "started", actor="syncer"), "at_s": entries[at]["at_s"], "epoch": 9}
    told = {"actor": "spare", "resumed": True, "sequence": durable["sequence"]}
    entries.insert(at, {**started, **told})


DOCTORED: list[tuple[Doctor, Rule]] = [
    (repeat_epoch, order.epochs_grow),
    (begin_below_another, order.epochs_grow),
    (give_incarnation_twice, order.incarnations_are_given_once),
    (commit_backwards, order.versions_grow),
    (adopt_backwards, order.versions_grow),
    (skip_a_number, order.versions_follow),
    (fork_a_version, order.versions_have_one_value),
    (send_before_journal, order.journal_comes_first),
    (forget_what_was_durable, order.journal_comes_first),
    (adopt_from_a_fenced_syncer, order.journal_comes_first),
    (apply_from_old_epoch, order.what_ended_is_fenced),
    (apply_from_ended, order.what_ended_is_fenced),
    (apply_from_ancient_base, order.what_ended_is_fenced),
    (close_without_anybody, order.rounds_have_their_quorum),
    (give_two_fates, accounts.each_has_one_fate),
    (give_no_fate, accounts.each_has_one_fate),
    (invent_a_contribution, accounts.each_has_one_fate),
    (inflate_tokens, accounts.each_has_one_fate),
    (apply_twice, accounts.nothing_is_applied_twice),
    (count_up_to_now, accounts.contributions_are_their_steps),
    (count_from_elsewhere, accounts.adoptions_discard),
    (cook_the_ledger, accounts.ledger_balances),
    (leave_something_pending, accounts.ledger_balances),
    (process_too_little, accounts.ledger_balances),
    (exceed_quota, accounts.quotas_are_kept),
    (grant_too_much, accounts.quotas_are_kept),
    (step_on_in_quarantine, accounts.quotas_are_kept),
    (lease_twice, accounts.shards_are_read_on),
    (skip_records, accounts.shards_are_read_on),
    (drop_a_shard, accounts.shards_are_read_on),
    (merge_nonsense, bounds.values_are_finite),
    (end_with_nonsense, bounds.values_are_finite),
    (step_without_a_word, moments.steps_follow_moments),
    (take_what_was_not_given, moments.moments_are_given),
    (take_from_a_disk, moments.moments_are_given),
    (take_from_a_full_disk, moments.moments_are_given),
    (wait_for_ever, moments.nobody_waits_for_moments),
    (wait_after_a_freeze, moments.nobody_waits_for_moments),
    (stop_adopting, order.learners_keep_up),
    (hoard, bounds.contributions_fit),
    (fall_behind, bounds.mailboxes_are_short),
    (fail, bounds.run_ends),
    (lose_a_sound_disk, bounds.run_ends),
    (lose_a_mended_disk, bounds.run_ends),
    (fence_the_only_syncer, bounds.run_ends),
    (fence_the_newer_syncer, bounds.run_ends),
    (fence_both_syncers, bounds.run_ends),
    (never_finish, bounds.run_ends),
    (outlive_the_run, bounds.run_ends),
    (export_something_else, bounds.run_ends),
]


@pytest.mark.parametrize(
    ("doctor", "rule"), DOCTORED, ids=[doctor.__name__ for doctor, _ in DOCTORED]
)
def test_doctored_history_is_refused(doctor: Doctor, rule: Rule) -> None:
    """A tape on which one promise is broken is refused by the rule of that promise."""
    assert list(rule(*doctored(doctor)))


def test_who_is_frozen_while_it_waits_may_wait_longer() -> None:
    """The time of the freeze is excused as far as it lies in the wait."""
    assert not list(moments.nobody_waits_for_moments(*doctored(freeze_while_waiting)))


def test_moments_that_were_saved_may_come_from_the_disk() -> None:
    """As where all learners end at once, so that none can give any."""
    assert not list(moments.moments_are_given(*doctored(take_what_was_saved)))


@pytest.mark.parametrize(
    "doctor", [lose_a_bad_disk, lose_a_disk_and_freeze, fence_the_older, fence_for_who_begins]
)
def test_the_end_that_a_fault_explains_is_no_failure(doctor: Doctor) -> None:
    """Who has no disk may end, and of two syncers the older one must."""
    found = list(bounds.run_ends(*doctored(doctor)))
    assert not [sentence for sentence in found if "failed" in sentence]


def test_every_rule_refuses_something() -> None:
    """There is no rule that nothing can break."""
    refusing = [rule for _, rule in DOCTORED]
    assert [name for name, rule in RULES if rule not in refusing] == []


def test_where_values_go_to_contributors_nobody_else_must_adopt_them() -> None:
    """Who takes no part in a merge may hold an older version; who does must follow."""
    history, limits = doctored(stop_adopting)
    limits = replace(limits, to_contributors=True)
    assert list(order.learners_keep_up(history, limits))
    for _, _, entry in history.lines:
        if isinstance(entry, Merged):
            entry.participants.clear()
    assert list(order.learners_keep_up(history, limits)) == []


def test_smaller_limits_are_refused() -> None:
    """The same history breaks promises that are stricter than what was promised."""
    assert rules_broken(mailbox_most=0) == ["I7"]
    assert rules_broken(budget_tokens=800) == ["I2"]
    assert rules_broken(open_rounds_max=0) == ["I5"]


def test_tapes_of_one_seed_are_compared_to_the_byte() -> None:
    """I6: the first line that differs is named, and so is a missing end."""
    lines = honest()[1]
    assert first_difference(lines, lines) is None
    other = [*lines[:7], lines[7] + b" ", *lines[8:]]
    assert (first_difference(lines, other) or "").startswith("line 8:")
    assert first_difference(lines, lines[:-1]) == f"{len(lines)} lines and {len(lines) - 1}"
