"""Generates `docs/journey.md`: which event or message is handled where, and what it leads to.

    python -m tests.journey

It reads the code: the `match` statements of a role's state and its registered handlers, the rules
that these call, the actions that the rules may return, and what the role's actor does for each. So
the page is true of the code beside it, and a test fails where it is not. The story is written by
hand, and checked: each rule is reached from its event, returns its action, and names a section that
the protocol has.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tests.code_index import ISLANDS, ROOT, Class, Function, Index
from tests.journey_story import BRANCHES, INTRODUCTION, TRIP, sections, stations

PAGE = ROOT / "docs" / "journey.md"
ROLES = ("learner", "syncer", "supervisor", "observer", "gossip")

STATES = {"gossip": ("gossip.gossip", "Gossip", "on_gossip")}
"""Where a role's events arrive, if not in `handle` of its `state.py`."""

PERFORMERS = {
    "learner": ("learner.actor", "learner.moments", "learner.boundary"),
    "gossip": ("learner.gossip", "learner.boundary"),
}
"""The files that perform a role's actions, if not its `actor.py` alone."""

HOMES = {"gossip": ("islands.learner.gossip", "islands.learner.boundary")}
"""Where a role's events are made, if not in its own folder."""

INCIDENTAL = {"record", "submit", "_send_figures", "carried", "command", "_command", "perform"}
"""Calls that note an action, move a clock or pass the action on, and do not perform it."""

BEYOND = {
    ("learner", "Contribute"): "numerics/error_feedback.py:encoded",
    ("learner", "SettleFeedback"): "numerics/error_feedback.py:settle",
    ("learner", "ResetFeedback"): "numerics/error_feedback.py:reset",
    ("syncer", "BeginMerge"): "syncer/value_store.py:merge",
    ("syncer", "WriteJournal"): "syncer/journal.py:write",
    ("supervisor", "StartProcess"): "run/composition.py:start",
    ("supervisor", "KillProcess"): "run/hosting/child_processes.py:kill",
    ("supervisor", "GiveUp"): "run/composition.py:_on_gave_up",
    ("supervisor", "CountFigures"): "run/coordinator.py:_on_figures",
    ("observer", "Evaluate"): "model/evaluation.py:attempt",
    ("gossip", "Mix"): "learner/gossip.py:_step",
}
"""What a worker or the host does then: it goes through a queue or a hook, which no call shows."""


@dataclass
class Case:
    """What one event or message leads to: the rules that handle it, and all that they reach.

    `holders` are methods of the state that handle it themselves. It `hands_on` the message in it,
    if the handler that is registered for that is called.
    """

    handlers: dict[Function, None] = field(default_factory=dict)
    holders: dict[Function, None] = field(default_factory=dict)
    reached: set[Class | Function] = field(default_factory=set)
    hands_on: bool = False


class Room:
    """The rules of one role, and the files that perform its actions."""

    def __init__(self, role: str, index: Index) -> None:
        """Read the room."""
        self.role, self.index = role, index
        self.prefix = f"islands.protocol.{role}"
        self.performers = PERFORMERS.get(role, (f"{role}.actor",))
        module, name, entry = STATES.get(role, ("state", None, "handle"))
        module = module if name else f"{role}.{module}"
        name = name or f"{role.capitalize()}State"
        state = index.modules[f"islands.protocol.{module}"].defined[name]
        assert isinstance(state, Class), "a state is a class"
        self.state, self.entry = state, state.methods[entry]
        self.events = self._told_in(f"{self.prefix}.events")
        told = self._told_in(f"{self.prefix}.actions")
        self.actions = [each for each in told if not each.name.endswith("Part")]

    def _told_in(self, name: str) -> list[Class]:
        """The classes that a file shares with other roles, and those that it defines."""
        module = self.index.modules[name]
        sources = {key: source for key, (source, _) in module.imported.items()}
        names = [key for key, source in sources.items() if source == "islands.protocol.sessions"]
        held = [self.index.named(module, key) for key in (*names, *module.defined)]
        return [each for each in held if isinstance(each, Class)]

    def place(self, function: Function) -> str:
        """Where a function stands: its file, with the folder if that is not the role's own."""
        path, own = function.module.path, (ISLANDS / "protocol" / self.role, ISLANDS / self.role)
        file = path.name if path.parent in own else path.relative_to(ISLANDS)
        return f"`{file}:{function.name}`"

    def leads_to(self, reached: set[Class | Function]) -> list[str]:
        """The actions among what was reached, in order."""
        return [action.name for action in self.actions if action in reached]

    def cell(self, reached: set[Class | Function]) -> str:
        """The same as a cell of a table; a learner's rules may lead to actions of gossip, too."""
        names = [f"`{name}`" for name in self.leads_to(reached)]
        others = {each.module.name for each in reached if isinstance(each, Class)}
        if self.role == "learner" and "islands.protocol.gossip.actions" in others:
            names.append("those of [gossip](#gossip)")
        return ", ".join(names) or "–"

    def leads(self, *rules: Class | Function) -> list[str]:
        """The actions that rules may lead to."""
        return self.leads_to(self.index.reached(rules))

    # --- events and rules -----------------------------------------------------------------------

    def _branches(self, function: Function) -> Iterator[tuple[ast.match_case, list[Class]]]:
        """The cases of a function's `match` on events or messages, with their classes."""
        for node in ast.walk(function.node):
            for case in node.cases if isinstance(node, ast.Match) else ():
                held = [
                    self.index.top(function.module, each.cls)
                    for each in ast.walk(case.pattern)
                    if isinstance(each, ast.MatchClass)
                ]
                known = [each for each in held if isinstance(each, Class)]
                yield case, [each for each in known if each in self.events or is_message(each)]

    @cached_property
    def dispatchers(self) -> set[Function]:
        """The methods of the state that only hand on what comes: to rules, or to one another."""
        found = {
            method
            for method in self.state.methods.values()
            if any(classes for _, classes in self._branches(method))
        }
        while True:
            further = {
                method
                for method in self.state.methods.values()
                if method not in found | {self.entry} and found & {*self._calls(method)}
            }
            if not further:
                return found
            found |= further

    def _calls(self, method: Function) -> list[Class | Function]:
        return self.index.calls(method.node.body, method)

    @cached_property
    def cases(self) -> dict[Class, Case]:
        """What each event or message leads to."""
        found: dict[Class, Case] = {}
        for method in [each for each in self.state.methods.values() if each in self.dispatchers]:
            for case, classes in self._branches(method):
                if all(isinstance(each, ast.Pass) for each in case.body):
                    continue
                calls = self.index.calls(case.body, method)
                rules = [each for each in calls if isinstance(each, Function)]
                for cls in classes:
                    one = found.setdefault(cls, Case())
                    one.handlers.update(dict.fromkeys(rules))
                    one.holders.update({} if rules else {method: None})
                    one.reached |= self.index.reached(calls)
                    one.hands_on |= any(map(hands_on, case.body))
        for cls, rule in self._registered():
            one = found.setdefault(cls, Case())
            one.handlers[rule] = None
            one.reached |= self.index.reached([rule])
        return found

    def _registered(self) -> Iterator[tuple[Class, Function]]:
        """The handlers of messages that are events as they come (`protocol/handlers.py`)."""
        for module in self.index.modules.values():
            for rule in self.index.functions(module):
                if not module.name.startswith(f"{self.prefix}."):
                    break
                for each in rule.node.decorator_list:
                    if isinstance(each, ast.Call) and ast.unparse(each.func).endswith(".handles"):
                        cls = self.index.top(module, each.args[0])
                        assert isinstance(cls, Class), "a handler is registered for a message"
                        yield cls, rule

    @cached_property
    def always(self) -> list[Function]:
        """The rules that run after, or before, every event; of gossip, the schedule's hooks."""
        if self.role in STATES:
            base = self.index.bases(self.state)[0]
            hooks = [method for name, method in self.state.methods.items() if name in base.methods]
            return [each for each in hooks if each is not self.entry and self.leads(each)]
        rules: list[Function] = []
        for method in (self.entry, self.state.methods.get("_advance")):
            body: list[ast.AST] = []
            for statement in [] if method is None else method.node.body:
                body += [] if isinstance(statement, ast.Match) else [statement]
            called = [] if method is None else self.index.calls(body, method)
            rules += [each for each in called if isinstance(each, Function)]
        skipped = {*self.dispatchers, self.state.methods.get("_advance")}
        return [each for each in rules if each not in skipped]

    @cached_property
    def first(self) -> set[Class | Function]:
        """The rules of every event that run before the event's own."""
        found: set[Class | Function] = set()
        for statement in self.entry.node.body:
            called = {*self.index.calls([statement], self.entry)}
            if called & self.dispatchers or isinstance(statement, ast.Match):
                break
            found |= called
        return found

    def label(self, cls: Class) -> str:
        """The name of an event or message, and in brackets the message that comes in the event."""
        fields = [each for each in cls.node.body if isinstance(each, ast.AnnAssign)]
        names = [name for each in fields for name in ast.walk(each.annotation)]
        held = [self.index.top(cls.module, each) for each in names if isinstance(each, ast.expr)]
        inside = [f"`{each.name}`" for each in held if isinstance(each, Class) and is_message(each)]
        brackets = f" ({', '.join(inside)})" if inside and not is_message(cls) else ""
        return f"`{cls.name}`{brackets}"

    def after(self, event: str) -> set[Class | Function]:
        """What an event reaches; of `*`, what every event does."""
        if event == "*":
            return self.index.reached(self.always)
        case = next(case for cls, case in self.cases.items() if cls.name == event)
        return case.reached

    @cached_property
    def failing(self) -> list[tuple[Function, set[Class | Function]]]:
        """The methods that go on where a rule fails, with what that reaches."""
        return [
            (method, self.index.reached(self.index.calls(node.body, method)))
            for method in self.state.methods.values()
            for node in ast.walk(method.node)
            if isinstance(node, ast.ExceptHandler)
        ]

    def without_rule(self) -> list[Class]:
        """The actions that no rule leads to: an actor makes them."""
        reached = self.index.reached(self.always)
        for more in (*(case.reached for case in self.cases.values()), *dict(self.failing).values()):
            reached |= more
        return [each for each in self.actions if each not in reached]

    # --- what is made, and what is performed ----------------------------------------------------

    def makers(self, cls: Class) -> str:
        """The files that make an event: the role's own, and what it shares; a message: others."""
        own = (self.prefix, *HOMES.get(self.role, (f"islands.{self.role}",)))
        files = [
            module
            for module in self.index.modules.values()
            if cls in self.index.makes(module) and module.name != cls.module.name
        ]
        mine = [each for each in files if each.name.startswith((*own, "islands.actors"))]
        others = (*own, "islands.run", "islands.cli")
        theirs = [each for each in files if not each.name.startswith(others)]
        theirs = theirs or [each for each in files if not each.name.startswith(own)]
        back = ", and comes back" if is_message(cls) and not theirs else ""  # as a probe does
        mine = theirs if is_message(cls) and theirs else mine
        places = ", ".join(f"`{each.path.relative_to(ISLANDS)}`" for each in mine)
        return f"{places}{back}" if places else "–"

    @cached_property
    def effects(self) -> dict[Class, str]:
        """What performs each action: the actor's method, then what goes on elsewhere."""
        found: dict[Class, list[str]] = {action: [] for action in self.actions}
        passed: dict[Class, str] = {}
        for function, case in self._performing():
            held = [each for each in ast.walk(case.pattern) if isinstance(each, ast.MatchClass)]
            for cls in (self.index.top(function.module, each.cls) for each in held):
                if isinstance(cls, Class) and cls in found:
                    passed.setdefault(cls, self.place(function))
                    found[cls] += self._hops(function, case)
        for action, places in found.items():
            if not places and action in passed:
                places.append(passed[action])
            if beyond := BEYOND.get((self.role, action.name)):
                assert self.index.has(beyond), f"there is no {beyond}"
                places.append(f"`{beyond}`")
        return {cls: " → ".join(dict.fromkeys(places)) for cls, places in found.items() if places}

    def _performing(self) -> Iterator[tuple[Function, ast.match_case]]:
        """All cases of the files that perform actions, with the method that holds each."""
        for name in self.performers:
            for function in self.index.functions(self.index.modules[f"islands.{name}"]):
                for node in ast.walk(function.node):
                    for case in node.cases if isinstance(node, ast.Match) else ():
                        yield function, case

    def _hops(self, function: Function, case: ast.match_case) -> list[str]:
        """The method of these files that a case calls, if that is all; else the one that holds it.

        Before that it may note something (`INCIDENTAL`) or do something more in one case.
        """
        telling = [each for each in case.body if not is_incidental(each)]
        calls = [each for each in telling if not isinstance(each, ast.If) or each is telling[-1]]
        names, folder = self.index.locals(function), function.module.name.rpartition(".")[0]
        places: list[str] = []
        for each in calls:
            call = each.value if isinstance(each, ast.Expr) else None
            func = call.func if isinstance(call, ast.Call) else None
            meant = self.index.meant(func, function.module, names) if func else []
            if not meant or not meant[0].module.name.startswith((folder, "islands.actors")):
                return [self.place(function)]
            places += [self.place(one) for one in meant[:1] if isinstance(one, Function)]
        return places


def is_incidental(node: ast.stmt) -> bool:
    """Whether a statement only calls what notes an action, or passes it on."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] in INCIDENTAL


def hands_on(node: ast.stmt) -> bool:
    """Whether a statement only calls the handler that is registered for a message."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func).endswith(".handle")


def is_message(cls: Class) -> bool:
    """Whether a class is of a message."""
    return cls.module.name.startswith("islands.protocol.messages")


# --- the page -----------------------------------------------------------------------------------


def story(text: str, rooms: dict[str, Room]) -> Iterator[str]:
    """The stations of a story, each checked against the code and the protocol."""
    for number, one in enumerate(stations(text), start=1):
        room = rooms[one.role]
        rules = [each for each in room.after(one.event) if isinstance(each, Function)]
        here = [each for each in rules if room.place(each) == f"`{one.rule}`"]
        assert set(one.sections) <= sections(), f"the protocol has no {one.sections}"
        assert here, f"{one.role}: {one.event} does not reach {one.rule}"
        assert {*one.actions} <= {*room.leads(here[0])}, f"{one.rule} returns no {one.actions}"
        effects = {cls.name: effect for cls, effect in room.effects.items()}
        labels = {cls.name: room.label(cls) for cls in room.cases}
        links = [labels.get(one.event, "*every event*"), f"`{one.rule}`"]
        links += [f"`{action}` → {effects[action]}" for action in one.actions]
        yield f"{number}. **{one.role}** ({', '.join(one.sections)}): {one.told}"
        yield f"   {' → '.join(links)}"
    yield ""


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cells) + " |"


def tables(room: Room) -> Iterator[str]:
    """The tables of one role."""
    yield f"## {room.role.capitalize()}\n"
    yield row("event or message", "made in", "handled by", "may lead to")
    yield row("---", "---", "---", "---")
    for cls, case in sorted(room.cases.items(), key=lambda each: each[0].name):
        marks = [
            room.place(rule) + (" (dispatcher)" if rule in room.dispatchers else "")
            for rule in case.handlers
        ]
        kind = "dispatcher" if case.hands_on else "in place"
        marks += [f"{room.place(method)} ({kind})" for method in case.holders]
        passes = case.hands_on or room.dispatchers & {*case.handlers}
        leads = "what its messages do" if passes else room.cell(case.reached)
        yield row(room.label(cls), room.makers(cls), ", ".join(marks), leads)
    yield ""
    gossips = room.role in STATES
    yield row("hook that the learner calls" if gossips else "rule of every event", "may lead to")
    yield row("---", "---")
    for rule in room.always:
        mark = " (first)" if rule in room.first and not gossips else ""
        yield row(room.place(rule) + mark, room.cell(room.index.reached([rule])))
    for method, actions in room.failing:
        yield row(f"{room.place(method)}, where a rule fails", room.cell(actions))
    yield ""
    yield row("action", "meaning", "performed by")
    yield row("---", "---", "---")
    for action, effect in room.effects.items():
        yield row(f"`{action.name}`", action.meaning, effect)
    yield ""
    for action in room.without_rule():
        yield f"No rule leads to `{action.name}`: {room.makers(action)} makes it.\n"


def page() -> str:
    """The whole page."""
    index = Index()
    rooms = {role: Room(role, index) for role in ROLES}
    lines = [INTRODUCTION, "## A fragment's round trip\n", *story(TRIP, rooms)]
    lines += ["## Where it goes otherwise\n", *story(BRANCHES, rooms)]
    for role in ROLES:
        lines.extend(tables(rooms[role]))
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
