"""Recovery: the state that a restarted syncer reads, and whether the run may be resumed.

A standby would take over with the same state: `Journal.take_over` (`islands/syncer/journal.py`)
reads it, and `SyncerActor` begins with it.

======================================  =======================================================
the journal is of another run           refused
the token budget is smaller             refused
it is larger, or there is none now      resumed; an end that had begun, or was reached, is undone;
                                        refused if the run's time is used up
time ended it, and there is more now    resumed, and that end is undone
it is the same, the run goes on         resumed, also in the middle of its end
it is the same, the run is over
  and the supervisor has heard so       refused, unless time ended it and there is more time now
  and the supervisor has not            resumed: only its end has yet to be reported
======================================  =======================================================

The error of a refusal says in a sentence how to go on.
"""

from dataclasses import dataclass

from islands.protocol.errors import JournalError
from islands.protocol.settings.run import RunSettings
from islands.protocol.syncer.leases import LeaseBook, ordinary_grant_steps
from islands.protocol.syncer.ledger import Ledger
from islands.protocol.syncer.members import Fence
from islands.protocol.syncer.versions import Published
from islands.protocol.tape.round_entries import Extended


@dataclass(slots=True)
class Durable:
    """The state that a restarted syncer must know: exactly the metadata of a journal record.

    `published` holds the versions that the record with number `sequence` makes durable. `stopping`
    is the reason why the run is closing, `finished` why it is over, and `reported` whether the
    supervisor has heard so. `belated_tokens` are those that closing rounds merged although earlier
    rounds should have (`commits.py`). `elapsed_s` counts against the budget (`pausing.py`). `clock`
    is the fleet's learning-rate clock; it continues from its value if H or P change. `begun` is the
    beginning of the run from which incarnations count (`credentials.py`).
    """

    epoch: int
    sequence: int
    round: int
    clock: float
    published: list[Published | None]
    ledger: Ledger
    leases: LeaseBook
    fence: Fence
    merges: int = 0
    staleness_sum: int = 0
    participants_sum: int = 0
    present_sum: int = 0
    belated_tokens: int = 0
    rejoins: int = 0
    stopping: str | None = None
    finished: str | None = None
    reported: bool = False
    paused: bool = False
    elapsed_s: float = 0.0
    run: str = ""
    fingerprint: str = ""
    begun: str = ""

    def make(self, fragment: int, published: Published) -> None:
        self.published[fragment] = published


def fresh(settings: RunSettings, *, fragments: int, shards: int, epoch: int) -> Durable:
    return Durable(
        epoch=epoch,
        sequence=0,
        round=0,
        clock=0.0,
        published=[None] * fragments,
        ledger=Ledger.of(fragments),
        leases=LeaseBook(shards, settings.budget_tokens, ordinary_grant_steps(settings)),
        fence=Fence(),
    )


TIME = "time"


def resume_run(
    durable: Durable, settings: RunSettings, fingerprint: str, begun: str = ""
) -> Extended | None:
    """Fit the durable state to the settings of this start; return an entry if the run is extended.

    Where the supervisor began anew, it counts incarnations from the start again: all that the
    journal knows of have ended, and none of them fences the new ones.
    """
    for what, held, wanted in (
        ("run", durable.run, settings.run),
        ("layout", durable.fingerprint, fingerprint),
    ):
        if held != wanted:
            raise JournalError(
                f"the journal is of another run: its {what} is {held}, not {wanted}; "
                "choose another folder"
            )
    if durable.begun != begun:
        for name, book in list(durable.ledger.books.items()):
            durable.ledger.close(name)
            durable.leases.close(name, book.processed)
        durable.fence, durable.begun = Fence(), begun
    leases = durable.leases
    before, wanted_tokens = leases.budget_tokens, settings.budget_tokens
    larger = before is not None and (wanted_tokens is None or wanted_tokens > before)
    if not larger and wanted_tokens != before:
        raise JournalError(
            f"{_progress(durable)}, and cannot be cut to {_tokens(wanted_tokens)}; go on with "
            f"budget_tokens {before}, or extend it by a larger one"
        )
    longer = durable.stopping == TIME and _time_left(durable, settings)
    over = durable.finished is not None and durable.reported
    if over and not larger and not longer:
        raise JournalError(
            f"{_progress(durable)}, and is over ({durable.finished}); to extend it, give it "
            f"{_more(durable, before)}"
        )
    if larger and not _time_left(durable, settings):
        raise JournalError(
            f"{_progress(durable)}, and has used up its {settings.budget_s} s; to extend it, give "
            f"it a budget_s above {durable.elapsed_s:.0f} as well"
        )
    leases.chunk_steps = ordinary_grant_steps(settings)
    if not larger and not longer:
        return None
    ended, leases.budget_tokens = durable.stopping, wanted_tokens
    durable.stopping, durable.finished, durable.reported = None, None, False
    return Extended(wanted_tokens, before, ended or "")


def _time_left(durable: Durable, settings: RunSettings) -> bool:
    return settings.budget_s is None or durable.elapsed_s < settings.budget_s


def _progress(durable: Durable) -> str:
    budget = durable.leases.budget_tokens
    of = "" if budget is None else f" of {_tokens(budget)}"
    return f"run {durable.run!r} has processed {durable.ledger.processed:,}{of} tokens"


def _tokens(budget: int | None) -> str:
    return "no budget" if budget is None else f"{budget:,}"


def _more(durable: Durable, budget: int | None) -> str:
    longer = f"a budget_s above {durable.elapsed_s:.0f}"
    if budget is None:
        return longer
    larger = f"budget_tokens above {budget}"
    return f"{larger}, or {longer}" if durable.stopping == TIME else larger
