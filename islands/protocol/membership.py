"""Membership of one process in a run, and the credentials that prove it.

    outside ──Joined──▶ admitted ──Evicted, or by its own word──▶ outside, with a `previous`

1. An admission outlives links: it lasts until its incarnation ends, and then the process asks for
   the next one. It proves which incarnation it had, by the credential of that one.
2. An incarnation that ended never comes back: an admission counts only if its incarnation is higher
   than the last one, and the process has none at present. A supervisor that cannot verify the
   credential is that of another beginning of the run, which the process joins anew.
3. Of several supervisors, or syncers, a process follows the one with the highest epoch, whose proof
   it shows to each supervisor, upon which an older one ends.
4. A process whose incarnations end by divergence in a row rests before it asks, longer each time.
5. A credential, by which a syncer recognises an admitted learner without the supervisor, is
   HMAC-SHA256 under the run's key over run, beginning, role, name and incarnation. It goes over
   links, and never into logs, tapes, addresses or process arguments. Credentials and proofs of
   epochs hold for one beginning of the run alone; only the holder of the key is known from one
   beginning to the next.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from islands.protocol.identities import Incarnation, LearnerName, Phase, Role
from islands.protocol.messages import membership as messages
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.messages.training import Hello, Kept, Progress, Welcome

RESTS_DOUBLED_MAX = 8
"""Limit of the exponential back-off: a process that always diverges rests for 256 heartbeats."""


@dataclass(frozen=True, slots=True)
class HeartbeatContent:
    """What a heartbeat says; `epoch` is a syncer's, `address` its own or a gossiping learner's."""

    phase: Phase
    step: int = 0
    epoch: int = 0
    address: str | None = None


class EpochOrder(Enum):
    """The epoch of a syncer's Welcome, compared to the highest epoch seen before."""

    OLDER = "older"
    SAME = "same"
    NEWER = "newer"


@dataclass(slots=True)
class MembershipState:
    """The membership of one process, as it knows it.

    `fingerprint` is that of its layout, and `proof` shows that a syncer holds the run's key.
    `supervisor_up` and `syncer_up` say whether there is a link. `epoch_seen` is the highest epoch
    of a syncer that welcomed it; `supervisor_epoch` that of the supervisor which it follows.
    `unknown` is an incarnation of another beginning of the run, which this one must not give it.
    `relapses` counts how often in a row it diverged soon after it had begun anew.
    """

    run: str
    role: Role
    name: LearnerName
    fingerprint: str
    proof: str = ""
    supervisor_up: bool = False
    syncer_up: bool = False
    supervisor_epoch: int = 0
    supervisor_proof: str = ""
    incarnation: Incarnation | None = None
    previous: Incarnation | None = None
    unknown: Incarnation | None = None
    credential: str = ""
    epoch_seen: int = 0
    epoch_proof: str = ""
    relapses: int = 0
    rests_until_s: float = -inf

    def say(
        self, sign: HeartbeatContent, now_s: float
    ) -> messages.Join | messages.Heartbeat | None:
        """A heartbeat, or a request for admission; None while it rests, or there is no link."""
        if not self.supervisor_up:
            return None
        if self.incarnation is None:
            return None if now_s < self.rests_until_s else self._join(sign)
        return messages.Heartbeat(
            role=self.role,
            name=self.name,
            incarnation=self.incarnation,
            phase=sign.phase,
            step=sign.step,
            credential=self.credential,
            epoch=sign.epoch,
            address=sign.address,
            supervisor_epoch=self.supervisor_epoch,
            supervisor_proof=self.supervisor_proof,
        )

    def _join(self, sign: HeartbeatContent) -> messages.Join:
        return messages.Join(
            protocol=PROTOCOL,
            run=self.run,
            role=self.role,
            name=self.name,
            fingerprint=self.fingerprint,
            previous=self.previous,
            address=sign.address,
            proof=self.proof,
            credential="" if self.previous is None else self.credential,
            supervisor_epoch=self.supervisor_epoch,
            supervisor_proof=self.supervisor_proof,
        )

    def hello(
        self, progress: Progress, digests: tuple[str, ...], kept: tuple[Kept | None, ...] = ()
    ) -> Hello:
        """The greeting to a syncer, of an admitted process that holds values of these digests."""
        assert self.incarnation is not None, "only who is admitted reports"
        return Hello(
            protocol=PROTOCOL,
            run=self.run,
            role=self.role,
            name=self.name,
            incarnation=self.incarnation,
            credential=self.credential,
            fingerprint=self.fingerprint,
            progress=progress,
            digests=digests,
            epoch_seen=self.epoch_seen,
            epoch_proof=self.epoch_proof,
            kept=kept,
        )

    def farewell(self, reason: str, *, diverged: bool = False) -> messages.Leave | None:
        if self.incarnation is None:
            return None
        short = reason[
            : messages.TEXTS_MAX["reason"]
        ]  # a longer one would end the link, and say nothing
        return messages.Leave(self.name, self.incarnation, short, diverged)

    def on_joined(self, joined: messages.Joined) -> bool:
        """Take an admission; returns False if it is outdated, or of an older supervisor."""
        if joined.supervisor_epoch < self.supervisor_epoch or self.incarnation is not None:
            return False
        if self.previous is not None and joined.incarnation <= self.previous:
            return False
        if joined.incarnation == self.unknown:  # what is under way of that one would count for this
            return False
        self._follow(joined)
        self.incarnation, self.credential = joined.incarnation, joined.credential
        return True

    def on_ack(self, ack: messages.HeartbeatAck) -> tuple[str, ...]:
        """The syncers' present addresses; empty if an older supervisor sent the answer."""
        if ack.supervisor_epoch < self.supervisor_epoch:
            return ()
        self._follow(ack)
        return ack.syncers

    def _follow(self, word: messages.Joined | messages.HeartbeatAck) -> None:
        self.supervisor_epoch = word.supervisor_epoch
        self.supervisor_proof = word.supervisor_proof

    def on_evicted(self, evicted: messages.Evicted) -> bool:
        """End the incarnation if it is the evicted one; returns whether it was.

        An unknown one is forgotten, also if it has ended before, with all epochs that are known.
        """
        own = evicted.incarnation == self.incarnation
        if own:
            self.end()
        if evicted.unknown and evicted.incarnation == self.previous:
            self.unknown, self.previous, self.credential = self.previous, None, ""
            self.supervisor_epoch, self.supervisor_proof = 0, ""
            self.epoch_seen, self.epoch_proof = 0, ""
        return own

    def on_welcome(self, welcome: Welcome) -> EpochOrder:
        if welcome.epoch < self.epoch_seen:
            return EpochOrder.OLDER
        if welcome.epoch == self.epoch_seen:
            return EpochOrder.SAME
        self.epoch_seen, self.epoch_proof = welcome.epoch, welcome.proof
        return EpochOrder.NEWER

    def end(self) -> None:
        self.previous, self.incarnation = self.incarnation, None

    def rest(self, heartbeat_s: float, now_s: float, *, well: bool) -> float:
        """Rest before the next incarnation, as this one ends by divergence; returns the seconds.

        Where beginning anew does not help, a device may be broken: the first time there is no rest,
        then one heartbeat, and then twice as long each time (exponential back-off). The count
        begins anew after an incarnation that trained `well` for long enough.
        """
        self.relapses = 1 if well else self.relapses + 1
        if self.relapses == 1:
            return 0.0
        rest_s = heartbeat_s * 2.0 ** min(self.relapses - 2, RESTS_DOUBLED_MAX)
        self.rests_until_s = now_s + rest_s
        return rest_s


@dataclass(slots=True)
class SupervisorView:
    """A copy of the membership view of the supervisor with this epoch.

    It comes whole over each new link, and then each change once. `listed` are the members that have
    not ended. `looked_s` is when it was last compared with the open accounts of a syncer.
    """

    epoch: int = 0
    complete: bool = False
    listed: dict[LearnerName, messages.Member] = field(default_factory=dict)
    looked_s: float = -inf

    def take(self, page: messages.MembershipChanged) -> bool:
        """Take in a page; False if it is of an older supervisor, or follows on from none here."""
        other = page.supervisor_epoch != self.epoch and not page.begins
        if page.supervisor_epoch < self.epoch or other:
            return False
        if page.begins:
            self.epoch, self.complete, self.listed = page.supervisor_epoch, False, {}
        self.complete = self.complete or not page.more
        for member in page.members:
            if member.status.ended:
                self.listed.pop(member.name, None)
            else:
                self.listed[member.name] = member
        return True


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
        """A proof, for a syncer's name, that this process holds the key."""
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

    def derive(self, *parts: str) -> str:
        """A secret, or a tag, that only the key makes, and from which the key does not follow."""
        return self._signed("derived", *parts)

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
