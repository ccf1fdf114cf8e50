"""Whatever tells of a run tells the same tokens at the same moment, whoever died before.

A moment in which nothing moves is a pause: then all outputs of a hub are read through their own
doors. At the end the hub is one of this process, so that its status and its page can be read once
more beside what it has written. What a sink is given, over all hubs, ends at the same total; that
its library keeps it is tested where that is installed (`tests/sinks`).
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType
from prometheus_client.parser import text_string_to_metric_families

from islands.cli.parsing import parse
from islands.cli.run import make_hub
from islands.files.run_files import METRICS_FILE as SENT
from islands.files.tailing import Tail
from islands.lab.faults.proxy import HOST, free_port
from islands.metrics.catalogue import BY_NAME
from islands.metrics.site import METRICS, STATUS
from islands.metrics.sources import HubSource, metrics_served
from islands.page.messages import encoded, live_figures, run_lines
from islands.page.server import PROTOCOL, show_page
from islands.protocol.settings.run import Timing
from islands.run.coordinator import Coordinator
from islands.run.records.figures import restored
from islands.settings.host import RunOptions
from islands.sinks.sink import points_in, rows_in, totals_of
from tests.integration.programs import (
    LIMIT_S,
    ROOT,
    Room,
    control,
    entries,
    hub_address,
    imbalance,
    incarnations,
    merges,
    open_room,
    pids,
    processed,
    write_config,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NAMES = ("learner-0", "learner-1", "learner-2")
FRAGMENTS, PATIENCE = 4, 0.3
RUN = {"interval_steps": 8, "fragments": FRAGMENTS, "timing": {"patience": PATIENCE}}
MERGES = 8
TOKENS_PER_S = 8 / 0.01
"""A learner processes no more."""
UNTOLD = (*("islands_run_budget_", "islands_run_left_", "islands_learner_metric"),)
"""This run has no budget, and its task tells no metrics of its steps."""
FOLD = """
import { begin, reduce } from "REDUCER";
let text = "";
for await (const piece of process.stdin) text += piece;
const state = text.trim().split("\\n").map((line) => JSON.parse(line)).reduce(reduce, begin());
console.log(JSON.stringify(state.figures));
"""

Total = dict[str, int]
"""The tokens of a run and of each learner, and the merges, as one output has them."""


def total(run: Mapping[str, int], learners: Mapping[str, int]) -> Total:
    return {"tokens": run["tokens"], "merges": run["merges"], **learners}


# --- outputs --------------------------------------------------------------------------------------


def of_status(document: bytes | str) -> Total:
    """`/status`, and `islands status --json`."""
    told = json.loads(document)
    return total(told, {row["name"]: row["tokens"] for row in told["learners"]})


def of_metrics(text: str) -> Total:
    """`/metrics`."""
    samples = [each for one in text_string_to_metric_families(text) for each in one.samples]
    told = {(each.name, each.labels.get("learner")): int(each.value) for each in samples}
    run = {name: told[f"islands_run_{name}_total", None] for name in ("tokens", "merges")}
    return total(run, {who: told["islands_learner_tokens_total", who] for who in NAMES})


def all_told(text: str) -> bool:
    return all(f"\n{name}" in text or name.startswith(UNTOLD) for name in BY_NAME)


def of_page(lines: Sequence[bytes | str]) -> Total:
    """The page: its own reducer folds the lines, where Node.js can run it."""
    told = [line.decode() if isinstance(line, bytes) else line for line in lines]
    node = shutil.which("node")
    if node is None:
        figures = [each for each in map(json.loads, told) if each["kind"] == "page.figures"][-1]
    else:
        program = FOLD.replace("REDUCER", (ROOT / "islands/page/static/reducer.mjs").as_uri())
        command = [node, "--input-type=module", "-e", program]
        done = subprocess.run(
            command, input="\n".join(told), capture_output=True, text=True, check=True
        )
        figures = json.loads(done.stdout)
    return total(figures, {row["name"]: row["tokens"] for row in figures["learners"]})


def of_screen(out: str) -> int:
    return int(re.findall(r" s +([0-9,]+) tokens", out)[-1].replace(",", ""))


def of_ledger(text: str) -> list[int]:
    """Tokens that the syncer has booked, and those of all fates, over fragments, by `/metrics`."""
    samples = [each for one in text_string_to_metric_families(text) for each in one.samples]
    booked = [s.value for s in samples if s.name == "islands_ledger_processed_tokens_total"]
    fates = [s.value for s in samples if s.name == "islands_ledger_tokens"]
    return [*map(int, booked), int(sum(fates))]


# --- moments --------------------------------------------------------------------------------------


async def get(folder: Path, path: str) -> str:
    address = str(hub_address(folder)).removeprefix("ws://").partition("/")[0]
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}{path}") as answer,
    ):
        return await answer.text()


async def page_lines(folder: Path) -> list[str]:
    """What a viewer is told, up to figures that were computed after it came."""
    place, _, key = (folder / "page.url").read_text().strip().partition("#")
    lines: list[str] = []
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{place}live", protocols=[PROTOCOL, key]) as socket,
    ):
        while sum('"kind":"page.figures"' in line for line in lines) < 2:
            message = await socket.receive(LIMIT_S)
            assert message.type is WSMsgType.TEXT, message
            lines += message.data.splitlines()
    return lines


async def of_pause(room: Room, folder: Path) -> dict[str, Total]:
    told = await control(room, "status", "--json")
    return {
        "status": of_status(await get(folder, STATUS)),
        "control": of_status(told.out),
        "metrics": of_metrics(await get(folder, METRICS)),
        "page": of_page(await page_lines(folder)),
    }


def of_end(hub: Coordinator) -> dict[str, Total]:
    folder = hub.settings.folder
    _, counted, _ = restored(folder)
    kept = {"tokens": counted.tokens, "merges": counted.merges}
    written = json.loads((folder / "summary.json").read_text())
    return {
        "summary": total(written, {n: row["tokens"] for n, row in written["learners"].items()}),
        "figures": total(kept, {n: each.tokens for n, each in counted.learners.items()}),
        "status": of_status(json.dumps(HubSource(hub).status())),
        "page": of_page([encoded(live_figures(hub, 0.0))]),
        "report": of_page(run_lines(folder)),
    }


def of_sinks(folder: Path, kept: Path) -> int:
    """The tokens at the last point that a sink is given, over all hubs; as its summary says."""
    tail = Tail(folder / SENT, kept)
    batches = [rows_in(lines) for lines in iter(tail.read, b"")]
    last = max(point.tokens for rows in batches for point in points_in(rows))
    assert totals_of(json.loads((folder / "summary.json").read_text()))["tokens"] == last
    return last


def agreed(outputs: Mapping[str, Total]) -> Total:
    first = next(iter(outputs.values()))
    assert all(each == first for each in outputs.values()), outputs
    return first


async def rest(folder: Path) -> str:
    """The metrics of a run, once nobody steps and all is booked."""
    before = ""
    async with asyncio.timeout(LIMIT_S):
        while True:  # until nothing moves
            told, metrics = await get(folder, STATUS), await get(folder, METRICS)
            states = {row["state"] for row in json.loads(told)["learners"]}
            moved = json.dumps([of_status(told), of_ledger(metrics)])
            if states == {"paused"} and moved == before:
                return metrics
            before = moved
            await asyncio.sleep(1.0)


async def kill(room: Room, folder: Path, name: str) -> None:
    """Kill a process, and wait until it is there again and much was merged."""
    before = pids(folder)[name]
    os.kill(before, signal.SIGKILL)
    await room.wait(lambda: pids(folder).get(name, before) != before)
    seen = merges(folder)
    await room.wait(lambda: merges(folder) > seen + MERGES)


@pytest.mark.long("tests/run/test_one_total.py::test_after_a_hubs_death_all_of_a_folder_agrees")
async def test_all_outputs_agree_to_the_token(tmp_path: Path) -> None:
    """A learner, the syncer and the hub are killed; in a pause and at the end all say the same.

    Before the pause all metrics of the catalogue have samples, but for what is not told here.
    """
    folder = tmp_path / "run"
    config = write_config(tmp_path / "run.yaml", learners=3, run=RUN, evaluate_every_s=1.0)
    port = free_port()
    async with open_room(tmp_path) as room:
        first = room.start(
            *("islands.cli", "run", config, "--folder", folder, "--listen", f"{HOST}:{port}")
        )
        await room.wait(lambda: merges(folder) > MERGES)
        for name in ("learner-1", "syncer"):
            await kill(room, folder, name)
        async with asyncio.timeout(LIMIT_S):
            while not all_told(await get(folder, METRICS)):  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(1.0)
        await control(room, "pause")
        metrics = await rest(folder)
        tokens = agreed(await of_pause(room, folder))["tokens"]
        await room.wait(lambda: of_screen(first.out) == tokens)
        booked, fated = of_ledger(metrics)
        assert fated == FRAGMENTS * booked
        timing = Timing(patience=PATIENCE)
        unheard = TOKENS_PER_S * timing.scaled(timing.heartbeat_s)
        assert abs(booked - tokens) <= unheard, "of the learner that was killed between heartbeats"
        await control(room, "resume")
        first.process.kill()
        await room.ended(first)
        options, common = parse(
            RunOptions,
            [str(config), "--folder", str(folder)],
            program="islands run",
            description="",
        )
        hub = make_hub(options, common.given)
        await hub.open()
        show_page(hub)
        async with metrics_served(hub):
            running = asyncio.create_task(hub.run())
            seen = merges(folder)
            await room.wait(lambda: merges(folder) > seen + MERGES)
            await control(room, "stop")
            summary = await running
        assert summary is not None
    at_end = agreed(of_end(hub))["tokens"]
    assert at_end > tokens
    assert set(processed(summary)) == {at_end}
    assert imbalance(summary) == 0
    assert entries(folder / "metrics.jsonl", "evaluation")[-1]["tokens"] == at_end
    assert of_sinks(folder, tmp_path / "kept") == at_end
    assert incarnations(summary)["learner-1"] > 1
