"""Entries of learners that gossip: exchanges, and why there was none."""

from islands.protocol.tape.entry import Entry, Logged


class Exchanged(Entry, frozen=True, tag="gossip"):
    """A learner stepped with the shares of `partners`, `after_s` after it came to the round."""

    round: int
    fragment: int
    partners: list[str]
    missing: dict[str, str]
    steps: int
    after_s: float


class Widowed(Entry, frozen=True, tag="widowed"):
    """No neighbour's share came in a round, for these reasons; the learner steps on."""

    round: int
    fragment: int
    missing: dict[str, str]


class TookOver(Logged, frozen=True, tag="took_over"):
    """A newcomer began with the values of a learner that trains, at its round."""

    peer: str
    round: int
