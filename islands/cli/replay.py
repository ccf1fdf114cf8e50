"""`islands replay RUN`: redo a run's merges in float64 from what it recorded, and compare."""

from math import isnan
from typing import TYPE_CHECKING

import msgspec

from islands.cli.parsing import Common
from islands.protocol.errors import DONE, FAILED
from islands.settings.commands import ReplayOptions, named

if TYPE_CHECKING:
    from islands.lab.replay.replaying import Findings

TOLERANCE = 1e-5
"""The relative error that float32 may leave over the versions of a run."""
STEP_TOLERANCE = 1e-4
"""The one that it may leave in a single step, beyond the rounding of the value that it leads to."""


def run(options: ReplayOptions, _: Common) -> int:
    """Redo the merges and print how far off they are; return the exit code: 1 if one is.

    Raises:
        UserError: the run has recorded no contributions, or they cannot be read.
    """
    from islands.lab.replay.replaying import Replay
    from islands.run.records.run_values import require_folder

    folder = named(options.folder)
    require_folder(folder)
    found = Replay(folder, options.merge).run(options.merges)
    right = bool(found.merges) and found.error <= TOLERANCE and not found.gaps
    right = right and found.step_error <= STEP_TOLERANCE
    right = right and all(redone.published for redone in found.merges)
    if options.json:
        print(as_json(found, right=right))
    else:
        show(found, right=right)
    return DONE if right else FAILED


def as_json(found: "Findings", *, right: bool) -> str:
    """Return every merge with its error as one JSON object."""
    merges = [
        {
            "fragment": redone.fragment,
            "version": str(redone.version),
            "contributions": redone.contributions,
            "error": redone.error,
            "step_error": redone.step_error,
            "step_rounding": redone.step_rounding,
            "published": redone.published,
        }
        for redone in found.merges
    ]
    told = {
        "right": right,
        "error": found.error,
        "step_error": found.step_error,
        "step_rounding": found.step_rounding,
        "gaps": found.gaps,
        "merges": merges,
    }
    return msgspec.json.format(msgspec.json.encode(told)).decode()


def show(found: "Findings", *, right: bool) -> None:
    """Print the worst version and step of each fragment, and whether they are those published."""
    print(
        f"{'fragment':>8} {'merges':>7} {'error of a value':>16}  {'at version':10} "
        f"{'error of a step':>15}  at version"
    )
    for fragment in sorted({redone.fragment for redone in found.merges}):
        own = [redone for redone in found.merges if redone.fragment == fragment]
        worst = max(own, key=lambda redone: (isnan(redone.error), redone.error))
        step = max(own, key=lambda redone: (isnan(redone.step_error), redone.step_error))
        print(
            f"{fragment:8} {len(own):7,} {worst.error:16.2e}  {worst.version!s:10} "
            f"{step.step_error:15.2e}  {step.version}"
        )
    for sentence in found.gaps:
        print(sentence)
    same = sum(redone.published for redone in found.merges)
    several = sum(redone.contributions > 1 for redone in found.merges)
    print(
        f"merges: {len(found.merges):,}, of several contributions: {several:,}, digests that "
        f"match: {same:,}"
    )
    print(f"rounding to float32 may hide {found.step_rounding:.2e} of a step, and no more")
    print(
        f"greatest relative error of a value: {found.error:.2e} of {TOLERANCE:.0e} allowed, of a "
        f"step: {found.step_error:.2e} of {STEP_TOLERANCE:.0e}: "
        f"{'as published' if right else 'not as published'}"
    )
