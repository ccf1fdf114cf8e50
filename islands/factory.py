"""Calls what a run names as `package.module:factory`. Knows nothing of what it makes."""

import importlib

from islands.errors import TaskError


def make(name: str, settings: dict[str, object]) -> object:
    """Call the factory `package.module:factory`.

    Raises:
        TaskError: the name is malformed, nothing is there, or it refuses its settings.
    """
    module_name, _, factory_name = name.partition(":")
    if not module_name or not factory_name:
        raise TaskError(f"task {name!r} is not of the form package.module:factory")
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except SyntaxError as error:
        raise TaskError(
            f"task {name!r} has a mistake: {error.filename}, line {error.lineno}: {error.msg}"
        ) from error
    except (ImportError, AttributeError) as error:
        raise TaskError(
            f"task {name!r} cannot be loaded on this host: {error}; install it here, or start "
            "this process in the folder that holds it"
        ) from error
    except Exception as error:  # the user's own code may raise anything
        raise TaskError(
            f"task {name!r} fails as it is imported: {type(error).__name__}: {error}"
        ) from error
    try:
        return factory(**settings)
    except TypeError as error:
        raise TaskError(f"task {name!r} refuses its settings {settings}: {error}") from error
