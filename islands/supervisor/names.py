"""Who takes a name from somebody who has it.

Whoever asks for a name may show that it held it before, by the credential of that incarnation; so
incarnations form lines, each of which began with one that showed nothing.

=====================================================  ============  ============
who asks for a name that another incarnation has       it is silent  it is live
=====================================================  ============  ============
somebody of another role                               refused       refused
a syncer, which shows the run's key, from a learner    admitted      admitted
who shows that incarnation: its memory is intact       admitted      admitted
who shows one of an older line: it was there before    admitted      admitted
who shows nothing: a process that was started again    admitted      asks again
=====================================================  ============  ============

So a name that somebody took while its owner was away goes back to its owner. Of two processes that
were both given one name, the older one goes on, and the other one waits for its end.
"""

from dataclasses import dataclass, field

from islands.identities import Incarnation, Role

LINES_KEPT = 8
"""Incarnations of a name whose line is known; an older one counts as a line of its own."""


@dataclass(slots=True)
class IncarnationLines:
    """Of one name: with which incarnation the line of each of its newest ones began."""

    begun: dict[Incarnation, Incarnation] = field(default_factory=dict)

    def of(self, incarnation: Incarnation) -> Incarnation:
        """The first incarnation of its line, as far as it is known."""
        return self.begun.get(incarnation, incarnation)

    def admit(self, incarnation: Incarnation, shown: Incarnation | None) -> None:
        """A new incarnation, which showed an older one or none."""
        self.begun[incarnation] = incarnation if shown is None else self.of(shown)
        if len(self.begun) > LINES_KEPT:
            del self.begun[min(self.begun)]


def taken_because(
    who: tuple[str, Role],
    *,
    holder: tuple[Role, Incarnation],
    silent: bool,
    lines: IncarnationLines,
    shown: Incarnation | None,
    proven: bool,
) -> tuple[str, bool] | None:
    """Why a name stays with the one who has it, and whether to ask again; None if it does not.

    Args:
        who: name and role that somebody asks for.
        holder: role and incarnation that has the name, and has not ended.
        silent: whether it is suspect.
        lines: of the name.
        shown: the incarnation that the asker proves to have been; None if it proves none.
        proven: whether the asker holds the run's key.
    """
    name, role = who
    held_by, incarnation = holder
    if held_by is not role:
        if role is Role.SYNCER and proven:
            return None
        return f"the name {name!r} is that of a {held_by.value}; choose another", False
    older = shown is not None and (shown == incarnation or lines.of(shown) < lines.of(incarnation))
    if silent or older:
        return None
    return f"the name {name!r} is taken by a live {role.value}", True
