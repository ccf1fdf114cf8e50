"""More data comes to one region than it can train: islands are added there, and drained after."""

from itertools import pairwise

import pytest

from islands.protocol.messages.control import Verb
from tests.scaling.spike import END_S, SPIKE_S, WITHIN_S, Followed, follow_spike

HOUR_S = 3600.0


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """The run, played once."""
    return follow_spike(tmp_path_factory.mktemp("spike") / "run")


def test_islands_come_where_the_data_is_and_go_when_it_is_done(found: Followed) -> None:
    """In eu, within a minute of the spike; us keeps its two, and the data is done in time."""
    before = {(eu, us) for at_s, eu, us in found.present if at_s < SPIKE_S}
    assert before == {(1, 2)}
    assert {us for _, _, us in found.present} == {2}
    assert max(eu for _, eu, _ in found.present) >= 5
    assert found.backlog_done_s is not None
    assert found.backlog_done_s <= SPIKE_S + WITHIN_S
    assert found.present[-1][1:] == (1, 2)
    soon = [eu for at_s, eu, _ in found.present if at_s < SPIKE_S + 60]
    assert soon[-1] >= 5


def test_the_fleet_does_not_flap(found: Followed) -> None:
    """All that is added comes before all that is drained, by few commands."""
    verbs = [verb for _, verb, _, _ in found.commands]
    assert verbs == sorted(verbs, key=lambda verb: verb is Verb.DRAIN)
    assert {name.partition("-")[0] for _, _, name, _ in found.commands} == {"eu"}
    added = sum(count for _, verb, _, count in found.commands if verb is Verb.ADD)
    drained = sum(verb is Verb.DRAIN for verb in verbs)
    assert added == drained <= 8
    counts = [eu for _, eu, _ in found.present]
    top = counts.index(max(counts))
    assert all(a <= b for a, b in pairwise(counts[: top + 1]))
    assert all(a >= b for a, b in pairwise(counts[top:]))


def test_the_bill_is_that_by_hand(found: Followed) -> None:
    """Within 5 %: hours from the start of each process to its end, and the bytes of its links."""
    assert found.bill is not None
    hours = {
        region: sum(
            (ended_s - began_s) / HOUR_S
            for name, (began_s, ended_s) in found.stays_s.items()
            if name.startswith(region)
        )
        for region in ("eu", "us")
    }
    sent = {r: sum(t[0] for n, t in found.traffic.items() if n.startswith(r)) for r in hours}
    received = {r: sum(t[1] for n, t in found.traffic.items() if n.startswith(r)) for r in hours}
    by_hand = {
        "eu": 16 * 2 * hours["eu"] + (2000 * sent["eu"] + 3000 * received["eu"]) / 1e9,
        "us": 8 * 3 * hours["us"]
        + 500 * (sent["us"] + received["us"]) / 1e9
        + 0.5 * END_S / HOUR_S,
    }
    told = {line.region: line.cost for line in found.bill.regions}
    assert told == pytest.approx(by_hand, rel=0.05)
    assert found.bill.whole.cost == pytest.approx(sum(by_hand.values()), rel=0.05)
    traffic = sum(line.traffic_cost for line in found.bill.lines)
    assert traffic > 0.05 * found.bill.whole.cost  # so that a mistake in it would be seen
    assert found.bill.whole.merged <= found.bill.whole.tokens
    assert found.bill.whole.merged > 0.8 * found.bill.whole.tokens


def test_nothing_is_lost_by_those_who_leave(found: Followed) -> None:
    """The ledger balances to the token."""
    assert found.imbalance == 0
