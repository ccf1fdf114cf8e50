"""Signed admissions, by which a syncer recognises an admitted learner without the supervisor.

A credential is HMAC-SHA256 under the run's key over run, beginning, role, name and incarnation. It
goes over links, and never into logs, tapes, addresses or process arguments. Credentials and proofs
of epochs hold for one beginning of the run alone; only the holder of the key is known from one
beginning to the next.
"""

import hashlib
import hmac

from islands.protocol.identities import Incarnation, Role

KEY_BYTES_MIN = 16


class Credentials:
    """Signs and verifies credentials and proofs with the key of one beginning of a run."""

    def __init__(self, run: str, key: bytes, begun: str = "") -> None:
        if len(key) < KEY_BYTES_MIN:
            raise ValueError(f"the run's key has {len(key)} bytes, fewer than {KEY_BYTES_MIN}")
        self.begun = begun
        self._run = run
        self._key = key

    def sign(self, name: str, incarnation: Incarnation, role: Role = Role.LEARNER) -> str:
        return self._signed_here(role.value, name, str(incarnation))

    def genuine(
        self, name: str, incarnation: Incarnation, credential: str, role: Role = Role.LEARNER
    ) -> bool:
        return _same(self.sign(name, incarnation, role), credential)

    def prove(self, name: str) -> str:
        """A proof, for a syncer's name or the operator's, that this process holds the key."""
        return self._signed("holder of the key", name)

    def proven(self, name: str, proof: str) -> bool:
        return _same(self.prove(name), proof)

    def prove_pair(self, one: tuple[str, Incarnation], other: tuple[str, Incarnation]) -> str:
        """The proof that two admitted learners show each other, and that no third one knows."""
        parts = [f"{name} {incarnation}" for name, incarnation in sorted([one, other])]
        return self._signed_here("pair", *parts)

    def prove_epoch(self, epoch: int, start: str) -> str:
        """The proof that peers of one `start` of a syncer show to another: its epoch is taken."""
        return f"{start}.{self._signed_here('epoch', str(epoch), start)}"

    def epoch_proven(self, epoch: int, proof: str) -> bool:
        return _same(self.prove_epoch(epoch, proof.partition(".")[0]), proof)

    def another_start(self, seen: tuple[int, str], own: tuple[int, str]) -> bool:
        """Whether an epoch and proof are of another start that is not below this one's."""
        return seen[0] >= own[0] and seen[1] != own[1] and self.epoch_proven(*seen)

    def prove_supervisor(self, epoch: int) -> str:
        """The proof that members of one supervisor show to an older one: its epoch is taken."""
        return self._signed_here("supervisor epoch", str(epoch))

    def supervisor_proven(self, epoch: int, proof: str) -> bool:
        return _same(self.prove_supervisor(epoch), proof)

    def mark(self, text: str = "") -> str:
        """An identifier of this key, and of a text under it, which serves as no proof."""
        return self._signed("mark", text)[:16]

    def _signed_here(self, *parts: str) -> str:
        return self._signed(*parts, "begun", self.begun)

    def _signed(self, *parts: str) -> str:
        text = "\0".join((self._run, *parts)).encode()
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
