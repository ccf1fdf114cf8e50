"""The hub that `tests.benchmarks.attacks` attacks, as a process of its own.

    python -m tests.benchmarks.attacked_hub FOLDER [--certificate FILE --key FILE]

It says its address in a line, then writes what its loop does into `FOLDER/loop.json`: how late the
loop was, in bins of a millisecond, and the most memory that the process held.
"""

import argparse
import asyncio
import json
import resource
import sys
import time
from collections import Counter
from pathlib import Path

from islands.model.workload import load_workload
from islands.protocol.identities import SUPERVISOR
from islands.protocol.settings.run import RunSettings
from islands.run.coordinator import Coordinator, CoordinatorSettings
from islands.run.hosting.process_runtime import allow_open_files, make_secret, run
from islands.run.run_claim import claim_folder
from islands.settings.groups import ConnectOptions, ListenOptions
from islands.settings.run_spec import RunSpec

SAMPLE_S = 0.005
WRITE_S = 0.25
FRAGMENTS = 4
STEP_S = 0.1
MEGABYTES = 1.0


async def sample(place: Path) -> None:
    """Note how late the loop is, for ever."""
    loop, late, written_s = asyncio.get_running_loop(), Counter[int](), 0.0
    while True:  # until the hub ends
        due_s = loop.time() + SAMPLE_S
        await asyncio.sleep(SAMPLE_S)
        late[int(1000 * (time.monotonic() - due_s))] += 1
        if time.monotonic() - written_s > WRITE_S:
            written_s = time.monotonic()
            most_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            fresh = place.with_suffix(".new")
            told = {"late_ms": sorted(late.items()), "most_kib": most_kib}
            fresh.write_text(json.dumps(told))
            fresh.replace(place)


async def serve(chosen: argparse.Namespace) -> int:
    """Run a hub with its syncer until it is told to end."""
    folder: Path = chosen.folder
    token = folder / "token"
    make_secret(token)
    settings = RunSettings(run="attacked", interval_steps=FRAGMENTS, fragments=FRAGMENTS)
    task: dict[str, object] = {"step_s": STEP_S, "megabytes": MEGABYTES}
    spec = RunSpec(settings, "islands.lab.toys.toy_workload:Sleeping", task)
    listening = ListenOptions(
        listen="127.0.0.1:0", tls_certificate=chosen.certificate, tls_key=chosen.key
    )
    hub_settings = CoordinatorSettings(
        folder=folder / "run",
        spec=spec,
        listening=listening,
        connecting=ConnectOptions(token_file=token),
        syncer_here=True,
    )
    hub = Coordinator(hub_settings, claim_folder(folder / "run", spec, load_workload(spec)), None)
    await hub.open()
    sys.stdout.write(hub.network.url(SUPERVISOR) + "\n")
    sys.stdout.flush()
    sampling = asyncio.create_task(sample(folder / "loop.json"))
    try:
        await hub.run()
    finally:
        sampling.cancel()
    return 0


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.attacked_hub")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--certificate", type=Path)
    parser.add_argument("--key", type=Path)
    chosen = parser.parse_args(arguments)
    allow_open_files()
    return run(lambda: serve(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
