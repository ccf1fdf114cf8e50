"""What a learner gives to a peer that was restarted: its inner moments, a piece at a time.

Only one that has stepped in its present incarnation, and could contribute, has moments worth
giving. A piece is read at a step boundary, one per boundary, so that a large state costs many
boundaries a little each; it is therefore no picture of one moment, which moments need not be.
"""

from islands.identities import Phase
from islands.learner.actions import OfferMoments, ReadMoments, ToPeer
from islands.learner.core import Core
from islands.learner.events import MomentsRead, StateRequested
from islands.messages.peers import StateOffer

GIVING_MAX = 4
"""Pieces that may wait for a boundary; who asks for more is told that there are none."""


def take_state_request(core: Core, event: StateRequested) -> None:
    """A peer asks for a piece."""
    request = event.message
    known = 0 <= request.piece < core.moments.pieces and request.schema == core.moments.schema
    if _may_give(core) and known and core.giving < GIVING_MAX:
        core.giving += 1
        core.actions.append(ReadMoments(request.piece, event.asker))
    else:
        _decline(core, event.asker, request.piece)


def take_read(core: Core, event: MomentsRead) -> None:
    """A piece is on the host; it is given unless this learner's own state turned out broken."""
    core.giving -= 1
    if _may_give(core):
        offer = StateOffer(event.piece, core.moments.pieces, core.moments.schema or "", "")
        core.actions.append(OfferMoments(event.asker, offer, event.payload))
    else:
        _decline(core, event.asker, event.piece)


def _may_give(core: Core) -> bool:
    stepped = core.steps > core.origin_steps
    return stepped and core.phase in (Phase.STEPPING, Phase.STARVED, Phase.PAUSED)


def _decline(core: Core, asker: str, piece: int) -> None:
    offer = StateOffer(piece, 0, core.moments.schema or "", "")
    core.actions.append(ToPeer(asker, offer))
