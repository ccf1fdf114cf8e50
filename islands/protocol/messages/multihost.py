"""Messages between the hosts of one island: rank 0 leads, and the others follow."""

from typing import Any

from messaging.envelope import message


@message
class HostHello:
    """Follower → leader: this host is ready; `facts` must be equal on all hosts."""

    protocol: int
    rank: int
    hosts: int
    host: str
    facts: dict[str, str]


@message
class IslandFormed:
    """Leader → followers: all hosts are there; JAX's coordinator is to be at this address."""

    coordinator: str


@message
class CommandIssued:
    """Leader → followers: command `number` of the island's log; its arrays follow as `parts`."""

    number: int
    kind: str
    body: dict[str, Any]
    parts: int


@message
class CommandPart:
    """Leader → followers: an array of a command, as the receiver's part of it; payload: bytes."""

    number: int
    index: int


@message
class Word:
    """Leader → followers: the boundary carries out the commands up to number `upto`."""

    boundary: int
    upto: int


@message
class HostState:
    """Follower → leader, each second and whenever `held` grows.

    `held` is the number up to which this host has all commands with their arrays, `boundary` how
    many boundaries it has come to, and `doing` what its compute thread does, for people. `idle`
    says that it waits for the leader, and `over` that it comes to no further boundary. `newest` are
    the boundaries that it came to last: the number of each, how many steps it had counted before
    it, and the reason.
    """

    held: int
    boundary: int
    doing: str
    idle: bool
    compiling: bool
    steps: int = 0
    over: bool = False
    newest: tuple[tuple[int, int, str], ...] = ()


@message
class LeaderBeat:
    """Leader → followers, each second: the leader is alive."""


@message
class ValueShare:
    """Follower → leader: its part of the value with this number of its kind; payload: bytes."""

    kind: str
    number: int


@message
class HostFailed:
    """Follower → leader: this host cannot go on; `mistake` says that the user must mend it."""

    reason: str
    mistake: bool


@message
class LeaveAsked:
    """Follower → leader: this host was asked to end, so the island is to leave the run."""

    reason: str


@message
class IslandEnds:
    """Leader → followers: the island ends with this exit code on each host; `rank` caused it."""

    reason: str
    code: int
    rank: int | None = None
