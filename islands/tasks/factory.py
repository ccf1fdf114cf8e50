"""Find and call the class of a task that a run names as `package.module:Class`.

The name may come from a hub or from a file of somebody else's, and to import a module is to run its
code. So it is looked up among the modules that come with islands and those that the operator of
this host has named, before anything is imported.
"""

import dataclasses
import importlib
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import get_type_hints

import msgspec

from islands.protocol import errors
from islands.tasks.source_location import location_of, task_error

TASK_PATH = "ISLANDS_TASK_PATH"
"""Environment variable with further folders that are searched for tasks and their data."""

SHIPPED = ("islands.tasks", "islands.lab.toys", "islands.model.workload")
"""Modules whose tasks every host takes by name, since they come with islands."""


def data_folders() -> list[Path]:
    """Return the folders in which a task looks for data: those of the run's files, then this."""
    return [*map(Path, _searched()), Path()]


def search_data(folders: Iterable[str]) -> None:
    """Search further folders for a task's data, after those that are searched already."""
    os.environ[TASK_PATH] = os.pathsep.join(dict.fromkeys((*_searched(), *folders)))


def _searched() -> list[str]:
    return [each for each in os.environ.get(TASK_PATH, "").split(os.pathsep) if each]


def allowed_by(task: str) -> tuple[str, ...]:
    """Return the module of a task that an operator has named, as those that are allowed."""
    return (task.partition(":")[0],)


def task_words(task: str) -> list[str]:
    """Return the words by which a learner's command line allows a task; none for a shipped one."""
    modules = allowed_by(task)
    return [] if _is_within(modules[0], SHIPPED) else ["--tasks", *modules]


def find(name: str, allowed: Collection[str] = ()) -> type:
    """Import the class of a task, of a module that ships or that this host's operator allows."""
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        raise errors.TaskError(f"task {name!r} is not of the form package.module:Class")
    if not _is_within(module_name, (*SHIPPED, *allowed)):
        raise errors.TaskError(
            f"the run names the task {name!r}, whose code this host was not told to run; if you "
            f"trust it, name it yourself: --tasks {module_name} for a learner or an observer, "
            f"--task {name} for other commands"
        )
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        package = errors.missing_package(error)
        if package is not None:
            raise errors.TaskError(errors.not_installed(f"task {name!r}", package)) from error
        module = sys.modules.get(module_name)
        if module is not None and module.__file__ is not None and not hasattr(module, class_name):
            classes = [it for it in vars(module).values() if isinstance(it, type)]
            own = [each.__name__ for each in classes if each.__module__ == module_name]
            raise errors.TaskError(
                f"task {name!r} cannot be loaded: {module.__file__} has no {class_name}; its "
                f"classes are {', '.join(own) or 'none'}"
            ) from error
        if location_of(error) is not None:  # the file was found, and the mistake is in it
            raise task_error(error, f"task {name!r} fails as it is imported") from error
        searched = ", ".join(dict.fromkeys(str(each.absolute()) for each in data_folders()))
        raise errors.TaskError(
            f"task {name!r} cannot be loaded on this host: {error}; besides installed packages, "
            f"{searched} was searched; install it here, or start this process in the folder that "
            "holds it"
        ) from error
    except Exception as error:  # the user's own code may raise anything
        raise task_error(error, f"task {name!r} fails as it is imported") from error
    if not isinstance(found, type):
        raise errors.TaskError(
            f"task {name!r} is a {type(found).__name__}, and no class; name a class that is "
            "derived from islands.Task"
        )
    return found


def _is_within(module: str, packages: Collection[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def make(kind: type, name: str, settings: dict[str, object]) -> object:
    settings = _typed(name, kind, settings)
    try:
        return kind(**settings)
    except Exception as error:  # the user's own code may raise anything
        if isinstance(error, TypeError) and location_of(error) is None:
            sentence = f"task {name!r} refuses its settings {settings}: {error}"
            raise errors.TaskError(sentence) from error
        raise task_error(error, f"task {name!r} cannot be made of {settings}") from error


def _typed(name: str, kind: type, settings: dict[str, object]) -> dict[str, object]:
    """Make the dataclasses that a dataclass's fields hold out of the mappings that a file has."""
    if not dataclasses.is_dataclass(kind):
        return settings
    typed, hints = dict(settings), get_type_hints(kind)
    for key, value in settings.items():
        hint = hints.get(key)
        if isinstance(value, Mapping) and dataclasses.is_dataclass(hint):
            known = [field.name for field in dataclasses.fields(hint)]
            refuses = f"task {name!r} refuses its settings: {key}"
            for unknown in value.keys() - set(known):
                raise errors.TaskError(f"{refuses}.{unknown} is none of {', '.join(known)}")
            try:
                typed[key] = msgspec.convert(value, hint)
            except (msgspec.ValidationError, errors.SettingsError) as error:
                raise errors.TaskError(f"{refuses}: {error}") from error
    return typed
