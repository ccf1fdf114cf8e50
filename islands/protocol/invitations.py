"""Invitations, which a person shows in place of the run's token and key; signatures of commands.

Whoever has the run's key makes an invitation, and knows it again by its tag, so nobody keeps a list
of those that were made. It is one text without spaces:

    invitation:RUN:ROLE:NAME:MADE_MS:UNTIL_S:TAG    shown in place of the run's token
    …:SECRET                                        follows where the role is that of an operator

1. NAME is the person's. A learner's or an observer's invitation admits processes of that role
   alone, under names of their own; the tape says by whose invitation each was admitted.
2. Both times count from 1970, and are compared with the clock of the process that is dialled.
3. A revocation of a name ends all invitations that were made for it up to that moment, by clocks
   that are up to a day ahead of the hub's, as the hub's own is after it was set back. One that is
   made later is good, for its time is set after the revocation.
4. The secret signs commands, and never goes over a link. It follows from the run's key and the
   invitation, and the key does not follow from it.
5. A signature is over a command and a nonce of the hub (`supervisor/commands.py`), each part with
   its length before it: no text for one command is the text for another.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import quote

from islands.protocol.identities import OPERATOR, Role, wrong_name
from islands.protocol.membership import Credentials
from islands.protocol.messages.control import Command

MARK = "invitation"
SHOWN_PARTS = 7
DAYS_MAX = 366
DAY_S = 86_400
"""So far ahead may the clock be by which an invitation was made."""
REVOKED_MAX = 512
"""Most names of which a revocation is kept: they fit a message to a syncer."""


class Invited(StrEnum):
    """The roles for which a person is invited."""

    LEARNER = Role.LEARNER.value
    OBSERVER = Role.OBSERVER.value
    OPERATOR = OPERATOR


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation whose tag is genuine."""

    name: str
    role: Invited
    made_ms: int
    until_s: int

    def revoked_by(self, revoked: Mapping[str, int]) -> str | None:
        """Return that the invitation is revoked, as a sentence; None if it is not."""
        gone = self.made_ms <= revoked.get(self.name, -1)
        return f"the invitation of {self.name!r} was revoked" if gone else None


def wrong_person(name: str) -> str | None:
    """Return why nobody can be invited under a name, as a sentence; None if somebody can."""
    return wrong_name(name, Role.LEARNER)


def parted(text: str) -> tuple[str, str]:
    """Split a token into what is shown on links, and the secret of an operator's invitation."""
    parts = text.split(":")
    if parts[0] != MARK or len(parts) <= SHOWN_PARTS:
        return text, ""
    return ":".join(parts[:SHOWN_PARTS]), ":".join(parts[SHOWN_PARTS:])


def role_of(text: str) -> str | None:
    """Return the role that an invitation names, genuine or not; None if a text is none."""
    parts = text.split(":")
    return parts[2] if parts[0] == MARK and len(parts) >= SHOWN_PARTS else None


class Invitations:
    """The invitations of a run, and the revocations of them: time in ms since 1970, by name."""

    def __init__(
        self, run: str, credentials: Credentials, revoked: dict[str, int] | None = None
    ) -> None:
        self.revoked = {} if revoked is None else revoked
        self._run = quote(run, safe="")
        self._credentials = credentials

    def make(self, name: str, role: Invited, days: int, now_s: float) -> str:
        """Make an invitation, with the secret if it is an operator's."""
        made_ms = max(int(now_s * 1000), self.revoked.get(name, -1) + 1)
        invitation = Invitation(name, role, made_ms, int(now_s) + days * DAY_S)
        text = self._stem(invitation)
        shown = f"{text}:{self._tag(text)}"
        if role is not Invited.OPERATOR:
            return shown
        return f"{shown}:{signing_secret(self._credentials, invitation)}"

    def judge(self, token: str, now_s: float) -> Invitation | str | None:
        """Return the invitation that a token is, or why it admits nobody; None if it is none."""
        parts = token.split(":")
        if parts[0] != MARK:
            return None
        if len(parts) != SHOWN_PARTS or not token.isascii():
            return "the invitation is damaged: copy its file anew"
        if parts[1] != self._run:
            return "the invitation is of another run, or damaged"
        if not _same(self._tag(token.rpartition(":")[0]), parts[-1]):
            return "the invitation is damaged, or was made with another key than the run's"
        _, _, role, name, made_ms, until_s, _ = parts
        invitation = Invitation(name, Invited(role), int(made_ms), int(until_s))
        return (
            invitation.revoked_by(self.revoked) or self._untimely(invitation, now_s) or invitation
        )

    def revoke(self, name: str, now_s: float) -> str | None:
        """End all invitations of a name; return why that cannot be."""
        now_ms = int(now_s * 1000)
        oldest_ms = now_ms - (DAYS_MAX + 1) * DAY_S * 1000
        for one in [one for one, at_ms in self.revoked.items() if at_ms < oldest_ms]:
            del self.revoked[one]  # what was made before has expired
        if name not in self.revoked and len(self.revoked) >= REVOKED_MAX:
            return f"{REVOKED_MAX} names are revoked already: give the run another key"
        self.revoked[name] = max(now_ms + DAY_S * 1000, self.revoked.get(name, 0) + 1)
        return None

    def _untimely(self, invitation: Invitation, now_s: float) -> str | None:
        whose = f"the invitation of {invitation.name!r}"
        if now_s >= invitation.until_s:
            ago = _long(now_s - invitation.until_s)
            return f"{whose} expired {ago} ago by the hub's clock: ask for another"
        ahead_s = invitation.made_ms / 1000 - now_s
        again = invitation.made_ms == self.revoked.get(invitation.name, -1) + 1
        if ahead_s > DAY_S and not again:
            return f"{whose} is made {_long(ahead_s)} from now by the hub's clock: set the clocks"
        return None

    def _stem(self, invitation: Invitation) -> str:
        times = f"{invitation.made_ms}:{invitation.until_s}"
        return f"{MARK}:{self._run}:{invitation.role.value}:{invitation.name}:{times}"

    def _tag(self, stem: str) -> str:
        return self._credentials.derive(MARK, stem)


# --- the signatures of commands ----------------------------------------------------------------


def signing_secret(credentials: Credentials, invitation: Invitation | None = None) -> str:
    """Return the secret with which an invited operator signs, or who holds the run's key."""
    if invitation is None:
        return credentials.derive("operator")
    name, times = invitation.name, f"{invitation.made_ms}:{invitation.until_s}"
    return credentials.derive("operator", name, times)


def signed(command: Command, nonce: str, secret: str) -> Command:
    """Return a command with its signature over a nonce that the hub gave."""
    unsigned = replace(command, nonce=nonce, signature="")
    return replace(unsigned, signature=_signature(unsigned, secret))


def is_signed(command: Command, secret: str) -> bool:
    return _same(_signature(command, secret), command.signature)


def _signature(command: Command, secret: str) -> str:
    parts = (command.verb.value, command.target, str(command.count), command.nonce)
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _long(seconds: float) -> str:
    for unit, length_s in (("days", DAY_S), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} seconds"
