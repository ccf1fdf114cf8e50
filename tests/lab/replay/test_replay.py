"""A replay redoes what a real run has merged, and a replay by another rule is far off."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from jax import Device

from islands.cli.__main__ import main
from islands.lab.replay.replaying import Findings, Replay, record_files
from islands.model.jax_trainer import JaxTrainer
from islands.numerics.optax_chain import OptaxChain
from islands.protocol.errors import UserError
from islands.protocol.settings.choices import Anchor, Correction, MergeRule, Precision, Weighting
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings
from islands.run.single_process import LocalSystem
from tests.lab.study.regression import Regression

EXACT = 1e-5
MISSED = 1e-3
LIMIT_S = 100.0
ROWS = (8, 32)
TASK = Regression(width=192)
SETTINGS = RunSettings(
    run="recorded",
    interval_steps=4,
    fragments=2,
    quorum=2,
    learning_rate=0.05,
    warmup_steps=0,
    outer=OuterSettings(learning_rate=0.7, momentum=0.6),
    budget_tokens=24_000,
    record_contributions=True,
)


class UnlikeLearners(LocalSystem):
    """A run whose two learners take batches of 8 and of 32 rows."""

    def _trainer(self, index: int, devices: Sequence[Device] | None) -> JaxTrainer:
        shared, self.task = self.task, replace(TASK, rows=ROWS[index])
        try:
            return super()._trainer(index, devices)
        finally:
            self.task = shared


def play(folder: Path, settings: RunSettings = SETTINGS, **rest: object) -> Path:
    """Run to the end, and return the run's folder."""
    system = UnlikeLearners(TASK, settings, learners=2, **rest)  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(system.run(folder), LIMIT_S))
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that recorded its contributions."""
    return play(tmp_path_factory.mktemp("runs") / "recorded")


def together(found: Findings) -> int:
    """How many merges had two contributions."""
    return sum(redone.contributions == 2 for redone in found.merges)


def test_every_merge_of_a_run_is_redone(recorded: Path) -> None:
    """From the initial values to the last, in float64; the digests are those on the tape."""
    found = Replay(recorded).run()
    lines = (recorded / "tape.jsonl").read_text().splitlines()
    told = [line for line in map(json.loads, lines) if line["kind"] == "merged"]
    assert len(found.merges) == len(told) >= 20
    assert {(r.fragment, str(r.version)) for r in found.merges} == {
        (line["fragment"], line["version"]) for line in told
    }
    assert together(found) >= 10
    assert found.gaps == []
    assert all(redone.published for redone in found.merges)
    assert found.error < EXACT


def test_a_plain_average_is_far_off(recorded: Path) -> None:
    """With unlike batches and a quorum of two, RDA is not the average."""
    assert Replay(recorded, MergeRule.AVERAGE).run().error > MISSED


@pytest.mark.parametrize(
    "changes",
    [
        {"weighting": Weighting.TOKENS},
        {"outer": OuterSettings(learning_rate=0.7, momentum=0.6, nesterov=False)},
        {"outer": OuterSettings(learning_rate=0.7, momentum=0.5)},
    ],
    ids=["weights", "no-look-ahead", "momentum"],
)
def test_another_rule_is_far_off(
    recorded: Path, tmp_path: Path, changes: dict[str, object]
) -> None:
    """The record's settings decide; a record that says others of the same merges is missed."""
    (file,) = record_files(recorded)
    said = Replay(recorded)
    told = file.read_bytes()
    place = tmp_path / "contributions"
    place.mkdir()
    (place / file.name).write_bytes(with_settings(told, replace(SETTINGS, **changes)))  # type: ignore[arg-type]
    assert said.run(40).error < EXACT
    assert Replay(tmp_path).run(40).error > MISSED


def with_settings(record: bytes, settings: RunSettings) -> bytes:
    """The same record, of a start with other settings."""
    import msgspec

    from islands.run.records.merge_record import LENGTH, MAGIC, Began

    (size,) = LENGTH.unpack(record[len(MAGIC) : len(MAGIC) + LENGTH.size])
    start = len(MAGIC) + LENGTH.size
    began = msgspec.json.decode(record[start : start + size], type=Began)
    header = msgspec.json.encode(msgspec.structs.replace(began, settings=settings))
    return MAGIC + LENGTH.pack(len(header)) + header + record[start + size :]


def test_the_first_merges_may_do(recorded: Path) -> None:
    """A long run need not be replayed to its end."""
    every = Replay(recorded).run()
    assert Replay(recorded).run(3).merges == every.merges[:3]
    assert Replay(recorded).run(10**9).merges == every.merges


def test_a_value_that_is_not_the_published_one_is_told(recorded: Path, tmp_path: Path) -> None:
    """One flipped bit in the last published value breaks its digest."""
    (file,) = record_files(recorded)
    content = bytearray(file.read_bytes())
    content[-4] ^= 1
    (tmp_path / "contributions").mkdir()
    (tmp_path / "contributions" / file.name).write_bytes(content)
    *others, last = Replay(tmp_path).run().merges
    assert all(redone.published for redone in others)
    assert not last.published


def test_a_record_that_is_cut_off_is_replayed_as_far_as_it_goes(
    recorded: Path, tmp_path: Path
) -> None:
    """As that of a syncer that was killed, or that still runs."""
    (file,) = record_files(recorded)
    every = Replay(recorded).run().merges
    (tmp_path / "contributions").mkdir()
    (tmp_path / "contributions" / file.name).write_bytes(file.read_bytes()[:-5])
    assert Replay(tmp_path).run().merges == every[:-1]


@pytest.mark.quick("precision-float32", "precision-fp4", "outer-")
@pytest.mark.parametrize(
    "changed",
    [
        *({"precision": precision} for precision in Precision),
        {"merge": MergeRule.AVERAGE, "precision": Precision.BFLOAT16},
        {"anchor": Anchor.BASE},
        {"outer": OuterSettings(learning_rate=0.01, momentum=0.9)},
        {"learning_rate": 1e-5},
    ],
    ids=lambda changed: "-".join(changed) + "-" + str(changed.get("precision", "")),
)
def test_an_honest_run_is_as_published(
    tmp_path: Path, changed: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """What was rounded on the wire is replayed as it was rounded; low rates hide nothing."""
    folder = play(tmp_path / "run", replace(SETTINGS, budget_tokens=3_000, **changed))  # type: ignore[arg-type]
    found = Replay(folder).run()
    assert found.merges  # how many there are follows from the speed of this machine
    assert (found.error < EXACT, found.step_error < EXACT) == (True, True)
    assert main(["replay", str(folder)]) == 0
    told = capsys.readouterr().out
    assert f"rounding to float32 may hide {found.step_rounding:.2e} of a step" in told


def test_an_optimizer_of_the_users_own_is_not_replayed(tmp_path: Path) -> None:
    """The sentence names it."""
    import optax

    settings = replace(SETTINGS, budget_tokens=1_000)
    folder = play(tmp_path / "run", settings, outer=OptaxChain(optax.sgd(0.5)))
    with pytest.raises(UserError, match="outer optimizer is OptaxChain; only SGD"):
        Replay(folder).run()


def test_the_command_tells_the_worst_version(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 where the values are those that the rules make, 1 where they are not."""
    assert main(["replay", str(recorded)]) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[-1].endswith("of 1e-04: as published")
    assert main(["replay", str(recorded), "--merge", "average"]) == 1
    assert "not as published" in capsys.readouterr().out
    assert main(["replay", str(recorded), "--merges", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["right"], len(found["merges"]), found["gaps"]) == (True, 4, [])


@pytest.mark.parametrize("rule", [rule for rule in MergeRule if rule.robust])
def test_a_robust_rule_in_place_of_the_runs_own_is_refused(
    recorded: Path, rule: MergeRule, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its merges would be redone by another rule, and be found as published."""
    assert main(["replay", str(recorded), "--merge", rule]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"merge is {rule}; only rda and average can be replayed" in told.err


def test_a_run_without_a_record_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the setting that makes one; by default nothing is recorded."""
    settings = replace(SETTINGS, budget_tokens=500, record_contributions=False)
    folder = play(tmp_path / "run", settings)
    assert not (folder / "contributions").exists()
    assert main(["replay", str(folder)]) == 2
    assert "holds no recorded contributions; a run records them" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["replay", str(folder), "--merges", "0"]) == 2
    assert "merges is 0; it must be at least 1" in capsys.readouterr().err
    (folder / "contributions").mkdir()
    (folder / "contributions" / "0001.record").write_bytes(b"something else")
    assert main(["replay", str(folder)]) == 2
    assert "is no record of contributions that this version" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"merge": MergeRule.MEDIAN}, "merges by median; only rda and average"),
        ({"outer": OuterSettings(momentum=0.5, correction=Correction.COSINE)}, "momentum corrects"),
        (
            {"outer": OuterSettings(optimizer="delayed_nesterov", delay_merges=2)},
            "outer optimizer is Delayed",
        ),
    ],
)
def test_a_rule_that_is_not_redone_is_refused(
    tmp_path: Path, changed: dict[str, MergeRule], said: str
) -> None:
    """Redone by another rule, the run would look damaged."""
    settings = replace(SETTINGS, budget_tokens=1_000, **changed)  # type: ignore[arg-type]
    folder = play(tmp_path / "run", settings)
    with pytest.raises(UserError, match=said):
        Replay(folder).run()
