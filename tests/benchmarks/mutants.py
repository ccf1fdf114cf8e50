"""Break the rules at random, one place at a time, and see how many breaks the quick tests notice.

    python -m tests.benchmarks.mutants [--count N] [--seed N] [--only PATH] [--workers N] [--list]

draws mutants of the protocol's rooms, the engines and the journal: an operator is swapped, `any`
with `all`, `min` with `max`, first with last, 0 with 1, a flag with its contrary; a statement (a
reset, a call, an early return) is dropped. Each runs in a copy of the tree until the first test
fails; tests that name the module come first, then those of its folder, then the world's first
seeds. The table tells who noticed; what nobody noticed is printed as a line of the program. Some of
those are equal programs, so the aim is 90 % and not all.
"""

import argparse
import ast
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.mutation_trials import copies, own_copy
from tests.environment import ROOT

TESTS = {
    "islands/protocol/syncer": ("tests/syncer", "tests/rounds", "tests/oracle"),
    "islands/protocol/learner": ("tests/learner", "tests/rounds"),
    "islands/protocol/supervisor": ("tests/supervisor", "tests/engines"),
    "islands/protocol/gossip": ("tests/learner", "tests/rounds"),
    "islands/protocol/observer": ("tests/observer",),
    "islands/protocol/messages": ("tests/protocol", "tests/supervisor", "tests/messaging/codec"),
    "islands/protocol/tape": ("tests/protocol", "tests/page"),
    "islands/protocol/settings": ("tests/settings", "tests/cli"),
    "islands/engines": ("tests/engines",),
    "islands/syncer/journal.py": ("tests/syncer", "tests/oracle"),
}
"""The rooms that are broken, and the folders of their tests."""

THEN = ("tests/transcripts", "tests/actors", "tests/lab/world")
"""What every rule is tested by beside."""

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
}
CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One place of a file that is another, and the whole text of the file with it."""

    file: str
    name: str
    text: str


def mutant(file: str, number: int) -> Mutant:
    """Make one mutant of those that a file has, by its number among them."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    node, break_it = list(_places(tree))[number]
    old = ast.unparse(node)
    break_it()
    new = ast.unparse(node)
    what = f"{old!r} -> {new!r}" if new != old else f"{old!r} dropped"
    line = getattr(node, "lineno", 0)
    return Mutant(file, f"{file}:{line} {what}", ast.unparse(tree))


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    """Yield the nodes that can be broken, each with what breaks it where it stands."""
    for node in _rules(tree):
        match node:
            case ast.Compare(ops=[op]) if type(op) in SWAPPED:
                yield node, partial(setattr, node, "ops", [SWAPPED[type(op)]()])
            case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in SWAPPED:
                yield node, partial(setattr, node, "op", SWAPPED[type(op)]())
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, partial(setattr, node, "operand", ast.UnaryOp(ast.Not(), operand))
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                yield node, partial(setattr, node, "func", ast.Name(CALLS[name]))
            case ast.Subscript(slice=ast.Constant(value=0)):
                yield node, partial(setattr, node, "slice", ast.Constant(-1))
            case ast.Constant(value=bool(value)):
                yield node, partial(setattr, node, "value", not value)
            case ast.Constant(value=0 | 1 as number):
                yield node, partial(setattr, node, "value", number + 1)
            case _:
                pass
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list):
                for index, statement in enumerate(body):
                    if _droppable(statement):
                        yield statement, partial(body.__setitem__, index, ast.Pass())


def _droppable(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.Return(value=None) | ast.Continue():
            return True
        case _:
            return False


def _rules(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what decides: no annotation, import, decorator, assertion, raised error or sentence."""
    yield node
    inner: Iterable[ast.AST | None] = ast.iter_child_nodes(node)
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Raise() | ast.JoinedStr():
            inner = ()
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body) | ast.ClassDef(body=body):
            inner = body
        case ast.AnnAssign(value=value):
            inner = (value,)
        case _:
            pass
    for each in inner:
        if each is not None:
            yield from _rules(each)


def drawn(count: int, seed: int, only: str) -> list[Mutant]:
    """Draw mutants from all whose file's path contains `only`; the first of more are the same."""
    files = sorted(
        path.relative_to(ROOT).as_posix()
        for room in TESTS
        for path in ([ROOT / room] if room.endswith(".py") else (ROOT / room).rglob("*.py"))
    )
    every = [
        (file, number)
        for file in files
        if only in file
        for number in range(len(list(_places(ast.parse((ROOT / file).read_text("utf-8"))))))
    ]
    random.Random(seed).shuffle(every)
    return [mutant(*each) for each in every[:count]]


def folders_of(file: str) -> tuple[str, ...]:
    (folders,) = (tests for room, tests in TESTS.items() if file.startswith(room))
    return folders


def tests_of(file: str) -> list[str]:
    """Return the tests that run for a file, those first that name its module."""
    folders = folders_of(file)
    module = file.removesuffix(".py").replace("/", ".")
    parent, _, name = module.rpartition(".")
    near = [
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in sorted((ROOT / folder).rglob("test_*.py"))
        if path.stem == f"test_{name}"
        or module in (text := path.read_text("utf-8"))
        or f"from {parent} import {name}" in text
    ]
    near.sort(key=lambda path: not path.endswith(f"/test_{name}.py"))
    return [*near, *folders, *THEN]


def try_one(broken: Mutant) -> tuple[Mutant, str | None, float]:
    """Break the copy of this worker; returns who noticed, and the seconds that it took."""
    began_s, copy = time.monotonic(), own_copy()
    with copy.broken(broken.file, broken.text):
        noticed = copy.run(tests_of(broken.file))
    return broken, noticed, time.monotonic() - began_s


def unbroken(folder: str) -> str | None:
    """Run a folder's tests as they are; returns the first that fails all the same."""
    return own_copy().run([folder])


def main() -> int:
    parser = argparse.ArgumentParser(description="Break the rules at random.")
    parser.add_argument("--count", type=int, default=200, help="how many mutants are drawn")
    parser.add_argument("--seed", type=int, default=0, help="which")
    parser.add_argument("--only", default="", help="of files whose path contains this")
    parser.add_argument("--workers", type=int, default=1, help="trials at a time")
    parser.add_argument("--list", action="store_true", help="print the mutants, and end")
    given = parser.parse_args()
    chosen = drawn(given.count, given.seed, given.only)
    if given.list:
        print("\n".join(each.name for each in chosen))
        return 0
    alive = []
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        copies(given.workers, Path(folder)) as workers,
    ):
        asked = sorted({*THEN, *(folder for each in chosen for folder in folders_of(each.file))})
        for failing in filter(None, workers.map(unbroken, asked)):
            sys.exit(f"{failing} fails though nothing is broken, so it can notice nothing")
        for number, (broken, noticed, took_s) in enumerate(workers.map(try_one, chosen), start=1):
            verdict = noticed or "SURVIVED"
            print(f"{number:3} | {broken.name} | {verdict} | {took_s:.1f} s", flush=True)
            alive += [broken.name] if noticed is None else []
    print(f"{len(chosen) - len(alive)} of {len(chosen)} mutants are noticed; alive are")
    print("\n".join(alive))
    return 0 if len(alive) <= len(chosen) / 10 else 1


if __name__ == "__main__":
    sys.exit(main())
