"""Runs tests against a copy of the tree, in forks of a process that has imported the libraries.

To start Python, pytest and the libraries takes longer than most tests, so a worker imports them
once and forks for each trial. The fork imports our own modules anew, from the copy. JAX is safe to
fork until it has a backend, which nothing here gives it.
"""

import contextlib
import importlib
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.environment import ROOT

COPIED = (
    *("islands", "messaging", "tests", "docs", "deploy", "examples", "pyproject.toml", "Makefile"),
    *("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "constraints.txt"),
)
"""All that a test may read: one that lacks its page fails, whatever was broken."""

OURS = frozenset({"islands", "messaging", "tests"})
LIBRARIES = ("aiohttp", "flax", "grain", "jax", "jaxtyping", "msgspec", "numba", "optax", "scipy")
LIMIT_S = 300
SEEDS = 3
PREPARED = "ignore::pytest.PytestAssertRewriteWarning"  # jaxtyping has a plugin, and is imported
FAILED = re.compile(r"^(?:FAILED|ERROR|ImportError while loading conftest) (\S+)", re.MULTILINE)
FORK = multiprocessing.get_context("fork")


class Copy:
    """A copy of the tree in which tests run, one call at a time.

    Args:
        folder: where it is made. Compiled kernels and bytecode are copied too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            else:
                shutil.copy2(source, folder / name)

    def run(self, tests: Sequence[str]) -> str | None:
        """Run quick tests until the first fails; returns its name, or None if all pass."""
        output = self.folder / "output"
        command = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-W", PREPARED]
        command += ["-m", "not long", "--seeds", str(SEEDS), *tests]
        fork = FORK.Process(target=_run_pytest, args=(self.folder, command, output))
        fork.start()
        fork.join(LIMIT_S)
        if fork.is_alive():
            assert fork.pid is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(fork.pid, signal.SIGKILL)
            fork.join()
            return f"no end within {LIMIT_S} s"
        if fork.exitcode == 0:
            return None
        told = output.read_text(encoding="utf-8", errors="replace")
        found = FAILED.search(told)
        if found is None:
            raise RuntimeError(f"tests could not be run: {told[-4000:]}")
        return found.group(1)

    @contextlib.contextmanager
    def broken(self, file: str, broken: str) -> Iterator[None]:
        """Let a file of the copy hold another text, and mend it at the end."""
        path = self.folder / file
        text, stamp = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(broken, encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def _run_pytest(folder: Path, command: Sequence[str], output: Path) -> None:
    """Become, in a fork, a process that was started in the copy, and run pytest there."""
    os.setsid()
    os.chdir(folder)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    sys.path[:] = [str(folder), *(path for path in sys.path if Path(path).resolve() != ROOT)]
    os.environ["PYTHONPATH"] = str(folder)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # a mutated file may have the size of the other
    sys.dont_write_bytecode = True
    code = pytest.main([*command])
    sys.stdout.flush()
    os._exit(code)


_copies: list[Copy] = []
"""The one of this worker."""


def copies(workers: int, folder: Path) -> ProcessPoolExecutor:
    """Start workers that have a copy each: what runs in one finds it by `own_copy`."""
    for library in LIBRARIES:
        importlib.import_module(library)
    return ProcessPoolExecutor(workers, FORK, initializer=_make_copy, initargs=(folder,))


def _make_copy(folder: Path) -> None:
    _copies.append(Copy(Path(tempfile.mkdtemp(dir=folder))))


def own_copy() -> Copy:
    (copy,) = _copies
    return copy
