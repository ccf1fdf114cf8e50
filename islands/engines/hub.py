"""A hub whose islands are placed by engines: `islands run` of a file with a table `islands`.

The syncer, and learners of the hub's own host if there are any, are its child processes as ever.
"""

import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from islands.actors.ports import Launcher, ProcessEnd, ThreadWorker
from islands.engines import engine
from islands.engines.launcher import RECORDS_FILE, EngineLauncher, Host, records_in
from islands.engines.needs import Needs
from islands.engines.placing import Placements
from islands.protocol.identities import SUPERVISOR
from islands.run.coordinator import Coordinator
from islands.run.hosting.process_runtime import say, token_of
from islands.settings.groups import DEFAULT_TASK
from islands.tasks.factory import task_words
from messaging.clock import WallClock

PYTHON = "python"
"""The interpreter of an island's hosts, which its set-up lines put on their path."""


@dataclass(frozen=True, slots=True)
class Joining:
    """How an island's hosts reach the hub, and which task they train.

    `tls_ca` is a file on these hosts, with the authority of the hub's certificate.
    """

    of: engine.RunMark
    supervisor: str
    token: str | None = None
    tls_ca: Path | None = None
    task: str = DEFAULT_TASK


def island_of(
    name: str, needs: Needs, joining: Joining, hubs: Mapping[str, str] = os.environ
) -> engine.Island:
    """Return what is placed under a name: a learner of the run's task, or a loop of one's own."""
    own = needs.variables(hubs)
    environment = {**own, "ISLANDS_SUPERVISOR": joining.supervisor, "ISLANDS_NAME": name}
    if joining.token is not None:
        environment[engine.TOKEN] = joining.token
    command = needs.command or _learner(name, needs, joining)
    return engine.Island(
        name, joining.of, needs, command, environment, (engine.TOKEN, *needs.hidden)
    )


def _learner(name: str, needs: Needs, joining: Joining) -> str:
    words = [PYTHON, "-m", "islands.learner", "--supervisor", joining.supervisor, "--name", name]
    if joining.tls_ca is not None:
        words += ["--tls_ca", str(joining.tls_ca)]
    if "tasks" not in needs.learner:
        words += task_words(joining.task)
    line = shlex.join([*words, *learner_words(needs.learner)])
    if needs.hosts > 1:
        address = f"${engine.ADDRESS}:{engine.PORT}"
        line += f' --hosts {needs.hosts} --rank "${engine.RANK}" --island_address "{address}"'
    return line


def learner_words(options: Mapping[str, object]) -> list[str]:
    plain = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items()}
    return [word for key, value in plain.items() for word in (f"--{key}", value)]


# --- a hub ------------------------------------------------------------------------------------


def mark_of(run: str, begun: str) -> engine.RunMark:
    return engine.RunMark(run, begun[:8])


@dataclass(frozen=True, slots=True)
class EnginesOfRun:
    """The engines of a run's file, by entry of its table `islands`, with what was placed."""

    entries: Mapping[str, Needs]
    folder: Path
    placements: Placements

    @classmethod
    def of(
        cls, entries: Mapping[str, Needs], folder: Path, *, extend: bool = False
    ) -> "EnginesOfRun":
        """Return the engines of a run whose folder may hold what an earlier start has placed.

        If a run that has ended goes on (`extend`), its islands are placed again.
        """
        engines = {name: needs.engine for name, needs in entries.items()}
        records = records_in(folder / RECORDS_FILE)
        known = {} if extend else records.islands
        before = {entry: needs.engine for entry, needs in records.needs.items()}
        placed = {
            name: each
            for name, each in known.items()
            if each.entry in engines and before.get(each.entry) in (None, engines[each.entry])
        }
        lost = [
            f"{name} (job {each.job} of {before.get(each.entry, 'its engine')})"
            for name, each in sorted(known.items())
            if name not in placed and each.job and each.ended is None
        ]
        if lost:
            say(
                f"the file has no entry for {', '.join(lost)} any more: end what is left of it by "
                "the engine's own means"
            )
        return cls(entries, folder, Placements(engines, placed))

    @property
    def names(self) -> tuple[str, ...]:
        """The islands that are placed at the hub's start."""
        counts = {name: needs.count for name, needs in self.entries.items()}
        return tuple(self.placements.wanted(counts))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The entries, of each of which an operator can add islands."""
        return tuple(self.entries)

    def rows(self) -> list[dict[str, object]]:
        """Return what is placed: by whom, where, since when, and how often it was started again."""
        return self.placements.rows(WallClock().now_s())

    def beside(
        self, hub: Coordinator, ended: Callable[[str, ProcessEnd], None], children: Launcher
    ) -> Launcher:
        of = mark_of(hub.spec.settings.run, hub.plan.begun)
        engines = {
            name: engine.make_engine(needs.engine, of, needs.settings)
            for name, needs in self.entries.items()
        }

        def island(name: str) -> engine.Island:
            needs = self.entries[self.placements.islands[name].entry]
            connecting = hub.settings.connecting
            token = token_of(connecting)
            secret = None if token is None else token.header().removeprefix("Bearer ")
            url = hub.network.url(SUPERVISOR)
            return island_of(
                name, needs, Joining(of, url, secret, connecting.tls_ca, hub.spec.task)
            )

        def worker(name: str) -> ThreadWorker:
            return ThreadWorker(name, lambda error: hub.cluster.fail(name, error), finish=False)

        hub.placed = self.rows
        host = Host(ended, say, worker)
        records = self.folder / RECORDS_FILE
        placed = EngineLauncher(engines, self.placements, island, records, host, self.entries)
        return ChildrenAndIslands(children, placed)


class ChildrenAndIslands:
    """The child processes of a hub and the islands that engines place, as one launcher."""

    def __init__(self, children: Launcher, islands: EngineLauncher) -> None:
        self._children = children
        self._islands = islands

    def _of(self, name: str) -> Launcher:
        here = self._islands.placements.entry_of(name) is None
        return self._children if here else self._islands

    def start(self, name: str) -> None:
        self._of(name).start(name)

    def kill(self, name: str) -> None:
        self._of(name).kill(name)

    def stop(self, name: str, grace_s: float) -> None:
        self._of(name).stop(name, grace_s)

    def names(self) -> list[str]:
        """Return the processes that run, then the islands that are placed or about to be."""
        return [*self._children.names(), *self._islands.names()]

    def adopt(self) -> list[str]:
        return [*self._children.adopt(), *self._islands.adopt()]

    def close(self) -> None:
        self._islands.close()
        self._children.close()
