"""Messages of every type, drawn from their fields: a new message is drawn without being named here.

A field that decides whether a message is looked at (a name, an incarnation, a ticket) mostly has a
value that its receiver expects; each other one has any that its type allows, extreme ones first.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

EXPECTED_SHARE = 0.9
"""How often a field has one of the values that its receiver expects, where any are known."""

NUMBERS = (-(2**63), -(10**6), -1, 0, 1, 2, 3, 7, 40, 10**6, 2**31, 2**63 - 1, 2**64 - 1)
TIMES = (-1.0, 0.0, 5e-324, 1e-300, 0.1, 2.0, 1e6, 1e308, float("inf"), float("nan"))
WORDS = ("", "x", "ana", "[/x]", "\x1b[2J\x07", "\u202eabc", "a\nb\0", "../..", "float32", "int8")
LENGTHS = (0, 0, 1, 1, 1, 2, 3, 8, 200)
LONG_SHARE = 0.02
LONG_CHARACTERS = 5000

Expected = Mapping[str, Sequence[object]]


@cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(get_type_hints(kind, include_extras=False).items())


def drawn(kind: Any, chance: random.Random, expected: Expected, name: str = "") -> Any:  # noqa: ANN401
    """Return a value of a type."""
    if name in expected and chance.random() < EXPECTED_SHARE:
        return chance.choice(expected[name])
    kind = getattr(kind, "__supertype__", kind)
    origin = get_origin(kind)
    if origin is Annotated:
        return drawn(get_args(kind)[0], chance, expected)
    if origin in (Union, UnionType):
        one = chance.choice(get_args(kind))
        return None if one is NoneType else drawn(one, chance, expected)
    if origin is tuple:
        return _tuple(get_args(kind), chance, expected)
    if origin is dict:
        return {word: drawn(str, chance, expected) for word in chance.sample(WORDS, 2)}
    if is_dataclass(kind) or issubclass(kind, msgspec.Struct):
        told = {field: drawn(of, chance, expected, field) for field, of in _fields(kind)}
        return kind(**told)
    return _plain(kind, chance)


def _tuple(parts: tuple[Any, ...], chance: random.Random, expected: Expected) -> tuple[object, ...]:
    if len(parts) == 2 and parts[1] is ...:
        one = drawn(parts[0], chance, expected)  # the others are the same, as this is the fast way
        nested = isinstance(one, tuple) and any(isinstance(part, tuple) for part in one)
        return (one,) * chance.choice(LENGTHS[:-1] if nested else LENGTHS)
    return tuple(drawn(part, chance, expected) for part in parts)


def _plain(kind: type, chance: random.Random) -> object:
    if issubclass(kind, Enum):
        return chance.choice([*kind])
    if kind is bool:
        return chance.random() < 0.5
    if kind is int:
        return chance.choice(NUMBERS)
    if kind is float:
        return chance.choice(TIMES)
    long = chance.random() < LONG_SHARE
    if kind is bytes:
        return chance.randbytes(LONG_CHARACTERS if long else chance.randrange(9))
    assert kind is str, f"no value can be drawn of {kind}"
    if long and chance.random() < 0.5:  # deep or long JSON, for those who read it as such
        return "[" * LONG_CHARACTERS
    return "x" * LONG_CHARACTERS if long else chance.choice(WORDS)


def damaged(document: bytes, chance: random.Random) -> bytes:
    data = bytearray(document)
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                data[place] ^= 1 << chance.randrange(8)
            case 2:
                del data[place : place + chance.randrange(1, 9)]
            case _:
                data[place:place] = chance.randbytes(chance.randrange(1, 9))
        data = data or bytearray(b"\0")
    return bytes(data)
