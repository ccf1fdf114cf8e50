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

Once settled, a process keeps its moments across incarnations, and gives them to peers, a piece at a
time. Only a learner that has stepped in its present incarnation, and could contribute, has moments
worth giving. Pieces are read at step boundaries, a few at each, so that a large state delays many
boundaries a little. The pieces are therefore of different steps, which does moments no harm.
"""

from islands.protocol.identities import WHOLE, LearnerName, Version
from islands.protocol.learner import actions, events
from islands.protocol.learner.core import Core, MomentsStage
from islands.protocol.messages.peers import StateOffer, StateRequest
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

GIVING_MAX = 4
"""Pieces that may wait for a boundary; further requests are declined."""


def on_made(core: Core, event: events.TrainerMade) -> None:
    """Note the schema and number of pieces to ask for, which the trainer tells."""
    core.moments.schema, core.moments.pieces = event.moments_schema, event.moment_pieces


def on_donor(core: Core, donor: LearnerName | None) -> None:
    """Ask the donor that a Welcome names; requests over an earlier link may be lost."""
    moments = core.moments
    if moments.stage is MomentsStage.OPEN and donor is not None:
        moments.stage, moments.donor = MomentsStage.ASKING, donor
        moments.began_s, moments.timed = core.now_s, False
    elif moments.stage is not MomentsStage.ASKING:
        return
    elif donor is not None and donor != moments.donor:
        moments.donor = donor
        _forget(core)
    moments.asked.clear()


def pursue(core: Core) -> None:
    """Request the missing pieces, or give up; called after every event."""
    moments = core.moments
    if moments.stage is not MomentsStage.ASKING or moments.schema is None:
        return
    limit_s = core.settings.timing.scaled(core.settings.timing.resend_s)
    if moments.pieces == 0:
        go_fresh(core, KEEPS_NONE)
    elif core.ending:
        go_fresh(core, STEPS_NO_MORE)
    elif core.now_s >= moments.deadline_s(limit_s):
        missing = moments.pieces - len(moments.arrived)
        go_fresh(core, f"{missing} of {moments.pieces} pieces did not come in time")
    else:
        _ask(core)
        if moments.ready_s is not None and not moments.timed:
            moments.timed = True
            core.actions.append(actions.SetTimer(moments.deadline_s(limit_s) - core.now_s))


def _ask(core: Core) -> None:
    """Keep the window full; what a broken link lost is asked for again after the next Welcome."""
    moments = core.moments
    if not core.membership.syncer_up or core.incarnation is None:
        return
    assert moments.donor is not None, "somebody is asked"
    assert moments.schema is not None, "something is asked for"
    for piece in range(moments.pieces):
        if len(moments.asked) >= WINDOW:
            return
        if piece not in moments.arrived and piece not in moments.asked:
            moments.asked[piece] = None
            request = StateRequest(core.incarnation, piece, moments.schema)
            core.actions.append(actions.ToPeer(moments.donor, request))


def on_piece(core: Core, event: events.PieceArrived) -> None:
    """Handle the donor's answer: a piece, or the word that it gives none."""
    moments, offer = core.moments, event.message
    if moments.stage is not MomentsStage.ASKING or event.sender != moments.donor:
        return
    if offer.pieces == 0:
        go_fresh(core, f"{moments.donor} has none to give")
    elif (offer.schema, offer.pieces) != (moments.schema, moments.pieces):
        go_fresh(core, f"those of {moments.donor} are of another optimizer")
    elif offer.piece in moments.asked:
        if event.intact:
            _keep(core, offer.piece, event.payload)
        else:
            go_fresh(core, f"piece {offer.piece} was damaged")


def _keep(core: Core, piece: int, payload: memoryview) -> None:
    moments = core.moments
    del moments.asked[piece]
    moments.arrived[piece] = payload
    if len(moments.arrived) == moments.pieces:
        moments.stage = MomentsStage.LOADING
        pieces = tuple(moments.arrived[index] for index in range(moments.pieces))
        moments.loaded_bytes = sum(part.nbytes for part in pieces)
        moments.arrived.clear()
        core.actions.append(actions.LoadMoments(pieces))


def on_loaded(core: Core, event: events.MomentsLoaded) -> None:
    """Settle if compute has loaded the moments; otherwise fall back as `go_fresh` does."""
    moments = core.moments
    if not event.taken:
        owner = moments.donor or "this host's disk"
        go_fresh(core, f"those of {owner} are of other sizes, damaged, or not finite")
        return
    moments.stage = MomentsStage.SETTLED
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
        moments.stage = MomentsStage.KEPT
        _forget(core)
        return
    waited_s = moments.waited_s(core.now_s) if moments.waiting else 0.0
    moments.stage = MomentsStage.SETTLED
    _forget(core)
    core.actions.append(Record(MomentsFresh(reason, round(waited_s, 6))))


def load_kept(core: Core) -> None:
    """Load the checkpoint on disk if it belongs to the adopted fragments."""
    moments = core.moments
    kept, moments.kept = moments.kept, None
    assert kept is not None, "something lies on disk"
    if kept.schema != moments.schema or kept.pieces != moments.pieces:
        go_fresh(core, "those on disk are of another optimizer")
    elif not _belongs(core, kept.versions):
        go_fresh(core, "those on disk are of another run, or of versions that it has lost")
    else:
        moments.stage, moments.donor = MomentsStage.LOADING, None
        moments.began_s = core.now_s
        core.actions.append(actions.LoadCheckpoint())


def _belongs(core: Core, versions: tuple[Version, ...]) -> bool:
    """Whether every adopted version is the one that the moments were saved with, or a newer one."""
    adopted = [account.version for account in core.accounts]
    return len(versions) == len(adopted) and all(
        now is not None and now >= before for now, before in zip(adopted, versions, strict=True)
    )


def stop_asking(core: Core) -> None:
    """Stop asking at the end of an incarnation: the next one may be told of another donor."""
    if core.moments.stage is MomentsStage.ASKING:
        core.moments.stage = MomentsStage.OPEN
        _forget(core)


def _forget(core: Core) -> None:
    core.moments.asked.clear()
    core.moments.arrived.clear()


# --- giving to a peer -----------------------------------------------------------------------------


def on_state_request(core: Core, event: events.StateRequested) -> None:
    """Have the requested piece read, or decline."""
    request = event.message
    known = 0 <= request.piece < core.moments.pieces and request.schema == core.moments.schema
    if _may_give(core) and known and core.moments.giving < GIVING_MAX:
        core.moments.giving += 1
        core.actions.append(actions.ReadMoments(request.piece, event.asker))
    else:
        _give_none(core, event.asker, request.piece)


def on_read(core: Core, event: events.MomentsRead) -> None:
    """Send a piece that was read, unless this learner may no longer give any."""
    core.moments.giving -= 1
    if _may_give(core):
        offer = StateOffer(event.piece, core.moments.pieces, core.moments.schema or "", "")
        core.actions.append(actions.ToPeer(event.asker, offer, event.payload))
    else:
        _give_none(core, event.asker, event.piece)


def _may_give(core: Core) -> bool:
    return core.compute.own_steps > 0 and core.phase in WHOLE


def _give_none(core: Core, asker: str, piece: int) -> None:
    offer = StateOffer(piece, 0, core.moments.schema or "", "")
    core.actions.append(actions.ToPeer(asker, offer))
