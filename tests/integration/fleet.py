"""A whole run of real processes, with somebody who watches it: for tests and benchmarks.

The hub lives in the caller's process, so merges and figures are seen the moment they are told.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from islands.model.interfaces import Workload
from islands.model.workload import load_workload
from islands.protocol.identities import Role
from islands.protocol.messages.control import Note, StepFigures
from islands.protocol.settings.run import RunSettings
from islands.run.coordinator import Backend, Coordinator, CoordinatorSettings
from islands.run.hosting.child_processes import ProcessLauncher
from islands.run.local_cluster import LearnerSettings, local_hub
from islands.run.records.summary import Summary
from islands.run.run_claim import Claim, claim_folder
from islands.settings.groups import ConnectOptions, ListenOptions
from islands.settings.run_spec import RunSpec

SLEEPING = "islands.lab.toys.toy_workload:Sleeping"


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge, by the time at which the hub heard of it (the loop's, in seconds)."""

    at_s: float
    participants: tuple[str, ...]
    fragment: int


@dataclass(slots=True)
class Gaps:
    """Step gaps of one learner's process until now: bins of a histogram and the largest."""

    bins: dict[int, int] = field(default_factory=dict)
    largest_s: float = 0.0


class WatchedHub(Coordinator):
    """A hub that remembers what it is told."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        claim: Claim,
        workload: Workload,
        *,
        launched: tuple[str, ...],
        backend: Backend,
    ) -> None:
        self.merges: list[Merge] = []
        self.told: dict[str, StepFigures] = {}
        self._news = asyncio.Event()
        super().__init__(settings, claim, workload, launched=launched, backend=backend)
        self.folder.listeners.append(self._news.set)

    @property
    def launcher(self) -> ProcessLauncher:
        launcher = self.cluster.launcher
        assert isinstance(launcher, ProcessLauncher)
        return launcher

    def _on_note(self, name: str, role: Role, note: Note) -> None:
        super()._on_note(name, role, note)
        if note.kind == "merged":
            fields = msgspec.json.decode(note.fields, type=dict[str, object])
            people = msgspec.convert(fields["participants"], tuple[str, ...])
            fragment = msgspec.convert(fields["fragment"], int)
            now_s = asyncio.get_running_loop().time()
            self.merges.append(Merge(now_s, people, fragment))
        self._news.set()

    def _on_figures(self, name: str, told: StepFigures) -> None:
        super()._on_figures(name, told)
        self.told[name] = told
        self._news.set()

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until something holds; it is looked at whenever there is news."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def wait_merge_of(self, names: tuple[str, ...], timeout_s: float) -> Merge:
        seen = len(self.merges)

        def found() -> list[Merge]:
            return [m for m in self.merges[seen:] if set(names) <= set(m.participants)]

        await self.wait_until(lambda: bool(found()), timeout_s)
        return found()[0]

    def gaps(self) -> dict[str, Gaps]:
        """The step gaps that every learner has told of so far."""
        return {
            name: Gaps(dict(told.gap_bins), told.gap_largest_s)
            for name, told in sorted(self.told.items())
        }


def make_fleet(
    folder: Path,
    settings: RunSettings,
    task_settings: dict[str, object],
    *,
    learners: int,
    task: str = SLEEPING,
    cache: Path | None = None,
    evaluate_every_s: float | None = None,
) -> WatchedHub:
    """A hub on loopback that will start a syncer and so many learners."""
    spec = RunSpec(settings, task, task_settings)
    workload = load_workload(spec, allowed=["tests"])
    claim = claim_folder(folder, spec, workload)
    hub_settings = CoordinatorSettings(
        folder=folder,
        spec=spec,
        listening=ListenOptions(listen="127.0.0.1:0"),
        connecting=ConnectOptions(),
        evaluate_every_s=evaluate_every_s,
    )
    told = LearnerSettings(learners, cache=cache)
    return local_hub(hub_settings, claim, workload, told, WatchedHub)


@asynccontextmanager
async def running(hub: WatchedHub) -> AsyncIterator[asyncio.Task[Summary | None]]:
    """Run a hub while the block lasts; whatever it started is ended afterwards."""
    await hub.open()
    task = asyncio.create_task(hub.run())
    try:
        yield task
    finally:
        if not task.done():
            await hub.leave("end of the block")
        await asyncio.gather(task, return_exceptions=True)
