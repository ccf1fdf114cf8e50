"""Decisions about islands that are placed: pure, as a supervisor's are.

What is wanted is compared with what engines list, again and again: `next_call` returns what an
engine is to be asked next, and `on_answer` notes what it said. Nothing else is remembered to be
done, so a call that was cut off, or a hub that was killed, is mended by the next list.

=============================================  ================================================
an island                                      its engine is asked
=============================================  ================================================
is to end, and has a job                       to end the job, once; again if that failed
has a job beside that which is remembered      to end that other one
is wanted, and the engine lists no job of it   to place it, under the number of this attempt
has a job that it lists, waiting or running    nothing: it is kept, and a long wait is reported
has a job that nobody remembers                nothing: it is taken up
=============================================  ================================================

What failed is tried again after 5 s, 10 s … 5 min. A job that has ended, is refused, or is missing
in `MISSING_MAX` lists, is an end of its island. Who is a member, and whether an island that has
ended is placed again, is the supervisor's to say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from islands.actors.ports import KILLED, ProcessEnd
from islands.engines.engine import EngineAway, Job, JobState, Unplaceable, end_in_words
from islands.engines.needs import entry_of
from islands.protocol.errors import DONE, FAILED, OF_NO_USE

RETRY_FIRST_S, RETRY_MAX_S = 5.0, 300.0
HURRY_S = 1.0
"""Interval of lists while an island is to end, if the engine's own is longer."""
MISSING_MAX = 2
"""Lists in a row that must lack a job before it counts as ended."""
WAIT_SAID_S = 600.0
"""A wait in an engine's queue is reported after so long, and again whenever it has doubled."""
ALIVE = (JobState.WAITING, JobState.RUNNING)


@dataclass(slots=True)
class Placement:
    """An island that is placed, or about to be, as the hub remembers it also after a restart.

    It has its entry in the table `islands`, its job by the engine's own name, and of it what the
    engine says. Times are wall times: since when the state holds, of the last placing, for how long
    its jobs ran before, and before which its engine is not asked again.

    Args:
        starts: how often the hub has placed it; `restarts` counts the engine's.
        ending: whether it was asked to end; `killed` at once, so that its end is no orderly one.
        unsure: whether the engine may have a job of it all the same, since a call was cut off.
        ended: how it has ended, in words; empty if it ended as it should, so that a restarted hub
            does not place it again; None if it has not ended.
        asked: whether the engine has accepted to end its job.
    """

    entry: str
    job: str = ""
    state: JobState | None = None
    since_s: float = 0.0
    placed_s: float = 0.0
    where: str = ""
    why: str = ""
    restarts: int = 0
    starts: int = 0
    ran_s: float = 0.0
    ending: bool = False
    killed: bool = False
    unsure: bool = False
    ended: str | None = None
    asked: bool = False
    due_s: float = 0.0
    missing: int = 0
    retry_s: float = RETRY_FIRST_S
    said_s: float = WAIT_SAID_S

    def enter(self, state: JobState, now_s: float) -> None:
        """Note a new state of its job, and for how long it has run before."""
        if self.state is JobState.RUNNING:
            self.ran_s += max(0.0, now_s - self.since_s)
        self.state, self.since_s = state, now_s

    def retry(self, now_s: float) -> None:
        """Have its engine asked again later, and after twice as long the next time."""
        self.due_s = now_s + self.retry_s
        self.retry_s = min(2 * self.retry_s, RETRY_MAX_S)


@dataclass(frozen=True, slots=True)
class Place:
    """Place an island; `attempt` counts how often, so that the same call twice is one job."""

    name: str
    attempt: int


@dataclass(frozen=True, slots=True)
class EndJob:
    """End a job."""

    job: str
    at_once: bool


@dataclass(frozen=True, slots=True)
class ListJobs:
    """List the run's jobs."""


Call = Place | EndJob | ListJobs


@dataclass(slots=True)
class Listed:
    """What is known of an entry's engine.

    Its jobs are None if it must list before it places. `twins` are to end, as their islands have
    other jobs. `away` is what it said last instead of an answer, `full` whether it was reported to
    have no room, `placing` the island that it is just asked to place.
    """

    engine: str
    poll_s: float = 0.0
    jobs: Sequence[Job] | None = None
    twins: list[str] = field(default_factory=list)
    due_s: float = 0.0
    retry_s: float = 0.0
    away: str = ""
    full: bool = False
    placing: str = ""


@dataclass(slots=True)
class Placements:
    """All islands of a run that engines place, by name; engines by the name of their entry.

    Sentences for the person who started the run (`said`), and ends, wait to be reported.
    """

    engines: Mapping[str, str]
    islands: dict[str, Placement] = field(default_factory=dict)
    listed: dict[str, Listed] = field(init=False)
    said: list[str] = field(default_factory=list)
    ends: list[tuple[str, ProcessEnd]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Go on with what an earlier start of the hub was about to do when it was killed."""
        self.listed = {entry: Listed(engine) for entry, engine in self.engines.items()}
        for placed in self.islands.values():
            placed.unsure, placed.asked, placed.due_s = not placed.job, False, 0.0

    def names(self) -> list[str]:
        """Return the islands that have a job, or are about to be placed."""
        return [name for name, each in self.islands.items() if each.ended is None]

    def entry_of(self, name: str) -> str | None:
        """Return the entry of an island's name, such as site of site-0; None if there is none."""
        entry = entry_of(name)
        return entry if entry in self.engines and entry != name else None

    def wanted(self, counts: Mapping[str, int]) -> list[str]:
        """Return the islands that a hub places at its start: new ones, and those of its last start.

        The run's file has the number of islands of each entry.
        """
        first = [f"{entry}-{index}" for entry, count in counts.items() for index in range(count)]
        left = {name for name, each in self.islands.items() if each.ended == ""}
        return [name for name in dict.fromkeys([*first, *self.names()]) if name not in left]

    def rows(self, now_s: float) -> list[dict[str, object]]:
        """Return a row for each island, for an operator; `for_s` is the age of its state."""
        return [
            {
                "name": name,
                "engine": self.engines[each.entry],
                "job": each.job,
                "state": "away" if self._away(each) else each.state or "not placed",
                "for_s": max(0.0, now_s - each.since_s) if each.since_s else None,
                "where": each.where,
                "why": each.ended or self._away(each) or each.why,
                "restarts_by_engine": each.restarts,
                "restarts_by_hub": max(0, each.starts - 1),
            }
            for name, each in sorted(self.islands.items())
        ]

    def _away(self, placed: Placement) -> str:
        return self.listed[placed.entry].away

    # --- what is wanted -----------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Have an island placed, unless it is placed or about to be."""
        entry, before = self.entry_of(name), self.islands.get(name)
        if entry is None or (before is not None and before.ended is None):
            return
        starts, ran_s = (0, 0.0) if before is None else (before.starts, before.ran_s)
        self.islands[name] = Placement(entry, starts=starts, ran_s=ran_s)

    def stop(self, name: str, *, at_once: bool) -> None:
        """Have an island end; one that has no job, and cannot have one, has ended with that."""
        placed = self.islands.get(name)
        if placed is None or placed.ended is not None:
            return
        placed.ending, placed.asked, placed.due_s = True, False, 0.0
        placed.killed = placed.killed or at_once
        if not placed.job and self.listed[placed.entry].placing != name:
            self._unplaced(name, placed)

    def _unplaced(self, name: str, placed: Placement) -> None:
        """Forget an island that is to end, once it is known that there is no job of it."""
        if placed.unsure:
            self.listed[placed.entry].due_s = 0.0
            return
        del self.islands[name]
        self.ends.append((name, ProcessEnd()))

    # --- what engines are asked ---------------------------------------------------------------

    def next_call(self, entry: str, now_s: float) -> Call | None:
        """Return what an engine is asked now: first to end jobs, then to list, then to place."""
        listed, here = self.listed[entry], self._here(entry)
        for placed in here.values():
            if placed.job and placed.ending and not placed.asked and _due(placed.due_s, now_s):
                return EndJob(placed.job, placed.killed)
        if listed.twins:
            return EndJob(listed.twins.pop(), at_once=False)
        if _due(listed.due_s, now_s):
            return ListJobs() if here or listed.jobs is None else None
        if listed.jobs is None:
            return None
        for name, placed in here.items():
            if not placed.job and not placed.ending and _due(placed.due_s, now_s):
                listed.placing = name
                known = sum(job.name == name for job in listed.jobs)
                return Place(name, 1 + max(placed.starts, known))
        return None

    def wait_s(self, entry: str, now_s: float) -> float | None:
        """Return the seconds until an engine may have to be asked; None if it need not be."""
        listed, here = self.listed[entry], self._here(entry).values()
        due = [each.due_s for each in here if not _due(each.due_s, now_s)]
        return min((*due, listed.due_s)) - now_s if here or listed.jobs is None else None

    def _here(self, entry: str) -> dict[str, Placement]:
        found = self.islands.items()
        return {name: each for name, each in found if each.entry == entry and each.ended is None}

    # --- what engines say ---------------------------------------------------------------------

    def on_answer(self, entry: str, call: Call, answer: object, now_s: float) -> None:
        """Note what an engine answered to a call: its result, or why it has none."""
        match call, answer:
            case ListJobs(), EngineAway() | Unplaceable():
                self._on_away(entry, answer, now_s)
            case ListJobs(), list():
                self.on_listed(entry, answer, now_s)
            case Place(name), str():
                self.listed[entry].placing = ""
                self.on_placed(name, answer, now_s)
            case Place(name), EngineAway() | Unplaceable():
                self.listed[entry].placing = ""
                self._on_not_placed(name, answer, now_s)
            case EndJob(), _:
                self._on_end(entry, call, answer, now_s)

    def on_placed(self, name: str, job: str, now_s: float) -> None:
        placed = self.islands[name]
        listed = self.listed[placed.entry]
        placed.job, placed.state, placed.unsure = job, JobState.WAITING, False
        placed.placed_s = placed.since_s = now_s
        placed.starts += 1
        placed.retry_s, placed.due_s, placed.why = RETRY_FIRST_S, 0.0, ""
        listed.full = False
        listed.due_s = min(listed.due_s, now_s + listed.poll_s)

    def _on_not_placed(self, name: str, error: EngineAway | Unplaceable, now_s: float) -> None:
        """Have an island placed again later; or report it as ended, if that would be in vain."""
        placed = self.islands[name]
        listed = self.listed[placed.entry]
        if isinstance(error, Unplaceable) and not placed.ending:
            self._refuse(name, placed, str(error))
            return
        if isinstance(error, EngineAway):  # it may have placed the island all the same
            placed.unsure, listed.jobs, listed.due_s = True, None, 0.0
        if placed.ending:
            self._unplaced(name, placed)
            return
        placed.why = str(error)
        placed.retry(now_s)
        if not listed.full and not listed.away:
            self._say_again(placed.entry, f"{name} cannot be placed now: {error}")
        listed.full = True

    def _refuse(self, name: str, placed: Placement, sentence: str) -> None:
        placed.ended = f"cannot be placed: {sentence}"
        self.ends.append((name, ProcessEnd(OF_NO_USE, placed.ended, sentence)))

    def _on_end(self, entry: str, call: EndJob, answer: object, now_s: float) -> None:
        """Look soon for the end of a job, or end it again later if it is that of an island."""
        listed = self.listed[entry]
        listed.due_s = min(listed.due_s, now_s + HURRY_S)
        found = [(n, each) for n, each in self._here(entry).items() if each.job == call.job]
        for name, placed in found:
            if answer is None:
                placed.asked = call.at_once or not placed.killed
                continue
            if placed.retry_s == RETRY_FIRST_S and not listed.away:
                self.said.append(f"{name} cannot be ended now: {answer}; it is tried again")
            placed.retry(now_s)

    def _on_away(self, entry: str, error: EngineAway | Unplaceable, now_s: float) -> None:
        """Note that an engine does not answer, and tell it once; refuse islands if it never can."""
        listed = self.listed[entry]
        known, listed.away = listed.away, str(error)
        listed.retry_s = min(2 * max(listed.retry_s, listed.poll_s), RETRY_MAX_S / 5)
        listed.due_s = now_s + listed.retry_s
        if isinstance(error, Unplaceable):
            for name, placed in self._here(entry).items():
                if not placed.job and not placed.ending:
                    self._refuse(name, placed, str(error))
        if not known:
            self._say_again(entry, str(error))

    def on_listed(self, entry: str, jobs: Sequence[Job], now_s: float) -> None:
        """Compare the jobs of an entry's engine with what is remembered of the entry's islands."""
        listed = self.listed[entry]
        jobs = [job for job in jobs if self.entry_of(job.name) == entry]
        listed.jobs, listed.retry_s, listed.twins = jobs, 0.0, []
        back, listed.away = listed.away, ""
        if back:
            self.said.append(f"{self._engine(entry)} answers again")
        by_job = {job.job: job for job in jobs}
        for name, placed in self._here(entry).items():
            if placed.job:
                self._compare(name, placed, by_job.get(placed.job), now_s)
                continue
            found = next((j for j in jobs if j.name == name and j.state in ALIVE), None)
            if found is not None:
                self.on_placed(name, found.job, now_s)
                continue
            placed.unsure, placed.due_s = False, 0.0 if back else placed.due_s
            if placed.ending:
                self._unplaced(name, placed)
        for job in jobs:
            self._on_unknown(entry, job, now_s)
        hurry = any(each.ending for each in self._here(entry).values())
        listed.due_s = now_s + min(HURRY_S if hurry else RETRY_MAX_S, listed.poll_s)

    def _engine(self, entry: str) -> str:
        return f"{self.engines[entry]} ({entry})"

    def _say_again(self, entry: str, sentence: str) -> None:
        engine = self._engine(entry)
        self.said.append(f"{sentence}; the run goes on, and {engine} is asked again")

    def _compare(self, name: str, placed: Placement, job: Job | None, now_s: float) -> None:
        placed.missing = placed.missing + 1 if job is None else 0
        if placed.missing == MISSING_MAX:
            # Nobody knows how it ended: it has left if the supervisor saw that, or is placed again.
            engine = self._engine(placed.entry)
            self.said.append(f"{engine} has no job {placed.job} of {name} any more")
            job = Job(name, placed.job, JobState.ENDED, cancelled=True)
        if job is None:
            return
        if job.state is JobState.ENDED:
            if job.began or placed.ending:
                self._end(name, placed, job, now_s)
                return
            placed.job, placed.state, placed.why = "", None, job.why
            placed.retry(now_s)
            return
        if job.state is not placed.state:
            placed.enter(job.state, now_s)
            placed.said_s = WAIT_SAID_S
        placed.where, placed.why, placed.restarts = job.where, job.why, job.restarts
        waited_s = now_s - placed.since_s
        if placed.state is JobState.WAITING and waited_s >= placed.said_s:
            placed.said_s = 2 * waited_s
            queue = f"the queue of {self._engine(placed.entry)}"
            why = f": {job.why}" if job.why else ""
            self.said.append(f"{name} has waited for {waited_s / 60:.0f} min in {queue}{why}")

    def _end(self, name: str, placed: Placement, job: Job, now_s: float) -> None:
        """Note how an island has ended; one that was asked to end in order is forgotten."""
        placed.enter(JobState.ENDED, now_s)
        placed.where, end = "", ProcessEnd()
        if placed.killed:
            placed.ended, end = KILLED.told, KILLED
        elif placed.ending:
            del self.islands[name]
        else:
            placed.ended = end_in_words(job)
            if placed.ended:
                code = FAILED if job.code in (None, DONE) else job.code
                end = ProcessEnd(code, placed.ended, job.why)
        self.ends.append((name, end))

    def _on_unknown(self, entry: str, job: Job, now_s: float) -> None:
        """Take up a job that nobody remembers, or end it if its island has another one."""
        placed = self.islands.get(job.name)
        if job.state not in ALIVE:
            return
        if placed is None or placed.ended is not None:
            starts = 1 if placed is None else placed.starts
            self.islands[job.name] = Placement(
                *(entry, job.job, job.state, now_s, now_s), where=job.where, starts=starts
            )
            engine = self._engine(entry)
            self.said.append(f"{job.name} is job {job.job} of {engine}, and is taken up")
        elif placed.job != job.job:
            self.listed[entry].twins.append(job.job)


def _due(due_s: float, now_s: float) -> bool:
    """Return whether a time has come; one that is too far away comes from a clock that was set."""
    return not now_s < due_s <= now_s + RETRY_MAX_S
