"""Membership of one process in a run: one pure state for learner, observer and syncer.

    outside ──Joined──▶ admitted ──Evicted, or by its own word──▶ outside, with a `previous`

1. An admission is kept over links: only the end of its incarnation ends it, and then the process
   asks for the next one. It shows which one it was, by the credential of that incarnation.
2. An incarnation that ended never comes back: of an answer that comes late or twice, only a higher
   incarnation than the last one counts, and none while there is one.
3. Of several supervisors, or syncers, a process follows the one with the highest epoch.
4. Whoever is admitted sends heartbeats, each with what is so at that moment; whoever is not asks
   again when a heartbeat would be due, unless it rests.
5. Whoever ends again and again because it diverged rests before it asks, longer each time.
"""

from dataclasses import dataclass
from enum import Enum
from math import inf

from islands.identities import Incarnation, LearnerName, Phase, Role
from islands.messages.membership import (
    Evicted,
    Heartbeat,
    HeartbeatAck,
    Join,
    Joined,
    Leave,
)
from islands.messages.protocol import PROTOCOL
from islands.messages.training import Hello, Progress, Welcome

RESTS_DOUBLED_MAX = 8
"""A process that diverges for ever is back after 256 heartbeats in the end."""


@dataclass(frozen=True, slots=True)
class HeartbeatContent:
    """What a heartbeat says of a process, beside who it is.

    `epoch`, `address` and the view (of which supervisor, up to which change) are a syncer's.
    """

    phase: Phase
    step: int = 0
    epoch: int = 0
    address: str | None = None
    view_epoch: int = 0
    view: int = 0


class EpochOrder(Enum):
    """What a syncer's epoch is to whoever it welcomes."""

    OLDER = "older"
    SAME = "same"
    NEWER = "newer"


@dataclass(slots=True)
class MembershipState:
    """What one process knows of its own membership.

    `run`, `role`, `name` and `fingerprint` (of its layout) never change; `proof` shows that a
    syncer holds the run's key. `supervisor_up` and `syncer_up` say whether there is a link.
    `epoch_seen` is the highest epoch of a syncer that welcomed it, with `epoch_proof` to show it.
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
    incarnation: Incarnation | None = None
    previous: Incarnation | None = None
    credential: str = ""
    epoch_seen: int = 0
    epoch_proof: str = ""
    relapses: int = 0
    rests_until_s: float = -inf

    # --- what is said --------------------------------------------------------------------------

    def say(self, sign: HeartbeatContent, now_s: float) -> Join | Heartbeat | None:
        """What to tell the supervisor now: that this process lives, or that it asks to be admitted.

        Returns:
            None while there is no link to it, or while this process rests.
        """
        if not self.supervisor_up:
            return None
        if self.incarnation is None:
            return None if now_s < self.rests_until_s else self._join(sign)
        return Heartbeat(
            role=self.role,
            name=self.name,
            incarnation=self.incarnation,
            phase=sign.phase,
            step=sign.step,
            credential=self.credential,
            epoch=sign.epoch,
            address=sign.address,
            view_epoch=sign.view_epoch,
            view=sign.view,
        )

    def _join(self, sign: HeartbeatContent) -> Join:
        return Join(
            protocol=PROTOCOL,
            run=self.run,
            role=self.role,
            name=self.name,
            fingerprint=self.fingerprint,
            previous=self.previous,
            address=sign.address,
            proof=self.proof,
            credential="" if self.previous is None else self.credential,
        )

    def hello(self, progress: Progress, digests: tuple[str, ...]) -> Hello:
        """The first word to a syncer, of a process that is admitted and holds these versions."""
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
        )

    def farewell(self, reason: str, *, diverged: bool = False) -> Leave | None:
        """The word that this incarnation ends by itself; None if there is none."""
        if self.incarnation is None:
            return None
        return Leave(self.name, self.incarnation, reason, diverged)

    # --- what is heard -------------------------------------------------------------------------

    def on_joined(self, joined: Joined) -> bool:
        """Be admitted; returns False if this answer is an old one, or of an older supervisor."""
        if joined.supervisor_epoch < self.supervisor_epoch or self.incarnation is not None:
            return False
        if self.previous is not None and joined.incarnation <= self.previous:
            return False
        self.supervisor_epoch = joined.supervisor_epoch
        self.incarnation, self.credential = joined.incarnation, joined.credential
        return True

    def on_ack(self, ack: HeartbeatAck) -> tuple[str, ...]:
        """Returns where syncers are now, by the word of a supervisor that is not an older one."""
        if ack.supervisor_epoch < self.supervisor_epoch:
            return ()
        self.supervisor_epoch = ack.supervisor_epoch
        return tuple(syncer.address for syncer in ack.syncers)

    def on_evicted(self, evicted: Evicted) -> bool:
        """An incarnation has ended; returns whether it was this process's own."""
        own = evicted.incarnation == self.incarnation
        if own:
            self.end()
        return own

    def on_welcome(self, welcome: Welcome) -> EpochOrder:
        """A syncer let this process in; the one with the highest epoch is followed."""
        if welcome.epoch < self.epoch_seen:
            return EpochOrder.OLDER
        if welcome.epoch == self.epoch_seen:
            return EpochOrder.SAME
        self.epoch_seen, self.epoch_proof = welcome.epoch, welcome.proof
        return EpochOrder.NEWER

    # --- how an incarnation ends ---------------------------------------------------------------

    def end(self) -> None:
        """This incarnation is over; the next one is asked for with the next word."""
        self.previous, self.incarnation = self.incarnation, None

    def rest(self, heartbeat_s: float, now_s: float, *, well: bool) -> float:
        """Rest before the next incarnation, since this one is about to end by divergence.

        Where beginning anew does not help, a device may be broken: the first time there is no rest,
        then one heartbeat, and then twice as long each time.

        Args:
            heartbeat_s: time between two heartbeats.
            now_s: the time.
            well: whether this incarnation did well for long enough to count as the first again.

        Returns:
            For how long it rests.
        """
        self.relapses = 1 if well else self.relapses + 1
        if self.relapses == 1:
            return 0.0
        rest_s = heartbeat_s * 2.0 ** min(self.relapses - 2, RESTS_DOUBLED_MAX)
        self.rests_until_s = now_s + rest_s
        return rest_s
