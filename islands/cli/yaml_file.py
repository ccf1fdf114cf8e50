"""Reading of settings in YAML, from files and texts: duplicate keys fail, and 1e-3 is a number."""

import contextlib
import re
from pathlib import Path
from typing import Any

import yaml

from islands.errors import SettingsError

FLOAT = re.compile(r"[-+]?(\d[\d_]*)?\.?\d+[eE][-+]?\d+$|[-+]?\d[\d_]*\.[eE][-+]?\d+$")

NULL = ("null", "~")


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


def read_yaml(path: Path) -> dict[str, object]:
    """Return the mapping that a file holds; it is empty for an empty file.

    Raises:
        SettingsError: the file cannot be read, or holds no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"the config {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"the config {path} is no text in UTF-8") from error
    try:
        found = yaml.load(text, _Loader)  # noqa: S506  (a SafeLoader)
    except SettingsError as error:
        raise SettingsError(f"{path}, {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        problem = getattr(error, "problem", None) or "it cannot be understood"
        raise SettingsError(f"{path}{line}: no YAML: {problem}") from error
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise SettingsError(f"{path} holds no settings; it must be a mapping such as learners: 3")
    return found


def scalar(text: str) -> object:
    """Return the number, switch, list or mapping that a text is in YAML, or else the text."""
    with contextlib.suppress(ValueError):
        return int(text)  # 010 is 10 here, but an octal number in YAML
    if text in NULL:
        return None
    try:
        found = yaml.load(text, _Loader)  # noqa: S506  (a SafeLoader)
    except (yaml.YAMLError, SettingsError):
        return text
    one_line = isinstance(found, list) and text.lstrip().startswith("[")  # "- a" may be plain text
    return found if one_line or isinstance(found, int | float | dict) else text


def texts(text: str) -> object:
    """Return the texts in a list, which is written in YAML or separated by commas."""
    if text.lstrip().startswith("["):
        with contextlib.suppress(yaml.YAMLError):
            return yaml.load(text, yaml.BaseLoader)  # noqa: S506  (nothing but texts)
    return [part.strip() for part in text.split(",") if part.strip()]
