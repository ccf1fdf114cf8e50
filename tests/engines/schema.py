"""Validity of manifests by the vendored schemas of Kubernetes and JobSet, strictly.

It knows the keywords that these schemas have, and none else: a schema with another is an error of
this file, so nothing is held valid because it was not understood.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parent / "schemas"
KEYWORDS = {
    *("$ref", "type", "properties", "required", "additionalProperties", "items"),
    *("enum", "oneOf", "format"),
}
TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


@cache
def definitions() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for file in sorted(SCHEMAS.glob("*.json")):
        found |= json.loads(file.read_text())["$defs"]
    return found


@cache
def kinds() -> dict[tuple[str, str], str]:
    """The name of the definition of each kind of object, by apiVersion and kind."""
    return {
        (told["apiVersion"]["enum"][0], told["kind"]["enum"][0]): name
        for name, schema in definitions().items()
        for told in [schema.get("properties", {})]
        if "enum" in told.get("kind", {}) and "enum" in told.get("apiVersion", {})
    }


def faults(manifest: Mapping[str, Any]) -> list[str]:
    """What is wrong with a manifest, each with its place; empty if nothing is."""
    kind = str(manifest.get("apiVersion")), str(manifest.get("kind"))
    if kind not in kinds():
        return [f"there is no {kind[1]} in {kind[0]}"]
    return list(_faults(manifest, {"$ref": f"#/$defs/{kinds()[kind]}"}, kind[1]))


def _faults(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:  # noqa: ANN401
    assert not set(schema) - KEYWORDS, f"{place}: unknown keywords {set(schema) - KEYWORDS}"
    if "$ref" in schema:
        yield from _faults(value, definitions()[schema["$ref"].removeprefix("#/$defs/")], place)
        return
    if "oneOf" in schema:
        fit = [each for each in schema["oneOf"] if not list(_faults(value, each, place))]
        if len(fit) != 1:
            yield f"{place} is {value!r}, which fits {len(fit)} of {schema['oneOf']}"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_is(value, each) for each in types):
        yield f"{place} is {value!r}; it must be {' or '.join(types)}"
        return
    if value is not None and "enum" in schema and value not in schema["enum"]:
        yield f"{place} is {value!r}; it must be one of {schema['enum']}"
    if isinstance(value, dict):
        yield from _faults_of_fields(value, schema, place)
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _faults(each, schema.get("items", {}), f"{place}[{index}]")


def _faults_of_fields(
    value: Mapping[str, Any], schema: Mapping[str, Any], place: str
) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield f"{place}.{name} is missing"
    for name, each in value.items():
        if name in known:
            yield from _faults(each, known[name], f"{place}.{name}")
        elif others is False:
            yield f"{place} has no field {name}"
        else:
            yield from _faults(each, others, f"{place}.{name}")


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind])
