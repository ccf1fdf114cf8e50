"""Decisions about islands that are placed: pure, as a supervisor's are.

=============================================  ================================================
the engine                                     what follows
=============================================  ================================================
has placed the island                          it is watched by its job
has no room, or is cut off while it places     it is asked again, after 5 s, 10 s … 5 min
refuses, until its user mends something        the island has ended, with an error of its user's
has the job, waiting, running or ending        it is remembered, and a long wait is told
has ended the job                              the island has ended, with its exit code
lets the job wait no longer                    the island is placed again, after 5 s, 10 s … 5 min
no longer knows the job, `MISSING_MAX` times   the island has ended, nobody knows how
has a job that nobody remembers                it is taken up: the hub died before it wrote it down
has two jobs of one island                     the one that is not remembered is ended
=============================================  ================================================

Who is a member, and whether an island that has ended is placed again, is the supervisor's to say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from islands.actors.ports import KILLED, ProcessEnd
from islands.engines.engine import Job, JobState, told_of
from islands.engines.needs import entry_of
from islands.protocol.errors import DONE, FAILED, OF_NO_USE

RETRY_FIRST_S, RETRY_MAX_S = 5.0, 300.0
MISSING_MAX = 2
"""Lists in a row that must lack a job before it counts as ended."""
WAIT_SAID_S = 600.0
"""A wait in an engine's queue is told after so long, and again each time that it has doubled."""


@dataclass(slots=True)
class Placement:
    """An island that is placed, or about to be, as the hub remembers it also after a restart.

    Args:
        entry: its entry in the table `islands`, whose engine places it.
        job: the engine's own name of its job; empty until it has one.
        state: the job's state; None until it has a job.
        since_s: wall time of the last change of its state.
        placed_s: wall time at which it was placed last; 0 until then.
        where: its hosts, in the engine's words.
        why: why it waits, in the engine's words.
        restarts: how often the engine has started this job again.
        starts: how often the hub has placed it.
        ran_s: for how long its jobs have run before the present state.
        ending: whether it was asked to end.
        killed: whether it was to end at once, so that its end is no orderly one.
        unsure: whether the engine may have a job of it all the same, since a call was cut off.
        ended: how it has ended, in words; empty if it ended as it should, so that a restarted hub
            does not place it again; None if it has not ended.
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
    missing: int = 0
    retry_s: float = RETRY_FIRST_S
    said_s: float = WAIT_SAID_S

    def enter(self, state: JobState, now_s: float) -> None:
        """Note a new state of its job, and for how long it has run before."""
        if self.state is JobState.RUNNING:
            self.ran_s += max(0.0, now_s - self.since_s)
        self.state, self.since_s = state, now_s

    def wait_s(self) -> float:
        """Return the seconds until its engine is asked again, and double those of the next time."""
        wait_s, self.retry_s = self.retry_s, min(2 * self.retry_s, RETRY_MAX_S)
        return wait_s


@dataclass(frozen=True, slots=True)
class Place:
    """Have an engine place an island, after a delay."""

    name: str
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EndJob:
    """Have the engine of an entry end a job, after a delay."""

    entry: str
    job: str
    at_once: bool
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Look:
    """Have the engine of an entry list its jobs now."""

    entry: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Tell the cluster that an island has ended."""

    name: str
    end: ProcessEnd


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the person who started the run."""

    sentence: str


Action = Place | EndJob | Look | Ended | Say


@dataclass(slots=True)
class Placements:
    """All islands of a run that engines place, by name.

    Args:
        engines: the name of each entry's engine, by the entry's name.
        islands: those that are placed or about to be, and those that have ended by themselves.
        away: what an engine that does not answer said last, by the entry's name.
        full: entries whose engine does not place islands just now, which was told.
    """

    engines: Mapping[str, str]
    islands: dict[str, Placement] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)

    def names(self) -> list[str]:
        """Return the islands that have a job, or are about to be placed."""
        return [name for name, each in self.islands.items() if each.ended is None]

    def entry_of(self, name: str) -> str | None:
        """Return the entry of an island's name, such as site of site-0; None if there is none."""
        entry = entry_of(name)
        return entry if entry in self.engines and entry != name else None

    def wanted(self, counts: Mapping[str, int]) -> list[str]:
        """Return the islands that a hub places at its start: new ones, and those of its last start.

        Args:
            counts: the number of islands of each entry in the run's file.
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
                "state": "away" if each.entry in self.away else each.state or "not placed",
                "for_s": max(0.0, now_s - each.since_s) if each.since_s else None,
                "where": each.where,
                "why": each.ended or self.away.get(each.entry) or each.why,
                "restarts_by_engine": each.restarts,
                "restarts_by_hub": max(0, each.starts - 1),
            }
            for name, each in sorted(self.islands.items())
        ]

    # --- orders -------------------------------------------------------------------------------

    def start(self, name: str) -> list[Action]:
        """Place an island, unless it is placed or about to be."""
        entry, before = self.entry_of(name), self.islands.get(name)
        if entry is None or (before is not None and before.ended is None):
            return []
        starts, ran_s = (0, 0.0) if before is None else (before.starts, before.ran_s)
        self.islands[name] = Placement(entry, starts=starts, ran_s=ran_s)
        return [Place(name)]

    def resume(self) -> list[Action]:
        """Go on with what an earlier start of the hub was about to do when it was killed."""
        actions: list[Action] = []
        for name, placed in self.islands.items():
            if placed.ended is not None:
                continue
            placed.unsure = not placed.job
            if placed.job and placed.ending:
                actions.append(EndJob(placed.entry, placed.job, placed.killed))
            elif not placed.job:
                actions.append(Look(placed.entry) if placed.ending else Place(name))
        return actions

    def stop(self, name: str, *, at_once: bool, placing: bool = False) -> list[Action]:
        """End an island; one that has no job, and cannot have one, has ended with that."""
        placed = self.islands.get(name)
        if placed is None or placed.ended is not None:
            return []
        placed.ending = True
        placed.killed = placed.killed or at_once
        if placed.job:
            return [EndJob(placed.entry, placed.job, at_once)]
        if placing:
            return []
        return [Look(placed.entry)] if placed.unsure else self._unplaced(name)

    def _unplaced(self, name: str) -> list[Action]:
        """Forget an island that is to end, and of which there is no job."""
        del self.islands[name]
        return [Ended(name, ProcessEnd())]

    # --- what engines say ---------------------------------------------------------------------

    def on_placed(self, name: str, job: str, now_s: float) -> list[Action]:
        """Remember an island's job; end it if the island was asked to end meanwhile."""
        placed = self.islands[name]
        placed.job, placed.state, placed.unsure = job, JobState.WAITING, False
        placed.placed_s = placed.since_s = now_s
        placed.starts += 1
        placed.retry_s, placed.why = RETRY_FIRST_S, ""
        self.full.discard(placed.entry)
        told = self._answers(placed.entry)
        return [*told, EndJob(placed.entry, job, placed.killed)] if placed.ending else told

    def on_away(self, entry: str, sentence: str) -> list[Action]:
        """Note that the engine of an entry does not answer, and tell it once."""
        known, self.away[entry] = self.away.get(entry), sentence
        if known is not None:
            return []
        return [Say(f"{sentence}; the run goes on, and {self._engine(entry)} is asked again")]

    def on_not_placed(
        self, name: str, sentence: str, *, final: bool, unsure: bool = False
    ) -> list[Action]:
        """Place an island again later; or report it as ended, if that would be in vain."""
        placed = self.islands[name]
        placed.unsure = placed.unsure or unsure
        if placed.ending:
            return [Look(placed.entry)] if placed.unsure else self._unplaced(name)
        if final:
            placed.ended = f"cannot be placed: {sentence}"
            return [Ended(name, ProcessEnd(OF_NO_USE, placed.ended, sentence))]
        placed.why = sentence
        actions: list[Action] = [Place(name, placed.wait_s())]
        if placed.entry not in self.full and placed.entry not in self.away:
            told = f"{name} cannot be placed now: {sentence}"
            actions.append(
                Say(f"{told}; the run goes on, and {self._engine(placed.entry)} is asked again")
            )
        self.full.add(placed.entry)
        return actions

    def on_not_ended(self, entry: str, job: str, sentence: str, *, at_once: bool) -> list[Action]:
        """End a job again later, if it is that of an island; what nobody remembers is listed."""
        for name, placed in self.islands.items():
            if (placed.entry, placed.job) == (entry, job) and placed.ended is None:
                delay_s = placed.wait_s()
                first = delay_s == RETRY_FIRST_S and entry not in self.away
                told = [Say(f"{name} cannot be ended now: {sentence}; it is tried again")] * first
                return [*told, EndJob(entry, job, at_once, delay_s)]
        return []

    def on_listed(self, entry: str, jobs: Sequence[Job], now_s: float) -> list[Action]:
        """Compare the jobs of an entry's engine with what is remembered of the entry's islands."""
        actions = self._answers(entry)
        jobs = [job for job in jobs if self.entry_of(job.name) == entry]
        by_job = {job.job: job for job in jobs}
        for name, placed in list(self.islands.items()):
            if placed.entry != entry or placed.ended is not None:
                continue
            if placed.job:
                actions += self._compare(name, placed, by_job.get(placed.job), now_s)
            elif placed.ending and placed.unsure:
                found = job_to_keep(jobs, name)
                actions += (
                    self._unplaced(name)
                    if found is None
                    else self.on_placed(name, found.job, now_s)
                )
        for job in jobs:
            actions += self._on_unknown(entry, job, now_s)
        return actions

    def _engine(self, entry: str) -> str:
        return f"{self.engines[entry]} ({entry})"

    def _answers(self, entry: str) -> list[Action]:
        """If an engine was away, say that it answers again, and place what waits for it."""
        if self.away.pop(entry, None) is None:
            return []
        here = ((name, each) for name, each in self.islands.items() if each.entry == entry)
        waiting = [name for name, each in here if each.ended is None and not each.job]
        return [Say(f"{self._engine(entry)} answers again"), *map(Place, waiting)]

    def _compare(self, name: str, placed: Placement, job: Job | None, now_s: float) -> list[Action]:
        if job is None:
            placed.missing += 1
            if placed.missing < MISSING_MAX:
                return []
            return self._vanish(name, placed, now_s)
        placed.missing = 0
        if job.state is JobState.ENDED and not job.began:
            placed.job, placed.state, placed.why = "", None, job.why
            return [Place(name, placed.wait_s())]
        if job.state is JobState.ENDED:
            return [Ended(name, self._end(name, placed, job, now_s))]
        if job.state is not placed.state:
            placed.enter(job.state, now_s)
            placed.said_s = WAIT_SAID_S
        placed.where, placed.why, placed.restarts = job.where, job.why, job.restarts
        waited_s = now_s - placed.since_s
        if placed.state is not JobState.WAITING or waited_s < placed.said_s:
            return []
        placed.said_s = 2 * waited_s
        queue = f"the queue of {self._engine(placed.entry)}"
        why = f": {job.why}" if job.why else ""
        return [Say(f"{name} has waited for {waited_s / 60:.0f} min in {queue}{why}")]

    def _vanish(self, name: str, placed: Placement, now_s: float) -> list[Action]:
        """Tell of a job that was deleted, or that its engine forgot.

        Nobody knows how it ended. So its island counts as one that left if the supervisor saw that,
        and is placed again if not.
        """
        job = Job(name, placed.job, JobState.ENDED, cancelled=True)
        told = f"{self._engine(placed.entry)} has no job {placed.job} of {name} any more"
        return [Say(told), Ended(name, self._end(name, placed, job, now_s))]

    def _end(self, name: str, placed: Placement, job: Job, now_s: float) -> ProcessEnd:
        """Note how an island has ended; one that was asked to end in order is forgotten."""
        placed.enter(JobState.ENDED, now_s)
        placed.where = ""
        if placed.killed:
            placed.ended = KILLED.told
            return KILLED
        if placed.ending:
            del self.islands[name]
            return ProcessEnd()
        placed.ended = told_of(job)
        if not placed.ended:
            return ProcessEnd()
        code = FAILED if job.code in (None, DONE) else job.code
        return ProcessEnd(code, placed.ended, job.why)

    def _on_unknown(self, entry: str, job: Job, now_s: float) -> list[Action]:
        """Take up a job that nobody remembers, or end it if its island has another one."""
        placed = self.islands.get(job.name)
        if job.state in (JobState.ENDED, JobState.ENDING):
            return []
        if placed is None or placed.ended is not None:
            starts = 1 if placed is None else placed.starts
            self.islands[job.name] = Placement(
                *(entry, job.job, job.state, now_s, now_s), where=job.where, starts=starts
            )
            return [Say(f"{job.name} is job {job.job} of {self._engine(entry)}, and is taken up")]
        twin = placed.job not in ("", job.job)
        return [EndJob(entry, job.job, at_once=False)] if twin else []


def job_to_keep(jobs: Sequence[Job], name: str) -> Job | None:
    """Return the job that an island has already, so that it is not placed twice."""
    alive = (JobState.WAITING, JobState.RUNNING)
    return next((job for job in jobs if job.name == name and job.state in alive), None)
