"""A donor gives its inner moments to a restarted peer, a piece at a time.

Only a learner that has stepped in its present incarnation, and could contribute, has moments worth
giving. Pieces are read at step boundaries, a few at each, so that a large state delays many
boundaries a little. The pieces are therefore of different steps, which does moments no harm.

Nobody is given a piece more than `COPIES_MAX` times: an asker whose answers are lost asks again,
and again over its next link.
"""

from islands.protocol.identities import WHOLE
from islands.protocol.learner.actions import OfferMoments, ReadMoments, ToPeer
from islands.protocol.learner.core import Core
from islands.protocol.learner.events import MomentsRead, StateRequested
from islands.protocol.messages.peers import StateOffer

GIVING_MAX = 4
"""Pieces that may wait for a boundary; further requests are declined."""

COPIES_MAX = 8
ASKERS_KEPT = 64
"""Incarnations of which it is known what they were given."""


def take_state_request(core: Core, event: StateRequested) -> None:
    """Have the requested piece read, or decline."""
    request = event.message
    given = core.moments.given.setdefault((event.asker, request.incarnation), {})
    if len(core.moments.given) > ASKERS_KEPT:
        del core.moments.given[next(iter(core.moments.given))]
    known = 0 <= request.piece < core.moments.pieces and request.schema == core.moments.schema
    often = given.get(request.piece, 0) >= COPIES_MAX
    if _may_give(core) and known and not often and core.giving < GIVING_MAX:
        given[request.piece] = given.get(request.piece, 0) + 1
        core.giving += 1
        core.actions.append(ReadMoments(request.piece, event.asker))
    else:
        _decline(core, event.asker, request.piece)


def take_read(core: Core, event: MomentsRead) -> None:
    """Send a piece that was read, unless this learner may no longer give any."""
    core.giving -= 1
    if _may_give(core):
        offer = StateOffer(event.piece, core.moments.pieces, core.moments.schema or "", "")
        core.actions.append(OfferMoments(event.asker, offer, event.payload))
    else:
        _decline(core, event.asker, event.piece)


def _may_give(core: Core) -> bool:
    stepped = core.steps > core.origin_steps
    return stepped and core.phase in WHOLE


def _decline(core: Core, asker: str, piece: int) -> None:
    offer = StateOffer(piece, 0, core.moments.schema or "", "")
    core.actions.append(ToPeer(asker, offer))
