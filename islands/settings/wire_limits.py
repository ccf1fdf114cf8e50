"""Size limits of a run's messages, which follow from its layout and bound its links.

A peer may send a whole fragment in float32, and a report that names every fragment. Before the
layout is known, the defaults of `messaging.Limits` hold, which `check_told` ensures for the layout.
"""

from islands.layout.leaves import VALUE_BYTES, Layout
from islands.protocol.errors import SettingsError, UserError
from islands.protocol.messages.control import CommandAnswer, RunEnded
from islands.protocol.messages.gossip import Share, ValueGiven
from islands.protocol.messages.membership import RunSpecReply
from islands.protocol.messages.standby import RecordPiece
from islands.protocol.messages.training import (
    Contribution,
    FragmentSeed,
    FragmentUpdate,
    StateOffer,
)
from messaging.codec.limits import Limits

VALUES = (Contribution, FragmentSeed, FragmentUpdate)

REPORT_BYTES = 192
"""Most bytes that a fragment adds to a Hello, which is the longest report."""

REPORT_ITEMS = 16
"""Most values of the document that a fragment adds to a Hello."""

FRAGMENTS_MAX = 1 << 14
"""Most fragments: a report names each and is decoded in one go, so more would block the loop."""

SPEC_BYTES_MAX = 1 << 15
"""Most bytes of settings and task together, which are sent in one header."""

FRAME_PREFIX_BYTES = 64

SCALES_BYTES = 8
"""Most bytes of an encoded value where its scales make it longer than float32."""

STATE_PIECE_BYTES = 8 * 2**20
"""Most bytes of a piece of an inner optimizer's state, as state donors send it."""

RECORD_PIECE_BYTES = 2**20
"""Most bytes of a piece of the journal, which the syncer's loop reads at once."""

SHARE_BYTES_MAX = 2**26
"""Most bytes of a syncer's share of the summary: some rows for each fragment and learner."""

STATUS_BYTES_MAX = 2**20
"""Most bytes of a run's status: some figures for each of its first learners."""


def limits_of(layout: Layout) -> Limits:
    fragments = len(layout.fragments)
    if fragments > FRAGMENTS_MAX:
        raise SettingsError(
            f"the plan has {fragments} fragments, and a report can name {FRAGMENTS_MAX} at most: "
            "set fragments to fewer"
        )
    least = Limits()
    header_bytes = least.header_bytes + REPORT_BYTES * fragments
    value_bytes = VALUE_BYTES * max(fragment.size for fragment in layout.fragments)
    value_bytes = max(value_bytes, SCALES_BYTES)
    payloads = {kind.__name__: value_bytes for kind in VALUES}
    payloads |= {
        Share.__name__: 2 * value_bytes,
        ValueGiven.__name__: value_bytes,
        StateOffer.__name__: STATE_PIECE_BYTES,
        RecordPiece.__name__: RECORD_PIECE_BYTES,
        RunEnded.__name__: SHARE_BYTES_MAX,
        CommandAnswer.__name__: STATUS_BYTES_MAX,
        RunSpecReply.__name__: least.payload_bytes,
    }
    return Limits(
        frame_bytes=max(least.frame_bytes, header_bytes + FRAME_PREFIX_BYTES),
        header_bytes=header_bytes,
        items=least.items + REPORT_ITEMS * fragments,
        payload_bytes=max(payloads.values()),
        payloads=payloads,
    )


def check_told(spec: str, plan: bytes) -> None:
    """Refuse a run whose spec or plan, as JSON, is too large for the message to joiners."""
    spec_bytes = len(spec.encode())
    if spec_bytes > SPEC_BYTES_MAX:
        raise UserError(
            f"the settings of the run and its task are {spec_bytes} bytes of JSON, and "
            f"{SPEC_BYTES_MAX} can be told to those who join: put large task_settings into a file "
            "that the task reads"
        )
    if len(plan) > Limits().payload_bytes:
        raise UserError(
            f"the plan of the model is {len(plan)} bytes of JSON, and {Limits().payload_bytes} can "
            "be told to those who join: stack the layers of the model into fewer leaves"
        )
