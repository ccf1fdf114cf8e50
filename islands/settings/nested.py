"""Settings as nested mappings, by dotted keys."""

from collections.abc import Collection, Mapping


def put(
    values: Mapping[str, object], key: str, value: object, known: Collection[str] = ()
) -> dict[str, object]:
    """Return the values with one replaced or added; an unknown key is one inside a mapping."""
    name, _, rest = (key, "", "") if key in known else key.partition(".")
    if rest:
        inner = values.get(name)
        value = put(inner if isinstance(inner, dict) else {}, rest, value)
    return {**values, name: value}
