"""What happened in a run, as sentences for a person: of the tape's entries those that one acts on.

The log has all of them, with all fields. Not told here are what everybody does once (a first start
with fresh moments, a process that ends as it should), what another entry says as well, and warnings
that are shown as long as they are true.
"""

from messaging.plain_text import plain

ENDS = {"tokens": "its budget of tokens is spent", "time": "its time is over"}
"""Why a run ends, for a person."""

WORDS = {
    "evicted": "{name} was evicted: {reason}",
    "left": "{name} left: {reason}",
    "refused": "{name} was refused: {reason}",
    "quarantined": "{name} is quarantined: {reason}",
    "wrong_report": "{name} reports what cannot be true: {reason}",
    "diverged": "{name} begins again, with fresh moments: its loss is not a finite number",
    "moments_taken": "{actor} took its moments from {from}",
    "resumed": "the run goes on",
    "killed": "{name} was killed: {reason}",
    "gave_up": "{name} is not started again: {reason}",
    "seeded": "{name} gave the initial parameters",
    "seed_late": "{name} did not send the initial parameters in time",
    "closing": "the run is ending: {reason}",
    "extended": "the run goes on with a larger budget",
    "abandoned": "a round on fragment {fragment} was given up: {reason}",
    "nothing_merged": "nothing was merged for {for_s:.0f} s: {because}",
    "failed": "{actor} failed: {error}",
    "evaluation_failed": "an evaluation failed: {error}",
    "unsendable": "{actor} has something that cannot be sent: {error}",
    "disk": "{actor} waits for its disk: {error}",
}
"""The sentence about each kind of entry."""

STATUS = {
    "live": "{name} is heard again",
    "suspect": "{name} is not heard",
    "stalled": "{name} takes no step",
}


class _Fields(dict[str, object]):
    """Fields of an entry; one that it lacks is empty."""

    def __missing__(self, key: str) -> str:
        return ""


def sentence(actor: str, kind: str, fields: dict[str, object], *, known: bool = False) -> str:
    """What a person is told of an entry of the tape; "" for nothing.

    Args:
        actor: who wrote it.
        kind: of the entry.
        fields: of the entry.
        known: whether the one that it names was here before.

    Raises:
        ValueError: a field is of another type than its actor would give it.
    """
    template = WORDS.get(kind, "")
    match kind:
        case "admitted" if fields.get("role") == "learner":
            template = "{name} is back" if known else "{name} joined"
        case "status":
            template = STATUS.get(str(fields.get("status")), "")
        case "paused":
            stood = "gap_s" in fields  # by itself: its host was busy, or asleep
            template = "{actor} stood still for {gap_s:.1f} s" if stood else "the run is paused"
        case "commanded":
            whom = " {target}" if fields.get("target") else ""
            template = "operator: {verb}" + whom + ": {told}"
        case "process_ended" if fields.get("reason"):
            template = "the process of {name} ended: {reason}"
        case _:
            pass
    if kind == "closing":
        fields = {**fields, "reason": why_ended(str(fields.get("reason")))}
    told = template.format_map(_Fields(fields, actor=actor))
    return plain(told.rstrip(": "))


def why_ended(reason: str) -> str:
    """Why a run has ended, for a person."""
    return ENDS.get(reason, reason)
