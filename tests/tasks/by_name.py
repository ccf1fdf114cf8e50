"""A task by its name, as an operator who names it gets it."""

from islands.tasks.factory import allowed_by, find, make


def task_of(name: str, settings: dict[str, object]) -> object:
    return make(find(name, allowed_by(name)), name, settings)
