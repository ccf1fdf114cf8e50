"""Signed admissions: a syncer knows a learner that the supervisor admitted without asking it.

A credential is HMAC-SHA256 under the run's key over run, name and incarnation. It is a control
value: it goes over links, and never into logs, tapes, addresses or process arguments.
"""

import hashlib
import hmac

from islands.identities import Incarnation

KEY_BYTES_MIN = 16
NOBODYS = Incarnation(0, 0)
"""An incarnation that is never given."""


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

    def sign(self, name: str, incarnation: Incarnation) -> str:
        """The credential of one incarnation, in hexadecimal."""
        text = f"{self._run}\0{name}\0{incarnation}".encode()
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()

    def genuine(self, name: str, incarnation: Incarnation, credential: str) -> bool:
        """Whether a credential is one of ours; takes the same time either way."""
        return hmac.compare_digest(self.sign(name, incarnation).encode(), credential.encode())

    def prove(self, name: str) -> str:
        """Proof that this process holds the key: of a syncer under its name, of an operator."""
        return self.sign(name, NOBODYS)

    def proven(self, name: str, proof: str) -> bool:
        """Whether a proof is of somebody who holds the key."""
        return self.genuine(name, NOBODYS, proof)
