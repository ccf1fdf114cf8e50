"""The tree keeps its own rules, and each rule can tell a breach when it sees one."""

import subprocess
from pathlib import Path

import pytest

from tests import tidy_rules
from tests.tidy_rules import (
    FILE_RULES,
    FileRule,
    Source,
    TreeRule,
    citations,
    read_tree,
    tiers,
)

ROOT = Path(__file__).resolve().parent.parent


def tracked(root: Path) -> list[Source]:
    """The files that git keeps or would keep; all of them where there is no git."""
    sources = read_tree(root)
    answer = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],  # noqa: S607 (git is where the developer has it)
        cwd=root,
        capture_output=True,
        check=False,
        text=True,
    )
    kept = dict.fromkeys(answer.stdout.split("\0")) if answer.returncode == 0 else None
    return [source for source in sources if kept is None or source.path in kept]


@pytest.fixture(scope="module")
def tree() -> list[Source]:
    return tracked(ROOT)


@pytest.mark.parametrize("rule", FILE_RULES, ids=lambda rule: rule.__name__)
def test_tree_keeps_rule(rule: FileRule, tree: list[Source]) -> None:
    breaches = [sentence for source in tree for sentence in rule(source)]
    assert not breaches, f"{rule.__doc__}\n" + "\n".join(breaches)


@pytest.mark.parametrize("rule", [citations, tiers], ids=lambda rule: rule.__name__)
def test_tree_keeps_rule_on_all_files(rule: TreeRule, tree: list[Source]) -> None:
    breaches = list(rule(tree))
    assert not breaches, f"{rule.__doc__}\n" + "\n".join(breaches)


MARK = "§"  # apart from the word before it, so that these lines are no citations
PAGE = Source("docs/protocol.md", "## §3 Rounds\n\n### §3.4 Grace\n\n1. It ends.\n")


@pytest.mark.parametrize(
    ("text", "breaches"),
    [
        (f'"""A wait (protocol {MARK}3.4), and its end (protocol {MARK}3.4.1)."""\n', 0),
        (f'"""A wait (protocol {MARK}3.6)."""\n', 1),
        (f'"""A wait (protocol {MARK}4)."""\n', 1),
        (f'"""A wait ({"SPEC"} §3.4)."""\n', 1),
        (f'"""A row of {"FAULTS"}.md."""\n', 1),
    ],
)
def test_a_citation_of_what_is_not_there_is_seen(text: str, breaches: int) -> None:
    assert len(list(citations([PAGE, Source("islands/a.py", text)]))) == breaches


QUICK = "tests/test_b.py::test_b"
ALL_LONG = f'pytestmark = pytest.mark.long("{QUICK}")\n\n\ndef test_b():\n    """B."""\n'
LONG = f'@pytest.mark.long("{QUICK}")\ndef test_b():\n    """B."""\n'


@pytest.mark.parametrize(
    ("text", "breaches"),
    [
        ('def test_b():\n    """B."""\n', 0),
        (LONG, 2),
        (ALL_LONG, 2),
        (f'A = pytest.param(1, marks=pytest.mark.long("{QUICK}"))\n\n\ndef test_b():\n    A\n', 0),
        ("", 1),
    ],
    ids=["quick", "decorated", "whole file", "one parameter", "not there"],
)
def test_a_long_test_without_a_quick_one_is_seen(text: str, breaches: int) -> None:
    files = [Source("tests/test_a.py", LONG.replace("test_b()", "test_a()"))]
    assert len(list(tiers([*files, Source("tests/test_b.py", text)]))) == breaches


SYNCER = "islands/protocol/syncer"
LONG_FUNCTION = '"""D."""\n\n\ndef f() -> None:\n' + "    x = 1\n" * 70

# A file that breaks each rule, and what the sentence must mention.
PLANTED = [
    (tidy_rules.file_length, "islands/a.py", "x = 1\n" * 701, "701 lines"),
    (tidy_rules.function_length, "islands/a.py", LONG_FUNCTION, "`f` has 71 lines"),
    (tidy_rules.page_length, "docs/howto/a.md", "A.\n" * 301, "301 lines"),
    (tidy_rules.module_name, "islands/utils.py", "", "`utils`"),
    (tidy_rules.module_name, "messaging/common/a.py", "", "`common`"),
    (tidy_rules.debris, "train.log", "", "leftover"),
    (tidy_rules.debris, "docs/NOTES.md", "", "leftover"),
    (tidy_rules.debris, "reports/first.md", "", "leftover"),
    (tidy_rules.places, "Makefile", f"pip install --{'index'}-url x\n", "registry"),
    (tidy_rules.places, "README.md", f"see https://{'pypi'}.org/x\n", "registry"),
    (tidy_rules.places, "deploy/a.sh", f"cd /{'root'}/islands\n", "one machine"),
    (tidy_rules.fixed_order, "islands/a.py", "for x in {1, 2}:\n    x()\n", "a set"),
    (tidy_rules.fixed_order, "islands/a.py", "names = set(y)\nlist(names)\n", "a set"),
    (tidy_rules.fixed_order, "islands/a.py", "def f(a: set[int]):\n    return [*a]\n", "a set"),
    (tidy_rules.fixed_order, "islands/a.py", "a = {1}\nfor x in a - {2}:\n    x()\n", "a set"),
    (
        tidy_rules.fixed_order,
        "islands/a.py",
        "class A:\n    live: set[str]\n\n    def f(self):\n        return tuple(self.live)\n",
        "a set",
    ),
    (tidy_rules.field_owners, f"{SYNCER}/reports.py", "core.rounds.open[0] = one\n", "rounds.open"),
    (tidy_rules.field_owners, f"{SYNCER}/a.py", "a, round_.stage = 1, None\n", "round_.stage"),
    (
        tidy_rules.field_owners,
        f"{SYNCER}/a.py",
        "core.journal.grants.pop(name)\n",
        "journal.grants",
    ),
    (tidy_rules.field_owners, f"{SYNCER}/reports.py", "durable.clock += 1.0\n", "durable.clock"),
]


@pytest.mark.parametrize(
    ("rule", "path", "text", "says"),
    PLANTED,
    ids=[f"{number}-{case[0].__name__}" for number, case in enumerate(PLANTED)],
)
def test_rule_sees_a_breach(rule: FileRule, path: str, text: str, says: str) -> None:
    breaches = list(rule(Source(path, text)))
    assert len(breaches) == 1
    assert breaches[0].startswith(f"{path}:")
    assert says in breaches[0]


def test_every_rule_has_a_planted_breach() -> None:
    shown = [case[0] for case in PLANTED]
    assert [rule.__name__ for rule in FILE_RULES if rule not in shown] == []


# What only looks like a breach.
GOOD = [
    (tidy_rules.file_length, "tests/test_a.py", "x = 1\n" * 700),
    (tidy_rules.page_length, "docs/a.md", "A.\n" * 300),
    (tidy_rules.places, "README.md", "an index of work, a home, the root\n"),
    (tidy_rules.fixed_order, "islands/a.py", "a = {1}\nfor x in sorted(a):\n    x()\n"),
    (tidy_rules.fixed_order, "islands/a.py", "a = {1}\nb = all(x > 0 for x in a)\n"),
    (tidy_rules.fixed_order, "islands/a.py", "a = {1: 2}\nfor x in a:\n    x()\n"),
    (tidy_rules.field_owners, f"{SYNCER}/rounds.py", "round_.stage = None\n"),
    (tidy_rules.field_owners, f"{SYNCER}/memory.py", "durable.clock += 1.0\n"),
    (tidy_rules.field_owners, f"{SYNCER}/a.py", "core.members.learners[name].step_s = 1.0\n"),
]


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    GOOD,
    ids=[f"{number}-{case[0].__name__}" for number, case in enumerate(GOOD)],
)
def test_rule_lets_good_code_pass(rule: FileRule, path: str, text: str) -> None:
    assert list(rule(Source(path, text))) == []


def test_tree_reader_skips_what_is_generated(tmp_path: Path) -> None:
    """Hidden folders, caches and binary files are not part of the tree; `.ci` is."""
    for name in (
        ".venv/a.py",
        "islands/__pycache__/a.py",
        "x.egg-info/a",
        ".ci/run",
        "islands/a.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "islands" / "weights.bin").write_bytes(b"\xff\xfe\xff")
    assert [source.path for source in read_tree(tmp_path)] == [".ci/run", "islands/a.py"]
