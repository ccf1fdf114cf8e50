"""The run of docs/runs.md on several hosts, to the letter: two hosts that share only a network."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.namespaces import Namespace, open_pair, unavailable
from tests.integration.programs import (
    ROOT,
    Program,
    Room,
    entries,
    imbalance,
    incarnations,
    logged,
    summary_of,
)

MISSING = unavailable()
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(400),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

HUB, OTHER = "10.0.0.1", "10.0.0.2"
LIMIT_S = 300.0


def blocks() -> list[list[str]]:
    """The commands of the page's section on several hosts, block by block."""
    text = (ROOT / "docs" / "runs.md").read_text()
    section = text.split("## A run on several hosts", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    return [block.replace("\\\n", " ").strip().splitlines() for block in found]


@pytest.fixture
def hosts() -> Iterator[tuple[Namespace, Namespace]]:
    with open_pair(addresses=(HUB, OTHER)) as pair:
        yield pair


def host(folder: Path, namespace: Namespace) -> Room:
    """A checkout of its own on a host, with the interpreter of this environment as `python`."""
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    return Room(folder, prefix=("ip", "netns", "exec", namespace.name))


def paste(room: Room, line: str) -> Program:
    """Run a line of the page in a shell, as a person does."""
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # noqa: PTH120
    return room.start_words(
        ("bash", "-c", line),
        environment={
            "PATH": path,
            "JAX_PLATFORMS": "cpu",
            "PJRT_NPROC": "1",
        },
    )


@pytest.mark.long("tests/integration/test_processes.py::test_a_syncer_alone_is_a_hub")
async def test_the_readme_leads_two_hosts_to_the_end_of_a_run(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    """A token, a hub, a learner on each host, an observer: both merge until the run is stopped.

    The hub itself trains nothing, and evaluates; from another host the run's key commands it.
    """
    [make_token, start_hub], [start_learner], [make_certificate], [ask_from_afar] = blocks()
    hub, other = (
        host(tmp_path / name, place) for name, place in zip(("hub", "other"), hosts, strict=True)
    )
    try:
        assert await hub.ended(paste(hub, make_token)) == 0
        (other.folder / "token").write_bytes((hub.folder / "token").read_bytes())
        (other.folder / "token").chmod(0o600)
        run = paste(hub, start_hub)
        await hub.wait(lambda: "islands join" in run.err, LIMIT_S)
        assert f"--supervisor ws://{HUB}:7070/supervisor --token_file" in run.err
        first = paste(other, start_learner)
        second = paste(hub, start_learner.replace("--name first", "--name second"))
        observer = paste(
            other,
            f"python -m islands.observer --supervisor {HUB}:7070 --token_file token "
            "--evaluate_every_s 1",
        )
        folder = hub.folder / "runs" / "two-hosts"
        await hub.wait(lambda: most_merged(folder) == 2, LIMIT_S)
        await other.wait(lambda: "bits_per_byte" in observer.err, LIMIT_S)
        (other.folder / "key").write_bytes((hub.folder / "token.key").read_bytes())
        status = paste(other, ask_from_afar.replace(" --tls_ca hub.pem", ""))
        assert await other.ended(status) == 0, status
        assert "goes on with 2 of 2 learners" in status.out
        assert await hub.ended(paste(hub, make_certificate)) == 0
        stop = paste(hub, "islands stop --folder runs/two-hosts")
        assert await hub.ended(stop) == 0, stop
        for room, program in ((hub, run), (other, first), (hub, second), (other, observer)):
            assert await room.ended(program, LIMIT_S) == 0, program
    finally:
        hub.close()
        other.close()
    summary = summary_of(folder)
    assert summary is not None
    assert summary["reason"] == "stopped by an operator"
    assert imbalance(summary) == 0
    assert incarnations(summary) == {"first": 1, "second": 1}
    assert len(logged(folder, "admitted", role="observer")) == 2, "the hub's own, and that one"
    assert (folder / "summary.png").exists()
    assert "val_bits_per_byte" in summary


def most_merged(folder: Path) -> int:
    merged = entries(folder / "metrics.jsonl", "merge")
    return max((int(str(merge["contributions"])) for merge in merged), default=0)
