"""Recovery of the inner optimizer's moments: from a healthy peer, from disk, or fresh ones.

A process that has never stepped asks the donor that the syncer's Welcome names for its moments,
piece by piece, through the syncer, while it compiles and adopts. Its first step waits for them
until `resend_s` after the welcome, or after compute was ready, whichever is later; then, or if the
donor has none, it steps with fresh moments.

    open ──▶ asking ──▶ loading ──▶ settled
      ├─────────┤  kept ───▲ │         ▲
      └─────────┴───▲─ fresh ┴─────────┘

Where no peer gives any, the process tries the checkpoint that an earlier process of this name left
on disk. It is loaded once every fragment is adopted, if the adopted versions are no older than
those that the moments belong to.

A settled process keeps its moments across incarnations, and gives them to peers if it has stepped
in its present one and could contribute. Pieces are read at step boundaries, a few at each, so they
are of different steps, which does moments no harm.
"""

from islands.protocol.identities import WHOLE, LearnerName, Version
from islands.protocol.learner import actions, events
from islands.protocol.learner.memory import EVENTS, LearnerMemory, MomentsStage
from islands.protocol.messages.training import StateOffer, StateRequest
from islands.protocol.tape import learner_entries
from islands.protocol.tape.entry import Record

WINDOW = 2
"""Pieces requested at a time: one is in flight while the donor reads the next."""

GIVING_MAX = 4
"""Pieces that may wait for a boundary; further requests are declined."""


@EVENTS.handles(events.TrainerMade)
def on_made(memory: LearnerMemory, event: events.TrainerMade) -> None:
    memory.moments.schema, memory.moments.pieces = event.moments_schema, event.moment_pieces


def on_donor(memory: LearnerMemory, donor: LearnerName | None) -> None:
    """Ask the donor that a Welcome names; requests over an earlier link may be lost."""
    moments = memory.moments
    if moments.stage is MomentsStage.OPEN and donor is not None:
        moments.stage, moments.donor = MomentsStage.ASKING, donor
        moments.began_s, moments.timed = memory.now_s, False
    elif moments.stage is not MomentsStage.ASKING:
        return
    elif donor is not None and donor != moments.donor:
        moments.donor = donor
        _forget(memory)
    moments.asked.clear()


def pursue(memory: LearnerMemory) -> None:
    """Request the missing pieces, or give up; called after every event."""
    moments = memory.moments
    if moments.stage is not MomentsStage.ASKING or moments.schema is None:
        return
    limit_s = memory.settings.timing.scaled(memory.settings.timing.resend_s)
    if moments.pieces == 0:
        go_fresh(memory, learner_entries.KEEPS_NONE)
    elif memory.ending:
        go_fresh(memory, learner_entries.STEPS_NO_MORE)
    elif memory.now_s >= moments.deadline_s(limit_s):
        missing = moments.pieces - len(moments.arrived)
        go_fresh(memory, f"{missing} of {moments.pieces} pieces did not come in time")
    else:
        _ask(memory)
        if moments.ready_s is not None and not moments.timed:
            moments.timed = True
            memory.actions.append(actions.SetTimer(moments.deadline_s(limit_s) - memory.now_s))


def _ask(memory: LearnerMemory) -> None:
    """Keep the window full; lost requests are sent again after the next Welcome."""
    moments = memory.moments
    if not memory.membership.syncer_up or memory.incarnation is None:
        return
    assert moments.donor is not None, "somebody is asked"
    assert moments.schema is not None, "something is asked for"
    for piece in range(moments.pieces):
        if len(moments.asked) >= WINDOW:
            return
        if piece not in moments.arrived and piece not in moments.asked:
            moments.asked[piece] = None
            request = StateRequest(memory.incarnation, piece, moments.schema)
            memory.actions.append(actions.ToPeer(moments.donor, request))


@EVENTS.handles(events.PieceArrived)
def on_piece(memory: LearnerMemory, event: events.PieceArrived) -> None:
    """Handle the donor's answer: a piece, or that it gives none."""
    moments, offer = memory.moments, event.message
    if moments.stage is not MomentsStage.ASKING or event.sender != moments.donor:
        return
    if offer.pieces == 0:
        go_fresh(memory, f"{moments.donor} has none to give")
    elif (offer.schema, offer.pieces) != (moments.schema, moments.pieces):
        go_fresh(memory, f"those of {moments.donor} are of another optimizer")
    elif offer.piece in moments.asked:
        if event.intact:
            _keep(memory, offer.piece, event.payload)
        else:
            go_fresh(memory, f"piece {offer.piece} was damaged")


def _keep(memory: LearnerMemory, piece: int, payload: memoryview) -> None:
    moments = memory.moments
    del moments.asked[piece]
    moments.arrived[piece] = payload
    if len(moments.arrived) == moments.pieces:
        moments.stage = MomentsStage.LOADING
        pieces = tuple(moments.arrived[index] for index in range(moments.pieces))
        moments.loaded_bytes = sum(part.nbytes for part in pieces)
        moments.arrived.clear()
        memory.actions.append(actions.LoadMoments(pieces))


@EVENTS.handles(events.MomentsLoaded)
def on_loaded(memory: LearnerMemory, event: events.MomentsLoaded) -> None:
    """Settle if compute has loaded the moments; otherwise fall back as `go_fresh` does."""
    moments = memory.moments
    if not event.taken:
        owner = moments.donor or "this host's disk"
        go_fresh(memory, f"those of {owner} are of other sizes, damaged, or not finite")
        return
    moments.stage = MomentsStage.SETTLED
    taken = learner_entries.MomentsTaken(
        donor=moments.donor or learner_entries.DISK,
        pieces=moments.pieces,
        bytes=moments.loaded_bytes if moments.donor else None,
        seconds=round(memory.now_s - moments.began_s, 6),
        waited_s=round(moments.waited_s(memory.now_s), 6),
    )
    memory.actions.append(Record(taken))


def go_fresh(memory: LearnerMemory, reason: str) -> None:
    """Settle for the optimizer's initial moments, unless there is a checkpoint on disk to try."""
    moments = memory.moments
    if moments.kept is not None:
        moments.stage = MomentsStage.KEPT
        _forget(memory)
        return
    waited_s = moments.waited_s(memory.now_s) if moments.waiting else 0.0
    moments.stage = MomentsStage.SETTLED
    _forget(memory)
    memory.actions.append(Record(learner_entries.MomentsFresh(reason, round(waited_s, 6))))


def load_kept(memory: LearnerMemory) -> None:
    moments = memory.moments
    kept, moments.kept = moments.kept, None
    assert kept is not None, "something lies on disk"
    if kept.schema != moments.schema or kept.pieces != moments.pieces:
        go_fresh(memory, "those on disk are of another optimizer")
    elif not _belongs(memory, kept.versions):
        go_fresh(memory, "those on disk are of another run, or of versions that it has lost")
    else:
        moments.stage, moments.donor = MomentsStage.LOADING, None
        moments.began_s = memory.now_s
        memory.actions.append(actions.LoadCheckpoint())


def _belongs(memory: LearnerMemory, versions: tuple[Version, ...]) -> bool:
    """Whether every adopted version is the one that the moments were saved with, or a newer one."""
    adopted = [account.version for account in memory.accounts]
    return len(versions) == len(adopted) and all(
        now is not None and now >= before for now, before in zip(adopted, versions, strict=True)
    )


def stop_asking(memory: LearnerMemory) -> None:
    """Stop asking at the end of an incarnation: the next one may have another donor."""
    if memory.moments.stage is MomentsStage.ASKING:
        memory.moments.stage = MomentsStage.OPEN
        _forget(memory)


def _forget(memory: LearnerMemory) -> None:
    memory.moments.asked.clear()
    memory.moments.arrived.clear()


# --- giving to a peer -----------------------------------------------------------------------------


@EVENTS.handles(events.StateRequested)
def on_state_request(memory: LearnerMemory, event: events.StateRequested) -> None:
    request = event.message
    known = 0 <= request.piece < memory.moments.pieces and request.schema == memory.moments.schema
    if _may_give(memory) and known and memory.moments.giving < GIVING_MAX:
        memory.moments.giving += 1
        memory.actions.append(actions.ReadMoments(request.piece, event.asker))
    else:
        _give_none(memory, event.asker, request.piece)


@EVENTS.handles(events.MomentsRead)
def on_read(memory: LearnerMemory, event: events.MomentsRead) -> None:
    """Send a piece that was read, unless this learner may no longer give any."""
    memory.moments.giving -= 1
    if _may_give(memory):
        offer = StateOffer(event.piece, memory.moments.pieces, memory.moments.schema or "", "")
        memory.actions.append(actions.ToPeer(event.asker, offer, event.payload))
    else:
        _give_none(memory, event.asker, event.piece)


def _may_give(memory: LearnerMemory) -> bool:
    return memory.compute.own_steps > 0 and memory.phase in WHOLE


def _give_none(memory: LearnerMemory, asker: str, piece: int) -> None:
    offer = StateOffer(piece, 0, memory.moments.schema or "", "")
    memory.actions.append(actions.ToPeer(asker, offer))
