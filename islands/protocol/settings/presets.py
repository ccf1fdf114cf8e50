"""Presets: the settings of a known algorithm by one name; each can be overridden one by one.

| preset | source | waits | merge | outer |
|---|---|---|---|---|
| `decoupled` | our studies, `docs/quality.md` | never | average | as it is |
| `decoupled_diloco` | Decoupled DiLoCo, arXiv 2604.21428 | never | RDA | as it is |
| `diloco` | DiLoCo, arXiv 2311.08105 | at τ = 0 | average | Nesterov 0.7, 0.9 |
| `streaming_diloco` | Streaming DiLoCo, arXiv 2501.18512 | at τ = 2 | average | 0.4, 0.9 |
| `async_diloco` | Async Local-SGD, arXiv 2401.09135 | for its own | each alone | delayed 0.7, 0.9 |
| `muloco` | MuLoCo, arXiv 2505.23725; for Muon inside | at τ = 0 | average | 0.9, 0.8 |
| `gossip` | NoLoCo, arXiv 2506.10911; no syncer merges | never | random pairs | NoLoCo |
| `data_parallel` | one learner whose mesh spans all devices | – | – | – |

A preset says nothing of the learning rate, the budget or the seed, which belong to the task.

The rest of `decoupled` follows from the H that is asked for, as our studies found for 2, 4 and 8
learners alike (`docs/quality.md`): up to H = 8 P is H, and the outer step as it is; for more P is
12, η = 0.8 and Nesterov's μ = 0.5. Moments of the inner optimizer are merged, unless contributions
are coarse, or learners train in loops of their own. H is 6 unless it is given: on busy hosts, where
steps vary, an interval of 3 steps leaves half of the learners out of each merge.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType

from islands.protocol.errors import SettingsError
from islands.protocol.settings import choices
from islands.protocol.settings.gossip import GossipSettings
from islands.protocol.settings.outer import DELAYED_NESTEROV, OuterSettings
from islands.protocol.settings.run import RunSettings


class Preset(StrEnum):
    """The name of an algorithm whose settings are known."""

    DECOUPLED = "decoupled"
    DECOUPLED_DILOCO = "decoupled_diloco"
    DILOCO = "diloco"
    STREAMING_DILOCO = "streaming_diloco"
    ASYNC_DILOCO = "async_diloco"
    MULOCO = "muloco"
    GOSSIP = "gossip"
    DATA_PARALLEL = "data_parallel"


_DILOCO = RunSettings(
    interval_steps=500,
    fragments=1,
    quorum=None,
    overlap_steps=0,
    learner_waits=choices.LearnerWaits.AT_TAU,
    pace_by=choices.PaceBy.SLOWEST,
    merge=choices.MergeRule.AVERAGE,
    outer=OuterSettings(learning_rate=0.7, momentum=0.9),
)

PRESETS: Mapping[Preset, RunSettings] = MappingProxyType(
    {
        Preset.DECOUPLED: RunSettings(
            interval_steps=6,
            fragments=6,
            quorum=choices.Automatic.AUTO,
            overlap_steps=choices.Automatic.AUTO,
            merge=choices.MergeRule.AVERAGE,
            merge_moments=True,
            adoption=choices.Adoption.DELAY_CORRECTED,
        ),
        Preset.DECOUPLED_DILOCO: RunSettings(),
        Preset.DILOCO: _DILOCO,
        Preset.STREAMING_DILOCO: replace(
            _DILOCO,
            interval_steps=100,
            fragments=3,
            overlap_steps=2,
            adoption=choices.Adoption.MIX,
            local_share=0.5,
            outer=OuterSettings(learning_rate=0.4, momentum=0.9),
        ),
        # Four learners are assumed: more need a larger N, and a base may be M versions behind.
        Preset.ASYNC_DILOCO: replace(
            _DILOCO,
            quorum=1,
            trigger=choices.Trigger.LEARNER,
            staleness_max=16,
            outer=OuterSettings(0.7, 0.9, optimizer=DELAYED_NESTEROV, delay_merges=4),
        ),
        Preset.MULOCO: replace(
            _DILOCO, interval_steps=30, outer=OuterSettings(learning_rate=0.9, momentum=0.8)
        ),
        Preset.GOSSIP: RunSettings(
            interval_steps=50,
            fragments=1,
            merge=choices.MergeRule.AVERAGE,  # of the last values, at the end
            weighting=choices.Weighting.UNIFORM,
            gossip=GossipSettings(choices.Neighbours.RANDOM_PAIRS),
        ),
        # One learner that keeps all it does and is merged with nobody is plain training.
        Preset.DATA_PARALLEL: RunSettings(
            interval_steps=8,  # how often its values are published, to be kept and evaluated
            fragments=1,
            quorum=1,
            merge=choices.MergeRule.AVERAGE,
            adoption=choices.Adoption.DELAY_CORRECTED,
        ),
    }
)

SHORT_INTERVAL_STEPS = 8
"""Up to this H each step has a fragment of its own, and momentum outside harms."""

LONG_INTERVAL_FRAGMENTS = 12
LONG_INTERVAL_OUTER = OuterSettings(learning_rate=0.8, momentum=0.5)


def run_settings(preset: Preset | str = Preset.DECOUPLED, **given: object) -> RunSettings:
    if preset not in [*Preset]:
        raise SettingsError(f"preset is {preset!r}; the names that there are: {', '.join(Preset)}")
    known = {one.name for one in fields(RunSettings)}
    for name in given.keys() - known:
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SettingsError(f"there is no setting {name}{hint}")
    return replace(settings_of(Preset(preset), given), **given)  # type: ignore[arg-type]  # checked


def settings_of(preset: Preset, given: Mapping[str, object]) -> RunSettings:
    """Return a preset's settings beside those given by name, of which wrong ones are ignored."""
    settings = PRESETS[preset]
    if preset is not Preset.DECOUPLED:
        return settings
    fine = (None, choices.Precision.FLOAT32, choices.Precision.BFLOAT16, choices.Precision.ADAPTIVE)
    if given.get("precision") not in fine:
        settings = replace(settings, merge_moments=False)
    try:
        steps = int(str(given.get("interval_steps", settings.interval_steps)))
    except ValueError:
        return settings
    if steps > SHORT_INTERVAL_STEPS:
        fragments, outer = LONG_INTERVAL_FRAGMENTS, LONG_INTERVAL_OUTER
    elif steps >= 1:
        fragments, outer = steps, settings.outer
    else:
        return settings
    return replace(settings, interval_steps=steps, fragments=fragments, outer=outer)
