"""The rules that `tests/test_tidy.py` holds the tree to, beyond ruff, mypy and import-linter.

A rule takes one file (or all of them) and returns a sentence, with its place, for every breach.
Rules read syntax trees and import nothing of ours, so an import inside a function is seen as well.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
PAGE_LINES_MAX = 300

BANNED_STEMS = ("common", "helper", "helpers", "manager", "managers", "misc", "util", "utils")
SKIPPED_FOLDERS = ("__pycache__", "build", "dist", "htmlcov", "node_modules", "runs")
DEBRIS_FOLDERS = ("logs", "notes", "plans", "reports", "runs")
DEBRIS_SUFFIXES = (".bak", ".log", ".orig", ".rej", ".swp", ".tmp")
DEBRIS_STEMS = ("notes", "plan", "progress", "scratch", "status", "todo")

# Iterating over a set inside one of these calls cannot show the set's order.
ORDERLESS_CALLS = ("all", "any", "frozenset", "len", "set", "sorted")
SET_METHODS = ("difference", "intersection", "symmetric_difference", "union")

# Brackets around a letter keep these lines from matching themselves.
REGISTRY = re.compile(
    r"[p]ypi\.(org|python)|[p]ythonhosted\.org|[i]ndex-url|[f]ind-links|--[t]rusted-host"
    r"|https?://[^\s\"']*/[s]imple\b|[r]egistry\.(npmjs|yarnpkg)"
)
MACHINE_PATH = re.compile(r"(?<![\w.])/([r]oot|[h]ome/\w+|[w]ork/(main|shared)|[o]pt/pypi)\b")


@dataclass(frozen=True)
class Source:
    """One text file of the tree: `path` from the root, with forward slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @property
    def name(self) -> PurePosixPath:
        return PurePosixPath(self.path)

    @property
    def is_python(self) -> bool:
        return self.name.suffix == ".py"

    @property
    def is_ours(self) -> bool:
        return self.is_python and self.name.parts[0] in ("islands", "messaging")

    @property
    def is_test(self) -> bool:
        return (
            self.is_python and self.name.parts[0] == "tests" and "benchmarks" not in self.name.parts
        )


def read_tree(root: Path) -> list[Source]:
    """Every text file under `root`, except generated and hidden folders."""
    sources = []
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(part.startswith(".") and part not in (".ci", ".github") for part in parts[:-1])
        generated = any(part in SKIPPED_FOLDERS or part.endswith(".egg-info") for part in parts)
        if hidden or generated or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        sources.append(Source("/".join(parts), text))
    return sources


def breach(source: Source, node: ast.AST | int, sentence: str) -> str:
    line = node if isinstance(node, int) else getattr(node, "lineno", 1)
    return f"{source.path}:{line}: {sentence}"


# ------------------------------------------------------------------------------ size and names


def file_length(source: Source) -> Iterator[str]:
    """A file is short enough to be read in one go."""
    lines = source.text.count("\n")
    if source.is_python and lines > FILE_LINES_MAX:
        told = f"{lines} lines, over {FILE_LINES_MAX}; split it by concept."
        yield breach(source, FILE_LINES_MAX, told)


def function_length(source: Source) -> Iterator[str]:
    if not source.is_python:
        return
    for node in functions(source.tree):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            yield breach(
                source,
                node,
                f"`{node.name}` has {lines} lines, over {FUNCTION_LINES_MAX}; split it.",
            )


def page_length(source: Source) -> Iterator[str]:
    """A page of the documentation is short enough to be read in one go."""
    lines = source.text.count("\n")
    is_page = source.path.startswith("docs/") and source.name.suffix == ".md"
    if is_page and lines > PAGE_LINES_MAX:
        yield breach(source, PAGE_LINES_MAX, f"{lines} lines, over {PAGE_LINES_MAX}; split it.")


def module_name(source: Source) -> Iterator[str]:
    """A module is named after its concept, not after being useful."""
    for part in source.name.with_suffix("").parts:
        if source.is_python and part in BANNED_STEMS:
            yield breach(source, 1, f"`{part}` names no concept; say what it holds.")


def debris(source: Source) -> Iterator[str]:
    """The tree holds the product, not the process that made it."""
    name = source.name
    left_over = name.suffix in DEBRIS_SUFFIXES or (
        name.suffix in (".md", ".txt") and name.stem.lower() in DEBRIS_STEMS
    )
    if left_over or any(part in DEBRIS_FOLDERS for part in name.parts[:-1]):
        yield breach(source, 1, "looks like a log, note or leftover; keep it out of the tree.")


def places(source: Source) -> Iterator[str]:
    """The tree names no package registry and no path of somebody's machine."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if REGISTRY.search(line):
            yield breach(
                source, number, "names a package registry; leave that to pip's own settings."
            )
        if MACHINE_PATH.search(line):
            yield breach(source, number, "names a path of one machine; take it from the caller.")


# ------------------------------------------------------------------------------- fixed order


def fixed_order(source: Source) -> Iterator[str]:
    """Nothing whose order differs from run to run decides anything."""
    if not source.is_ours:
        return
    for iterated in set_iterations(source.tree):
        yield breach(
            source, iterated, "iterates over a set, whose order changes; use `sorted` or a dict."
        )


def set_iterations(tree: ast.Module) -> Iterator[ast.expr]:
    """Each expression known to be a set that something iterates over in its own order."""
    known = set_names(tree)
    harmless = {
        id(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and dotted(node.func) in ORDERLESS_CALLS
        for argument in node.args
    }
    for node in ast.walk(tree):
        iterated: list[ast.expr] = []
        if isinstance(node, ast.For | ast.AsyncFor):
            iterated = [node.iter]
        elif isinstance(node, ast.ListComp | ast.DictComp | ast.GeneratorExp):
            if id(node) not in harmless:
                iterated = [generator.iter for generator in node.generators]
        elif isinstance(node, ast.Call) and dotted(node.func) in (
            "list",
            "tuple",
            "enumerate",
            "iter",
        ):
            iterated = node.args[:1]
        elif isinstance(node, ast.Starred):
            iterated = [node.value]
        yield from (expression for expression in iterated if is_set(expression, known))


def set_names(tree: ast.Module) -> list[str]:
    """Names and attributes that are annotated as sets or assigned one, anywhere in the file."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and annotates_set(node.annotation):
            names.append(dotted(node.target))
        elif isinstance(node, ast.arg) and node.annotation and annotates_set(node.annotation):
            names.append(node.arg)
        elif isinstance(node, ast.Assign) and is_set(node.value, names):
            names.extend(dotted(target) for target in node.targets)
    fields = [f"self.{name}" for name in names if name and "." not in name]
    return [name for name in names if name] + fields


def annotates_set(annotation: ast.expr) -> bool:
    """Whether an annotation says set, as in `set[int]` or `frozenset`."""
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return dotted(base) in ("set", "frozenset", "AbstractSet", "Set", "MutableSet", "abc.Set")


def is_set(expression: ast.expr, known: Sequence[str]) -> bool:
    match expression:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Attribute(value=value, attr=attr)):
            return attr in SET_METHODS and is_set(value, known)
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.BitXor() | ast.Sub()):
            return is_set(left, known)
        case ast.Name() | ast.Attribute():
            return dotted(expression) in known
    return False


# ------------------------------------------------------------------------------------- pages

PROTOCOL_PAGES = ("docs/protocol.md", "docs/protocol_recovery.md")
CITED_RULE = re.compile(r"protocol §(\d+(?:\.\d+)*)")
RULE_HEADING = re.compile(r"^#+ §(\d+(?:\.\d+)?) ")
# Brackets around a letter keep this line from matching itself.
ABSENT_PAGE = re.compile(
    r"\b(?:[S]PEC|[D]ESIGN|[H]OUSE) §|\b(?:[S]PEC|[F]AULTS|[S]TYLE|[H]OUSE)\.md"
)


def rules_of(page: str) -> set[str]:
    """The numbers of all rules of a page of the protocol: sections, and numbered items in them."""
    numbers, section = set(), ""
    for line in page.splitlines():
        heading = RULE_HEADING.match(line)
        if heading:
            section = heading[1]
            numbers.add(section)
        item = re.match(r"(\d+)\. ", line)
        if item and section:
            numbers.add(f"{section}.{item[1]}")
    return numbers


def citations(sources: Sequence[Source]) -> Iterator[str]:
    """What is cited is there: a rule of the protocol's pages, and no document from elsewhere."""
    known = set[str]().union(*(rules_of(one.text) for one in sources if one.path in PROTOCOL_PAGES))
    for source in sources:
        for number, line in enumerate(source.text.splitlines(), start=1):
            for cited in CITED_RULE.findall(line):
                if cited not in known:
                    yield breach(source, number, f"the protocol has no rule §{cited}.")
            if ABSENT_PAGE.search(line):
                yield breach(source, number, "cites a document that is not in the repository.")


# ----------------------------------------------------------------------------------- field owners

OWNING_ROOM = PurePosixPath("islands/protocol/syncer")
# The parts of the syncer's memory, by the names under which rules know them, and their files.
PARTS = {
    "members": "members.py",
    "rounds": "rounds.py",
    "round_": "rounds.py",
    "versions": "versions.py",
    "journal": "journalling.py",
    "health": "timeouts.py",
    "closing": "memory.py",
}
# What a journal record holds is written by the rules that decide it.
DURABLE = {
    "closing.py": ("finished", "reported", "stopping", "paused", "elapsed_s"),
    "commits.py": ("merges", "staleness_sum", "participants_sum", "present_sum", "belated_tokens"),
    "journalling.py": ("finished", "reported", "stopping", "fence", "begun"),
    "memory.py": ("sequence", "clock"),
    "scheduling.py": ("round",),
    "sessions.py": ("rejoins",),
}
PART_FIELD = re.compile(rf"(?:.*\.)?({'|'.join((*PARTS, 'durable'))})\.(\w+)(?:\[.*\])?")
MUTATORS = (
    *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft"),
    *("remove", "setdefault", "update"),
)


def field_owners(source: Source) -> Iterator[str]:
    """A field of the syncer's memory is written by its owner, and by nobody else."""
    if source.name.parent != OWNING_ROOM:
        return
    for node in ast.walk(source.tree):
        for place in written(node):
            field = PART_FIELD.fullmatch(ast.unparse(place))
            if field is None:
                continue
            part, name = field.groups()
            durable = name in DURABLE.get(source.name.name, ())
            if not durable if part == "durable" else PARTS[part] != source.name.name:
                yield breach(source, node, f"`{field[0]}` is not its own to write.")


def written(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement assigns, deletes, or changes by a method of lists, sets and dictionaries."""
    match node:
        case ast.Assign(targets) | ast.Delete(targets):
            for target in targets:
                yield from target.elts if isinstance(target, ast.Tuple) else (target,)
        case ast.AugAssign(target) | ast.AnnAssign(target):
            yield target
        case ast.Call(ast.Attribute(place, name)) if name in MUTATORS:
            yield place


# -------------------------------------------------------------------------------------- tests


def long_marks(node: ast.AST) -> list[ast.Call]:
    """Uses of `pytest.mark.long(…)` in a decorator, a `pytestmark` or a parameter."""
    calls = [child for child in ast.walk(node) if isinstance(child, ast.Call)]
    return [call for call in calls if dotted(call.func) == "pytest.mark.long"]


def tiers(sources: Sequence[Source]) -> Iterator[str]:
    """What a test shows that is left to `make test-all`, a quick test shows in `make test`.

    `long` names that one: as `path::function`, or by its function if it is in the same file.
    """
    quick: set[str] = set()
    marks: list[tuple[Source, ast.Call]] = []
    for source in sources:
        if not source.is_test or not PurePosixPath(source.path).name.startswith("test_"):
            continue
        marks += [(source, call) for call in long_marks(source.tree)]
        assigned = [node for node in source.tree.body if isinstance(node, ast.Assign)]
        if any(long_marks(node) for node in assigned if dotted(node.targets[0]) == "pytestmark"):
            continue
        for function in functions(source.tree):
            decorators = [
                call.func for call in function.decorator_list if isinstance(call, ast.Call)
            ]
            if "pytest.mark.long" not in map(dotted, decorators):
                quick.add(f"{source.path}::{function.name}")
    for source, call in marks:
        named = [str(part.value) for part in call.args if isinstance(part, ast.Constant)]
        here = [name if "::" in name else f"{source.path}::{name}" for name in named]
        if len(here) != 1 or here[0] not in quick:
            yield breach(source, call, "`long` does not name a quick test of the same behaviour.")


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method in `tree`, nested ones as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a name or a chain of attributes; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


FileRule = Callable[[Source], Iterator[str]]
TreeRule = Callable[[Sequence[Source]], Iterator[str]]

FILE_RULES: tuple[FileRule, ...] = (
    file_length,
    function_length,
    page_length,
    module_name,
    debris,
    places,
    fixed_order,
    field_owners,
)
