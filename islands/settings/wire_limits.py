"""How large this run's own messages can be: bounds for its links, from its layout.

What a peer may send follows from what a run of this layout has to say: a whole fragment in
float32, a report that names every fragment. Before the layout is known, `messaging.Limits` holds
as it is; it must do for telling what the run is (`RunSpecReply`), and `check_told` sees to that.
"""

from islands.errors import SettingsError, UserError
from islands.layout.leaves import VALUE_BYTES, Layout
from islands.messages.control import RunEnded
from islands.messages.membership import RunSpecReply
from islands.messages.peers import StateOffer
from islands.messages.training import Contribution, FragmentSeed, FragmentUpdate
from messaging.codec.limits import Limits

VALUES = (Contribution, FragmentSeed, FragmentUpdate)

REPORT_BYTES = 192
"""What a fragment adds to a Hello, which is the longest report, at most."""

REPORT_ITEMS = 16
"""The same in values of the document."""

FRAGMENTS_MAX = 1 << 14
"""A report names every fragment and is read in one go: more would hold up the loop for long."""

SPEC_BYTES_MAX = 1 << 15
"""Of settings and task together, which travel in one header."""

FRAME_PREFIX_BYTES = 64

STATE_PIECE_BYTES = 8 * 2**20
"""Of an inner optimizer's state, as peers give it to one another."""

SHARE_BYTES_MAX = 2**26
"""Of what a syncer adds to the summary: some rows for each fragment and learner."""


def limits_of(layout: Layout) -> Limits:
    """The most that a member of a run of this layout may send.

    Raises:
        SettingsError: No report could name so many fragments.
    """
    fragments = len(layout.fragments)
    if fragments > FRAGMENTS_MAX:
        raise SettingsError(
            f"the plan has {fragments} fragments, and a report can name {FRAGMENTS_MAX} at most: "
            "set fragments to fewer"
        )
    least = Limits()
    header_bytes = least.header_bytes + REPORT_BYTES * fragments
    value_bytes = VALUE_BYTES * max(fragment.size for fragment in layout.fragments)
    payloads = {kind.__name__: value_bytes for kind in VALUES}
    payloads |= {
        StateOffer.__name__: STATE_PIECE_BYTES,
        RunEnded.__name__: SHARE_BYTES_MAX,
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
    """Refuse a run that could not be told to whoever asks what it is.

    Args:
        spec: Settings and task, as they are told.
        plan: The layout, as it is told.

    Raises:
        UserError: One of them is too large for a message; the sentence says which.
    """
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
