"""Generates `docs/journey.md`: which event or message is handled where, and what it leads to.

    python -m tests.journey

It reads the code: the `match` statements of a role's rules, the functions that they call, the
actions that these may return, and what the role's actor does for each action. So the page is true
of the code beside it, and a test fails where it is not.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "journey.md"
ISLANDS = ROOT / "islands"
ROLES = ("learner", "syncer", "supervisor", "observer", "gossip")
ACTORS = {"gossip": "learner"}
"""Rooms whose rules are performed by the actor of another."""

SHARED = "islands.protocol.sessions"
"""Events and actions of several roles."""

MESSAGES = ISLANDS / "protocol" / "messages"

# A fragment's round trip: the role, its event, action or rule, and what happens there.
TRIP = (
    (
        "learner",
        "StepFinished",
        "A step ends. At its boundary the fragments due next are copied.",
    ),
    ("learner", "SnapshotTaken", "A copy has reached the host, while the next step runs."),
    (
        "syncer",
        "open_rounds",
        "Compute has earned a round: it opens, and asks whoever is eligible.",
    ),
    ("learner", "PullFragment", "The pull arrives. A snapshot from before it is the answer."),
    ("learner", "Contribute", "The answer is encoded on a worker, and sent with its digest."),
    (
        "syncer",
        "ContributionArrived",
        "A worker has measured it. It enters its round, or gets a fate.",
    ),
    ("syncer", "close_rounds", "The quorum is there, and the grace over: the round closes."),
    ("syncer", "BeginMerge", "A worker merges what is admitted, and takes the outer step."),
    ("syncer", "MergeFinished", "The books are changed, and the new value is to be journalled."),
    ("syncer", "WriteJournal", "A worker writes the record, in the order in which they were made."),
    ("syncer", "JournalFinished", "What the record covers is durable: the version is committed."),
    ("syncer", "SendValue", "The value goes to all, whole, as increments, or in shares."),
    ("learner", "UpdateArrived", "The update is here, and checked: it is adopted at a boundary."),
    ("learner", "AdoptValue", "The boundary adopts it, and keeps what was done since sending."),
    ("learner", "ValueAdopted", "The account is settled. The next report tells the syncer."),
    ("syncer", "ProgressArrived", "The syncer settles the ledger, and measures how long it took."),
)


@dataclass(frozen=True)
class Case:
    """What one event or message leads to: names of functions and of actions, sorted."""

    calls: tuple[str, ...]
    actions: tuple[str, ...]


@dataclass
class Function:
    """A function of a room's rules, and its file."""

    file: Path
    node: ast.FunctionDef

    @cached_property
    def calls(self) -> set[str]:
        """Names of functions and methods that it calls, and of classes that it makes."""
        return set(called(self.node.body))


def called(body: list[ast.stmt]) -> Iterator[str]:
    """The names that are called in some statements, in order; of a method its last part."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                name = node.func
                if isinstance(name, ast.Name):
                    yield name.id
                elif isinstance(name, ast.Attribute):
                    yield name.attr


def classes(path: Path) -> list[str]:
    """The classes of a file, in order."""
    tree = ast.parse(path.read_text())
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def told_in(path: Path) -> list[str]:
    """The classes that a room's file defines or shares with other rooms, in order."""
    tree = ast.parse(path.read_text())
    shared = [
        name.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == SHARED
        for name in node.names
    ]
    return [*shared, *classes(path)]


def matched(pattern: ast.pattern) -> list[str]:
    """The class names of a pattern."""
    return [
        ast.unparse(node.cls).rpartition(".")[2]
        for node in ast.walk(pattern)
        if isinstance(node, ast.MatchClass)
    ]


class Room:
    """The rules of one role, and the files of its actor."""

    def __init__(self, role: str) -> None:
        """Read the room."""
        self.role = role
        self.files = sorted((ISLANDS / "protocol" / role).glob("*.py"))
        self.acting = sorted((ISLANDS / ACTORS.get(role, role)).glob("*.py"))
        self.functions: dict[str, Function] = {}
        self.all: list[Function] = []
        for file in self.files:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef):
                    self.all.append(Function(file, node))
                    self.functions.setdefault(node.name, self.all[-1])
        self.actions = [
            name for file in self.files if "actions" in file.stem for name in told_in(file)
        ]
        self.events = [
            name for file in self.files if "events" in file.stem for name in told_in(file)
        ]

    def place(self, name: str) -> str:
        """Where a function stands, as `file:function`."""
        file = self.functions[name].file
        return f"`{file.name}:{name}`"

    def leads_to(self, names: set[str]) -> tuple[str, ...]:
        """The actions that functions of these names may return, however deep they are made."""
        seen: set[str] = set()
        open_ = sorted(names)
        while open_:
            name = open_.pop()
            if name in seen:
                continue
            seen.add(name)
            for function in self.all:
                if function.node.name == name:
                    open_.extend(sorted(function.calls))
        return tuple(action for action in self.actions if action in seen)

    @cached_property
    def cases(self) -> dict[str, Case]:
        """What each event or message of a `match` in the rules leads to."""
        known = {*self.events, *messages()}
        found: dict[str, Case] = {}
        for function in self.all:
            for node in ast.walk(function.node):
                if not isinstance(node, ast.Match):
                    continue
                for case in node.cases:
                    names = [name for name in matched(case.pattern) if name in known]
                    calls = [name for name in called(case.body) if name in self.functions]
                    leads = self.leads_to(set(called(case.body)))
                    for name in names:
                        before = found.get(name, Case((), ()))
                        both = dict.fromkeys((*before.calls, *calls))
                        acts = dict.fromkeys((*before.actions, *leads))
                        found[name] = Case(tuple(both), tuple(acts))
        return found

    def always(self) -> list[str]:
        """The rules that run after every event: what `handle` and `_advance` call themselves."""
        names: dict[str, None] = {}
        for name in ("handle", "_advance"):
            for call in called(self.functions[name].node.body) if name in self.functions else ():
                function = self.functions.get(call)
                if function is not None and not call.startswith("_"):
                    names[call] = None
        return list(names)

    @cached_property
    def effects(self) -> dict[str, str]:
        """What the actor does for each action: the first thing that it calls, with the file."""
        found: dict[str, str] = {}
        for file in self.acting:
            for node in ast.walk(ast.parse(file.read_text())):
                for case in node.cases if isinstance(node, ast.Match) else ():
                    for name in matched(case.pattern):
                        calls = [each for each in called(case.body) if each != "assert_never"]
                        if name in self.actions and calls:
                            found.setdefault(name, f"`{file.name}`: `{calls[0]}`")
        return found


def messages() -> dict[str, str]:
    """All classes of messages, and the module of each."""
    return {name: file.stem for file in sorted(MESSAGES.glob("*.py")) for name in classes(file)}


def makers(name: str) -> str:
    """The files that make an object of a class, as one text."""
    files = []
    for folder in ("protocol", *(role for role in ROLES if role not in ACTORS), "actors"):
        for file in sorted((ISLANDS / folder).rglob("*.py")):
            if f"{name}(" in file.read_text() and f"class {name}" not in file.read_text():
                calls = {each for each in called(ast.parse(file.read_text()).body) if each == name}
                if calls:
                    files.append(f"`{file.relative_to(ISLANDS)}`")
    return ", ".join(files) or "–"


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cells) + " |"


def trip(rooms: dict[str, Room]) -> Iterator[str]:
    """The round trip of a fragment, station by station."""
    yield "## A fragment's round trip\n"
    for number, (role, name, sentence) in enumerate(TRIP, start=1):
        room = rooms[role]
        if name in room.functions:
            where = f"rule {room.place(name)}"
        elif name in room.actions:
            where = f"action `{name}` → {room.effects[name]}"
        else:
            case = room.cases[name]
            where = f"`{name}` → " + ", ".join(room.place(call) for call in case.calls)
        yield f"{number}. **{role}**: {sentence}\n   {where}"
    yield ""


def tables(room: Room) -> Iterator[str]:
    """The tables of one role."""
    yield f"## {room.role.capitalize()}\n"
    always = room.always()
    if always:
        yield "After every event: " + ", ".join(room.place(name) for name in always) + ".\n"
    yield row("event or message", "made in", "handled by", "may lead to")
    yield row("---", "---", "---", "---")
    for name, case in sorted(room.cases.items()):
        handlers = ", ".join(room.place(call) for call in case.calls) or "in place"
        actions = ", ".join(f"`{action}`" for action in case.actions) or "–"
        yield row(f"`{name}`", makers(name), handlers, actions)
    yield ""
    effects = room.effects
    if effects:
        yield row("action", "performed by")
        yield row("---", "---")
        for name in room.actions:
            if name in effects:
                yield row(f"`{name}`", effects[name])
        yield ""


def page() -> str:
    """The whole page."""
    rooms = {role: Room(role) for role in ROLES}
    lines = [
        "# The journey: event → rule → action",
        "",
        "Generated from the code by `python -m tests.journey`; a test compares it. Rules stand in",
        "`islands/protocol/<role>/`, what performs them in `islands/<role>/`. An actor hands an",
        "event to its role's state, which returns actions and touches nothing;",
        "[protocol.md](protocol.md) says what the rules are.",
        "",
        *trip(rooms),
    ]
    for role in ROLES:
        lines.extend(tables(rooms[role]))
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
