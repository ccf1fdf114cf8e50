"""Twelve deliberate bugs, one or two of each kind that a decoupled run must not have.

`docs/testing.md` tells what found each; `python -m tests.benchmarks.mutations --twelve` tries them.
"""

TWELVE: tuple[tuple[str, str], ...] = (
    ("fencing", "a fenced syncer writes on"),
    ("fencing", "an ended incarnation is let in"),
    ("ledger", "tokens that were applied may be contributed again"),
    ("ledger", "what is in doubt counts as overwritten"),
    ("grace", "grace longer than a step"),
    ("pace", "an opened round costs no credit"),
    ("counters", "round numbers do not grow"),
    ("journal order", "a version is sent before it is durable"),
    ("remainder", "what increments left is forgotten"),
    ("roles", "a credential is good for another role"),
    ("weights", "weights paired with the wrong contributions"),
    ("incarnations", "incarnations come back"),
)
"""What each breaks, and its name among the mutations."""
