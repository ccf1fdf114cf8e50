"""How a learner's answers follow its link: what `adaptation.py` decides, applied to its memory.

Contributions carry `acknowledge`, and a `LinkProbe` goes with each. While the run closes, or
compute stands still, every pull is answered: no later one would bring what was left out.
"""

from collections.abc import Callable

from islands.protocol.identities import Ticket
from islands.protocol.learner.actions import ToSyncer
from islands.protocol.learner.adaptation import Adaptation, Adapted, Level
from islands.protocol.learner.core import Core
from islands.protocol.learner.events import ContributionEncoded
from islands.protocol.messages.training import ContributionReceived, LinkProbe, PullFragment
from islands.protocol.settings.run import Precision, RunSettings
from islands.protocol.tape import learner_entries
from islands.protocol.tape.entry import Record

FINEST_FIRST = tuple(precision for precision in Precision if precision.adaptive_level)


def adaptation_of(
    settings: RunSettings, fragments: int, largest_bytes: Callable[[Precision], int]
) -> Adaptation | None:
    """Return the choice that a learner begins with; None if its precision is given.

    A precision is left out that has no fewer bytes than a finer one, as where `merge_moments` has
    most values sent exactly.

    Args:
        settings: settings of the run.
        fragments: number of fragments.
        largest_bytes: returns the bytes of the longest contribution in a precision.
    """
    if settings.precision is not Precision.ADAPTIVE:
        return None
    levels: list[Level] = []
    for precision in FINEST_FIRST[: FINEST_FIRST.index(settings.precision_coarsest) + 1]:
        largest = largest_bytes(precision)
        if not levels or largest < levels[-1].size_bytes:
            levels.append(Level(precision, largest))
    return Adaptation(
        levels,
        overlap_steps=settings.overlap_steps_max,
        round_interval_steps=settings.round_interval_steps(fragments),
        fragments=fragments,
    )


def why_spared(core: Core, pull: PullFragment) -> str | None:
    """Take in that a pull has come; return why to decline it, None if it is to be answered."""
    adaptation = core.adaptation
    if adaptation is None or core.pulls.knows(pull):
        return None
    _record(core, adaptation.look(pull.ticket, core.now_s))
    if core.closing or core.idle or core.leaving is not None:
        return None
    return adaptation.why_declined(pull.fragment, pull.ticket, core.now_s)


def precision_now(core: Core) -> Precision:
    """Return the precision of the next contribution."""
    return core.settings.precision if core.adaptation is None else core.adaptation.precision


def take_offered(core: Core, event: ContributionEncoded) -> None:
    """Measure a contribution from now on, and the link's latency beside it."""
    if core.adaptation is None:
        return
    link = core.adaptation.link
    link.offered(event.ticket, event.payload.nbytes, core.now_s)
    core.actions.append(ToSyncer(LinkProbe(link.probe(core.now_s))))


def take_skipped(core: Core, ticket: Ticket) -> None:
    """Forget a contribution that the link did not take."""
    if core.adaptation is not None:
        core.adaptation.link.skipped(ticket)


def take_measured(core: Core, message: ContributionReceived | LinkProbe) -> None:
    """Take in what the syncer sends at once when something has arrived there."""
    if core.adaptation is None:
        return
    if isinstance(message, LinkProbe):
        core.adaptation.link.answered(message.number, core.now_s)
    else:
        _record(core, core.adaptation.received(message.ticket, core.now_s))


def _record(core: Core, adapted: Adapted | None) -> None:
    if adapted is None:
        return
    exchange = adapted.exchange
    entry = learner_entries.Adapted(
        precision=adapted.precision,
        every=adapted.every,
        reason=adapted.reason,
        bytes=exchange.size_bytes,
        seconds=exchange.seconds,
        bytes_per_s=exchange.bytes_per_s,
        latency_s=adapted.latency_s or 0.0,
        budget_s=adapted.budget_s,
    )
    core.actions.append(Record(entry))
