"""Actions that the syncer's state returns; the actor performs them in order.

The order carries a promise: whatever `WriteJournal` covers is sent only by actions that follow
the matching `JournalFinished`.
"""

from dataclasses import dataclass

from islands.protocol.identities import FragmentIndex, Ticket, Version
from islands.protocol.messages.membership import Evicted, Refused, Stop
from islands.protocol.messages.training import FragmentUpdate
from islands.protocol.tape.entry import Record


@dataclass(frozen=True, slots=True)
class Send:
    """Send a control message over a learner's or observer's link."""

    connection: int
    message: object


@dataclass(frozen=True, slots=True)
class SendValue:
    """Send a committed version: the actor adds its value, or the increments that lead to it."""

    connection: int
    message: FragmentUpdate


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Answer with a last message and close the link."""

    connection: int
    message: Refused | Evicted | Stop


@dataclass(frozen=True, slots=True)
class MergePart:
    """The answer to `ticket` over the link `connection`, as far as it counts.

    `steps` and `tokens` are those that it weighs by, `scale` is the factor on its length.
    """

    ticket: Ticket
    connection: int
    base: Version
    steps: int
    tokens: int
    scale: float


@dataclass(frozen=True, slots=True)
class BeginMerge:
    """Merge these contributions (sorted by name) and take one outer step from `current`."""

    fragment: int
    round: int
    current: Version
    target: Version
    parts: tuple[MergePart, ...]


@dataclass(frozen=True, slots=True)
class DropContribution:
    """Free the payloads that came for a ticket, over any link or only over `connection`."""

    ticket: Ticket
    connection: int | None = None


@dataclass(frozen=True, slots=True)
class InstallSeed:
    """Install the initial value: the fragments with these digests become `version`."""

    version: Version
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseValues:
    """Free a fragment's values, and increments to values, that are older than `version`'s."""

    fragment: FragmentIndex
    version: Version


@dataclass(frozen=True, slots=True)
class WriteJournal:
    """Make the durable state (and this fragment's newest value, if given) survive a crash."""

    sequence: int
    fragment: int | None
    version: Version | None


@dataclass(frozen=True, slots=True)
class FinishRun:
    """Export the final cut, which is durable, and report the end until the supervisor answers."""

    reason: str


@dataclass(frozen=True, slots=True)
class Exit:
    """End this process: the supervisor knows that the run is over, or cannot be reached."""

    reason: str


Action = (
    Send
    | SendValue
    | Dismiss
    | BeginMerge
    | DropContribution
    | InstallSeed
    | ReleaseValues
    | WriteJournal
    | Record
    | FinishRun
    | Exit
)
