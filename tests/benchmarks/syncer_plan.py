"""What one syncer carries by formula, and into how many shards and relays that would divide.

    python -m tests.benchmarks.syncer_plan [--parameters 12e9] [--learners 8] [--step_s 1.0]
        [--regions 4] [--link_gbit_s 100] [--disk_bytes_per_s 3e9] [--merge_bytes_per_s 8e9]
        [--settings '{"precision": "fp4", "update_precision": "int8"}']

The loads are those of the dry run (`islands/run/planner.py`), in bytes per second:

    in       M · up · steps/s            contributions, in the wire's precision
    out      M · down · steps/s          updates; with relays, once per relay in place of M times
    journal  (Θ + outer state + left)/H · steps/s
    merge    (M + 2) · 4·N/H · steps/s   float32 of contributions, Θ and momentum that is read

A run has one syncer today. Shards would each own as large a share of the fragments as the others,
so each load is divided by their number: the least number is that of the tightest of link, disk and
processor. A relay per region would pass on what its region reads, addressed by version and digest;
a region needs as many as its learners' reading takes of a link.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import msgspec

from islands.layout.fragments import plan
from islands.layout.leaves import VALUE_BYTES, Leaf
from islands.protocol.settings.run import RunSettings
from islands.run.planner import Estimate, estimate

LAYERS = 96
STATE_READ = 2
"""Θ and the momentum are read beside the contributions."""


@dataclass(frozen=True, slots=True)
class SyncerLoad:
    """Bytes per second of one syncer.

    Attributes:
        incoming: contributions that it receives.
        outgoing: updates that it sends.
        journal: bytes that it writes to its disk.
        merge: bytes that its processor reads to merge.
    """

    incoming: float
    outgoing: float
    journal: float
    merge: float


def load_of(made: Estimate, settings: RunSettings, relays: int = 0) -> SyncerLoad:
    """The load of a run's syncer; `relays` read from it in place of learners, if there are any."""
    steps, learners = made.steps_per_s, made.learners
    merged = VALUE_BYTES * made.elements / settings.interval_steps
    return SyncerLoad(
        incoming=made.up_per_step * steps * learners,
        outgoing=made.down_per_step * steps * (min(relays, learners) or learners),
        journal=made.disk_per_step * steps,
        merge=(learners + STATE_READ) * merged * steps,
    )


def shards_for(load: SyncerLoad, *, link: float, disk: float, processor: float) -> dict[str, int]:
    """The least number of equal shards, by what limits it; each limit is in bytes per second."""
    each = {
        "in": load.incoming / link,
        "out": load.outgoing / link,
        "journal": load.journal / disk,
        "merge": load.merge / processor,
    }
    return {what: max(1, ceil(share)) for what, share in each.items()}


def relays_for(made: Estimate, regions: int, link: float) -> int:
    """The least number of relays in each region so that none sends more than its link carries."""
    readers = ceil(made.learners / regions)
    return max(1, ceil(readers * made.down_per_step * made.steps_per_s / link))


def planned(chosen: argparse.Namespace) -> dict[str, object]:
    """All figures of a run of so many parameters."""
    changes: Mapping[str, object] = json.loads(chosen.settings)
    settings = msgspec.convert({"interval_steps": 24, "fragments": 24, **changes}, RunSettings)
    each = round(chosen.parameters) // LAYERS
    leaves = [Leaf(f"layers/{row}", (each,), "float32") for row in range(LAYERS)]
    layout = plan(leaves, count=settings.fragments)
    made = estimate(layout, settings, learners=chosen.learners, step_time_s=chosen.step_s)
    link = chosen.link_gbit_s * 1e9 / 8
    relays = relays_for(made, chosen.regions, link)
    loads = {
        "direct": load_of(made, settings),
        "with relays": load_of(made, settings, relays * chosen.regions),
    }
    limits = {"disk": chosen.disk_bytes_per_s, "processor": chosen.merge_bytes_per_s}
    return {
        "relays per region": relays,
        **{
            how: {
                "MB/s": {name: round(getattr(load, name) / 1e6, 1) for name in load.__slots__},
                "shards": shards_for(load, link=link, **limits),
            }
            for how, load in loads.items()
        },
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.syncer_plan")
    parser.add_argument("--parameters", type=float, default=12e9)
    parser.add_argument("--learners", type=int, default=8)
    parser.add_argument("--step_s", type=float, default=1.0)
    parser.add_argument("--regions", type=int, default=4)
    parser.add_argument("--link_gbit_s", type=float, default=100.0)
    parser.add_argument("--disk_bytes_per_s", type=float, default=3e9)
    parser.add_argument("--merge_bytes_per_s", type=float, default=8e9)
    parser.add_argument("--settings", default="{}", help="of the run, as JSON")
    print(json.dumps(planned(parser.parse_args(arguments)), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
