"""Import and call the factory that a run names as `package.module:factory`, whatever it makes."""

import dataclasses
import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_type_hints

import msgspec

from islands.protocol.errors import (
    SettingsError,
    TaskError,
    missing_package,
    not_installed,
)
from islands.tasks.source_location import location_of, task_error

TASK_PATH = "ISLANDS_TASK_PATH"
"""Environment variable with further folders that are searched for tasks and their data."""


def data_folders() -> list[Path]:
    """Return the folders in which a task looks for data that it is told by a relative path.

    First are those of the run's files, as they are told by `TASK_PATH`, then the current one.
    """
    return [
        *(Path(each) for each in os.environ.get(TASK_PATH, "").split(os.pathsep) if each),
        Path(),
    ]


def search(folders: Iterable[str]) -> None:
    """Search further folders for tasks and their data, after those that are searched already.

    Processes that this one starts search them as well.
    """
    told = [each for each in os.environ.get(TASK_PATH, "").split(os.pathsep) if each]
    for folder in folders:
        if folder not in told:
            told.append(folder)
        if folder not in sys.path:
            sys.path.append(folder)
    os.environ[TASK_PATH] = os.pathsep.join(told)


def make(name: str, settings: dict[str, object]) -> object:
    """Import and call the factory `package.module:factory` with these settings.

    Raises:
        TaskError: the name is malformed, the factory does not exist, or it refuses its settings.
    """
    module_name, _, factory_name = name.partition(":")
    if not module_name or not factory_name:
        raise TaskError(f"task {name!r} is not of the form package.module:factory")
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        package = missing_package(error)
        if package is not None:
            raise TaskError(not_installed(f"task {name!r}", package)) from error
        if location_of(error) is not None:  # the file was found, and the mistake is in it
            raise task_error(error, f"task {name!r} fails as it is imported") from error
        searched = ", ".join(dict.fromkeys(str(each.absolute()) for each in data_folders()))
        raise TaskError(
            f"task {name!r} cannot be loaded on this host: {error}; besides installed packages, "
            f"{searched} was searched; install it here, or start this process in the folder that "
            "holds it"
        ) from error
    except Exception as error:  # the user's own code may raise anything
        raise task_error(error, f"task {name!r} fails as it is imported") from error
    settings = _typed(name, factory, settings)
    try:
        return factory(**settings)
    except Exception as error:  # as above
        if isinstance(error, TypeError) and location_of(error) is None:
            sentence = f"task {name!r} refuses its settings {settings}: {error}"
            raise TaskError(sentence) from error
        raise task_error(error, f"task {name!r} cannot be made of {settings}") from error


def _typed(name: str, factory: object, settings: dict[str, object]) -> dict[str, object]:
    """Make the dataclasses that a dataclass's fields hold out of the mappings that a file has.

    Raises:
        TaskError: a mapping does not fit its dataclass.
    """
    if not (isinstance(factory, type) and dataclasses.is_dataclass(factory)):
        return settings
    typed, hints = dict(settings), get_type_hints(factory)
    for key, value in settings.items():
        hint = hints.get(key)
        if isinstance(value, Mapping) and dataclasses.is_dataclass(hint):
            known = [field.name for field in dataclasses.fields(hint)]
            for inner in value:
                if inner not in known:
                    told = f"{key}.{inner} is unknown; it must be one of {', '.join(known)}"
                    raise TaskError(f"task {name!r} refuses its settings: {told}")
            try:
                typed[key] = msgspec.convert(value, hint)
            except (msgspec.ValidationError, SettingsError) as error:
                sentence = f"task {name!r} refuses its settings: {key}: {error}"
                raise TaskError(sentence) from error
    return typed
