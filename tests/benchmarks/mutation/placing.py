"""Islands that engines place: once, found again, ended, and told of."""

from tests.benchmarks.mutation.kind import Mutation

PLACING = "islands/engines/placing.py"
LAUNCHER = "islands/engines/launcher.py"
TESTS = ("tests/engines/test_launcher.py",)

PLACED = (
    Mutation(
        "what an engine has already is placed again",
        LAUNCHER,
        "            if found is not None:\n                return found.job\n",
        "",
        TESTS,
    ),
    Mutation(
        "an engine that is away has ended its jobs",
        LAUNCHER,
        "self._perform(self.placements.on_away(entry, str(jobs)))",
        "self._perform(self.placements.on_listed(entry, [], self._host.wall_s()))",
        TESTS,
    ),
    Mutation(
        "the first list that lacks a job ends it",
        PLACING,
        "MISSING_MAX = 2",
        "MISSING_MAX = 1",
        TESTS,
    ),
    Mutation(
        "a refused island is asked for again",
        PLACING,
        "        if final:\n",
        "        if final and not sentence:\n",
        TESTS,
    ),
    Mutation(
        "an island that left in order is placed by the next hub",
        PLACING,
        'if each.ended == ""}',
        "if each.ended is False}",
        TESTS,
    ),
    Mutation(
        "a twin goes on beside its island",
        PLACING,
        'twin = placed.job not in ("", job.job)',
        "twin = not placed.job",
        TESTS,
    ),
    Mutation(
        "an island that is to end while it is placed goes on",
        PLACING,
        "placed.killed)] if placed.ending else told",
        "placed.killed)] if placed.killed else told",
        TESTS,
    ),
    Mutation(
        "another run's jobs are taken up",
        PLACING,
        "jobs = [job for job in jobs if self.entry_of(job.name) == entry]",
        "jobs = list(jobs)",
        TESTS,
    ),
    Mutation(
        "a killed island has ended in order",
        PLACING,
        "            return KILLED\n",
        "            return ProcessEnd()\n",
        TESTS,
    ),
)
