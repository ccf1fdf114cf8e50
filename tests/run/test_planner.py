"""What a run needs is computed from shapes and settings, by hand-checked formulas."""

import io
import re
import socket
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from islands.cli.dry_run import Findings, examine, show
from islands.cli.parsing import Common
from islands.layout.fragments import plan
from islands.layout.leaves import Layout, Leaf
from islands.model.memory import TrainerBytes
from islands.protocol.errors import UserError
from islands.protocol.settings import choices
from islands.protocol.settings.gossip import GossipSettings
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings
from islands.run.planner import Estimate, estimate
from islands.settings import host
from islands.settings.groups import ListenOptions, RunFile
from islands.settings.quantities import rate, size

MIB = 2**20
V = 8 * MIB


def layout(fragments: int = 4, dtype: str = "float32") -> Layout:
    """Two MiB of elements in equal fragments."""
    leaves = [Leaf(f"layer/{index}", (512, 1024), dtype) for index in range(4)]
    return plan(leaves, count=fragments)


def made(learners: int = 3, step_time_s: float | None = None, **changes: object) -> Estimate:
    """An estimate for H = 8, P = 4, τ = 2."""
    standard = {"interval_steps": 8, "fragments": 4, "budget_tokens": 10}
    settings = RunSettings(**{**standard, **changes})  # type: ignore[arg-type]
    return estimate(layout(), settings, learners=learners, step_time_s=step_time_s)


def test_memory_of_a_learner() -> None:
    memory = made().learner
    assert (memory.parameters, memory.base, memory.moments, memory.gradients) == (V, V, 2 * V, V)
    assert memory.snapshots == 2 * 2 * V // 4  # one fragment, twice under way, device and host
    assert memory.total == 5 * V + V


def test_what_is_known_of_the_model_is_used() -> None:
    settings = RunSettings(interval_steps=8, fragments=4)
    found = estimate(
        layout(dtype="bfloat16"),
        settings,
        learners=1,
        trainer=TrainerBytes(parameters=V // 2 + 7, base=V, moments=5, gradients=V // 2),
    )
    memory = found.learner
    assert (memory.parameters, memory.base, memory.moments) == (V // 2 + 7, V, 5)
    assert memory.gradients == V // 2
    assert found.moments_known


def test_memory_of_the_syncer() -> None:
    """Versions, momentum, and what waits in open rounds: the bound I5 (protocol §15.5)."""
    memory = made(learners=5, staleness_max=2).syncer
    assert memory.values == V + 2 * V // 4
    assert memory.outer == V
    assert memory.rounds == 5 * V // 4
    assert made(learners=5, overlap_steps=8).syncer.rounds == 5 * V  # all fragments open at once


def test_traffic_does_not_depend_on_the_number_of_fragments() -> None:
    assert made().up_per_step == made().down_per_step == V / 8
    half = made(precision=choices.Precision.BFLOAT16)
    assert (half.up_per_step, half.down_per_step) == (V / 16, V / 8)
    assert half.exchange_bytes == V // 4 + V // 8
    assert made().start_bytes == V
    assert made(precision=choices.Precision.FP4).up_per_step == pytest.approx(V / 8 / 8, rel=0.02)


@pytest.mark.parametrize(("feedback", "coarsest"), [(True, "two_bit"), (False, "fp4")])
def test_what_adaptive_learners_send(feedback: bool, coarsest: str) -> None:  # noqa: FBT001
    found = made(precision=choices.Precision.ADAPTIVE, error_feedback=feedback)
    least = made(precision=choices.Precision(coarsest))
    assert found.up_per_step == made().up_per_step
    assert found.up_per_step_least == least.up_per_step == least.up_per_step_least
    assert found.exchange_bytes == made().exchange_bytes


def test_increments_are_less_to_send_and_more_to_keep() -> None:
    """A quarter or an eighth goes down; what is left is kept, journalled, and a copy at learners.

    Whoever joins is sent whole values all the same.
    """
    whole, fp4 = made(), made(update_precision=choices.UpdatePrecision.FP4)
    int8 = made(update_precision=choices.UpdatePrecision.INT8)
    assert int8.down_per_step == pytest.approx(V / 8 / 4, rel=0.01)
    assert fp4.down_per_step == pytest.approx(V / 8 / 8, rel=0.02)
    assert (fp4.up_per_step, fp4.start_bytes) == (V / 8, V)
    assert fp4.exchange_bytes == pytest.approx(V / 4 * 9 / 8, rel=0.01)
    assert (whole.learner.published, whole.syncer.increments) == (0, 0)
    assert fp4.learner.total == whole.learner.total + V
    assert fp4.syncer.total == pytest.approx(whole.syncer.total + V + V / 8, rel=0.01)
    assert fp4.disk_bytes == 2 * 3 * V + fp4.disk_per_round
    assert fp4.disk_per_round == 3 * V // 4


def test_the_journal() -> None:
    found = made(step_time_s=0.5)
    assert found.disk_per_round == 2 * V // 4
    assert found.disk_per_step * found.steps_per_s == 2 * V / 8 * 2
    assert found.disk_bytes == 4 * V + found.disk_per_round, "two slots, and one being written"


def test_a_round_takes_no_less_than_its_record() -> None:
    found = made(step_time_s=0.5)
    assert found.pace_s == 2 * 0.5
    assert found.disk_per_round == 2 * V // 4
    assert found.round_s(4 * V) == found.pace_s
    assert found.round_s(V / 4) == 2.0
    assert made().pace_s == 2.0


@pytest.mark.parametrize(
    ("speed", "told"),
    [(None, None), (1e9, "1.00 s the pace; the disk"), (V / 4, "2.00 s the disk, 2.1 MB/s")],
)
def test_the_time_of_a_round_is_told_where_the_disk_was_timed(
    speed: float | None, told: str | None
) -> None:
    found = Findings(1, 0.5, Path("run"), estimate=made(step_time_s=0.5))
    found.written_bytes_per_s = speed
    out = io.StringIO()
    show(found, Console(file=out, width=80))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines() if "a round" in line]
    assert len(lines) == (told is not None)
    assert told is None or told.replace("1.00", "1").replace("2.00", "2") in lines[0]


def test_the_disk_is_timed_for_large_records_alone(tmp_path: Path) -> None:
    speeds = []
    for megabytes in (1, 64):
        told = {
            "task": "islands.lab.toys.toy_workload:Sleeping",
            "task_settings": {"step_s": 0.01, "megabytes": megabytes},
            "run": {"fragments": 4, "interval_steps": 8},
        }
        options = host.RunOptions(
            msgspec.convert(told, RunFile), learners=1, folder=tmp_path / "run"
        )
        speeds.append(examine(options, Common()).written_bytes_per_s)
    assert speeds[0] is None
    assert speeds[1] is not None
    assert speeds[1] > 0
    assert list(tmp_path.iterdir()) == []


def test_gossip_sends_two_values_to_each_neighbour() -> None:
    ring = GossipSettings(choices.Neighbours.RING)
    found = estimate(layout(), replace(PRESETS[Preset.GOSSIP], gossip=ring), learners=4)
    assert found.neighbours == 2.0
    assert found.up_per_step == found.down_per_step == 2 * 8 * found.elements / 50
    assert found.disk_per_step == 0.0


def test_the_least_bandwidth_for_a_grace() -> None:
    """An exchange with all must fit into τ steps (protocol §3.4); without τ nothing does."""
    assert made(step_time_s=0.1).hub_bytes_per_s(2) == pytest.approx(3 * V / 2 / 0.2)
    assert made().hub_bytes_per_s(0) is None


ALONE = {"trigger": choices.Trigger.LEARNER}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"quorum": 4}, "quorum is 4 and there are 3 learners"),
        ({"budget_tokens": None}, "the run goes on until stopped"),
        (
            {"outer": OuterSettings(learning_rate=0.9, momentum=0.9)},
            "set outer.momentum to 0 and outer.learning_rate to 1 or less",
        ),
        (
            {"precision": choices.Precision.TOP_K, "outer": OuterSettings(1.0, 0.3)},
            "precision is top_k and outer.momentum is 0.3",
        ),
        ({"precision": choices.Precision.TOP_K}, "precision is top_k and merge is rda"),
        ({**ALONE, "staleness_max": 2}, "staleness_max is 2 and 3 learners are merged one after"),
    ],
)
def test_what_is_doubtful_is_said(changes: dict[str, object], sentence: str) -> None:
    settings = {"interval_steps": 8, "fragments": 4, "budget_tokens": 10, **changes}
    found = estimate(layout(4), RunSettings(**settings), learners=3)  # type: ignore[arg-type]
    assert any(sentence in warning for warning in found.warnings), found.warnings
    assert made().warnings == ()


def test_a_preset_for_so_many_learners_has_nothing_doubtful() -> None:
    preset = replace(PRESETS[Preset.ASYNC_DILOCO], budget_tokens=10)
    assert estimate(layout(1), preset, learners=4).warnings == ()


def test_the_table_fits_a_terminal() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    found = Findings(
        3, 0.1, Path("runs/x"), made(step_time_s=0.1), 2, "ws://127.0.0.1:7070/supervisor"
    )
    found.refused = ("something is wrong " * 10,)
    show(found, console)
    told = console.export_text()
    assert max(map(len, told.splitlines())) <= 80
    assert re.search(r"parameters +2,097,152", told)
    assert re.search(r"This host, at least +[\d.]+ [MG]iB +syncer, 3 learners", told)
    assert "at 10 steps/s" in told
    assert "refused: something is wrong" in told


def test_a_plan_that_cannot_be_told_is_refused(tmp_path: Path) -> None:
    """What a start would refuse for its size, the dry run refuses too: it promises nothing more."""
    file = RunFile(
        task="islands.lab.toys.toy_workload:Sleeping",
        task_settings={"megabytes": 0.1, "slow": {f"learner-{n}": 1.0 for n in range(4000)}},
    )
    listening = ListenOptions(listen="127.0.0.1:0")
    found = examine(host.RunOptions(file, listening, folder=tmp_path), Common())
    assert [sentence for sentence in found.refused if "task_settings into a file" in sentence]


def test_sizes_are_readable() -> None:
    assert [size(x) for x in (5, 2048, 3.5 * MIB, 300 * MIB)] == [
        *("5 B", "2 KiB", "3.5 MiB", "300 MiB")
    ]
    assert [rate(x) for x in (5, 2500, 1.25e9, 5e15)] == [
        *("5 B/s", "2.5 kB/s", "1.25 GB/s", "5000 TB/s")
    ]


# --- a dry run --------------------------------------------------------------------------------

SLEEPING = RunFile(
    task="islands.lab.toys.toy_workload:Sleeping",
    task_settings={"megabytes": 8},
    run=RunSettings(fragments=4, interval_steps=8, budget_tokens=10),
)
ANY = ListenOptions(listen="127.0.0.1:0")
HUBS = [host.RunOptions, host.SyncerOptions, host.SupervisorOptions]


@pytest.mark.integration
@pytest.mark.parametrize("hub", HUBS)
def test_a_hub_that_could_start_is_refused_nothing(hub: type, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    found = examine(hub(file=SLEEPING, listening=ANY, folder=folder), Common(step_time_s=0.1))
    assert found.refused == ()
    assert found.estimate is not None
    assert found.estimate.start_bytes == V
    assert list(tmp_path.iterdir()) == []


@pytest.mark.integration
@pytest.mark.parametrize("hub", HUBS)
def test_everything_that_a_start_would_refuse_is_said_at_once(hub: type, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    lost = RunFile(task="nowhere:Task", start_from=tmp_path / "a.safetensors")
    found = examine(hub(file=lost, listening=ANY, folder=place / "run"), Common())
    told = "\n".join(found.refused)
    assert found.estimate is None
    assert "task 'nowhere:Task' cannot be loaded on this host" in told
    assert "a.safetensors; there is no such file" in told
    assert f"{place} is a file" in told


@pytest.mark.integration
def test_a_busy_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        listening = ListenOptions(listen=place)
        found = examine(host.SyncerOptions(SLEEPING, listening, folder=tmp_path), Common())
    assert len(found.refused) == 1
    assert f"{place} is in use" in found.refused[0]


@pytest.mark.integration
def test_beyond_loopback_a_hub_needs_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub of its own is told one; `islands run` makes one."""
    monkeypatch.delenv("ISLANDS_TOKEN", raising=False)
    everywhere = ListenOptions(listen="0.0.0.0:0")
    found = examine(host.SyncerOptions(SLEEPING, everywhere, folder=tmp_path), Common())
    assert len(found.refused) == 1
    assert "other machines" in found.refused[0]
    run = host.RunOptions(SLEEPING, everywhere, folder=tmp_path)
    assert examine(run, Common()).refused == ()


@pytest.mark.integration
def test_extending_needs_a_run(tmp_path: Path) -> None:
    options = host.RunOptions(SLEEPING, ANY, folder=tmp_path, extend=True)
    assert "holds no run that could go on" in examine(options, Common()).refused[0]


@pytest.mark.parametrize(
    "options",
    [
        host.ObserverOptions(),
        host.LearnerOptions(("127.0.0.1:1",)),
        host.SyncerOptions(listening=ANY, supervisor=("127.0.0.1:1",)),
    ],
)
def test_who_joins_has_no_dry_run(options: object) -> None:
    """It is planned, and refused, by the hub that it dials."""
    with pytest.raises(UserError, match="no dry run"):
        examine(options, Common())


def test_a_hub_without_a_task_waits_for_one_and_a_run_does_not(tmp_path: Path) -> None:
    file = RunFile()
    waits = examine(host.SyncerOptions(file, ANY, folder=tmp_path), Common())
    assert waits.refused == ()
    assert waits.doubts[0] == "the first training loop that joins tells what the model is"
    (refused,) = examine(host.RunOptions(file, ANY, folder=tmp_path / "run"), Common()).refused
    assert refused.startswith("task is not set; name it as package.module:Class")
