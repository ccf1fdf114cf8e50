"""What a mutation is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """One thing broken on purpose.

    Attributes:
        name: What is not so any more.
        file: Where.
        old: Text that stands there exactly once.
        new: What it becomes.
        tests: Files of tests of which one is to fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
