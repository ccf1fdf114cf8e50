"""What every test runs under: strict arrays, checked shapes, one thread each, and seeds to replay.

Seeds: a test that takes the `seed` fixture runs once for each of `--seeds` seeds (12 unless told;
`make simulate` asks for 2000), or for the single one named by `--seed`. A failure prints the line
that runs it again. `make test` takes the first four; the others are marked `long`.
"""

import re
import shlex
from collections.abc import Generator, Iterator
from typing import Any

from tests.environment import ROOT  # isort: skip  (sets the environment of what is imported below)

import pytest
from hypothesis import settings as hypothesis_settings
from jaxtyping import install_import_hook

DEFAULT_SEEDS = 12
QUICK_SEEDS = 4
SHAPED = re.compile(r"\b(Bool|B?Float(16|32|64)?|U?Int(8|16|32|64)?|Num|Shaped)\[")


def modules_with_shapes() -> list[str]:
    """Names of our modules whose annotations carry shapes: the numerics, and users of jaxtyping.

    Two kinds are left out. In a module that compiles with numba, the hook's decorator would stand
    between a kernel and its compiler. A module that takes no more than `PyTree` has no shapes to
    check, but may have annotations that cannot be checked at run time.
    """
    names = []
    for path in sorted((ROOT / "islands").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        shaped = "numerics" in path.parts or SHAPED.search(source)
        if shaped and "numba" not in source and path.stem != "__init__":
            names.append(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return names


install_import_hook(modules_with_shapes(), "beartype.beartype")

# No test is timed, also not by hypothesis; the printed blob replays a failing example.
# Examples are drawn anew each time, also in CI.
hypothesis_settings.register_profile("islands", deadline=None, print_blob=True)
hypothesis_settings.load_profile("islands")


@pytest.fixture
def quickly_compiled() -> Iterator[None]:
    """XLA compiles in half of the time, for tests that ask neither for bits nor for speed."""
    import jax

    def switch(*, on: bool) -> None:
        jax.config.update("jax_disable_most_optimizations", on)  # type: ignore[no-untyped-call]  # untyped in JAX

    switch(on=True)
    yield
    switch(on=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose seeds, and the one that rewrites transcripts."""
    group = parser.getgroup("seeds")
    group.addoption(
        "--seeds", type=int, default=DEFAULT_SEEDS, help="run seeded tests with seeds 0 to N-1"
    )
    group.addoption("--seed", type=int, default=None, help="run seeded tests with this seed only")
    parser.getgroup("transcripts").addoption(
        "--rewrite_transcripts",
        action="store_true",
        help="write tests/transcripts/*.txt as they come out now, to be read as a diff",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `seed` once for each chosen seed."""
    if "seed" not in metafunc.fixturenames:
        return
    one = metafunc.config.getoption("--seed")
    seeds = range(metafunc.config.getoption("--seeds")) if one is None else [one]
    later = pytest.mark.long(metafunc.function.__name__)
    params = [pytest.param(seed, marks=[later] if seed >= QUICK_SEEDS else []) for seed in seeds]
    metafunc.parametrize("seed", params, ids=lambda seed: f"seed{seed}")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str) -> Generator[None, Any, Any]:
    """Mark the cases of a test `long` that its mark `quick` does not name."""
    items = yield
    if isinstance(items, list):
        later = [item for item in items if isinstance(item, pytest.Function) and is_late(item)]
        if later and len(later) == len(items):
            raise collector.CollectError(f"no case of {name} is quick")
        for item in later:
            item.add_marker(pytest.mark.long(name))
    return items


def is_late(case: pytest.Function) -> bool:
    """Whether a case is of a test with the mark `quick`, which does not name it."""
    mark = case.get_closest_marker("quick")
    return mark is not None and not any(part in case.callspec.id for part in mark.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failed test's report its seed and the line that replays it."""
    report = yield
    if report.failed:
        report.sections.append(("replay", replay_line(item)))
    return report


def replay_line(item: pytest.Item) -> str:
    """The command that runs `item` again, with its seed if it has one."""
    command = ["python", "-m", "pytest", item.nodeid]
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if "seed" in parameters:
        command += ["--seed", str(parameters["seed"])]
    return shlex.join(command)
