"""The state of a standby: what it follows, what it lacks, and when it goes on as the syncer.

    admitted by the supervisor ──the syncer's address──▶ follows ──its link is gone──▶ may take over

It takes over on an operator's word, or by itself once its link to the syncer has been gone for
`after_s`. Where the supervisor can be reached, that one must agree, which it does for one standby,
and while no syncer lives. Where it cannot, only an operator decides: the supervisor may be on the
lost host, and then the standby becomes a hub; it may as well be behind a broken network, and then
there are two hubs until they meet.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from typing import assert_never

from islands.protocol import sessions
from islands.protocol.identities import Phase, Role
from islands.protocol.membership import HeartbeatContent, MembershipState
from islands.protocol.messages import membership as messages
from islands.protocol.messages.registry import PROTOCOL
from islands.protocol.messages.standby import Follow, PieceHeld, RecordPiece

FILE = re.compile(r"(metadata|fragment-\d{5,9})\.[ab]\.safetensors")
"""The names of the files of a journal, which may be copied."""

HUB, SYNCER = "hub", "syncer"


@dataclass(frozen=True, slots=True)
class SyncerLinked:
    """The link to the syncer of this name opened."""

    name: str


@dataclass(frozen=True, slots=True)
class SyncerGone:
    """The link to the syncer closed."""


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """A message of the supervisor or of the syncer has arrived."""

    message: object
    payload: tuple[memoryview, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Stored:
    """The file of `store` is on the disk; without a digest it is not what was announced."""

    store: "Store"
    digest: str


@dataclass(frozen=True, slots=True)
class DiskFailed:
    """A file could not be written, and is tried again: the copy is getting old."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """A heartbeat is due; `asked` tells that an operator wants this standby to take over."""

    asked: bool


Event = (
    sessions.SupervisorLinkChanged
    | SyncerLinked
    | SyncerGone
    | MessageArrived
    | Stored
    | DiskFailed
    | Ticked
)


@dataclass(frozen=True, slots=True)
class Store:
    """Write a file of the journal, whose last piece came over this link, then post `Stored`."""

    link: int
    piece: RecordPiece
    parts: list[memoryview] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class KeepSpec:
    """Keep the run's spec and plan, as JSON, unless they are another run's."""

    spec: str
    plan: bytes


@dataclass(frozen=True, slots=True)
class KeepRevoked:
    """Keep the revocations of invitations: names, each with a time in ms since 1970."""

    revoked: dict[str, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the operator that this standby does not take over, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Promote:
    """End as a standby, and go on as the `HUB`, or as the `SYNCER` of the supervisor there is."""

    role: str


Action = (
    sessions.ToSupervisor
    | sessions.ToSyncer
    | sessions.DialSyncer
    | sessions.DropSyncerLink
    | sessions.Exit
    | Store
    | KeepSpec
    | KeepRevoked
    | Answer
    | Promote
)


class StandbyState:
    """The state of one standby, which has the records `held`, by their files.

    `address` is where it would listen, `proof` shows that it holds the run's key, and `file_bytes`
    bounds a file of the journal. `follows` is the name of the syncer that it copies since it was
    started, and `whole` tells whether it has all that this one had.
    """

    def __init__(
        self,
        membership: MembershipState,
        *,
        address: str,
        held: dict[str, str],
        file_bytes: int,
        after_s: float | None,
    ) -> None:
        self.membership = membership
        self.held = held
        self.follows = ""
        self.whole = False
        self._address = address
        self._file_bytes = file_bytes
        self._after_s = after_s
        self._links, self._followed = 0, False
        self._dialled, self._newest = "", 0
        self._parts: list[memoryview] = []
        self._taken = self._confirmed = 0
        self._writing: deque[int] = deque()
        """Numbers of the last pieces of the files that are being written."""
        self._gone_s: float | None = None
        self._asked = False
        self._asking = False
        self._evicted: messages.Evicted | None = None
        self._actions: list[Action] = []

    @property
    def phase(self) -> Phase:
        if self.membership.incarnation is None:
            return Phase.JOINING
        return Phase.OBSERVING if self.whole and self.membership.syncer_up else Phase.HEALING

    def handle(self, event: Event, *, now_s: float) -> list[Action]:
        """Handle one event; returns the actions to perform, in order."""
        self._actions = []
        match event:
            case sessions.SupervisorLinkChanged(up):
                self.membership.supervisor_up = up
                if up:
                    request = messages.RunSpecRequest(PROTOCOL, Role.STANDBY, self.membership.name)
                    self._actions.append(sessions.ToSupervisor(request))
                if up and self._asking:  # it may be promoted already, and the answer was lost
                    self._actions.append(sessions.ToSupervisor(self._claim()))
                else:
                    self._show_life(now_s)
            case SyncerLinked(name):
                self.whole, self._followed = self.whole and name == self.follows, False
                self.membership.syncer_up, self.follows, self._gone_s = True, name, None
                self._show_life(now_s)
                if not self.membership.supervisor_up:
                    self._follow()
            case SyncerGone():
                self.membership.syncer_up, self._gone_s = False, now_s
                self._show_life(now_s)
            case MessageArrived(RecordPiece() as piece, payload):
                self._take(piece, payload)
            case MessageArrived(messages.RunSpecReply(spec=spec), (plan,)):
                self._actions.append(KeepSpec(spec, bytes(plan)))
            case MessageArrived(message):
                self._on_message(message, now_s)
            case Stored():
                self._on_stored(event)
            case DiskFailed():
                self.whole = False
            case Ticked(asked):
                self._asked = asked
                self._show_life(now_s)
                self._take_over(now_s)
            case _:
                assert_never(event)
        return self._actions

    # --- the supervisor -----------------------------------------------------------------------

    def _show_life(self, now_s: float) -> None:
        newest = self._newest if self.whole else 0
        sign = HeartbeatContent(self.phase, newest, address=self._address)
        word = self.membership.say(sign, now_s)
        if word is not None:
            self._actions.append(sessions.ToSupervisor(word))

    def _on_message(self, message: object, now_s: float) -> None:
        match message:
            case messages.Joined(incarnation=given) if self._asking:
                held = self.membership.incarnation
                if held is not None and given > held:  # else it is its admission, once more
                    self._actions.append(Promote(SYNCER))
            case messages.Joined(syncers=syncers):
                if self.membership.on_joined(message):
                    self._dial(syncers)
            case messages.HeartbeatAck():
                self._dial(self.membership.on_ack(message))
            case messages.Refused(_, reason) if self._asking:
                self._refused(reason, now_s)
            case messages.Refused(_, reason, retry=False) if self.membership.incarnation is None:
                failed = not reason.startswith(messages.RUN_OVER)
                self._actions.append(sessions.Exit(f"refused: {reason}", failed))
            case messages.Evicted(incarnation=ended):
                if ended == self.membership.incarnation and self.membership.syncer_up:
                    self._actions.append(sessions.DropSyncerLink("another may be the syncer now"))
                self._evicted = message
                self._unless_asking(now_s)
            case messages.MembershipChanged(revoked=revoked) if revoked:
                self._actions.append(KeepRevoked(dict(revoked)))
            case messages.Stop(reason):
                self._actions.append(sessions.Exit(reason, failed=False))
            case _:
                pass  # it is for others

    def _dial(self, syncers: tuple[str, ...]) -> None:
        """Dial the run's syncer, and follow it: one that is told of no more may be passed over."""
        for address in syncers[-1:]:
            if address == self._dialled:
                self._follow()
            self._dialled = address
            self._actions.append(sessions.DialSyncer(address))

    # --- what is copied -----------------------------------------------------------------------

    def _follow(self) -> None:
        member = self.membership
        if member.incarnation is None or not member.syncer_up or self._followed:
            return
        self._followed = True
        self._links += 1
        self._parts, self._taken, self._confirmed = [], 0, 0
        self._writing.clear()
        follow = Follow(
            member.name, member.incarnation, member.credential, dict(self.held), self._address
        )
        self._actions.append(sessions.ToSyncer(follow))

    def _take(self, piece: RecordPiece, payload: tuple[memoryview, ...]) -> None:
        held = sum(map(len, self._parts))
        size_bytes = sum(map(len, payload))
        wrong = (
            f"it sent a file named {piece.file[:80]!r}"
            if FILE.fullmatch(piece.file) is None
            else f"it sent a file of {piece.size_bytes} bytes"
            if piece.size_bytes > self._file_bytes
            else "a piece of a file is not the next one"
            if piece.at != held or not 0 < size_bytes <= piece.size_bytes - held
            else None
        )
        if wrong is not None:
            self._actions.append(sessions.DropSyncerLink(wrong))
            return
        self._parts += payload
        self._taken = piece.number
        if held + size_bytes == piece.size_bytes:
            self.whole = self.whole and piece.left == 0
            self._writing.append(piece.number)
            self._actions.append(Store(self._links, piece, self._parts))
            self._parts = []
        self._confirm()

    def _on_stored(self, stored: Stored) -> None:
        piece, here = stored.store.piece, stored.store.link == self._links
        if stored.digest:
            self.held[piece.file] = stored.digest
        else:
            self.held.pop(piece.file, None)
        if not here:
            return
        if not stored.digest:
            self._actions.append(sessions.DropSyncerLink(f"{piece.file} did not arrive whole"))
            return
        if piece.left == 0:
            self.whole, self._newest = True, piece.sequence
        self._writing.popleft()
        self._confirm()

    def _confirm(self) -> None:
        """Confirm the pieces before the first of a file that is still being written."""
        number = self._writing[0] - 1 if self._writing else self._taken
        if number > self._confirmed:
            self._confirmed = number
            self._actions.append(sessions.ToSyncer(PieceHeld(number)))

    # --- taking over --------------------------------------------------------------------------

    def _take_over(self, now_s: float) -> None:
        gone_s = None if self._gone_s is None else now_s - self._gone_s
        due = self._after_s is not None and gone_s is not None and gone_s >= self._after_s
        if self._asking or not (self._asked or due):
            return
        member = self.membership
        if member.syncer_up:
            self._no("the run's syncer is alive, and is followed")
        elif not self.whole:
            self._no(
                "it has not copied all of the run since it was started, so what it has may be old; "
                "python -m islands.syncer goes on with that in its folder"
            )
        elif member.supervisor_up and member.incarnation is None:
            self._no("the supervisor has not admitted this standby yet")
        elif member.supervisor_up:
            self._asking = True
            self._actions.append(sessions.ToSupervisor(self._claim()))
        elif self._asked:
            self._actions.append(Promote(HUB))

    def _claim(self) -> messages.Join:
        member = self.membership
        return messages.Join(
            PROTOCOL,
            member.run,
            Role.SYNCER,
            member.name,
            member.fingerprint,
            proof=member.proof,
            supervisor_epoch=member.supervisor_epoch,
            supervisor_proof=member.supervisor_proof,
            takes_over=self.follows,
        )

    def _unless_asking(self, now_s: float) -> None:
        """Ask for admission once more, unless it may have been evicted as it was promoted."""
        ended = None if self._asking else self._evicted
        if ended is not None:
            self._evicted = None
            if self.membership.on_evicted(ended):
                self._show_life(now_s)

    def _refused(self, reason: str, now_s: float) -> None:
        self._asking = False
        self._unless_asking(now_s)
        self._gone_s = now_s if self._gone_s is not None else None
        self._no(reason)

    def _no(self, reason: str) -> None:
        if self._asked:
            self._actions.append(Answer(reason))
