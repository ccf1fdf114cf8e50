"""Reading of settings in YAML, from files and texts: duplicate keys fail, and 1e-3 is a number.

A file that is no settings, whatever it is, ends in one sentence: its size, its depth and its
repetitions are bounded before anything is made of them.
"""

import contextlib
import re
from pathlib import Path
from typing import Any

import yaml

from islands.protocol.errors import SettingsError

FLOAT = re.compile(r"[-+]?(\d[\d_]*)?\.?\d+[eE][-+]?\d+$|[-+]?\d[\d_]*\.[eE][-+]?\d+$")

NULL = ("null", "~")

FILE_BYTES_MAX = 1 << 18
"""Largest file of settings; the longest of the project's own has 3 KiB."""

DEPTH_MAX = 16
"""Deepest nesting of a file of settings; the project's own have four levels."""


class _Loader(yaml.SafeLoader):
    """YAML 1.1 without two traps: a duplicate key that silently wins, and 1e-3 read as text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002  (as its base)
        seen: dict[object, None] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, list | dict):
                break  # the base class refuses it
            if key in seen:
                raise SettingsError(f"line {key_node.start_mark.line + 1}: {key} occurs twice")
            seen[key] = None
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))


def _load(text: str, loader: type[yaml.SafeLoader | yaml.BaseLoader]) -> object:
    """Return what a text holds, if it is neither too deep nor longer than it looks."""
    depth = 0
    for event in yaml.parse(text, loader):
        line = "" if event.start_mark is None else f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise SettingsError(f"{line}: write out what the alias *{event.anchor} stands for")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise SettingsError(f"{line}: it is nested deeper than {DEPTH_MAX} levels")
    return yaml.load(text, loader)  # noqa: S506  (a SafeLoader, or nothing but texts)


def read_yaml(path: Path) -> dict[str, object]:
    """Return the mapping that a file holds; it is empty for an empty file."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise SettingsError(
                f"{path} holds no settings: it has more than {FILE_BYTES_MAX} bytes"
            )
        text = data.decode("utf-8")
    except OSError as error:
        raise SettingsError(f"the config {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"the config {path} is no text in UTF-8") from error
    try:
        loaded = _load(text, _Loader)
    except SettingsError as error:
        raise SettingsError(f"{path}, {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        problem = getattr(error, "problem", None) or "it cannot be understood"
        raise SettingsError(f"{path}{line}: no YAML: {problem}") from error
    except (ValueError, AttributeError) as error:  # of a date, a number, or a tag that claims one
        raise SettingsError(
            f"{path} holds a value that is not what its tag says: {error}"
        ) from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
        raise SettingsError(f"{path} holds no settings; it must be a mapping such as learners: 3")
    return loaded


def scalar(text: str) -> object:
    """Return the number, switch, list or mapping that a text is in YAML, or else the text."""
    with contextlib.suppress(ValueError):
        return int(text)  # 010 is 10 here, but an octal number in YAML
    if text in NULL:
        return None
    try:
        loaded = _load(text, _Loader)
    except (yaml.YAMLError, SettingsError, ValueError, AttributeError):
        return text
    one_line = isinstance(loaded, list) and text.lstrip().startswith("[")  # "- a" may be plain text
    return loaded if one_line or isinstance(loaded, int | float | dict) else text


def texts(text: str) -> object:
    """Return the texts in a list, which is written in YAML or separated by commas."""
    if text.lstrip().startswith("["):
        with contextlib.suppress(yaml.YAMLError, SettingsError):
            return _load(text, yaml.BaseLoader)
    return [part.strip() for part in text.split(",") if part.strip()]
