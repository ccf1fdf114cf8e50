"""Islands of unlike regimes against central training and against each island alone.

    python -m tests.benchmarks.nature --seeds 0,1,2 --folder runs/nature

Each run is the documented one of `examples/stories/nature.yaml`: a hub and its learners, processes
of their own, on as many fields. What is in the folder already is not run again.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from examples.stories.nature import REGIMES
from islands.lab.faults.proxy import HOST, free_port
from islands.model.jax_settings import cpu_environment
from tests.environment import ROOT

ROWS = 30
LIMIT_S = 600.0
WAITING = (
    "--run.learner_waits",
    "at_tau",
    "--run.overlap_steps",
    "1",
    "--run.interval_steps",
    "12",
)
TRIALS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "islands": (tuple(REGIMES), ()),
    "islands that wait": (tuple(REGIMES), WAITING),
    "central": (("all",), ()),
    **{f"{name} alone": ((name,), ()) for name in REGIMES},
}
"""The regimes of the learners of each trial, and the options of its hub."""

ERRORS = ("error", *(f"error_{name}" for name in REGIMES))


def trained(folder: Path, seed: int, regimes: Sequence[str], *words: str) -> None:
    """Run a hub, and a learner for each of the regimes, to the end."""
    hub, rows = f"{HOST}:{free_port()}", ROWS * len(REGIMES) // len(regimes)
    seeds = ("--run.seed", str(seed), "--task_settings", json.dumps({"rows": rows, "seed": seed}))
    joining = ("join", "--supervisor", hub, "--tasks", "nature", "--folder", f"{folder}/members")
    processes = [
        start("run", "nature.yaml", "--folder", str(folder), "--listen", hub, *seeds, *words),
        *(start(*joining, "--name", each, "--task_settings.regime", each) for each in regimes),
    ]
    try:
        for process in processes:
            said, _ = process.communicate(timeout=LIMIT_S)
            if process.returncode != 0:
                raise RuntimeError(f"{process.args!r} ended with {process.returncode}: {said}")
    finally:
        for process in processes:  # the hub ends its own
            process.terminate()


def start(*words: str) -> "subprocess.Popen[str]":
    """Start a command in the folder of the stories."""
    return subprocess.Popen(
        [sys.executable, "-m", "islands.cli", *words],
        cwd=ROOT / "examples" / "stories",
        env={
            **os.environ,
            **cpu_environment(1),
            "PYTHONPATH": str(ROOT),
            "ISLANDS_TOKEN": "on-this-machine-alone-for-a-while",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main() -> None:
    """Run all trials, and print a row for each: mean and spread of the errors."""
    parser = argparse.ArgumentParser(description="islands of unlike regimes against the rest")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--folder", type=Path, default=Path("runs/nature"))
    options = parser.parse_args()
    seeds = [int(each) for each in options.seeds.split(",")]
    for trial, (regimes, words) in TRIALS.items():
        found = []
        for seed in seeds:
            folder = options.folder.absolute() / f"{trial.replace(' ', '-')}-{seed}"
            file = folder / "summary.json"
            if not file.exists():
                trained(folder, seed, regimes, *words)
            found.append(json.loads(file.read_text()))
        print(f"{trial:17}", *(told(name, found) for name in ERRORS), flush=True)


def told(name: str, found: Sequence[dict[str, Any]]) -> str:
    """Return a figure's mean over seeds, and its standard deviation."""
    values = [each[name] for each in found]
    spread = stdev(values) if len(values) > 1 else 0.0
    return f"{name} {mean(values):.4f} ± {spread:.4f}"


if __name__ == "__main__":
    main()
