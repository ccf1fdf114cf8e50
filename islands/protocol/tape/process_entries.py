"""Entries of every process about itself, and about the peers that send to it."""

from islands.protocol.messages.control import Verb
from islands.protocol.tape.entry import Entry, Logged, Notable


class TapeBegan(Entry, frozen=True, tag="tape"):
    """A tape begins or is continued here; the entries that follow have this format version."""

    version: int


class ProcessBegan(Entry, frozen=True, tag="process_began"):
    """A process began, at these times of its wall clock and of its monotonic (loop's) clock."""

    pid: int
    wall_s: float
    loop_s: float


class Started(Logged, frozen=True, tag="started"):
    """A supervisor or syncer started; only a syncer tells whether it `resumed` from its journal."""

    epoch: int
    resumed: bool | None = None
    sequence: int | None = None


class Waits(Entry, frozen=True, tag="waits"):
    """A learner has to wait, and retries later."""

    reason: str


class Exit(Entry, frozen=True, tag="exit"):
    """A learner's process ends; `failed` says that it needs the attention of a person."""

    reason: str
    failed: bool


class Failed(Logged, frozen=True, tag="failed"):
    """An actor ended with an error."""

    error: str
    detail: str | None = None


class Disk(Logged, frozen=True, tag="disk"):
    """A disk is full or fails at present; what is to be written waits."""

    error: str


class Checkpointed(Logged, frozen=True, tag="checkpointed"):
    """A checkpoint of the run is whole: it is at `path`, and can be resumed from."""

    merges: int
    tokens: int
    size_bytes: int
    took_s: float
    reason: str
    path: str


class CopyFailed(Logged, frozen=True, tag="copy_failed"):
    """A `checkpoint`, the `mirror` or the copy of a `standby` could not be written.

    The run goes on, and tries it again.
    """

    what: str
    error: str


class RunDiverged(Logged, frozen=True, tag="run_diverged"):
    """The run has diverged and is paused; `then` says what the hub does.

    By `command` it goes back to a checkpoint from before that, and loses so many tokens; the three
    are empty or 0 if there is none.
    """

    why: str
    then: str
    checkpoint: str
    lost_tokens: int
    command: str


class Mirrored(Logged, frozen=True, tag="mirrored"):
    """The second copy of the run, a mirror or a standby, is whole, after it had failed or begun."""

    path: str


class Damaged(Logged, frozen=True, tag="damaged"):
    """Files that should exist are damaged or missing; the run goes on without them."""

    files: list[str]


class EntriesLost(Entry, frozen=True, tag="entries_lost"):
    """The writer could not write this number of entries before this one."""

    entries: int


class Refused(Logged, frozen=True, tag="refused"):
    """A peer or an operator's command was refused; `left_out` entries before it were not kept."""

    name: str
    reason: str
    verb: Verb | None = None
    target: str | None = None
    count: int | None = None
    left_out: int | None = None


class KeptOut(Entry, frozen=True, tag="kept_out"):
    """Something that a peer sent was not taken; `left_out` entries before it were not kept."""

    name: str | None
    what: str
    reason: str
    left_out: int | None = None


class Evaluation(Notable, frozen=True, tag="evaluation"):
    """An observer evaluated published values, which account for so many tokens."""

    clock: float
    tokens: int
    took_s: float
    figures: dict[str, float]


class EvaluationFailed(Logged, frozen=True, tag="evaluation_failed"):
    """An evaluation raised an error; the next one takes place as usual."""

    error: str
    detail: str
