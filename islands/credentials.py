"""Signed admissions: a syncer knows a learner that the supervisor admitted without asking it.

A credential is HMAC-SHA256 under the run's key over run, role, name and incarnation. It is a
control value: it goes over links, and never into logs, tapes, addresses or process arguments.
"""

import hashlib
import hmac

from islands.identities import Incarnation, Role

KEY_BYTES_MIN = 16


class Credentials:
    """Signs and checks with one run's key."""

    def __init__(self, run: str, key: bytes) -> None:
        """Use a key of at least `KEY_BYTES_MIN` bytes.

        Raises:
            ValueError: the key is shorter.
        """
        if len(key) < KEY_BYTES_MIN:
            raise ValueError(f"the run's key has {len(key)} bytes, fewer than {KEY_BYTES_MIN}")
        self._run = run
        self._key = key

    def sign(self, name: str, incarnation: Incarnation, role: Role = Role.LEARNER) -> str:
        """The credential of one incarnation in one role, in hexadecimal."""
        return self._signed(role.value, name, str(incarnation))

    def genuine(
        self, name: str, incarnation: Incarnation, credential: str, role: Role = Role.LEARNER
    ) -> bool:
        """Whether a credential is one of ours; takes the same time either way."""
        return _same(self.sign(name, incarnation, role), credential)

    def prove(self, name: str) -> str:
        """Proof that this process holds the key: of a syncer under its name, of an operator."""
        return self._signed("holder of the key", name)

    def proven(self, name: str, proof: str) -> bool:
        """Whether a proof is of somebody who holds the key."""
        return _same(self.prove(name), proof)

    def _signed(self, *parts: str) -> str:
        text = "\0".join((self._run, *parts)).encode()
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
