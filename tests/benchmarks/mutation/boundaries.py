"""Loops that come to a boundary without a step, and hosts that end for others."""

from tests.benchmarks.mutation.kind import Mutation

WITHOUT_A_STEP = "tests/loops/test_boundaries_without_a_step.py"
JOINED_RUN = "tests/loops/test_joined_run.py"
CURSORS = "tests/loops/test_own_data.py"
LAYOUTS = "tests/loops/test_layouts.py"
JAX_PARAMETERS = "tests/loops/test_jax_parameters.py"
ENDS = "tests/island/test_ends.py"
HEALTH = "tests/island/test_health.py"
SUPERVISOR_STATE = "tests/supervisor/test_state.py"

BOUNDARIES = (
    Mutation(
        "a boundary without a step books none",
        "islands/loops/joined_run.py",
        "        if stepped:\n            logged, self._logged",
        "        if announced:\n            logged, self._logged",
        (JOINED_RUN, WITHOUT_A_STEP),
    ),
    Mutation(
        "the arrays that a boundary returned are no step",
        "islands/loops/jax_parameters.py",
        "        return not _same(chosen, held)\n",
        "        return True\n",
        (WITHOUT_A_STEP,),
    ),
    Mutation(
        "a loop's own arrays do not replace what was adopted",
        "islands/loops/jax_parameters.py",
        "            self.model.local = held\n",
        "            pass\n",
        (WITHOUT_A_STEP,),
    ),
    Mutation(
        "a step's batches are different records",
        "islands/loops/own_data.py",
        "        leases = _advanced(self._leases, self._taken)\n",
        "        leases = self._leases\n",
        (WITHOUT_A_STEP,),
    ),
    Mutation(
        "a step reads no more records than its tokens pay",
        "islands/loops/own_data.py",
        "        if self._batches >= self._for_step:\n",
        "        if False:\n",
        (WITHOUT_A_STEP,),
    ),
    Mutation(
        "a cursor is that of the last step",
        "islands/loops/own_data.py",
        "        if not stepped:\n            self._accumulates = True\n",
        "        if False:\n            self._accumulates = True\n",
        (CURSORS,),
    ),
    Mutation(
        "leaves of another dtype are refused",
        "islands/loops/own_model.py",
        "        if dtypes[place] != leaf.dtype:\n",
        "        if False:\n",
        (LAYOUTS,),
    ),
    Mutation(
        "traced leaves are refused",
        "islands/model/leaf_checks.py",
        "    if isinstance(leaf, jax.core.Tracer):\n",
        "    if False:\n",
        (JAX_PARAMETERS,),
    ),
    Mutation(
        "a process that never beats is killed",
        "islands/island/host_watchdog.py",
        "        self.missed = 0 if beaten else self.missed + 1\n",
        "        self.missed = 0 if beaten else self.missed + self.begun\n",
        (ENDS,),
    ),
    Mutation(
        "an end that another host caused is told by its exit code",
        "islands/island/forming.py",
        "        own = self.rank is None or self.rank == rank\n",
        "        own = True\n",
        (ENDS,),
    ),
    Mutation(
        "restarts count a host's own failures",
        "islands/island/host_watchdog.py",
        "    return AFTER_ANOTHER_S if code == BY_ANOTHER else restarts",
        "    return restarts",
        (ENDS,),
    ),
    Mutation(
        "the host that is stuck is blamed",
        "islands/island/health.py",
        "        rank = self.blamed = last[0]\n",
        "        rank = last[0]\n",
        (HEALTH,),
    ),
    Mutation(
        "an error that follows from a loss waits for its news",
        "islands/island/follower.py",
        "                self._loop.call_later(consequence_s(error), self.fail, error)\n",
        "                self.fail(error)\n",
        (ENDS,),
    ),
    Mutation(
        "who asks after the end hears of it",
        "islands/protocol/supervisor/membership.py",
        "    if reason is None and core.finished is not None:\n",
        "    if False:\n",
        (SUPERVISOR_STATE,),
    ),
    Mutation(
        "nobody is waited for who is a member",
        "islands/protocol/supervisor/membership.py",
        "if name not in core.here[Role.LEARNER]",
        "if name",
        (SUPERVISOR_STATE,),
    ),
)
