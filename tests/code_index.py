"""An index of the code: which function or class a name means where it stands, and what it calls.

Names are resolved through the imports of their file, and methods through annotations: those of
parameters, of fields and of results, and what is assigned in `__init__` or to a local name. A call
of a method is followed into what overrides it, too. What cannot be resolved so is left out.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Union

ROOT = Path(__file__).resolve().parents[1]
ISLANDS = ROOT / "islands"
Meaning = Union["Module", "Class", "Function"]
Names = dict[str, "Class"]


@dataclass(eq=False)
class Module:
    """A file, with what its top level defines and what it imports as (module, name)."""

    name: str
    path: Path
    tree: ast.Module
    defined: dict[str, "Class | Function"] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(eq=False)
class Class:
    """A class and its methods."""

    module: Module
    node: ast.ClassDef
    methods: dict[str, "Function"] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def meaning(self) -> str:
        """The first line of its docstring."""
        return (ast.get_docstring(self.node) or "").partition("\n")[0]


@dataclass(eq=False)
class Function:
    """A function or, with an owner, a method."""

    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef
    owner: Class | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def is_property(self) -> bool:
        """Whether it is read like a field."""
        return any(ast.unparse(each) == "property" for each in self.node.decorator_list)


class Index:
    """All modules of `islands/`, but for its laboratory."""

    def __init__(self) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted(ISLANDS.rglob("*.py")):
            place = path.relative_to(ROOT).with_suffix("")
            if place.parts[1] != "lab":
                name = ".".join(place.parts).removesuffix(".__init__")
                self.modules[name] = _read(name, path)
        self.heirs: dict[Class, list[Class]] = {}
        for module in self.modules.values():
            for each in module.defined.values():
                if isinstance(each, Class):
                    for base in self.bases(each):
                        self.heirs.setdefault(base, []).append(each)

    def named(self, module: Module, name: str) -> Meaning | None:
        """Return the meaning of a name at the top level of a file."""
        if name in module.defined:
            return module.defined[name]
        source, original = module.imported.get(name, ("", ""))
        whole = f"{source}.{original}"
        if whole in self.modules:
            return self.modules[whole]
        return self.named(self.modules[source], original) if source in self.modules else None

    def top(self, module: Module, node: ast.expr) -> Meaning | None:
        """Return the meaning of `name` or `module.name`."""
        if isinstance(node, ast.Name):
            return self.named(module, node.id)
        held = self.top(module, node.value) if isinstance(node, ast.Attribute) else None
        if isinstance(held, Module) and isinstance(node, ast.Attribute):
            return self.named(held, node.attr)
        return None

    # --- classes --------------------------------------------------------------------------------

    def bases(self, cls: Class) -> list[Class]:
        """Return the classes that one inherits from."""
        found = [self.annotated(cls.module, base) for base in cls.node.bases]
        return [base for base in found if base is not None]

    def annotated(self, module: Module, node: ast.expr | None) -> Class | None:
        """Return the class of an annotation; of a union, the first that is ours."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        if isinstance(node, ast.BinOp):
            return self.annotated(module, node.left) or self.annotated(module, node.right)
        if isinstance(node, ast.Subscript):
            node = node.value
        held = None if node is None else self.top(module, node)
        return held if isinstance(held, Class) else None

    def attribute(self, cls: Class, name: str) -> Class | None:
        """Return the class of a field or property."""
        for node in cls.node.body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
                return self.annotated(cls.module, node.annotation)
        method = cls.methods.get(name)
        if method is not None and method.is_property:
            return self.annotated(cls.module, method.node.returns)
        for start in (method for key, method in cls.methods.items() if key == "__init__"):
            for target, annotation, value in _assigned(start.node):
                if target == f"self.{name}":
                    told = self.annotated(cls.module, annotation)
                    return told or self.type_of(value, start.module, self.locals(start))
        return next(
            (held for base in self.bases(cls) if (held := self.attribute(base, name))), None
        )

    def methods(self, cls: Class, name: str) -> list[Function]:
        """Return the methods that a call of one may reach: its own, or an heir's."""
        held, found = cls, [cls.methods[name]] if name in cls.methods else []
        while not found and self.bases(held):
            held = self.bases(held)[0]
            found = [held.methods[name]] if name in held.methods else []
        for heir in self.heirs.get(cls, ()):
            found += [each for each in self.methods(heir, name) if each not in found]
        return found

    # --- functions ------------------------------------------------------------------------------

    @cache  # noqa: B019  there is one index
    def locals(self, function: Function) -> Names:
        """Return the classes of parameters and of local names."""
        arguments = function.node.args
        names: Names = {}
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            told = self.annotated(function.module, each.annotation)
            held = function.owner if each.arg == "self" else told
            if held is not None:
                names[each.arg] = held
        for target, annotation, value in _assigned(function.node):
            told = self.annotated(function.module, annotation)
            held = told or self.type_of(value, function.module, names)
            if held is not None and target not in names:
                names[target] = held
        return names

    def type_of(self, node: ast.expr | None, module: Module, names: Names) -> Class | None:
        """Return the class of an expression; None if it is not known."""
        if isinstance(node, ast.Name):
            return names.get(node.id)
        if isinstance(node, ast.Attribute):
            held = self.type_of(node.value, module, names)
            return None if held is None else self.attribute(held, node.attr)
        if isinstance(node, ast.BoolOp):
            return self.type_of(node.values[0], module, names)
        for each in self.meant(node.func, module, names) if isinstance(node, ast.Call) else ():
            if isinstance(each, Class):
                return each
            return self.annotated(each.module, each.node.returns)
        return None

    def meant(self, node: ast.expr, module: Module, names: Names) -> list[Class | Function]:
        """Return what is called, or made, by a call of this expression."""
        if isinstance(node, ast.Name) and node.id in names:
            return []
        held = self.top(module, node)
        if isinstance(held, Class | Function):
            return [held]
        if not isinstance(node, ast.Attribute):
            return []
        owner = self.type_of(node.value, module, names)
        return [] if owner is None else [*self.methods(owner, node.attr)]

    def calls(self, body: Sequence[ast.AST], function: Function) -> list[Class | Function]:
        """Return what statements of a function call, make, or hand on as an argument; in order."""
        names = self.locals(function)
        found: dict[Class | Function, None] = {}
        for node in _callees(body):
            found.update(dict.fromkeys(self.meant(node, function.module, names)))
        return list(found)

    def reached(self, start: Iterable[Class | Function]) -> set[Class | Function]:
        """Return what these lead to, however deep: functions, and classes that they make."""
        seen: set[Class | Function] = set()
        open_ = list(start)
        while open_:
            each = open_.pop()
            if each not in seen:
                seen.add(each)
                open_ += self.calls(each.node.body, each) if isinstance(each, Function) else []
        return seen

    def functions(self, module: Module) -> list[Function]:
        """Return the functions and methods of a file, in order."""
        found: list[Function] = []
        for each in module.defined.values():
            found += [each] if isinstance(each, Function) else each.methods.values()
        return found

    def has(self, place: str) -> bool:
        """Whether there is a function `file:name`."""
        file, _, name = place.partition(":")
        modules = [each for each in self.modules.values() if each.path == ISLANDS / file]
        return any(one.name == name for each in modules for one in self.functions(each))

    @cache  # noqa: B019  there is one index
    def makes(self, module: Module) -> set[Class]:
        """Return the classes that a file makes, or hands on to be made."""
        held = (self.top(module, node) for node in _callees([module.tree]))
        return {each for each in held if isinstance(each, Class)}


def _read(name: str, path: Path) -> Module:
    module = Module(name, path, ast.parse(path.read_text()))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                module.imported[each.asname or each.name] = (node.module or "", each.name)
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef):
            module.defined[node.name] = Function(module, node)
        elif isinstance(node, ast.ClassDef):
            cls = module.defined[node.name] = Class(module, node)
            for held in node.body:
                if isinstance(held, ast.FunctionDef | ast.AsyncFunctionDef):
                    cls.methods[held.name] = Function(module, held, cls)
    return module


def _assigned(function: ast.AST) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """What is assigned in a function: the target, its annotation, the value."""
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.target), node.annotation, node.value
        elif isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for left, right in zip(target.elts, value.elts, strict=False):
                    yield ast.unparse(left), None, right
            else:
                yield ast.unparse(target), None, value


def _callees(body: Sequence[ast.AST]) -> list[ast.expr]:
    """The expressions that are called, and arguments that may be called later, in order."""
    found: list[ast.expr] = []
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and not _names_types(node):
                found += [node.func, *node.args, *(each.value for each in node.keywords)]
    plain = [node for node in found if isinstance(node, ast.Name | ast.Attribute)]
    return sorted(plain, key=lambda node: (node.lineno, node.col_offset))


def _names_types(call: ast.Call) -> bool:
    """Whether a call's arguments are types that it makes nothing of."""
    func = ast.unparse(call.func)
    return func == "isinstance" or func.endswith(".handles")
