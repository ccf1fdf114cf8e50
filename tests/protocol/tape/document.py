"""The tables of docs/tape.md, made from the types of entries.

Run ``python -m tests.protocol.tape.document`` after a change of one, and read what it changed.
"""

import typing
from enum import StrEnum
from pathlib import Path
from types import ModuleType, UnionType

import msgspec

from islands.protocol.tape.entry import Entry, Logged, Notable, kind_of
from islands.protocol.tape.kinds import ENTRIES, MODULES

DOCUMENT = Path(__file__).parents[3] / "docs" / "tape.md"
MARK = "from the types in `islands/protocol/tape/`. -->\n"
WORDS = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null"}


def words_of(hint: object) -> str:
    """A type of a field as a reader of JSON knows it."""
    if isinstance(hint, typing.NewType):
        return words_of(hint.__supertype__)
    inner = typing.get_args(hint)
    match typing.get_origin(hint):
        case kind if kind in (UnionType, typing.Union):
            return " or ".join(words_of(one) for one in inner)
        case kind if kind is list:
            return f"list of {words_of(inner[0])}"
        case kind if kind is tuple:
            return "[" + ", ".join(words_of(one) for one in inner) + "]"
        case kind if kind is dict:
            return f"{words_of(inner[1])} by {words_of(inner[0])}"
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return ", ".join(f"*{one}*" for one in hint)
    if hint not in WORDS:
        return "{" + ", ".join(typing.get_type_hints(hint)) + "}"
    return WORDS[hint]


def field_of(field: msgspec.structs.FieldInfo) -> str:
    """One field of an entry: its name on the tape, and what it may be."""
    if field.required:
        return f"`{field.encode_name}`: {words_of(field.type)}"
    inner = [one for one in typing.get_args(field.type) if one is not type(None)]
    hint = typing.Union[tuple(inner)] if inner else field.type  # noqa: UP007  of counted types
    return f"`{field.encode_name}` (optional): {words_of(hint)}"


def row_of(entry: type[Entry]) -> str:
    where = "log" if issubclass(entry, Logged) else "folder" if issubclass(entry, Notable) else ""
    told = " ".join((entry.__doc__ or "").split())
    fields = "; ".join(map(field_of, msgspec.structs.fields(entry)))
    return f"| `{kind_of(entry)}` | {told} | {fields} | {where} |\n"


def section_of(module: ModuleType) -> str:
    title = (module.__doc__ or "").splitlines()[0]
    entries = [entry for entry in ENTRIES if entry.__module__ == module.__name__]
    head = "| kind | what it tells | fields | log |\n| --- | --- | --- | --- |\n"
    return f"\n## {title.removesuffix('.')}\n\n{head}" + "".join(map(row_of, entries))


def tables() -> str:
    return "".join(map(section_of, MODULES))


if __name__ == "__main__":
    prose, _, _ = DOCUMENT.read_text().partition(MARK)
    DOCUMENT.write_text(prose + MARK + tables())
