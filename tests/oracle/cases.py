"""The settings under which the run of the oracle is played, each of them once."""

from dataclasses import replace
from functools import cache

from islands.protocol.settings.choices import Adoption, MergeRule, Precision, Weighting
from islands.protocol.settings.outer import OuterSettings
from islands.protocol.settings.run import RunSettings
from tests.oracle.rules import Replay
from tests.oracle.run import HOSTS, SETTINGS, Case, play
from tests.oracle.wire import Disturbances

BF16, CARRY = Precision.BFLOAT16, Adoption.DELAY_CORRECTED
PAIR = {name: HOSTS[name] for name in ("ana", "ben")}
SLOW_COPIES = {name: replace(host, copy_s=1.6 * host.step_s) for name, host in HOSTS.items()}


def _case(name: str, **changes: object) -> Case:
    settings: RunSettings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
    return Case(name, settings)


CASES = {
    case.name: case
    for case in (
        _case("quorum-1"),
        _case("quorum-2", quorum=2),
        _case("quorum-all", quorum=None, fragments=3, interval_steps=6),
        _case("average", merge=MergeRule.AVERAGE, quorum=2),
        _case("bfloat16", precision=BF16),
        _case("weights-are-tokens", weighting=Weighting.TOKENS, quorum=2),
        _case("weights-are-equal", weighting=Weighting.UNIFORM),
        _case("no-momentum", outer=OuterSettings(learning_rate=1.0, momentum=0.0), quorum=2),
        _case(
            "no-look-ahead", outer=OuterSettings(learning_rate=0.7, momentum=0.6, nesterov=False)
        ),
        _case(
            "delayed-nesterov",
            outer=OuterSettings(0.7, 0.9, optimizer="delayed_nesterov", delay_merges=3),
        ),
        _case(
            "adam",
            outer=OuterSettings(0.05, optimizer="adam", arguments={"b1": 0.8}),
        ),
        _case("carried-on", adoption=CARRY),
        _case(
            "carried-on-in-bfloat16", adoption=Adoption.DELAY_CORRECTED, quorum=2, precision=BF16
        ),
        _case("int8", precision=Precision.INT8, quorum=2),
        _case("fp4", precision=Precision.FP4),
        _case("carried-on-in-fp4", adoption=CARRY, precision=Precision.FP4),
        _case("two-bit", precision=Precision.TWO_BIT),
        _case("top-k", precision=Precision.TOP_K),
        _case("carried-on-in-top-k", adoption=CARRY, precision=Precision.TOP_K),
        Case("slow-copies", SETTINGS, SLOW_COPIES),
        Case("clipped", replace(SETTINGS, norm_limit=1.05), PAIR, Disturbances(twice={"ana": 6})),
    )
}


@cache
def replay(name: str) -> Replay:
    """The run of a case, played once."""
    return Replay(play(CASES[name]))
