"""A scenario on real processes: the hub, the syncer and the learners, on this host."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from islands.lab.checker import accounts, judge
from islands.lab.faults.bare_loop import BareLoop, Stall
from islands.lab.faults.evidence import final_of, history_of, limits_of, lines_of
from islands.lab.faults.fault import Injected, Injection
from islands.lab.faults.fleet import Fleet, HubSettings
from islands.lab.faults.injections import Targets, carry_out
from islands.lab.faults.paths import Paths
from islands.lab.faults.proxy import now_s
from islands.lab.faults.schedule import injections_of
from islands.lab.faults.verdict import (
    Control,
    Verdict,
    control_of,
    demand_rates,
    finding_of,
    verdict_of,
)
from islands.lab.settings.chaos import SLEEPING, ChaosOptions, faults_of
from islands.protocol.errors import IslandsError
from islands.protocol.settings.run import REDIAL_LONGEST_S
from islands.protocol.tape.simulation_entries import Healed
from islands.run.hosting.process_identity import Identity, marked
from islands.run.hosting.process_runtime import allow_open_files
from islands.settings.run_spec import RunSpec, read

READY_S = 180.0  # until all learners are in a merge, beside what steps and compilation take
STEP_S = 1.0  # may a step take of which neither the scenario nor the control says it
ROUNDS = 3.0  # until a learner that is ready has been in a merge of its own
CALM_S = 1.0  # at the end, in which learners must be seen to keep up with what is committed
REPORTS = 2  # heartbeats, after which all that was measured until now has been reported


Played = tuple[Verdict, list[bytes]]
"""The verdict on a scenario, and the history that was judged."""


async def play(options: ChaosOptions, folder: Path, say: Callable[[str], object]) -> Played:
    allow_open_files()  # proxies take many
    spec = RunSpec.of(options.file)
    async with AsyncExitStack() as stack:
        paths = None
        hub = HubSettings(spec, options.learners)
        if any(fault.kind.of_links for fault in faults_of(options).values()):
            proxies = Paths(options.seed, lambda name: marked(folder).get(name), options.names)
            paths = await stack.enter_async_context(proxies)
            hub = replace(hub, ports=paths.ports)
        fleet = await stack.enter_async_context(Fleet(folder, hub))
        bare = stack.enter_context(BareLoop(folder))
        rehearsal = Rehearsal(options, Targets(fleet, paths), say)
        try:
            await rehearsal.run()
            await fleet.stop()
        except TimeoutError as error:
            raise IslandsError(
                f"the run did not go on within {ready_s(options):g} s; {folder} has what its "
                "processes said"
            ) from error
    return _concluded(options, folder, spec, rehearsal, bare.stalls())


class Rehearsal:
    """One scenario while it is played, with the injections that are over.

    `span` is the control's, `healed_s` when all had recovered from the last injection (seconds of
    the loop), and `period_s` within which time learners adopt from then on what is committed.
    """

    def __init__(
        self, options: ChaosOptions, targets: Targets, say: Callable[[str], object]
    ) -> None:
        self.options = options
        self.fleet = targets.fleet
        self.injected: list[Injected] = []
        self.span = (0.0, 0.0)
        self.healed_s = 0.0
        self.period_s = 0.0
        timing = options.file.run.timing
        self._reported_s = REPORTS * timing.scaled(timing.heartbeat_s)
        self._ready_s = ready_s(options)
        self._targets = targets
        self._say = say
        self._open: list[tuple[Injection, asyncio.Task[Injected]]] = []
        self._before: dict[str, dict[str, Identity | None]] = {}

    async def run(self) -> None:
        """Wait until all learners merge, measure the control, inject, and wait for recovery."""
        names = self.options.names
        await self.fleet.wait(lambda: self.fleet.merged_since(0.0, names), self._ready_s)
        await asyncio.sleep(self._reported_s)
        began_s = now_s()
        self._say(f"{len(names)} learners merge; the control takes {self.options.control_s:g} s")
        await asyncio.sleep(self.options.control_s)
        origin_s = now_s()
        self.span = (began_s, origin_s)
        if (self.options.gap_most_s, self.options.step_rate_least) != (None, None):
            demand_rates(self._control(), names)
        injections = injections_of(self.options)
        for injection in injections:
            if not any(injection.overlaps(other) for other, _ in self._open):
                await self._recovered()
                origin_s = max(origin_s, now_s() - injection.at_s)
            await asyncio.sleep(max(0.0, origin_s + injection.at_s - now_s()))
            self._open.append((injection, asyncio.create_task(self._inject(injection))))
        await self._recovered()
        self.healed_s = now_s()
        self.period_s = period_s(self.options, self._control())
        await asyncio.sleep(self.period_s + CALM_S + self._reported_s)
        self.fleet.watched.read()

    def _control(self) -> Control:
        self.fleet.watched.read()
        return control_of(self.fleet.watched.rows, self.options.names, self.span)

    async def _recovered(self) -> None:
        """Wait until all that was injected is over, and its victims take part in merges again."""
        for injection, task in self._open:
            injected = await task
            names = self.options.names if injection.hits_hub else injection.victims
            rest_s = injected.ended_s + self.options.rest_s - now_s()
            if not injected.missed:
                await asyncio.sleep(max(0.0, rest_s))
                back_s = await self._back(injected)
                merged = partial(self.fleet.merged_since, back_s, names)
                await self.fleet.wait(merged, self._ready_s)
                await self._wait_reported()
            self.injected.append(replace(injected, until_s=now_s()))
        self._open.clear()

    async def _wait_reported(self) -> None:
        """Wait until all learners have reported what they did until now.

        After a hub has ended that takes until they have reached the next one. The verdict names
        whoever reports nothing even then: its steps were not measured.
        """
        await asyncio.sleep(self._reported_s)
        timing = self.options.file.run.timing
        longest_s = timing.scaled(REDIAL_LONGEST_S + timing.evict_s)
        with contextlib.suppress(TimeoutError):
            await self.fleet.wait(
                partial(self.fleet.reported_since, now_s(), self.options.names), longest_s
            )

    async def _back(self, injected: Injected) -> float:
        """Wait until processes that ended have successors; returns the time, or the fault's end."""
        if not injected.injection.kind.ends_process:
            return injected.ended_s
        for name in injected.injection.victims:
            before = self._before[injected.injection.name][name]
            await self.fleet.wait(partial(self._has_successor, name, before), self._ready_s)
        return now_s()

    def _has_successor(self, name: str, before: Identity | None) -> bool:
        return self.fleet.identity(name) not in (None, before)

    async def _inject(self, injection: Injection) -> Injected:
        self._before[injection.name] = {
            name: self.fleet.identity(name) for name in injection.victims
        }
        self._say(f"{injection.name}: {injection.kind} of {', '.join(injection.victims)}")
        began_s = now_s()
        missed = await carry_out(self._targets, injection)
        ended_s = began_s if missed or injection.at_s == injection.ends_s else now_s()
        if missed:
            self._say(f"{injection.name}: not done: {missed}")
        return Injected(injection, began_s, ended_s, ended_s, missed)


def ready_s(options: ChaosOptions) -> float:
    """Return how long learners may take until all are in a merge.

    How long a step takes is known of sleeping devices alone; a device that computes has as long as
    it may take to compile for it.
    """
    run = options.file.run
    rounds_s = ROUNDS * run.interval_steps * (options.step_s or STEP_S)
    sleeps = options.file.task == SLEEPING
    return READY_S + (rounds_s if sleeps else 2 * run.timing.scaled(run.timing.compile_s))


def period_s(options: ChaosOptions, control: Control) -> float:
    """Return the time within which learners adopt what is committed once all has recovered.

    It is that of a round for every fragment, of the retransmission of an update, and of a stall of
    a busy host that is short enough for nobody to be evicted. A step takes as long as the slowest
    learner's in the control, or as the scenario says where that shows none.
    """
    run = options.file.run
    slowest = min((rate for rate in control.rates.values() if rate > 0), default=0.0)
    step_s = 1 / slowest if slowest else options.step_s or STEP_S
    return run.interval_steps * step_s + run.timing.scaled(
        2 * run.timing.resend_s + run.timing.evict_s
    )


def _concluded(
    options: ChaosOptions,
    folder: Path,
    spec: RunSpec,
    rehearsal: Rehearsal,
    stalls: Sequence[Stall],
) -> Played:
    spec_and_plan = read(folder)
    assert spec_and_plan is not None, "the hub wrote it before anything else"
    plan = spec_and_plan[1]
    lines = lines_of(folder, options.names)
    healed = (rehearsal.healed_s, Healed(recovery_s=0.0, period_s=rehearsal.period_s))
    whole = spec.task == SLEEPING or not spec.settings.merge_moments
    final = final_of(folder, plan.layout, lines, whole=whole)
    injected = sorted(rehearsal.injected, key=lambda each: each.began_s)
    history = history_of([*lines, *([final] if final is not None else [])], injected, healed)
    rows = rehearsal.fleet.watched.rows
    control = control_of(rows, options.names, rehearsal.span, stalls)
    names, timing = options.names, options.file.run.timing
    findings = [
        finding_of(each, injected, names, rows, lines, control, timing, stalls) for each in injected
    ]
    # How many records a shard has is known of the sleeping task alone.
    unknown = (accounts.shards_are_read_on, accounts.contributions_are_their_steps)
    limits = limits_of(spec, plan, options.names)
    violations = judge(history, limits, but=() if spec.task == SLEEPING else unknown)
    return verdict_of(options, findings, control, violations), history
