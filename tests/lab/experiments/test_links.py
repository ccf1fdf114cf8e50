"""What narrow links cost, by runs of the actors and by formulas that stand beside them."""

from dataclasses import replace
from math import inf

import pytest

from islands.lab.experiments import bandwidth, regions
from islands.lab.experiments.bandwidth import Search, cell_of, least, search
from islands.lab.experiments.fleet import play
from islands.lab.experiments.formulas import (
    Job,
    lock_step,
    needed_gbit_s,
    period_s,
    ring_step_s,
    syncer_gbit_s,
)
from islands.lab.settings.fleets import BandwidthOptions, RegionsOptions, of_regions
from islands.protocol.errors import SettingsError, UserError
from islands.protocol.settings.choices import Precision, UpdatePrecision
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import RunSettings, Timing

JOB = Job(1e9, 0.1, 0.002)
LOCK = lock_step(Timing())
STREAMING = replace(
    PRESETS[Preset.STREAMING_DILOCO],
    interval_steps=12,
    fragments=4,
    precision=Precision.FP4,
    update_precision=UpdatePrecision.FP4,
)


@pytest.mark.parametrize("settings", [LOCK, STREAMING], ids=["lock-step", "streaming, fp4"])
@pytest.mark.parametrize("utilisation", [0.5, 0.9])
def test_learners_that_wait_come_to_what_the_formula_says(
    settings: RunSettings, utilisation: float
) -> None:
    gbit_s = needed_gbit_s(settings, JOB, utilisation)
    played = play(cell_of(Search(settings, JOB, 2, (utilisation,), 0.1), gbit_s))
    assert played.figures.goodput == pytest.approx(utilisation, abs=0.01)


def test_formulas_by_hand() -> None:
    job = Job(1e9, 0.5)
    assert period_s(LOCK, job, 64.0) == pytest.approx(1.5)
    assert needed_gbit_s(LOCK, job, 1 / 3) == pytest.approx(64.0)
    assert needed_gbit_s(LOCK, replace(job, latency_s=10.0), 0.9) == inf
    assert ring_step_s(job, 4, 24.0) == pytest.approx(1.5)
    decoupled = PRESETS[Preset.DECOUPLED_DILOCO]
    assert syncer_gbit_s(decoupled, job, 3, 4) == pytest.approx((2.0, 2.0))
    assert period_s(decoupled, job, 1e9) == pytest.approx(0.5)
    assert period_s(decoupled, job, 1.0) == pytest.approx(32 / 24)
    assert needed_gbit_s(decoupled, job, 0.9) == pytest.approx(64 / 24 / 0.5), "one step of two"
    wider = replace(decoupled, overlap_steps=5)
    assert needed_gbit_s(wider, job, 0.9) == pytest.approx(32 / 24 / 0.5), "a fragment each step"
    assert needed_gbit_s(decoupled, replace(job, latency_s=1.0), 0.9) == inf
    merged = replace(decoupled, merge_moments=True)
    assert syncer_gbit_s(merged, job, 3, 4) == pytest.approx((4.0, 4.0))
    coarse = replace(merged, precision=Precision.INT8)
    bits = 8 + 16 / 256 + 32  # codes, a scale of a block, and moments as they are
    assert syncer_gbit_s(coarse, job, 3, 4) == pytest.approx((bits / 16, 4.0))


def test_the_least_bandwidth_is_found() -> None:
    asked: dict[float, float] = {}

    def share(gbit_s: float) -> float:
        asked.setdefault(gbit_s, gbit_s / (gbit_s + 10.0))
        return asked[gbit_s]

    assert 10 <= least(share, 0.5, asked, begin=3.0, within=0.1) <= 11.01
    assert 40 <= least(share, 0.8, asked, begin=500.0, within=0.1) <= 44.01
    assert least(share, 0.8, asked, begin=inf, within=0.1) == inf
    never: dict[float, float] = {}
    in_vain = least(lambda at: never.setdefault(at, 0.0), 0.9, never, begin=1.0, within=0.1)
    assert in_vain == inf


def test_a_search_plays_runs() -> None:
    """And tells the bandwidth next to formula and paper."""
    options = BandwidthOptions(
        (1e9,), (0.1,), (8,), utilisations=(0.5,), within=0.3, only="parallel"
    )
    ((key, wanted),) = bandwidth.searches_of(options).items()
    found = {key: search(wanted)}
    assert found[key].gbit_s[0.5] == pytest.approx(480, rel=0.3)
    told = bandwidth.table(options, found)
    assert "/ 480 / 86.8 |" in told
    assert "16 shards" in told
    (row,) = bandwidth.figures_of(options, found)
    assert row["gbit_s_published"] == 86.8


def test_the_rows_are_presets_and_their_quantised_forms() -> None:
    rows = {key.row for key in bandwidth.searches_of(BandwidthOptions())}
    assert set(bandwidth.PUBLISHED) < rows
    assert "decoupled_diloco, fp4 both ways" in rows
    with pytest.raises(UserError, match="no row has it in its name"):
        bandwidth.searches_of(BandwidthOptions(only="rings"))


QUICK = RegionsOptions(
    run=replace(of_regions(), interval_steps=6, fragments=6),
    gbit_s=(3.0, 1000.0),
    latencies_s=(0.06, 0.08),
    parameters=3e9,
    steps=12,
)


def test_decoupled_regions_are_many_times_as_fast() -> None:
    kinds = (regions.DATA_PARALLEL, regions.QUANTISED)
    cells = regions.cells_of(QUICK)
    found = {key: play(cell) for key, cell in cells.items() if key[0] in kinds}
    useful = {key[:2]: played.useful for key, played in found.items()}
    narrow, wide = QUICK.gbit_s
    assert useful[regions.QUANTISED, narrow] > 8 * useful[regions.DATA_PARALLEL, narrow]
    assert useful[regions.DATA_PARALLEL, wide] > 0.8
    for kind in regions.kinds_of(QUICK):
        for gbit_s in QUICK.gbit_s:
            found.setdefault((kind, gbit_s, 0), found[regions.QUANTISED, gbit_s, 0])
    told = regions.table(QUICK, found)
    assert "data-parallel by a ring (formula): within 20 % of the best from" in told
    assert regions.pictures(QUICK, found)["regions.png"]().startswith(b"\x89PNG")
    assert "ring_by_formula" in regions.figures_of(QUICK, found)


def test_where_shares_reach_a_level() -> None:
    assert regions.reaches([1.0, 10.0, 100.0], [0.1, 0.8, 1.0], 0.9) == pytest.approx(
        31.6, rel=1e-3
    )
    assert regions.reaches([1.0, 10.0], [0.95, 1.0], 0.9) == 1.0
    assert regions.reaches([1.0, 10.0], [0.95, 0.8], 0.9) is None


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (RegionsOptions, {"latencies_s": (0.1,)}, "latencies_s has 1 regions"),
        (RegionsOptions, {"latencies_s": (0.1, -1.0)}, "latencies_s is -1.0; it must be at least"),
        (RegionsOptions, {"gbit_s": ()}, "gbit_s holds none"),
        (RegionsOptions, {"gbit_s": (0.0,)}, "gbit_s is 0.0; it must be above 0"),
        (BandwidthOptions, {"fragments": (1,)}, "parameters, step_s and fragments have 3, 3 and 1"),
        (BandwidthOptions, {"utilisations": (1.0,)}, "utilisations is 1.0; it must be above 0"),
        (BandwidthOptions, {"utilisations": ()}, "utilisations holds none"),
        (BandwidthOptions, {"learners": 1}, r"learners is 1; it must be in \[2, 4096\]"),
    ],
)
def test_what_cannot_work_is_refused(kind: type, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        kind(**options)
