"""`python -m islands.lab.faults FOLDER`: the hub of a run into which `islands lab chaos` injects.

It is the hub of `islands run`, whose processes can be struck (`victim.py`), and it writes down each
report the moment that it hears it. It starts the process of each name that comes on its standard
input, and stops at the end of that: `islands lab chaos` has the other end.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, TextIO

import msgspec

from islands.lab.faults import fleet
from islands.lab.faults.proxy import HOST
from islands.lab.faults.victim import write_through
from islands.model.workload import load_workload
from islands.protocol.errors import UserError, exit_code_of
from islands.protocol.identities import SUPERVISOR, SYNCER, Role
from islands.protocol.invitations import signing_secret
from islands.protocol.messages.control import Command, Note, StepFigures, Verb
from islands.run.coordinator import Coordinator, CoordinatorSettings
from islands.run.hosting.hub_requests import command
from islands.run.hosting.process_runtime import compiled_folder, network_of, say, token_of
from islands.run.hosting.process_runtime import run as run_process
from islands.run.local_cluster import LearnerSettings, command_of, dialled, local_hub
from islands.run.run_claim import claim_folder, released_on_failure
from islands.settings.groups import ConnectOptions, ListenOptions
from islands.tasks.factory import allowed_by
from messaging.actors.scope import Scope


class WatchedHub(Coordinator):
    """A hub that writes down the reports that reach it."""

    watched: IO[bytes]

    async def open(self) -> None:
        await super().open()
        path = self.settings.folder / fleet.WATCHED_FILE
        self.watched = path.open("ab", buffering=0)

    def _on_note(self, name: str, role: Role, note: Note) -> None:
        super()._on_note(name, role, note)
        if note.kind == "merged":
            fields = msgspec.json.decode(note.fields, type=dict[str, object])
            people = msgspec.convert(fields["participants"], tuple[str, ...])
            self._write(fleet.MergedBy(self.now_s, people))

    def _on_figures(self, name: str, figures: StepFigures) -> None:
        super()._on_figures(name, figures)
        self._write(fleet.Stepped.of(self.now_s, name, figures))

    async def stop(self) -> None:
        """End the run as an operator does, by a command to the supervisor."""
        secret = signing_secret(self._credentials)
        address = dialled(self.network.url(SUPERVISOR), self.settings.listening)
        network = network_of(self.settings.connecting, token=token_of(self.settings.connecting))
        try:
            answer, _ = await command(network, (address,), Command(Verb.STOP), secret)
            say(answer.told)
        finally:
            await network.close()

    def _write(self, row: fleet.Watched) -> None:
        self.watched.write(msgspec.json.encode(row) + b"\n")


def victim_command(
    hub: Coordinator, name: str, learners: LearnerSettings, *, given: fleet.HubSettings
) -> list[str]:
    """Return the argument list that starts a process which can be struck, and whose links can."""
    python, flag, module, *rest = command_of(hub, name, learners)
    ports = given.ports
    if ports is not None and name == SYNCER:
        rest[rest.index("--listen") + 1] = f"{HOST}:{ports.syncer}"
        rest += ["--advertise", f"{HOST}:{ports.syncer_proxy}"]
    elif ports is not None:
        url = rest.index("--supervisor") + 1
        rest[url] = rest[url].replace(f":{ports.hub}", f":{ports.hub_proxy}")
    return [python, flag, "islands.lab.faults.victim", module, *rest]


def read_orders(
    stream: TextIO, start: Callable[[str], object], stop: Callable[[], object]
) -> threading.Thread:
    """Call `start` with each line of a stream, and `stop` at its end, on a thread."""

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the run has ended
            for line in stream:
                start(line.strip())
            stop()

    reading = threading.Thread(target=read, name="orders", daemon=True)
    reading.start()
    return reading


async def _run(hub: WatchedHub) -> int:
    await hub.open()
    loop, scope = asyncio.get_running_loop(), Scope("stop", lambda _, error: say(f"stop: {error}"))
    read_orders(
        sys.stdin,
        lambda name: loop.call_soon_threadsafe(hub.cluster.start, name),
        lambda: loop.call_soon_threadsafe(lambda: scope.spawn(hub.stop(), "stop")),
    )
    with hub.watched:
        await hub.run()
    await scope.close()
    return hub.cluster.end.exit_code


def main(folder: Path) -> int:
    os.environ.setdefault("PJRT_NPROC", "1")
    write_through()
    given = msgspec.json.decode((folder / fleet.HUB_FILE).read_bytes(), type=fleet.HubSettings)
    workload = load_workload(given.spec, allowed=allowed_by(given.spec.task))
    try:
        claim = claim_folder(folder, given.spec, workload)
    except UserError as error:
        say(f"error: {error}")
        return exit_code_of(error)
    port = 0 if given.ports is None else given.ports.hub
    settings = CoordinatorSettings(
        folder=folder,
        spec=given.spec,
        listening=ListenOptions(listen=f"{HOST}:{port}"),
        connecting=ConnectOptions(),
    )
    learners = LearnerSettings(given.learners, cache=compiled_folder())
    with released_on_failure(claim):
        command = partial(victim_command, given=given)
        hub = local_hub(settings, claim, workload, learners, WatchedHub, command)
    return run_process(lambda: _run(hub))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
