"""Break the program on purpose, one line at a time, and see which test notices.

Each worker makes a copy of the tree in a temporary folder. An entry of `mutations.txt`
replaces one piece of text there, the tests named beside it run until the first fails, and the text
is put back. A mutation that no test notices has survived: a rule that anybody may break unseen.

    python -m tests.benchmarks.mutations [--workers N] [--only WORDS] [--every N] [--twelve]
        [--soup N] [--long] [--trust] [--check] [--list]

prints a table, and exits with 1 if one survived, if a text is not found exactly once, or if the
tests fail without any mutation. Tests that are marked `long` run with `--long` only: what `make
test` runs is to notice each mutation. `--twelve` tries twelve of them alone, which docs/testing.md
tells of. With `--soup N` the first N seeds of the fault soup are played against each mutation as
well, and the table tells the first that breaks a promise; it is noticed if either notices it.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from tests.benchmarks.mutation_trials import copies, own_copy
from tests.environment import ROOT

LIST = Path(__file__).with_suffix(".txt")
SOUP = "tests/lab/world/test_faults.py::test_seed_keeps_every_promise"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One thing broken on purpose.

    Attributes:
        name: What is not so any more.
        file: Where.
        old: Text that stands there exactly once.
        new: What it becomes.
        tests: Files of tests of which one is to fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @classmethod
    def read(cls, entry: str) -> Self:
        """Read an entry of the list, without the mark before its name."""
        name, file, tests, *hunk = entry.rstrip("\n").split("\n")
        old, new = ("\n".join(line[1:] for line in hunk if line[:1] == mark) for mark in "-+")
        return cls(name, file, old, new, tuple(tests.split()))


MUTATIONS = [Mutation.read(entry) for entry in LIST.read_text("utf-8").split("\n== ")[1:]]
TWELVE: tuple[tuple[str, str], ...] = (
    ("fencing", "a fenced syncer writes on"),
    ("fencing", "an ended incarnation is let in"),
    ("ledger", "tokens that were applied may be contributed again"),
    ("ledger", "what is in doubt counts as overwritten"),
    ("grace", "grace longer than a step"),
    ("pace", "an opened round costs no credit"),
    ("counters", "round numbers do not grow"),
    ("journal order", "a version is sent before it is durable"),
    ("remainder", "what increments left is forgotten"),
    ("roles", "a credential is good for another role"),
    ("weights", "weights paired with the wrong contributions"),
    ("incarnations", "incarnations come back"),
)
"""What each breaks, and its name among the mutations."""


@dataclass(frozen=True)
class Verdict:
    """What became of one mutation: the test that caught it, or why none did, and the soup's."""

    mutation: Mutation
    caught_by: str
    survived: bool
    soup: str
    took_s: float


def times_found(folder: Path, mutation: Mutation) -> int:
    """How often the text stands where it is to be replaced: once, if the table is up to date."""
    path = folder / mutation.file
    return path.read_text(encoding="utf-8").count(mutation.old) if path.exists() else 0


def report_lost(mutations: Sequence[Mutation]) -> int:
    """Print the mutations whose text or tests are gone; returns the exit code."""
    lost = {m.name: f"not found once in {m.file}" for m in mutations if times_found(ROOT, m) != 1}
    for mutation in mutations:
        for test in mutation.tests:
            if not (ROOT / test.partition("::")[0]).exists():
                lost[mutation.name] = f"its test {test} is not there"
    for name, why in lost.items():
        print(f"{name} | {why}")
    print(f"{len(mutations) - len(lost)} of {len(mutations)} texts are where they should be")
    return 1 if lost else 0


def try_one(mutation: Mutation, soup_seeds: int) -> Verdict:
    """Break the copy of this worker, see who notices, and mend it."""
    began_s, copy = time.monotonic(), own_copy()
    if times_found(copy.folder, mutation) != 1:
        why = f"its text does not stand once in {mutation.file}"
        return Verdict(mutation, why, survived=True, soup="", took_s=0.0)
    text = (copy.folder / mutation.file).read_text(encoding="utf-8")
    with copy.broken(mutation.file, text.replace(mutation.old, mutation.new)):
        caught_by = copy.run(mutation.tests)
        soup = copy.run((SOUP,), soup_seeds) if soup_seeds else None
    told = "" if not soup_seeds else f"none of {soup_seeds} seeds"
    if soup is not None:
        told = soup.rpartition("::")[2]
    survived = caught_by is None and soup is None
    took_s = time.monotonic() - began_s
    return Verdict(mutation, caught_by or "SURVIVED", survived=survived, soup=told, took_s=took_s)


def run_unbroken(test: str) -> str | None:
    """Run one named test, or a file of them, in the copy of this worker as it is."""
    return own_copy().run((test,))


def try_all(workers: ProcessPoolExecutor, chosen: Sequence[Mutation], soup_seeds: int) -> int:
    """Print the table of all verdicts; returns how many have survived."""
    survived, took_s = 0, 0.0
    began_s = time.monotonic()
    verdicts = workers.map(partial(try_one, soup_seeds=soup_seeds), chosen)
    for number, verdict in enumerate(verdicts, start=1):
        survived += verdict.survived
        took_s += verdict.took_s
        row = f"{number:3} | {verdict.mutation.name} | {verdict.caught_by} | {verdict.took_s:.1f} s"
        print(f"{row} | {verdict.soup}" if soup_seeds else row, flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutations are noticed, ", end="")
    print(f"in {time.monotonic() - began_s:.0f} s, {took_s:.0f} s of trials")
    return survived


def main() -> int:
    parser = argparse.ArgumentParser(description="Break the program on purpose.")
    parser.add_argument("--workers", type=int, default=1, help="trials at a time")
    parser.add_argument("--only", default="", help="mutations whose name contains this")
    parser.add_argument("--every", type=int, default=1, help="only the first of each so many")
    parser.add_argument("--twelve", action="store_true", help="only the twelve of docs/testing.md")
    parser.add_argument("--soup", type=int, default=0, help="seeds of the fault soup for each")
    parser.add_argument("--long", action="store_true", help="run tests marked `long` as well")
    parser.add_argument("--trust", action="store_true", help="do not run unbroken tests first")
    parser.add_argument("--list", action="store_true", help="print the names, and end")
    parser.add_argument("--check", action="store_true", help="only look for the texts and tests")
    given = parser.parse_args()
    names = {name for _, name in TWELVE}
    chosen = [mutation for mutation in MUTATIONS if given.only in mutation.name]
    if given.twelve:
        chosen = [mutation for mutation in chosen if mutation.name in names]
    chosen = chosen[:: given.every]
    if given.list:
        print("\n".join(mutation.name for mutation in chosen))
        return 0
    if given.check:
        return report_lost(chosen)
    with (
        tempfile.TemporaryDirectory(prefix="mutations-") as folder,
        copies(given.workers, Path(folder), "" if given.long else "not long") as workers,
    ):
        tests = sorted({test for mutation in chosen for test in mutation.tests})
        broken = [] if given.trust else [*filter(None, workers.map(run_unbroken, tests))]
        if broken:
            print(f"{', '.join(broken)} fails without a mutation: mend that first")
            return 1
        return 1 if try_all(workers, chosen, given.soup) else 0


if __name__ == "__main__":
    sys.exit(main())
