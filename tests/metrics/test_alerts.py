"""Each rule fires on its cause and clears after it, by a hub's judgement and by Prometheus'."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from islands.metrics.alerts import Alerts
from islands.metrics.catalogue import BY_NAME, Sample
from islands.metrics.notices import notice_of, telling
from islands.metrics.rules import DOWN, RULES, Labels, Thresholds, rules_file
from tests.benchmarks.alert_faults import FAULTS

STEP_S = 15
STEPS = 80
CAUSE = range(10, 45)
"""The steps at which the cause of an alert is there."""
WELL: Mapping[tuple[str, Labels], float] = {
    ("islands_process_clock_drift_seconds", ()): 0.0,
    ("islands_certificate_expiry_timestamp_seconds", ("server",)): 60 * 86400.0,
    ("islands_run_since_merge_seconds", ()): 2.0,
    ("islands_run_merge_interval_seconds", ()): 3.0,
    ("islands_run_yield_ratio", ()): 0.9,
    ("islands_run_merges_total", ()): 1000.0,
    ("islands_run_fragments", ()): 6.0,
    ("islands_learner_incarnations_total", ("ana",)): 1.0,
    ("islands_learner_diverged", ("ana",)): 0.0,
    ("islands_learner_unmerged_rounds", ("ana",)): 60.0,
    ("islands_disk_failing", ()): 0.0,
    ("islands_disk_free_bytes", ()): 2.0**34,
    ("islands_disk_reserve_bytes", ()): 2.0**30,
    ("islands_journal_lag_seconds", ()): 0.0,
}
CAUSES: Mapping[str, Mapping[tuple[str, Labels], float]] = {
    "IslandsNothingMerged": {("islands_run_since_merge_seconds", ()): 61.0},
    "IslandsLearnerUnmerged": {("islands_learner_unmerged_rounds", ("ana",)): 61.0},
    "IslandsLearnerFlaps": {("islands_learner_incarnations_total", ("ana",)): 4.0},
    "IslandsYieldLow": {("islands_run_yield_ratio", ()): 0.49},
    "IslandsDisk": {("islands_disk_free_bytes", ()): 2.0**30 - 1},
    "IslandsJournalLags": {("islands_journal_lag_seconds", ()): 31.0},
    "IslandsLossNotFinite": {("islands_learner_diverged", ("ana",)): 1.0},
    "IslandsClockSkewed": {("islands_process_clock_drift_seconds", ()): -6.0},
    "IslandsCertificateEnds": {
        ("islands_certificate_expiry_timestamp_seconds", ("server",)): 14 * 86400.0 - 1
    },
}


def values_at(rule: str, step: int) -> dict[tuple[str, Labels], float]:
    """The values of all series at a step; admissions do not become fewer when their cause ends."""
    there = step in CAUSE or (rule == "IslandsLearnerFlaps" and step >= CAUSE.start)
    return {**WELL, **(CAUSES.get(rule, {}) if there else {})}


def judged(rule: str, limits: Thresholds) -> list[set[str]]:
    """The alerts that fire at each step."""
    alerts, fired = Alerts(limits), []
    for step in range(STEPS):
        at_s = float(step * STEP_S)
        series = {**values_at(rule, step), ("islands_process_time_seconds", ()): at_s}
        alerts.take([Sample(name, v, labels) for (name, labels), v in series.items()], at_s)
        fired.append({name for name, _ in alerts.firing})
    return fired


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_a_rule_fires_on_its_cause_and_clears(rule: str) -> None:
    """No other one fires, and nothing fires before or long after."""
    fired = judged(rule, Thresholds())
    assert set().union(*fired) == {rule}
    assert not any(fired[: CAUSE.start])
    assert not fired[-1] or rule == "IslandsLearnerFlaps"


def test_each_rule_has_a_fault_in_a_real_run() -> None:
    """`tests.benchmarks.alerts` has all but one: no fault leaves a learner out for so long."""
    rules = {rule.name for rule in (*RULES, DOWN)} - {"IslandsLearnerUnmerged"}
    assert {kind.__name__ for kind in FAULTS} == rules


def test_nothing_fires_where_all_is_well() -> None:
    """Twenty minutes without a cause, and without any sample at all."""
    assert not any(judged("none", Thresholds()))
    alerts = Alerts()
    assert not any(alerts.take([], float(at_s)) for at_s in range(0, 1200, 15))


def test_the_yield_of_a_young_run_is_not_judged() -> None:
    """Until each fragment was merged some times, most tokens are on their way."""
    alerts = Alerts()
    for merges, fires in ((48.0, False), (49.0, True)):
        young = {"run_yield_ratio": 0.1, "run_fragments": 6.0, "run_merges_total": merges}
        samples = [Sample(f"islands_{name}", value) for name, value in young.items()]
        for at_s in range(0, 600, 15):
            alerts.take(samples, merges * 1000 + at_s)
        assert bool(alerts.firing) == fires


def test_a_cause_that_comes_and_goes_is_told_once() -> None:
    """An alert clears only when its cause was gone for `keep_s`."""
    alerts, changes = Alerts(), []
    for step in range(20):
        lag_s = 31.0 * (step % 2)
        changes += alerts.take([Sample("islands_journal_lag_seconds", lag_s)], step * 15.0)
    assert [change.firing for change in changes] == [True]
    assert not alerts.take([], 300.0)
    assert not alerts.take([], 359.0)
    assert [change.firing for change in alerts.take([], 360.0)] == [False]


def test_what_fired_before_a_restart_clears_after_it() -> None:
    """Its cause may be gone because of the restart; it is not told again that it fires."""
    key = ("IslandsJournalLags", ())
    alerts = Alerts(earlier=[key])
    assert not alerts.take([Sample("islands_journal_lag_seconds", 31.0)], 5.0)
    assert alerts.firing == [key]
    assert not alerts.take([], 10.0)
    assert [change.firing for change in alerts.take([], 70.0)] == [False]
    assert not alerts.firing


def test_prometheus_fires_at_the_same_steps(tmp_path: Path) -> None:
    """Its own program judges the same series by the file of rules."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool command (Debian's package prometheus)")
    (tmp_path / "rules.yaml").write_text(rules_file())
    groups = [prometheus_test(rule.name) for rule in RULES]
    told = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{STEP_S}s", "tests": groups}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(told))
    for words in (("check", "rules", "rules.yaml"), ("test", "rules", "test.yaml")):
        done = subprocess.run(
            [promtool, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def prometheus_test(rule: str) -> dict[str, object]:
    """The same series, and at which steps the rule fires, as `promtool` reads them."""
    series = []
    for name, labels in WELL:
        pairs = zip(BY_NAME[name].labels, labels, strict=True)
        shown = ",".join(f'{key}="{value}"' for key, value in pairs)
        values = [values_at(rule, step)[name, labels] for step in range(STEPS)]
        text = " ".join(f"{value:.0f}" if value > 1 else f"{value:g}" for value in values)
        series.append({"series": f"{name}{{{shown}}}", "values": text})
    count = f'count(ALERTS{{alertname="{rule}",alertstate="firing"}}) or vector(0)'
    expected = [
        {
            "expr": count,
            "eval_time": f"{step * STEP_S}s",
            "exp_samples": [{"labels": "{}", "value": int(rule in fired)}],
        }
        for step, fired in enumerate(judged(rule, Thresholds()))
    ]
    return {
        "interval": f"{STEP_S}s",
        "input_series": series,
        "promql_expr_test": expected,
    }


class Lagging:
    """A syncer whose journal lags."""

    async def refresh(self) -> None:
        return

    def samples(self) -> Iterator[Sample]:
        yield Sample("islands_journal_lag_seconds", 31.0)

    def unready_because(self) -> str:
        return ""


@pytest.mark.integration
async def test_a_command_reads_the_notice_from_its_input(tmp_path: Path) -> None:
    """One JSON object, with what to do; a command that fails is told of, and started again."""
    file, said = tmp_path / "notices", list[str]()
    copy = (
        f"import sys; f = open({str(file)!r}, 'a+'); print(sys.stdin.read(), file=f); f.seek(0); "
        "sys.exit(3 if len(f.readlines()) == 1 else 0)"
    )
    target = f'{sys.executable} -c "{copy}"'
    told = [c.firing for c in Alerts().take(Lagging().samples(), 0.0)]
    assert told == [True]
    kept = tmp_path / "alerts.json"
    async with telling(target, Lagging(), "mine", said.append, kept=kept, look_s=0.01) as alerts:
        while not alerts.firing:
            await pause()
    notice, again = map(json.loads, file.read_text().splitlines())
    assert notice == again
    assert (notice["event"], notice["alert"]) == ("fired", "IslandsJournalLags")
    assert (notice["run"], notice["value"]) == ("mine", 31.0)
    assert said == ["on_event could not be told: it ended with code 3"]
    async with telling(target, Lagging(), "mine", said.append, kept=kept) as later:
        assert later.firing == [("IslandsJournalLags", ())]
    kept.write_text('[["IslandsJournalLags", ["more"]], ["IslandsNew", []]]')
    async with telling(target, Lagging(), "mine", said.append, kept=kept) as other:
        assert not other.firing, "of another version"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("http://127.0.0.1:{port}/hooks/my-secret", "it was answered 302 Found"),
        ("http://127.0.0.1:{port}:1/hooks/my-secret", "its URL is none"),
    ],
)
async def test_a_web_hook_that_takes_no_notice_is_told_without_its_path(
    target: str, told: str, tmp_path: Path
) -> None:
    """Its path is a secret; and who is sent elsewhere was told nothing."""
    said = list[str]()

    async def elsewhere(_: web.BaseRequest) -> web.Response:
        return web.Response(status=302, headers={"Location": "http://127.0.0.1/login"})

    async with RawTestServer(elsewhere) as server:
        address, kept = target.format(port=server.port), tmp_path / "alerts.json"
        async with telling(address, Lagging(), "mine", said.append, kept=kept, look_s=0.01):
            while not said:
                await pause()
    assert said == [f"on_event could not be told: {told}"]


async def pause() -> None:
    """Let the loop's other tasks go on."""
    import asyncio

    await asyncio.sleep(0)


def test_a_value_that_is_no_number_is_null() -> None:
    """JSON has no NaN."""
    change = Alerts().take([Sample("islands_journal_lag_seconds", float("inf"))], 0.0)[0]
    assert json.loads(notice_of(change, "mine", 0.0))["value"] is None
