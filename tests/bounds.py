"""The table of bounds: what each kind of peer can make a process of a run spend, and what stops it.

    python -m tests.bounds          prints what stands in SECURITY.md between the two marks

`BOUNDS` has a cell for each resource and kind of peer; `tests.benchmarks.hostile` measures every
cell, in the units given here. `MESSAGES` has a row for each message. A message without its row, a
row without its message, and a bound whose place is gone fail `tests/test_bounds.py`.
"""

import sys
from dataclasses import dataclass

PEERS = {
    "stranger": "a stranger, who has not shown the token",
    "viewer": "a viewer of the page, who has its key",
    "token": "a holder of the token that is not admitted",
    "admitted": "an admitted learner",
    "gossip": "a learner that gossips, to another one",
    "island": "a host of an island, to its rank 0",
}
HUB = "hub"
"""The supervisor and the syncer, whom their members trust."""

RESOURCES = {
    "memory": "memory",
    "loop": "time of the loop",
    "bytes_sent": "bytes sent",
    "stored": "growth of what is stored",
    "granted": "tokens and data granted",
    "end": "time until a run can end",
}

UNITS = {
    "memory": ("KiB held, beyond what there was", 1),
    "loop": ("ms of CPU in one turn", 1),
    "bytes_sent": ("bytes for each input, on average", 0),
    "stored": ("bytes for each input, on average", 0),
    "granted": ("tokens not used yet, of a budget of 1,000,000", 0),
    "end": ("s on the run's clock", 1),
}
"""What is measured, and with how many digits after the point it is told."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One cell: the most that was ever meant to be measured, the rule, and where it is enforced."""

    most: float
    rule: str
    file: str
    name: str


REQUESTS, SETTINGS = "messaging/websocket/read_limits.py", "messaging/websocket/settings.py"
LINK, LIMITS = "messaging/websocket/link.py", "messaging/codec/limits.py"
READING = "messaging/websocket/read_scheduler.py"
PAGE = "islands/page/server.py"
TAPE, EXCHANGES = "islands/files/growing_files.py", "islands/protocol/gossip/exchanges.py"
LEASES, TIMEOUTS = "islands/protocol/syncer/leases.py", "islands/protocol/syncer/timeouts.py"

BOUNDS: dict[tuple[str, str], Bound] = {
    ("memory", "stranger"): Bound(
        *(32_768, "16 KiB until the upgrade, of 512 connections at most"),
        *(REQUESTS, "REQUEST_BYTES_MAX"),
    ),
    ("memory", "viewer"): Bound(
        *(65_536, "16 viewers; what a viewer has not read waits on the disk, but for a message"),
        *(PAGE, "VIEWERS_MOST"),
    ),
    ("memory", "token"): Bound(
        *(8192, "a session's unread control: 256 KiB and 1,024 envelopes; no bulk is read"),
        *(LINK, "_control_full"),
    ),
    ("memory", "admitted"): Bound(
        *(8192, "the same, and 64 MiB or 64 envelopes of unread bulk, none larger than a value"),
        *(LINK, "_bulk_full"),
    ),
    ("memory", "gossip"): Bound(
        8192, "as admitted; a share is held for one round of its fragment", EXCHANGES, "JUMP_MAX"
    ),
    ("memory", "island"): Bound(
        *(8192, "as admitted; four shares of each fragment wait for those of other hosts"),
        *("islands/island/leader.py", "AHEAD_MAX"),
    ),
    ("loop", "stranger"): Bound(
        100, "a request of 16 KiB, in at most 128 headers", REQUESTS, "REQUEST_BYTES_MAX"
    ),
    ("loop", "viewer"): Bound(
        100, "the newest 2 MiB of each tape; one viewer at a time begins", PAGE, "NEWEST_BYTES"
    ),
    ("loop", "token"): Bound(
        *(100, "whole messages, 4,096 frames at once; 2 KiB of documents in a turn, or one"),
        *(READING, "GUESTS_BYTES_AT_ONCE"),
    ),
    ("loop", "admitted"): Bound(
        100, "8 KiB of documents in a turn, or one", READING, "BYTES_AT_ONCE"
    ),
    ("loop", "gossip"): Bound(100, "as admitted; 8,192 values in a document", LIMITS, "items"),
    ("loop", "island"): Bound(100, "as admitted; 16 levels in a document", LIMITS, "depth"),
    ("bytes_sent", "stranger"): Bound(
        *(512, "one answer of some lines, or a file of the page, then the end"),
        *("messaging/websocket/server.py", "_last_answer"),
    ),
    ("bytes_sent", "viewer"): Bound(
        *(2**20, "a file of the page, packed; or the newest 2 MiB of each tape for a websocket"),
        *(PAGE, "NEWEST_BYTES"),
    ),
    ("bytes_sent", "token"): Bound(
        *(1024, "one refusal or run spec for each request"),
        *("islands/protocol/supervisor/membership.py", "on_spec_request"),
    ),
    ("bytes_sent", "admitted"): Bound(
        *(4096, "each version once for each session; moments of the donor that it was told alone"),
        *("islands/protocol/syncer/commits.py", "is_owed"),
    ),
    ("bytes_sent", "gossip"): Bound(
        4096, "one share for each round and neighbour, again if it is wanted", EXCHANGES, "REPEATS"
    ),
    ("bytes_sent", "island"): Bound(
        4096,
        "each command once, with its share of the value",
        "islands/island/leader.py",
        "_send_commands",
    ),
    ("stored", "stranger"): Bound(
        *(256, "ten sentences a second for each address; the log rotates"),
        *("messaging/websocket/security.py", "RefusalReport"),
    ),
    ("stored", "viewer"): Bound(
        *(256, "as a stranger; nothing that a viewer sends is kept"),
        *("messaging/websocket/security.py", "RefusalReport"),
    ),
    ("stored", "token"): Bound(1024, "the tape and the log rotate", TAPE, "LIMIT_BYTES"),
    ("stored", "admitted"): Bound(
        *(1024, "as token; one account for each name"),
        *("islands/protocol/syncer/ledger.py", "books"),
    ),
    ("stored", "gossip"): Bound(1024, "as token", TAPE, "LIMIT_BYTES"),
    ("stored", "island"): Bound(1024, "as token", TAPE, "LIMIT_BYTES"),
    ("granted", "stranger"): Bound(
        0, "nothing without the token", "messaging/websocket/server.py", "_judge"
    ),
    ("granted", "viewer"): Bound(0, "the page can only be looked at", PAGE, "METHOD_NOT_ALLOWED"),
    ("granted", "token"): Bound(
        *(0, "nothing without a credential that the supervisor signed"),
        *("islands/protocol/membership.py", "genuine"),
    ),
    ("granted", "admitted"): Bound(
        *(333_333, "no more than an equal share of what is left; 256 shards"),
        *(LEASES, "LEASES_HELD_MAX"),
    ),
    ("granted", "gossip"): Bound(333_333, "as admitted", LEASES, "top_up"),
    ("granted", "island"): Bound(333_333, "as admitted: what its member has", LEASES, "top_up"),
    ("end", "stranger"): Bound(
        *(6.5, "no part in a run, and shown out after 5 s"),
        *(SETTINGS, "handshake_s"),
    ),
    ("end", "viewer"): Bound(6.5, "told to go, and cut after 0.5 s", PAGE, "GOING_AWAY"),
    ("end", "token"): Bound(
        120, "no part in a run", "islands/protocol/supervisor/membership.py", "ends_the_run"
    ),
    ("end", "admitted"): Bound(
        *(120, "the end waits for a member as long as it goes forward, up to a fixed limit"),
        *(TIMEOUTS, "end_at_most_s"),
    ),
    ("end", "gossip"): Bound(
        120, "an exchange ends at its deadline, whoever answers", EXCHANGES, "deadline_s"
    ),
    ("end", "island"): Bound(
        120, "a silent host ends its island alone", "islands/island/health.py", "silent_ticks"
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One message: who sends it, what it can spend, and what bounds that."""

    senders: tuple[str, ...]
    spends: tuple[str, ...]
    rule: str


def _row(senders: str, spends: str, rule: str) -> Row:
    return Row(tuple(senders.split()), tuple(spends.split()), rule)


def _told(rule: str = "only its hub's word counts") -> Row:
    return _row(HUB, "memory loop", rule)


ALL = "token admitted gossip island"

MESSAGES: dict[str, Row] = {
    # members and the supervisor
    "Join": _row(ALL, "memory stored granted", "one name for a link; 32 ended names are kept"),
    "Joined": _told(),
    "Refused": _told(),
    "Heartbeat": _row(ALL, "loop bytes_sent end", "its credential; one answer each"),
    "HeartbeatAck": _told(),
    "MembershipChanged": _told("its supervisor's word alone; pages of one frame"),
    "Evicted": _told(),
    "Leave": _row(ALL, "stored", "ends its own incarnation alone"),
    "Stop": _row(f"{ALL} {HUB}", "stored end", "a syncer with the run's key ends a run"),
    "RunSpecRequest": _row(ALL, "bytes_sent", "one run spec of 96 KiB at most for each"),
    "RunSpecReply": _told(),
    "LayoutWanted": _told(),
    "LayoutTold": _row(ALL, "memory stored", "only while a run has no layout; 1 MiB"),
    "LayoutTaken": _told(),
    "Drain": _told(),
    "Save": _told(),
    "Command": _row(
        ALL, "bytes_sent stored end", "a signature with the run's key, or an operator's"
    ),
    "CommandAnswer": _told(),
    "Note": _row(ALL, "memory stored", "64 before admission, 64 a second after; a rotating log"),
    "StepFigures": _row(
        *(ALL, "stored"),
        "believable figures of 2^48, a text of 80 characters, 16 metrics with names of 48",
    ),
    "RunEnded": _row(f"{ALL} {HUB}", "memory end", "a syncer with the run's key"),
    # learners and the syncer
    "Hello": _row(ALL, "bytes_sent granted", "its credential; one for each session"),
    "Welcome": _told(),
    "Progress": _row(ALL, "stored granted end", "what may be true; the third wrong one ends it"),
    "LeaseGranted": _told(),
    "PullFragment": _told(),
    "Contribution": _row(ALL, "memory loop", "one for each ticket, of one value's size"),
    "ContributionDeclined": _row(ALL, "loop", "one for each ticket"),
    "ContributionFate": _told(),
    "ContributionOffered": _row(ALL, "loop", "a note on an open pull of its own"),
    "FragmentUpdate": _told("its syncer's word alone; one value's size"),
    "FragmentRequest": _told(),
    "FragmentSeed": _row(ALL, "memory", "of the learner that was asked, once a fragment"),
    "FinalRound": _told(),
    "Paused": _told(),
    # learners, through the syncer
    "StateRequest": _row(ALL, "bytes_sent", "only the donor that was told is asked"),
    "StateOffer": _row(ALL, "memory bytes_sent", "8 MiB, to who asked and reads"),
    # a standby and the syncer
    "Follow": _row(ALL, "loop", "the credential of a standby, who has the run's key"),
    "RecordPiece": _told("its syncer's word alone; names and sizes of a journal's files"),
    "PieceHeld": _row(ALL, "loop", "of a standby that follows, and of what was sent to it"),
    # learners that gossip
    "PeerHello": _row(ALL, "loop", "the pair's proof, before anything else is read"),
    "Share": _row("gossip", "memory loop", "one for each round and fragment"),
    "ShareDeclined": _row("gossip", "loop", "its own share of an open round"),
    "ValueWanted": _row(
        "gossip", "bytes_sent", "to a member of the roster, three times a round each"
    ),
    "ValueGiven": _row("gossip", "memory", "from the learner that was asked, once a fragment"),
    # hosts of an island
    "HostHello": _row("island", "memory", "one a rank; all facts must be equal"),
    "IslandFormed": _told("only rank 0's word counts"),
    "CommandIssued": _told("only rank 0's word counts"),
    "CommandPart": _told("only rank 0's word counts"),
    "Word": _told("only rank 0's word counts"),
    "HostState": _row("island", "loop", "replaces the one before it"),
    "LeaderBeat": _told("only rank 0's word counts"),
    "ValueShare": _row("island", "memory", "four of each fragment wait for other hosts"),
    "HostFailed": _row("island", "end", "ends its own island alone"),
    "LeaveAsked": _row("island", "end", "ends its own island alone"),
    "IslandEnds": _told("only rank 0's word counts"),
}

BEGIN, END = "<!-- python -m tests.bounds -->", "<!-- end of python -m tests.bounds -->"


def figure(value: float, resource: str) -> str:
    return f"{value:,.{UNITS[resource][1]}f}".replace(".0", "")


def rendered() -> str:
    """Return the tables as they stand in SECURITY.md."""
    lines = [
        BEGIN,
        "",
        "| resource | of whom | bound | rule | enforced in |",
        "|---|---|---|---|---|",
    ]
    for (resource, peer), bound in BOUNDS.items():
        most = f"{figure(bound.most, resource)} {UNITS[resource][0]}"
        place = f"`{bound.file}`, `{bound.name}`"
        lines.append(f"| {RESOURCES[resource]} | {PEERS[peer]} | {most} | {bound.rule} | {place} |")
    lines += ["", "| message | who sends it | can spend | bounded by |", "|---|---|---|---|"]
    for name, row in MESSAGES.items():
        spends = ", ".join(RESOURCES[one] for one in row.spends)
        lines.append(f"| `{name}` | {', '.join(row.senders)} | {spends} | {row.rule} |")
    return "\n".join([*lines, "", END])


if __name__ == "__main__":
    sys.stdout.write(rendered() + "\n")
