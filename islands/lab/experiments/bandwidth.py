"""How fast a link a run needs, preset by preset and model by model, beside formula and paper.

The published table is that of Streaming DiLoCo (arXiv 2501.18512, table 4): Gbit/s to reach a
utilisation by the authors' own simulation, which knows layers, hides an all-reduce behind the
backward pass, counts 16 bits for each value, and tries bandwidths a fifth apart. Here every value
travels twice, to the syncer in 16 bits and back in 32, and no step begins before the last value of
the one before it: where learners wait, our figures are about three times theirs for this alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from islands.lab.experiments.bandwidth_search import Found, Search
from islands.lab.experiments.formulas import Job, gbit_text, needed_gbit_s, syncer_gbit_s
from islands.lab.experiments.lock_step import lock_step
from islands.lab.settings.simulations import BandwidthOptions
from islands.protocol.errors import UserError
from islands.protocol.settings.choices import UpdatePrecision
from islands.protocol.settings.presets import PRESETS, Preset
from islands.protocol.settings.run import Precision, RunSettings, Timing
from islands.run.records.formatting import count, json_text, markdown_table

SHARDS = (1, 4, 16)
PUBLISHED_SHARES = (0.5, 0.8, 0.9, 0.95, 0.99)
PUBLISHED: Mapping[str, Mapping[float, tuple[float, ...]]] = {
    "data-parallel": {
        1e9: (86.8, 152.6, 184.2, 222.3, 569.0),
        10e9: (104.8, 222.3, 222.3, 268.3, 471.5),
        100e9: (184.2, 323.8, 390.7, 390.7, 471.5),
    },
    "diloco": {
        1e9: (1.4, 6.2, 13.3, 23.3, 86.8),
        10e9: (1.7, 7.5, 16.0, 33.9, 104.8),
        100e9: (3.0, 11.0, 23.3, 49.4, 184.2),
    },
    "streaming_diloco, no overlap": {
        1e9: (1.4, 5.2, 9.1, 16.0, 28.1),
        10e9: (1.7, 5.2, 9.1, 13.3, 19.3),
        100e9: (2.4, 6.2, 9.1, 11.0, 19.3),
    },
    "streaming_diloco": {
        1e9: (1.4, 4.3, 6.2, 9.1, 11.0),
        10e9: (1.7, 3.6, 5.2, 6.2, 7.5),
        100e9: (1.7, 3.6, 4.3, 5.2, 5.2),
    },
    "streaming_diloco, fp4 both ways": {
        1e9: (0.4, 0.9, 1.7, 2.0, 3.0),
        10e9: (0.4, 0.9, 1.4, 1.4, 1.7),
        100e9: (0.5, 0.9, 1.1, 1.1, 1.4),
    },
}
"""Gbit/s by row and parameters, for `PUBLISHED_SHARES`."""


PATIENCE = 10.0
"""Of a run, for each second of its step: values are sent again after 20 steps at the earliest.

Where that is less than an exchange takes, a link that is just wide enough is filled by what is sent
twice, and stays full.
"""


class Key(NamedTuple):
    """Of a search: its row, and the model's parameters."""

    row: str
    parameters: float


def rows_of(options: BandwidthOptions, fragments: int, step_s: float) -> dict[str, RunSettings]:
    """Return the settings of each row for one model."""
    timing = Timing(patience=PATIENCE * step_s)
    steps = options.interval_steps
    diloco = replace(PRESETS[Preset.DILOCO], interval_steps=steps)
    streaming = replace(PRESETS[Preset.STREAMING_DILOCO], interval_steps=steps, fragments=fragments)
    decoupled = PRESETS[Preset.DECOUPLED_DILOCO]
    fine = {
        "data-parallel": lock_step(timing),
        "diloco": diloco,
        "streaming_diloco, no overlap": replace(streaming, overlap_steps=0),
        "streaming_diloco": streaming,
        "decoupled_diloco": decoupled,
        "decoupled": PRESETS[Preset.DECOUPLED],
    }
    rows = {name: replace(each, precision=Precision.BFLOAT16) for name, each in fine.items()}
    for name, each in (("streaming_diloco", streaming), ("decoupled_diloco", decoupled)):
        rows[f"{name}, fp4 both ways"] = replace(
            each, precision=Precision.FP4, update_precision=UpdatePrecision.FP4
        )
    return {
        name: replace(each, timing=timing)
        for name, each in sorted(rows.items(), key=lambda item: _place(item[0], rows))
        if options.only is None or options.only in name
    }


def _place(name: str, rows: Mapping[str, RunSettings]) -> int:
    """Return where a row stands: quantised ones follow those that they are made of."""
    order = list(rows)
    base = name.removesuffix(", fp4 both ways")
    return 2 * order.index(base) + (name != base)


def searches_of(options: BandwidthOptions) -> dict[Key, Search]:
    """Return what is searched for.

    Raises:
        UserError: no row has a name that contains what is asked for.
    """
    found = {}
    for parameters, step_s, fragments in _models(options):
        for name, settings in rows_of(options, fragments, step_s).items():
            job = Job(parameters, step_s, options.latency_s)
            found[Key(name, parameters)] = Search(
                settings, job, options.learners, options.utilisations, options.within
            )
    if not found:
        raise UserError(f"only is {options.only!r}; no row has it in its name")
    return found


def _models(options: BandwidthOptions) -> list[tuple[float, float, int]]:
    return list(zip(options.parameters, options.step_s, options.fragments, strict=True))


def published(key: Key, utilisation: float) -> float | None:
    """Return the published bandwidth in Gbit/s; None if there is none."""
    row = PUBLISHED.get(key.row, {}).get(key.parameters)
    return (
        row[PUBLISHED_SHARES.index(utilisation)]
        if row and utilisation in PUBLISHED_SHARES
        else None
    )


def table(options: BandwidthOptions, found: Mapping[Key, Found]) -> str:
    """Return the tables as Markdown: one for each model, and the load on the syncer's own link."""
    searches = searches_of(options)
    lines_told = []
    for parameters, step_s, _ in _models(options):
        keys = [key for key in found if key.parameters == parameters]
        heads = [f"{100 * level:g} %" for level in options.utilisations]
        lines = [[f"{count(parameters)} parameters, {step_s:g} s steps; Gbit/s for", *heads]]
        lines += [
            [
                key.row,
                *(_cell(searches[key], found[key], key, level) for level in options.utilisations),
            ]
            for key in keys
        ]
        lines_told += [markdown_table(lines), ""]
    lines_told += [
        "Simulated / closed formula / published for Streaming DiLoCo (arXiv 2501.18512, table 4).",
        "",
        _load(options, searches),
        "",
        "The load on the syncer's own link is a formula; a run has one syncer.",
    ]
    return "\n".join(lines_told) + "\n"


def _cell(search: Search, found: Found, key: Key, level: float) -> str:
    formula = needed_gbit_s(search.settings, search.job, level)
    theirs = published(key, level)
    ours = found.gbit_s[level]
    least = "at most " if ours == found.lowest_gbit_s else ""
    both = [f"{least}{gbit_text(ours)}", gbit_text(formula)]
    return " / ".join(both if theirs is None else [*both, f"{theirs:g}"])


def _load(options: BandwidthOptions, searches: Mapping[Key, Search]) -> str:
    heads = [f"{shards} shard{'s' * (shards > 1)}" for shards in SHARDS]
    title = f"Gbit/s in + out of {options.learners} learners, each shard"
    lines = [[title, "parameters", *heads]]
    for key, search in searches.items():
        loads = [
            syncer_gbit_s(search.settings, search.job, search.learners, shards) for shards in SHARDS
        ]
        cells = [f"{gbit_text(into)} + {gbit_text(out)}" for into, out in loads]
        lines.append([key.row, count(key.parameters), *cells])
    return markdown_table(lines)


def json_of(options: BandwidthOptions, found: Mapping[Key, Found]) -> bytes:
    """Return what was found as JSON, next to formula and paper."""
    searches = searches_of(options)
    rows = [
        {
            "row": key.row,
            "parameters": key.parameters,
            "step_s": searches[key].job.step_s,
            "utilisation": level,
            "gbit_s": gbit_s,
            "gbit_s_by_formula": needed_gbit_s(searches[key].settings, searches[key].job, level),
            "gbit_s_published": published(key, level),
            "runs": each.runs,
        }
        for key, each in found.items()
        for level, gbit_s in each.gbit_s.items()
    ]
    return json_text(rows)
