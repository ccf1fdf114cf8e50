"""The handlers of a role's messages, each registered once, where it is defined.

A message that needs no facts beside it is an event as it came: the actor hands it on in a
`Received`, and the one handler of its type is called. So what a role accepts is what it handles.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec, TypeVar

C = TypeVar("C")
M = TypeVar("M")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Received:
    """A message that arrived over the link `connection`; what it says may be false."""

    message: object
    connection: int


def claimed_name(message: object) -> str | None:
    """Return the name in which a message speaks, which the link must have; None if it has none."""
    name: str | None = getattr(message, "name", None)
    return name


class Handlers(Generic[C, P]):
    """Functions of a memory of type `C`, a message, and the facts `P` beside it, by its type."""

    def __init__(self) -> None:
        self._of: dict[type, Callable[..., None]] = {}

    def handles(
        self, kind: type[M]
    ) -> Callable[[Callable[Concatenate[C, M, P], None]], Callable[Concatenate[C, M, P], None]]:
        def register(
            handler: Callable[Concatenate[C, M, P], None],
        ) -> Callable[Concatenate[C, M, P], None]:
            self._of[kind] = handler
            return handler

        return register

    def __contains__(self, message: object) -> bool:
        return type(message) in self._of

    def handle(self, core: C, message: object, *args: P.args, **kwargs: P.kwargs) -> None:
        self._of[type(message)](core, message, *args, **kwargs)
