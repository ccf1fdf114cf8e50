"""The membership view: learners' statuses, sent to syncers, and to learners that gossip.

Links keep their order and lose nothing while they are open. So over a new link a follower is sent
the whole view, in pages that fit a frame, and then each change once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

PAGE_MEMBERS = 128
"""Most members in one page: with names of 64 characters of four bytes each it fits a frame."""


@dataclass(slots=True)
class Follower:
    """Who follows the view over one link.

    It is to get the `whole` view, or the members that `changed` since its last page, and a page in
    any case if one is `due`.
    """

    connection: int
    whole: bool = True
    due: bool = True
    changed: dict[str, None] = field(default_factory=dict)


def pages(names: Sequence[str]) -> list[Sequence[str]]:
    """Return the names of each page; one page if there are none."""
    begins = range(0, max(1, len(names)), PAGE_MEMBERS)
    return [names[begin : begin + PAGE_MEMBERS] for begin in begins]
