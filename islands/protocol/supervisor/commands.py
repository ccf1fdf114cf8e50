"""The judgement of a command: who sent it, and whether it was sent before.

A command is signed over a nonce of this start of the supervisor. Who sends one without a nonce is
refused, and gets one with the refusal: then the command is signed, and sent again.

1. A nonce is a number, the time on the supervisor's own clock, and a tag under a key that only this
   start has. Nothing is kept of it until a command that an operator has signed uses it up, so those
   who ask for nonces cost nothing.
2. It is good once, and for `NONCE_S`. No other clock matters: an operator's may be set to anything.
3. Of the nonces that were used up, the newest `USED_MAX` are known one by one. Nonces before these
   are refused, used or not.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from islands.protocol.identities import OPERATOR
from islands.protocol.invitations import Invitation, Invited

NONCE_S = 60.0
USED_MAX = 1024


@dataclass(slots=True)
class Nonces:
    """The nonces of one start of the supervisor, whose tags are made with `key`."""

    key: bytes
    issued: int = 0
    used: set[int] = field(default_factory=set)
    used_before: int = 0

    def issue(self, now_s: float) -> str:
        self.issued += 1
        stem = f"{self.issued}.{int(now_s * 1000)}"
        return f"{stem}.{self._tag(stem)}"

    def use(self, nonce: str, now_s: float) -> str | None:
        """Use up the nonce of a command whose signature is genuine; return why it is of no use."""
        stem, _, tag = nonce.rpartition(".")
        if not hmac.compare_digest(self._tag(stem).encode(), tag.encode()):
            return "this command was signed for another start of the hub"
        number, issued_ms = map(int, stem.split("."))
        old_s = now_s - issued_ms / 1000
        if old_s > NONCE_S:
            return (
                f"this command was signed up to {old_s:.0f} s ago by the clock of the hub, and may "
                f"be {NONCE_S:g} s old"
            )
        if number in self.used or number <= self.used_before:
            return "this command was sent before, or a later one instead of it"
        self.used.add(number)
        if len(self.used) > USED_MAX:
            self.used_before = min(self.used)
            self.used.remove(self.used_before)
        return None

    def _tag(self, stem: str) -> str:
        return hmac.new(self.key, stem.encode(), hashlib.sha256).hexdigest()


def operator_of(invitation: Invitation | None) -> str:
    """Return the name under which the tape has an operator's commands."""
    return OPERATOR if invitation is None else invitation.name


def not_invited(invitation: Invitation | None, revoked: Mapping[str, int]) -> str | None:
    """Return why the holder of an invitation may send no command; None if it may."""
    if invitation is None or invitation.role is Invited.OPERATOR:
        return None if invitation is None else invitation.revoked_by(revoked)
    return (
        f"the invitation of {invitation.name!r} is a {invitation.role}'s, which sends no commands: "
        "ask for an operator's"
    )
