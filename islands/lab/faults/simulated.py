"""A scenario as `islands.lab.world` plays it: the same actors, on a virtual clock.

=========================  =====================================================================
on real processes          on the virtual clock
=========================  =====================================================================
kill, segfault, exit,      a process crashes, with what its disk had not made durable
crash
terminate                  a learner leaves by itself; of syncer and supervisor there is no such
                           thing
freeze, hold_gil,          a process stands still
block_loop
straggle                   a learner's steps take longer
cut, drop of all packets   a network partition between the hosts, or a way of it
flap                       several of them
reset                      all sessions between the hosts break, once
latency, bandwidth,        the paths between the hosts are so
duplicate, drop of some
hang, second, half_open,   nothing
garbage, clock, dribble,
flip, shape
=========================  =====================================================================

Learners compute with NumPy on a toy, whatever the scenario's task is; steps take as long as its
`step_s`.
"""

from collections.abc import Callable
from dataclasses import replace

from islands.lab.faults.fault import Strike, Struck
from islands.lab.faults.schedule import end_s, strikes_of
from islands.lab.faults.verdict import NO_GAP, Control, Played, finding_of
from islands.lab.settings.chaos import ChaosOptions
from islands.lab.world.deeds import deeds_of
from islands.lab.world.scenario import Scenario
from islands.lab.world.trial import play as play_trial
from islands.lab.world.world import LearnerHost
from islands.protocol.tape.kinds import read
from messaging.simulation.network import Route

SPARE_S = 4.0
"""For how long the fleet must train after the last fault."""
SLOWEST = 40.0
"""By how much a run may be slower than its learners at their fastest."""
STEP_S = 0.02
ROUTE = Route(latency_s=0.001, jitter_s=0.001, connect_timeout_s=1.0)
"""The network while no fault lasts."""


def scenario_of(options: ChaosOptions) -> Scenario:
    """Return the scenario with those of its strikes that have an equivalent on a virtual clock."""
    hosts = {name: LearnerHost(step_s=options.step_s or STEP_S) for name in options.names}
    strikes = strikes_of(options)
    heal_s = options.control_s + end_s(strikes)
    fleet = sum(host.batch_tokens / host.step_s for host in hosts.values())
    return Scenario(
        seed=options.seed,
        settings=replace(options.file.run, budget_tokens=int(fleet * (heal_s + SPARE_S))),
        hosts=hosts,
        route=ROUTE,
        work_s=(0.0005, 0.004),
        shards=16,
        moment_piece_bytes=1100,
        strikes=tuple(
            replace(strike, at_s=options.control_s + strike.at_s)
            for strike in strikes
            if _has_equivalent(strike)
        ),
        heal_s=heal_s,
        limit_s=SLOWEST * (heal_s + SPARE_S),
    )


def left_out(options: ChaosOptions) -> list[str]:
    """Return a sentence for each fault of a scenario that has no equivalent on a virtual clock."""
    sentences = [
        f"{strike.kind} of {', '.join(strike.victims)} has no equivalent in the simulation: "
        "left out"
        for strike in strikes_of(options)
        if not _has_equivalent(strike)
    ]
    return list(dict.fromkeys(sentences))


def play(options: ChaosOptions, say: Callable[[str], object]) -> Played:
    """Play a scenario on a virtual clock, and judge its history; say first what is left out.

    What is measured of steps is left out: they cost nothing there.
    """
    sentences = left_out(options)
    for sentence in sentences:
        say(sentence)
    scenario = scenario_of(options)
    outcome = play_trial(scenario)
    lines = read(outcome.lines)
    struck = [
        Struck(strike, strike.at_s, strike.ends_s, strike.until_s) for strike in scenario.strikes
    ]
    nothing = Control(0.0, options.control_s, NO_GAP, {})
    timing = options.file.run.timing
    return Played(
        tuple(finding_of(s, struck, options.names, [], lines, nothing, timing) for s in struck),
        None,
        outcome.violations,
        tuple(lines),
        outcome.lines,
        tuple(sentences),
    )


def _has_equivalent(strike: Strike) -> bool:
    return bool(deeds_of(strike, ROUTE))
