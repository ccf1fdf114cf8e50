"""Recovery of the inner optimizer's moments: from a healthy peer, from disk, or fresh ones.

A process that has never stepped has no moments worth keeping. If the syncer's Welcome names a
donor, this process requests the donor's moments piece by piece, through the syncer, while it
compiles and adopts. Its first step waits for them, but not for long: `resend_s` after the welcome,
or after compute was ready, whichever is later, it steps with fresh moments. It does so at once when
the donor has none to give.

    open ──▶ asking ──▶ loading ──▶ settled
      ├─────────┤  kept ───▲ │         ▲
      └─────────┴───▲─ fresh ┴─────────┘

Where no peer gives any, the process tries the checkpoint that an earlier process of this name left
on this host's disk, for instance after a stop of the whole run. It is loaded once every fragment
is adopted, and only if the adopted versions are no older than those that the moments belong to.

Once settled, a process keeps its moments across incarnations.
"""

from islands.protocol.identities import LearnerName, Version
from islands.protocol.learner.actions import (
    LoadCheckpoint,
    LoadMoments,
    SetTimer,
    ToPeer,
)
from islands.protocol.learner.core import Core
from islands.protocol.learner.events import MomentsLoaded, PieceArrived, TrainerMade
from islands.protocol.learner.moments import Stage
from islands.protocol.messages.peers import StateRequest
from islands.protocol.tape.entry import Record
from islands.protocol.tape.learner_entries import (
    DISK,
    KEEPS_NONE,
    STEPS_NO_MORE,
    MomentsFresh,
    MomentsTaken,
)

WINDOW = 2
"""Pieces requested at a time: one is in flight while the donor reads the next."""

ASKED_MAX = 2
"""Requests for one piece at most: the first, and one retry if it was lost or damaged."""


def take_made(core: Core, event: TrainerMade) -> None:
    """Note the schema and number of pieces to ask for, which the trainer tells."""
    core.moments.schema, core.moments.pieces = event.moments_schema, event.moment_pieces


def take_donor(core: Core, donor: LearnerName | None) -> None:
    """Ask the donor that a Welcome names; requests over an earlier link may be lost."""
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
    """Request the missing pieces, or give up; called after every event."""
    moments = core.moments
    if moments.stage is not Stage.ASKING or moments.schema is None:
        return
    limit_s = core.settings.timing.scaled(core.settings.timing.resend_s)
    if moments.pieces == 0:
        go_fresh(core, KEEPS_NONE)
    elif core.closing or core.leaving is not None:
        go_fresh(core, STEPS_NO_MORE)
    elif core.now_s >= moments.deadline_s(limit_s):
        missing = moments.pieces - len(moments.arrived)
        go_fresh(core, f"{missing} of {moments.pieces} pieces did not come in time")
    else:
        quiet_s = limit_s / ASKED_MAX
        _ask(core, quiet_s)
        _remind(core, min(moments.heard_s + quiet_s, moments.deadline_s(limit_s)))


def _ask(core: Core, quiet_s: float) -> None:
    """Keep the window full; retry the requests in flight after `quiet_s` without an answer."""
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
    """Set a timer for when a piece, or all of them, are overdue, unless an earlier one is set.

    `due_s` lies in the future, since neither is overdue yet.
    """
    set_s = core.moments.reminder_s
    if set_s is None or due_s < set_s:
        core.moments.reminder_s = due_s
        core.actions.append(SetTimer(due_s - core.now_s))


def take_piece(core: Core, event: PieceArrived) -> None:
    """Handle the donor's answer: a piece, or the word that it gives none."""
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
    """Settle if compute has loaded the moments; otherwise fall back as `go_fresh` does."""
    moments = core.moments
    if not event.taken:
        owner = moments.donor or "this host's disk"
        go_fresh(core, f"those of {owner} are of other sizes, damaged, or not finite")
        return
    moments.stage = Stage.SETTLED
    taken = MomentsTaken(
        donor=moments.donor or DISK,
        pieces=moments.pieces,
        bytes=moments.loaded_bytes if moments.donor else None,
        seconds=round(core.now_s - moments.began_s, 6),
        waited_s=round(moments.waited_s(core.now_s), 6),
    )
    core.actions.append(Record(taken))


def go_fresh(core: Core, reason: str) -> None:
    """Settle for the optimizer's initial moments, unless there is a checkpoint on disk to try."""
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
    """Load the checkpoint on disk if it belongs to the adopted fragments."""
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
        core.actions.append(LoadCheckpoint())


def _belongs(core: Core, versions: tuple[Version, ...]) -> bool:
    """Whether every adopted version is the one that the moments were saved with, or a newer one."""
    adopted = [account.version for account in core.accounts]
    return len(versions) == len(adopted) and all(
        now is not None and now >= before for now, before in zip(adopted, versions, strict=True)
    )


def start_anew(core: Core) -> None:
    """Stop asking at the end of an incarnation: the next one may be told of another donor."""
    if core.moments.stage is Stage.ASKING:
        core.moments.stage = Stage.OPEN
        _forget(core)


def _forget(core: Core) -> None:
    core.moments.asked.clear()
    core.moments.arrived.clear()
