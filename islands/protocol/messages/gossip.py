"""Messages between learners that gossip: shares of fragments, and what a newcomer asks for."""

from islands.protocol.identities import FragmentIndex, Incarnation, LearnerName
from messaging.envelope import message


@message
class Share:
    """A learner's part of an exchange; payload: slow value φ, then φ − θ, each flat float32.

    Whoever comes to a round first offers its share, and every neighbour answers with its own.
    `incarnation` is the sender's. `wanted` asks for the receiver's share, if it was lost or is not
    sent yet. `steps` are those that φ − θ holds.
    """

    round: int
    fragment: FragmentIndex
    incarnation: Incarnation
    steps: int
    wanted: bool
    digest: str


@message
class ShareDeclined:
    """The sender will send no share for this round."""

    round: int
    fragment: FragmentIndex
    incarnation: Incarnation
    reason: str


@message
class ValueWanted:
    """A newcomer asks a learner that trains for its slow value of a fragment."""

    fragment: FragmentIndex
    incarnation: Incarnation


@message
class ValueGiven:
    """Answer to ValueWanted; payload: the slow value φ, flat float32, or nothing to give.

    `round` is the newest round that the giver knows.
    """

    fragment: FragmentIndex
    incarnation: Incarnation
    round: int
    digest: str


@message
class PeerHello:
    """The first message on a link between two learners; `proof` is made for this pair alone."""

    name: LearnerName
    incarnation: Incarnation
    proof: str


GOSSIP_TYPES: tuple[type, ...] = (Share, ShareDeclined, ValueWanted, ValueGiven)
"""Messages of learners that gossip to one another."""
