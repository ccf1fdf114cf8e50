"""Play the scenario of one seed and print the verdict: ``python -m islands.lab.world SEED``."""

import argparse
import sys
from collections import Counter
from pathlib import Path

import msgspec

from islands.lab.world.scenario import draw
from islands.lab.world.trial import Outcome, play


def main(arguments: list[str]) -> int:
    """Play one scenario; returns the exit code: 0 if the history keeps every promise, else 1."""
    parser = argparse.ArgumentParser(prog="python -m islands.lab.world", description=__doc__)
    parser.add_argument("seed", type=int, help="which scenario")
    parser.add_argument("--tape", type=Path, help="write the tape to this file")
    chosen = parser.parse_args(arguments)
    outcome = play(draw(chosen.seed))
    if chosen.tape is not None:
        chosen.tape.write_bytes(b"".join(line + b"\n" for line in outcome.lines))
    sys.stdout.write(verdict(outcome) + "\n")
    return 1 if outcome.violations else 0


def verdict(outcome: Outcome) -> str:
    scenario, settings = outcome.scenario, outcome.scenario.settings
    size = f"{len(scenario.hosts)} learners, {settings.fragments} fragments"
    times = f"healed at {scenario.heal_s:.2f} s, ended at {outcome.ended_s:.2f} s"
    sentences = [
        f"seed {scenario.seed}: {size}; {times}; {len(outcome.lines)} entries",
        *(f"  {injection}" for injection in scenario.injections),
        *(f"  {kind}: {count}" for kind, count in sorted(faults_done(outcome).items())),
        *(str(violation) for violation in outcome.violations),
        "every promise kept"
        if not outcome.violations
        else f"promises broken; once more: python -m islands.lab.world {scenario.seed}",
    ]
    return "\n".join(sentences)


def faults_done(outcome: Outcome) -> Counter[str]:
    done: Counter[str] = Counter()
    for line in outcome.lines:
        if b'"kind":"fault"' in line:
            done[str(msgspec.json.decode(line)["fault"])] += 1
    return done


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
