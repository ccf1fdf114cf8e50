"""Where the moments of a process's inner optimizer come from: a healthy peer, or nowhere.

A process that has never stepped has none worth keeping. If the syncer's Welcome names a donor, the
donor's are asked for piece by piece, through the syncer, while this process compiles and adopts.
Its first step waits for them, and never for long: `resend_s` after the welcome, or after compute
was ready, whichever is later, it steps with fresh moments. It does so at once when the donor has
none to give.

    open ──▶ asking ──▶ loading ──▶ settled
      ├─────────┤  kept ───▲ │         ▲
      └─────────┴───▲─ fresh ┴─────────┘

Where no peer gives any, those come in question that an earlier process of this name has left on
this host's disk, such as after a stop of the whole run. They are taken up once every fragment is
adopted, and only if the run has what they belong to: versions that are no older.

Once settled, this process keeps its moments, whatever becomes of its incarnations.
"""

from islands.identities import LearnerName, Version
from islands.learner.actions import (
    LoadKept,
    LoadMoments,
    SetTimer,
    ToPeer,
)
from islands.learner.core import Core
from islands.learner.events import MomentsLoaded, PieceArrived, TrainerMade
from islands.learner.moments import Stage
from islands.messages.peers import StateRequest
from islands.tape.entry import Record
from islands.tape.learner_entries import MomentsFresh, MomentsTaken

WINDOW = 2
"""Pieces asked for at a time: one on its way while the next is read."""

ASKED_MAX = 2
"""How often one piece is asked for: once, and once more if it was lost or damaged."""


def take_made(core: Core, event: TrainerMade) -> None:
    """There is a trainer: now it is known what to ask for."""
    core.moments.schema, core.moments.pieces = event.moments_schema, event.moment_pieces


def take_donor(core: Core, donor: LearnerName | None) -> None:
    """A syncer welcomed us; what was asked over an earlier link may be lost."""
    moments = core.moments
    if moments.stage is Stage.OPEN and donor is not None:
        moments.stage, moments.donor = Stage.ASKING, donor
        moments.began_s = core.now_s
    elif moments.stage is not Stage.ASKING:
        return
    elif donor is not None and donor != moments.donor:
        moments.donor = donor
        _forget(core)
    moments.asked.clear()
    moments.heard_s = core.now_s


def pursue(core: Core) -> None:
    """After every event: ask for what is missing, or give up."""
    moments = core.moments
    if moments.stage is not Stage.ASKING or moments.schema is None:
        return
    limit_s = core.settings.timing.scaled(core.settings.timing.resend_s)
    if moments.pieces == 0:
        go_fresh(core, "this optimizer keeps none")
    elif core.closing or core.leaving is not None:
        go_fresh(core, "it will not step any more")
    elif core.now_s >= moments.deadline_s(limit_s):
        missing = moments.pieces - len(moments.arrived)
        go_fresh(core, f"{missing} of {moments.pieces} pieces did not come in time")
    else:
        quiet_s = limit_s / ASKED_MAX
        _ask(core, quiet_s)
        _remind(core, min(moments.heard_s + quiet_s, moments.deadline_s(limit_s)))


def _ask(core: Core, quiet_s: float) -> None:
    """Keep the window full; repeat what is under way once nothing has come for a while."""
    moments = core.moments
    overdue = core.now_s >= moments.heard_s + quiet_s
    if overdue:
        moments.heard_s = core.now_s
    if not core.membership.syncer_up:
        return
    for piece in sorted(moments.asked) if overdue else []:
        _request(core, piece)
    for piece in range(moments.pieces):
        if len(moments.asked) >= WINDOW:
            return
        if piece not in moments.arrived and piece not in moments.asked:
            _request(core, piece)


def _request(core: Core, piece: int) -> None:
    moments = core.moments
    times = moments.asked.get(piece, 0) + 1
    if times <= ASKED_MAX and core.incarnation is not None:
        assert moments.donor is not None, "somebody is asked"
        assert moments.schema is not None, "something is asked for"
        moments.asked[piece] = times
        request = StateRequest(core.incarnation, piece, moments.schema)
        core.actions.append(ToPeer(moments.donor, request))


def _remind(core: Core, due_s: float) -> None:
    """Be asked again when a piece, or all of them, are overdue: after now, as both are not yet."""
    set_s = core.moments.reminder_s
    if set_s is None or due_s < set_s:
        core.moments.reminder_s = due_s
        core.actions.append(SetTimer(due_s - core.now_s))


def take_piece(core: Core, event: PieceArrived) -> None:
    """A peer answered: with a piece, or that it gives none."""
    moments, offer = core.moments, event.message
    if moments.stage is not Stage.ASKING or event.sender != moments.donor:
        return
    if offer.pieces == 0:
        go_fresh(core, f"{moments.donor} has none to give")
    elif (offer.schema, offer.pieces) != (moments.schema, moments.pieces):
        go_fresh(core, f"those of {moments.donor} are of another optimizer")
    elif offer.piece in moments.asked:
        moments.heard_s = core.now_s
        if event.intact:
            _keep(core, offer.piece, event.payload)
        elif moments.asked[offer.piece] < ASKED_MAX:
            _request(core, offer.piece)
        else:
            go_fresh(core, f"piece {offer.piece} was damaged twice")


def _keep(core: Core, piece: int, payload: memoryview) -> None:
    moments = core.moments
    del moments.asked[piece]
    moments.arrived[piece] = payload
    if len(moments.arrived) == moments.pieces:
        moments.stage = Stage.LOADING
        pieces = tuple(moments.arrived[index] for index in range(moments.pieces))
        moments.loaded_bytes = sum(part.nbytes for part in pieces)
        moments.arrived.clear()
        core.actions.append(LoadMoments(pieces))


def take_loaded(core: Core, event: MomentsLoaded) -> None:
    """Compute has taken the moments over, or found that they are no good."""
    moments = core.moments
    if not event.taken:
        owner = moments.donor or "this host's disk"
        go_fresh(core, f"those of {owner} are of other sizes, damaged, or not finite")
        return
    moments.stage = Stage.SETTLED
    taken = MomentsTaken(
        donor=moments.donor or "disk",
        pieces=moments.pieces,
        bytes=moments.loaded_bytes if moments.donor else None,
        seconds=round(core.now_s - moments.began_s, 6),
        waited_s=round(moments.waited_s(core.now_s), 6),
    )
    core.actions.append(Record(taken))


def go_fresh(core: Core, reason: str) -> None:
    """Settle for the moments with which every optimizer begins, unless some lie on disk."""
    moments = core.moments
    if moments.kept is not None:
        moments.stage = Stage.KEPT
        _forget(core)
        return
    waited_s = moments.waited_s(core.now_s) if moments.waiting else 0.0
    moments.stage = Stage.SETTLED
    _forget(core)
    core.actions.append(Record(MomentsFresh(reason, round(waited_s, 6))))


def take_up_kept(core: Core) -> None:
    """Every fragment is adopted: what lies on disk is loaded, if it belongs to them."""
    moments = core.moments
    kept, moments.kept = moments.kept, None
    assert kept is not None, "something lies on disk"
    if kept.schema != moments.schema or kept.pieces != moments.pieces:
        go_fresh(core, "those on disk are of another optimizer")
    elif not _belongs(core, kept.versions):
        go_fresh(core, "those on disk are of another run, or of versions that it has lost")
    else:
        moments.stage, moments.donor = Stage.LOADING, None
        moments.began_s = core.now_s
        core.actions.append(LoadKept())


def _belongs(core: Core, versions: tuple[Version, ...]) -> bool:
    """Whether a run holds what moments were left with, or what came after it."""
    adopted = [account.version for account in core.accounts]
    return len(versions) == len(adopted) and all(
        now is not None and now >= before for now, before in zip(adopted, versions, strict=True)
    )


def start_anew(core: Core) -> None:
    """The incarnation ended: the next one may be told of another donor."""
    if core.moments.stage is Stage.ASKING:
        core.moments.stage = Stage.OPEN
        _forget(core)


def _forget(core: Core) -> None:
    core.moments.asked.clear()
    core.moments.arrived.clear()
