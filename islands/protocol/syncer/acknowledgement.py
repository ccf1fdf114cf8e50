"""What the syncer sends back at once, before it looks into what has arrived.

A learner that measures its link asks for it. The time until it comes holds none of the syncer's
work: neither the inspection of a contribution, nor the round that it belongs to. Of a contribution
in shares, the arrival is told once all of them are here (`assembly.py`).
"""

from islands.protocol.messages.training import Contribution, ContributionReceived, LinkProbe


def acknowledgement(body: object) -> ContributionReceived | LinkProbe | None:
    """Return the answer to a message that asks for one at once; None if it asks for none."""
    if isinstance(body, Contribution) and body.acknowledge and not body.ranges:
        return ContributionReceived(body.ticket)
    return body if isinstance(body, LinkProbe) else None
