"""Break the program on purpose, one line at a time, and see which test notices.

A copy of the tree is made in a temporary folder. Each entry of the folder `mutation` replaces one
piece of text there, runs the tests named beside it until the first fails, and puts the text back.
A mutation that no test notices has survived: a rule that anybody may break unseen.

    python -m tests.benchmarks.mutations [--only WORDS] [--twelve] [--soup N] [--check] [--list]

prints a table, and exits with 1 if one survived, if a text is not found exactly once, or if the
tests fail without any mutation. `--twelve` tries those of `mutation/twelve.py` alone. With
`--soup N` the first N seeds of the fault soup are played against each mutation as well, and the
table tells the first that breaks a promise; a mutation is noticed if either notices it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.mutation.books import BOOKS
from tests.benchmarks.mutation.boundaries import BOUNDARIES
from tests.benchmarks.mutation.checker import CHECKED
from tests.benchmarks.mutation.figures import FIGURES
from tests.benchmarks.mutation.glue import GLUE
from tests.benchmarks.mutation.kind import Mutation
from tests.benchmarks.mutation.lifetimes import LIFETIMES
from tests.benchmarks.mutation.loops import LOOPS
from tests.benchmarks.mutation.lost_files import LOST_FILES
from tests.benchmarks.mutation.members import MEMBERS
from tests.benchmarks.mutation.moments import MOMENTS
from tests.benchmarks.mutation.rounds import ROUNDS
from tests.benchmarks.mutation.strangers import STRANGERS
from tests.benchmarks.mutation.twelve import TWELVE

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("islands", "messaging", "tests", "pyproject.toml")
LIMIT_S = 300
REVIEWED = MOMENTS + CHECKED + LOOPS + FIGURES + LOST_FILES + BOUNDARIES + STRANGERS + MEMBERS
MUTATIONS = GLUE + ROUNDS + BOOKS + LIFETIMES + REVIEWED
SOUP = "tests/lab/world/test_faults.py::test_seed_keeps_every_promise"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """What became of one mutation: the test that caught it, or why none did, and the soup's."""

    mutation: Mutation
    caught_by: str
    survived: bool
    soup: str = ""


def copy_tree(folder: Path) -> None:
    """Copy what tests need, with compiled kernels, so that they need not be compiled again."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            shutil.copy2(source, folder / name)


def run_tests(folder: Path, tests: Sequence[str], seeds: int = 3) -> str | None:
    """Run tests until the first fails; returns its name, or None if all pass.

    Raises:
        RuntimeError: they could not be run: nothing was collected, say.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider"]
    command += ["--seeds", str(seeds), *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT_S} s"
    if ended.returncode == 0:
        return None
    found = FAILED.search(ended.stdout)
    if found is None:
        raise RuntimeError(f"tests could not be run: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return found.group(1)


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


def try_one(folder: Path, mutation: Mutation, soup_seeds: int = 0) -> Verdict:
    """Break the copy, see who notices, and mend it."""
    path, times = folder / mutation.file, times_found(folder, mutation)
    if times != 1:
        return Verdict(mutation, f"its text stands {times} times in {mutation.file}", survived=True)
    text = path.read_text(encoding="utf-8")
    stamp = path.stat()
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        caught_by = run_tests(folder, mutation.tests)
        soup = run_tests(folder, (SOUP,), soup_seeds) if soup_seeds else None
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    told = "" if not soup_seeds else f"none of {soup_seeds} seeds"
    if soup is not None:
        told = soup.rpartition("::")[2]
    survived = caught_by is None and soup is None
    return Verdict(mutation, caught_by or "SURVIVED", survived=survived, soup=told)


def main() -> int:
    """Try the mutations that were asked for."""
    parser = argparse.ArgumentParser(description="Break the program on purpose.")
    parser.add_argument("--only", default="", help="mutations whose name contains this")
    parser.add_argument("--twelve", action="store_true", help="only those of mutation/twelve.py")
    parser.add_argument("--soup", type=int, default=0, help="seeds of the fault soup for each")
    parser.add_argument("--list", action="store_true", help="print the names, and end")
    parser.add_argument("--check", action="store_true", help="only look for the texts and tests")
    parser.add_argument("--trust", action="store_true", help="do not run unbroken tests first")
    given = parser.parse_args()
    names = {name for _, name in TWELVE}
    chosen = [mutation for mutation in MUTATIONS if given.only in mutation.name]
    if given.twelve:
        chosen = [mutation for mutation in chosen if mutation.name in names]
    if given.list:
        print("\n".join(mutation.name for mutation in chosen))
        return 0
    if given.check:
        return report_lost(chosen)
    with tempfile.TemporaryDirectory(prefix="mutations-") as name:
        folder = Path(name)
        copy_tree(folder)
        tests = sorted({test for mutation in chosen for test in mutation.tests})
        broken = None if given.trust else run_tests(folder, tests)
        if broken is not None:
            print(f"{broken} fails without a mutation: mend that first")
            return 1
        survived = 0
        for number, mutation in enumerate(chosen, start=1):
            verdict = try_one(folder, mutation, given.soup)
            survived += verdict.survived
            row = f"{number:3} | {mutation.name} | {verdict.caught_by}"
            print(f"{row} | {verdict.soup}" if given.soup else row, flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutations are noticed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
