"""The figures of a run: one total, evaluations at their values, and who is here."""

from tests.benchmarks.mutation.kind import Mutation

SYNCER_WATCHES = "tests/syncer/test_health.py"
CLUSTER_ONE_TOTAL = "tests/run/test_one_total.py"
CLUSTER_RUN_END = "tests/run/test_run_end.py"
CLUSTER_RUN_FOLDER = "tests/run/test_run_folder.py"
HOSTING_WATCHDOG = "tests/run/hosting/test_watchdog.py"
OBSERVER_STATE = "tests/observer/test_state.py"
SYNCER_COMMITS = "tests/syncer/test_commits.py"
SYNCER_LEASES = "tests/syncer/test_leases.py"

RUN_CURVES = "tests/run/test_run_curves.py"
RUN_PANELS = "tests/run/test_panels.py"

FIGURES = (
    Mutation(
        "plots: of a long run evaluations between blocks are left out",
        "islands/run/records/run_curves.py",
        "yield from _rare(path, text, end, start)",
        "yield from ()",
        (RUN_CURVES,),
    ),
    Mutation(
        "plots: goodput allocates time to one learner",
        "islands/run/records/run_curves.py",
        "max(0.0, at_s - self._allocated_s) * len(self._newest)",
        "max(0.0, at_s - self._allocated_s)",
        (RUN_CURVES,),
    ),
    Mutation(
        "plots: marks lie on the last point before",
        "islands/run/records/panels.py",
        "return y0 + (y1 - y0) * (x - x0) / (x1 - x0)",
        "return y0",
        (RUN_PANELS,),
    ),
    Mutation(
        "plots: a learner that has left is drawn as stepping",
        "islands/run/records/run_folder.py",
        "not self.figures.work.paused and not figures.gone",
        "not self.figures.work.paused",
        (CLUSTER_RUN_FOLDER,),
    ),
    Mutation(
        "a version counts what is still pending",
        "islands/protocol/syncer/commits.py",
        "settled = durable.ledger.totals[fragment].settled",
        "settled = durable.ledger.processed",
        (SYNCER_COMMITS,),
    ),
    Mutation(
        "an update does not say what its version accounts for",
        "islands/protocol/syncer/recipients.py",
        "        tokens=published.tokens,\n",
        "",
        (SYNCER_COMMITS,),
    ),
    Mutation(
        "an evaluation stands at the tokens of one fragment",
        "islands/protocol/observer/state.py",
        "sum(self._tokens) // len(self._tokens)",
        "self._tokens[0]",
        (OBSERVER_STATE,),
    ),
    Mutation(
        "an evaluation is drawn when it ends",
        "islands/run/records/run_curves.py",
        "max(0.0, at_s - took_s)",
        "at_s",
        (CLUSTER_ONE_TOTAL,),
    ),
    Mutation(
        "the total is what learners told",
        "islands/run/records/figures.py",
        "return max(self.booked, self.heard)",
        "return self.heard",
        (CLUSTER_ONE_TOTAL,),
    ),
    Mutation(
        "tokens of learners that nobody heard are in no row",
        "islands/run/records/figures.py",
        "self.unbooked += self.gone.counted.settle(max(0, rest))",
        "self.unbooked += self.gone.counted.settle(0)",
        (CLUSTER_ONE_TOTAL,),
    ),
    Mutation(
        "a process counts on after the ledger has closed",
        "islands/run/records/figures.py",
        "self.folded = [*self.folded, *self.processes][-FOLDED_KEPT:]",
        "self.folded = self.folded[-FOLDED_KEPT:]",
        (CLUSTER_ONE_TOTAL,),
    ),
    Mutation(
        "a hub counts the merges that it heard of",
        "islands/run/records/run_folder.py",
        "figures.merges, figures.settled_yield = share",
        "_, figures.settled_yield = share",
        (CLUSTER_ONE_TOTAL,),
    ),
    Mutation(
        "a name that comes back loses the tokens of its earlier incarnations",
        "islands/protocol/syncer/ledger.py",
        "self.closed[name] = self.closed.pop(name, 0) + book.processed",
        "self.closed[name] = book.processed",
        ("tests/syncer/test_ledger.py",),
    ),
    Mutation(
        "a restarted hub shows as live whom it has not heard",
        "islands/run/records/figures.py",
        "            learner.status = UNHEARD\n",
        "",
        (CLUSTER_RUN_FOLDER,),
    ),
    Mutation(
        "a learner that is not admitted yet does not import",
        "islands/run/run_end.py",
        "one is None or one.phase in (Phase.JOINING, Phase.COMPILING)",
        "one is not None and one.phase in (Phase.JOINING, Phase.COMPILING)",
        (CLUSTER_RUN_END,),
    ),
    Mutation(
        "stalls are told while a process imports",
        "islands/run/hosting/process_runtime.py",
        "    stalls.starting = lambda: True\n",
        "",
        (HOSTING_WATCHDOG,),
    ),
    Mutation(
        "one empty shard in each pass ends the data",
        "islands/protocol/syncer/leases.py",
        "holder.used_tokens, self.barren = progress.tokens, 0",
        "holder.used_tokens = progress.tokens",
        (SYNCER_LEASES,),
    ),
)
